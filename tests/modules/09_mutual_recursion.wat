;; Refused: two functions that call each other.
(module
  (func $ping (param $n i32) (result i32)
    (if (result i32) (i32.eqz (local.get $n))
      (then (i32.const 0))
      (else (call $pong (i32.sub (local.get $n) (i32.const 1))))))
  (func $pong (param $n i32) (result i32)
    (if (result i32) (i32.eqz (local.get $n))
      (then (i32.const 1))
      (else (call $ping (i32.sub (local.get $n) (i32.const 1))))))
  (func (export "main") (param $n i32) (result i32) (call $ping (local.get $n))))
