;; Functions that call one another: main(10) is 10 + 3 = 13.
(module
  (func $c (param $x i32) (result i32) (i32.add (local.get $x) (i32.const 1)))
  (func $b (param $x i32) (result i32) (i32.add (call $c (local.get $x)) (i32.const 1)))
  (func $a (param $x i32) (result i32) (i32.add (call $b (local.get $x)) (i32.const 1)))
  (func (export "main") (param $n i32) (result i32) (call $a (local.get $n))))
