;; Nested loops, branches out of several of them, values that branches carry, tables of branches, globals, and every
;; width of memory access.
(module
  (memory 1)
  (global $heap (export "__heap_base") i32 (i32.const 256))
  (global $calls (mut i64) (i64.const 7))
  (data (i32.const 16) "\01\82\03\84\05\86\07\88\09\8a")

  ;; One of several steps.
  (func $step (param $kind i32) (param $x i64) (result i64)
    (global.set $calls (i64.add (global.get $calls) (i64.const 1)))
    (block $default
      (block $four
        (block $three
          (block $two
            (block $one
              (block $zero
                (br_table $zero $one $two $three $four $default (local.get $kind)))
              (return (i64.rotl (local.get $x) (i64.const 7))))
            (return (i64.mul (local.get $x) (i64.const 0x9e3779b97f4a7c15))))
          (return (i64.xor (local.get $x) (i64.shr_u (local.get $x) (i64.const 29)))))
        (return (i64.div_u (local.get $x)
          (i64.or (i64.shr_u (local.get $x) (i64.const 40)) (i64.const 1)))))
      (return (i64.rem_s (local.get $x) (i64.const -12345))))
    (i64.xor (i64.const -1) (local.get $x)))

  ;; Stores at an address that need not be aligned, and reads it again in other widths.
  (func $memory (param $at i32) (param $x i64) (result i64) (local $sum i64)
    (local.set $at (i32.and (local.get $at) (i32.const 127)))
    (i64.store (local.get $at) (local.get $x))
    (i32.store16 offset=3 (local.get $at) (i32.wrap_i64 (local.get $x)))
    (i64.store8 offset=9 (local.get $at) (local.get $x))
    (i64.store32 offset=13 (local.get $at) (local.get $x))
    (local.set $sum (i64.load offset=1 (local.get $at)))
    (local.set $sum (i64.add (local.get $sum) (i64.load8_s offset=2 (local.get $at))))
    (local.set $sum (i64.xor (local.get $sum) (i64.load16_s offset=5 (local.get $at))))
    (local.set $sum (i64.add (local.get $sum) (i64.load32_s offset=7 (local.get $at))))
    (local.set $sum (i64.xor (local.get $sum) (i64.load32_u offset=10 (local.get $at))))
    (local.set $sum (i64.add (local.get $sum) (i64.extend_i32_u (i32.load8_s offset=4 (local.get $at)))))
    (local.set $sum (i64.sub (local.get $sum) (i64.extend_i32_s (i32.load16_u offset=6 (local.get $at)))))
    (i64.xor (local.get $sum) (i64.extend_i32_s (i32.load offset=11 (local.get $at)))))

  (func (export "main") (param $n i32) (result i64)
    (local $x i64) (local $i i32) (local $j i32) (local $k i32) (local $total i32)
    (local.set $x (i64.xor (i64.extend_i32_s (local.get $n)) (i64.const 0x123456789abcdef0)))
    (block $done
      (loop $outer
        (br_if $done (i32.ge_u (local.get $i) (i32.const 12)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (local.set $j (i32.const 0))
        (loop $middle
          (local.set $x (call $step
            (i32.rem_u (i32.xor (i32.wrap_i64 (local.get $x)) (local.get $i)) (i32.const 7))
            (local.get $x)))
          (local.set $k (i32.and (i32.wrap_i64 (local.get $x)) (i32.const 7)))
          (block $behind
            (loop $inner
              (br_if $behind (i32.eqz (local.get $k)))
              (local.set $x (call $step (local.get $k) (i64.add (local.get $x) (i64.const 1))))
              (br_if $outer (i64.eqz (i64.and (local.get $x) (i64.const 63))))
              (br_if $done (i64.eq (i64.and (local.get $x) (i64.const 0xfff)) (i64.const 5)))
              (br_if $behind (i64.eq (i64.and (local.get $x) (i64.const 31)) (i64.const 3)))
              (local.set $k (i32.sub (local.get $k) (i32.const 1)))
              (local.set $total (i32.add (i32.wrap_i64 (local.get $x))
                (i32.mul (local.get $total) (i32.const 31))))
              (br $inner)))
          (local.set $x (call $memory (local.get $total) (local.get $x)))
          (local.set $j (i32.add (local.get $j) (i32.const 1)))
          (br_if $middle (i32.and (i32.le_s (local.get $j) (i32.const 5))
            (i64.ne (i64.and (local.get $x) (i64.const 15)) (i64.const 9)))))
        ;; A value on the stack, while the local that it was read from changes.
        (local.set $total (i32.add (local.get $total)
          (block $value (result i32)
            (drop (br_if $value (i32.shr_s (local.get $total) (i32.const 3))
              (i32.eq (i32.and (local.get $total) (i32.const 3)) (i32.const 1))))
            (i32.rotr (local.tee $total (i32.popcnt (local.get $total))) (local.get $i)))))
        (br $outer)))
    (i64.xor (i64.add (global.get $calls) (i64.extend_i32_u (local.get $total)))
      (i64.shl (local.get $x) (i64.extend_i32_u (i32.clz (local.get $total))))))

  ;; Operations that stress leaves out.
  (func (export "operations") (param $a i64) (param $b i64) (result i64) (local $r i64) (local $c i32) (local $d i32)
    (local.set $c (i32.wrap_i64 (local.get $a)))
    (local.set $d (i32.wrap_i64 (local.get $b)))
    (local.set $r (i64.add (i64.clz (local.get $a)) (i64.mul (i64.ctz (local.get $b)) (i64.const 64))))
    (local.set $r (i64.xor (i64.shr_s (local.get $a) (local.get $b)) (i64.rotr (local.get $r) (local.get $b))))
    (local.set $r (i64.add (local.get $r) (i64.extend8_s (local.get $a))))
    (local.set $r (i64.sub (local.get $r) (i64.extend16_s (local.get $b))))
    (local.set $r (i64.xor (local.get $r) (i64.extend32_s (local.get $a))))
    (local.set $r (i64.add (local.get $r) (i64.popcnt (local.get $b))))
    (local.set $r (i64.add (local.get $r) (i64.extend_i32_u (i32.extend8_s (local.get $c)))))
    (local.set $r (i64.xor (local.get $r) (i64.extend_i32_u (i32.extend16_s (local.get $d)))))
    (local.set $r (i64.add (local.get $r) (i64.extend_i32_u (i32.ctz (local.get $c)))))
    (local.set $r (i64.add (local.get $r) (i64.extend_i32_u (i32.shr_u (i32.rotl (local.get $c) (local.get $d)) (local.get $d)))))
    (local.set $r (i64.xor (local.get $r) (i64.extend_i32_s (i32.shl (local.get $c) (local.get $d)))))
    (local.set $r (i64.add (i64.shl (local.get $r) (i64.const 1)) (i64.extend_i32_u (i64.lt_s (local.get $a) (local.get $b)))))
    (local.set $r (i64.add (i64.shl (local.get $r) (i64.const 1)) (i64.extend_i32_u (i64.le_u (local.get $a) (local.get $b)))))
    (local.set $r (i64.add (i64.shl (local.get $r) (i64.const 1)) (i64.extend_i32_u (i64.ge_s (local.get $a) (local.get $b)))))
    (local.set $r (i64.add (i64.shl (local.get $r) (i64.const 1)) (i64.extend_i32_u (i64.gt_u (local.get $a) (local.get $b)))))
    (local.set $r (i64.add (i64.shl (local.get $r) (i64.const 1)) (i64.extend_i32_u (i32.lt_s (local.get $c) (local.get $d)))))
    (local.set $r (i64.add (i64.shl (local.get $r) (i64.const 1)) (i64.extend_i32_u (i32.ge_u (local.get $c) (local.get $d)))))
    (local.set $r (i64.add (local.get $r) (select (local.get $a) (local.get $b) (i32.gt_s (local.get $c) (local.get $d)))))
    (local.set $r (i64.xor (local.get $r) (i64.extend_i32_s (i32.rem_s (local.get $c) (local.get $d)))))
    (local.set $r (i64.add (local.get $r) (i64.extend_i32_s (i32.div_s (local.get $d) (i32.or (local.get $c) (i32.const 2))))))
    (local.set $r (i64.xor (local.get $r) (i64.div_s (local.get $a) (local.get $b))))
    (i64.add (local.get $r) (i64.rem_u (local.get $a) (local.get $b)))))
