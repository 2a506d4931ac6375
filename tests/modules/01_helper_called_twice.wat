;; A helper that is called twice: main() is 3 * 3 + 4 * 4 = 25.
(module
  (func $square (param $x i32) (result i32)
    (i32.mul (local.get $x) (local.get $x)))
  (func (export "main") (result i32)
    (i32.add (call $square (i32.const 3)) (call $square (i32.const 4)))))
