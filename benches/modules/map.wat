;; A map: each word is xored with a constant and rotated, 4 bytes of a lane beside those of the next.
(module
  (import "pz" "in32" (func $in32 (param i32) (result i32)))
  (import "pz" "out32" (func $out32 (param i32 i32)))
  (import "pz" "in8" (func $in8 (param i32) (result i32)))
  (import "pz" "out8" (func $out8 (param i32 i32)))
  (memory 1)
  (func $tail (param $lane i32) (param $len i32)
    (local $at i32)
    (if (i32.eqz (local.get $lane)) (then
      (local.set $at (i32.and (local.get $len) (i32.const -4)))
      (block $end (loop $byte
        (br_if $end (i32.ge_u (local.get $at) (local.get $len)))
        (call $out8 (local.get $at) (call $in8 (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $byte))))))
  (func (export "encode") (param $lane i32) (param $lanes i32) (param $len i32) (param i32 i32)
    (local $at i32)
    (local.set $at (local.get $lane))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $at) (i32.shr_u (local.get $len) (i32.const 2))))
      (call $out32 (local.get $at) (i32.xor (i32.rotl (call $in32 (local.get $at)) (i32.const 1)) (i32.const 0x5a5a5a5a)))
      (local.set $at (i32.add (local.get $at) (local.get $lanes)))
      (br $next)))
    (call $tail (local.get $lane) (local.get $len)))
  (func (export "decode") (param $lane i32) (param $lanes i32) (param $len i32) (param i32 i32)
    (local $at i32)
    (local.set $at (local.get $lane))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $at) (i32.shr_u (local.get $len) (i32.const 2))))
      (call $out32 (local.get $at) (i32.rotr (i32.xor (call $in32 (local.get $at)) (i32.const 0x5a5a5a5a)) (i32.const 1)))
      (local.set $at (i32.add (local.get $at) (local.get $lanes)))
      (br $next)))
    (call $tail (local.get $lane) (local.get $len))))
