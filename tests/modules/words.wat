;; A filter that uses globals, data, bulk memory and words: each word of the lane's share is rotated left by the byte of a
;; table at its place modulo 8, plus the argument. What is no whole word is copied by lane 0.
(module $words
  (import "pz" "in8" (func $in8 (param i32) (result i32)))
  (import "pz" "in32" (func $in32 (param i32) (result i32)))
  (import "pz" "out8" (func $out8 (param i32 i32)))
  (import "pz" "out32" (func $out32 (param i32 i32)))
  (import "gpu" "thread_id" (func $lane (result i32)))
  (import "gpu" "get_time" (func $time (result i32)))
  (memory 1)
  (data (i32.const 16) "\03\01\04\01\05\09\02\06")
  (global $seen (mut i32) (i32.const 7))
  (global (export "__heap_base") i32 (i32.const 40))

  (func $run (param $lanes i32) (param $len i32) (param $argument i32) (param $sign i32)
    (local $at i32) (local $by i32)
    ;; The table again, behind itself, and 7 zeros before it; the global counts from 7 in each lane.
    (memory.copy (i32.const 24) (i32.const 16) (i32.const 8))
    (memory.fill (i32.const 0) (call $time) (i32.const 7))
    (global.set $seen (i32.sub (global.get $seen) (i32.const 7)))
    (local.set $at (call $lane))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (i32.shr_u (local.get $len) (i32.const 2))))
        (local.set $by
          (i32.add
            (i32.load8_u offset=24 (i32.and (local.get $at) (i32.const 7)))
            (i32.add (local.get $argument) (i32.add (global.get $seen) (i32.load8_u (i32.const 3))))))
        (call $out32 (local.get $at)
          (i32.rotl (call $in32 (local.get $at)) (i32.mul (local.get $by) (local.get $sign))))
        (local.set $at (i32.add (local.get $at) (local.get $lanes)))
        (br $next)))
    (if (i32.eqz (call $lane)) (then
      (local.set $at (i32.and (local.get $len) (i32.const -4)))
      (block $end
        (loop $byte
          (br_if $end (i32.ge_u (local.get $at) (local.get $len)))
          (call $out8 (local.get $at) (call $in8 (local.get $at)))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $byte))))))

  (func (export "encode") (param i32 i32 i32 i32 i32)
    (call $run (local.get 1) (local.get 2) (local.get 4) (i32.const 1)))

  (func (export "decode") (param i32 i32 i32 i32 i32)
    (call $run (local.get 1) (local.get 2) (local.get 4) (i32.const -1))))
