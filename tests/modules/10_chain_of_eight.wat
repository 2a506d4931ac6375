;; A chain of eight functions: main(0) is 8.
(module
  (func $f8 (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
  (func $f7 (param i32) (result i32) (call $f8 (i32.add (local.get 0) (i32.const 1))))
  (func $f6 (param i32) (result i32) (call $f7 (i32.add (local.get 0) (i32.const 1))))
  (func $f5 (param i32) (result i32) (call $f6 (i32.add (local.get 0) (i32.const 1))))
  (func $f4 (param i32) (result i32) (call $f5 (i32.add (local.get 0) (i32.const 1))))
  (func $f3 (param i32) (result i32) (call $f4 (i32.add (local.get 0) (i32.const 1))))
  (func $f2 (param i32) (result i32) (call $f3 (i32.add (local.get 0) (i32.const 1))))
  (func $f1 (param i32) (result i32) (call $f2 (i32.add (local.get 0) (i32.const 1))))
  (func (export "main") (param i32) (result i32) (call $f1 (local.get 0))))
