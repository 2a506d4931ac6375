;; A helper of several parameters: main(0, 100, 50) is 50.
(module
  (func $lerp (param $a i32) (param $b i32) (param $t i32) (result i32)
    (i32.add (local.get $a)
      (i32.div_s
        (i32.mul (i32.sub (local.get $b) (local.get $a)) (local.get $t))
        (i32.const 100))))
  (func (export "main") (param $a i32) (param $b i32) (param $t i32) (result i32)
    (call $lerp (local.get $a) (local.get $b) (local.get $t))))
