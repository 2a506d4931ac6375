;; A filter: each byte becomes its difference to the byte before it in the lane's share, plus the argument and the position.
;; From the argument 256 on, `decode` fails in ways of its own.
(module $bytes
  (import "pz" "in8" (func $in8 (param i32) (result i32)))
  (import "pz" "out8" (func $out8 (param i32 i32)))
  (memory 1)

  (func $share (param $lane i32) (param $lanes i32) (param $len i32) (result i32 i32)
    (local $each i32)
    (local.set $each
      (i32.div_u (i32.sub (i32.add (local.get $len) (local.get $lanes)) (i32.const 1)) (local.get $lanes)))
    (i32.mul (local.get $lane) (local.get $each))
    (select
      (local.get $len)
      (i32.mul (i32.add (local.get $lane) (i32.const 1)) (local.get $each))
      (i32.lt_u (local.get $len) (i32.mul (i32.add (local.get $lane) (i32.const 1)) (local.get $each)))))

  (func $fail (param $how i32)
    (if (i32.eq (local.get $how) (i32.const 256)) (then (unreachable)))
    (if (i32.eq (local.get $how) (i32.const 257)) (then (loop $for_ever (br $for_ever))))
    (if (i32.eq (local.get $how) (i32.const 258)) (then (call $out8 (i32.const -1) (i32.const 0))))
    (if (i32.eq (local.get $how) (i32.const 259)) (then (i32.store (i32.const 4094) (i32.const 0))))
    (if (i32.eq (local.get $how) (i32.const 260))
      (then (drop (i32.div_u (local.get $how) (i32.sub (local.get $how) (i32.const 260))))))
    (if (i32.eq (local.get $how) (i32.const 261)) (then (memory.fill (i32.const 0) (i32.const 7) (i32.const 4096)))))

  (func (export "encode")
    (param $lane i32) (param $lanes i32) (param $in_len i32) (param $out_len i32) (param $argument i32) (param $position i64)
    (local $at i32) (local $end i32) (local $last i32) (local $byte i32)
    (call $share (local.get $lane) (local.get $lanes) (local.get $in_len))
    (local.set $end)
    (local.set $at)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $byte (call $in8 (local.get $at)))
        (call $out8 (local.get $at)
          (i32.add
            (i32.sub (local.get $byte) (local.get $last))
            (i32.add (local.get $argument) (i32.wrap_i64 (i64.shr_u (local.get $position) (i64.const 16))))))
        (local.set $last (local.get $byte))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next))))

  (func (export "decode")
    (param $lane i32) (param $lanes i32) (param $in_len i32) (param $out_len i32) (param $argument i32) (param $position i64)
    (local $at i32) (local $end i32) (local $last i32)
    (call $fail (local.get $argument))
    (call $share (local.get $lane) (local.get $lanes) (local.get $in_len))
    (local.set $end)
    (local.set $at)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $last
          (i32.sub
            (i32.add (call $in8 (local.get $at)) (local.get $last))
            (i32.add (local.get $argument) (i32.wrap_i64 (i64.shr_u (local.get $position) (i64.const 16))))))
        (call $out8 (local.get $at) (local.get $last))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))))
