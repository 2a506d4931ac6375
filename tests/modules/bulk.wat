;; Fills and copies of many bytes; the copy's places may overlap. `main` returns a hash of the memory.
(module
  (memory 1)
  (global $heap (export "__heap_base") i32 (i32.const 512))
  (data (i32.const 0) "0123456789abcdefghijklmnopqrstuvwxyz")
  (func (export "main") (param $to i32) (param $from i32) (param $count i32) (result i64)
    (local $i i32) (local $hash i64)
    (memory.fill (i32.add (local.get $to) (i32.const 100)) (local.get $from) (local.get $count))
    (memory.copy (local.get $to) (local.get $from) (local.get $count))
    (loop $again
      (local.set $hash (i64.add
        (i64.mul (local.get $hash) (i64.const 31))
        (i64.load (local.get $i))))
      (local.set $i (i32.add (local.get $i) (i32.const 8)))
      (br_if $again (i32.lt_u (local.get $i) (i32.const 512))))
    (local.get $hash)))
