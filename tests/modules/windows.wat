;; The windows: `words` inverts words, `bytes` turns a lane's share of bytes around, `beyond` reaches where it may not.
(module
  (import "pz" "in8" (func $in8 (param i32) (result i32)))
  (import "pz" "in32" (func $in32 (param i32) (result i32)))
  (import "pz" "out8" (func $out8 (param i32 i32)))
  (import "pz" "out32" (func $out32 (param i32 i32)))
  (func (export "words") (param $lane i32) (param $lanes i32) (param $in i32) (param $out i32) (param $argument i32)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $lane) (i32.shr_u (local.get $in) (i32.const 2))))
        (call $out32 (local.get $lane)
          (i32.xor (local.get $argument) (call $in32 (local.get $lane))))
        (local.set $lane (i32.add (local.get $lane) (local.get $lanes)))
        (br $next))))
  (func (export "bytes") (param $lane i32) (param $lanes i32) (param $in i32) (param $out i32) (param $argument i32)
    (local $at i32) (local $share i32) (local $i i32)
    (local.set $share (i32.div_u (local.get $in) (local.get $lanes)))
    (local.set $at (i32.mul (local.get $lane) (local.get $share)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (local.get $share)))
        (call $out8 (i32.add (local.get $at) (local.get $i))
          (call $in8 (i32.sub
            (i32.sub (i32.add (local.get $at) (local.get $share)) (i32.const 1))
            (local.get $i))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next))))
  (func (export "beyond") (param $at i32) (result i32)
    (call $out8 (local.get $at) (i32.const 1))
    (call $in32 (i32.shr_u (local.get $at) (i32.const 2)))))
