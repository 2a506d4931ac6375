;; Two helpers: main(2) is (2 + 2) * (2 + 3) = 20.
(module
  (func $add (param $a i32) (param $b i32) (result i32)
    (i32.add (local.get $a) (local.get $b)))
  (func $mul (param $a i32) (param $b i32) (result i32)
    (i32.mul (local.get $a) (local.get $b)))
  (func (export "main") (param $n i32) (result i32)
    (call $mul
      (call $add (local.get $n) (i32.const 2))
      (call $add (local.get $n) (i32.const 3)))))
