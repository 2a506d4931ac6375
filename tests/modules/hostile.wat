;; What must be trapped.
(module
  (import "pz" "in32" (func $in32 (param i32) (result i32)))
  (import "pz" "out32" (func $out32 (param i32 i32)))
  (memory 1)
  (func (export "forever") (loop $again (br $again)))
  (func (export "forever_nested") (loop $a (loop $b (br_if $b (i32.const 1))) (br $a)))
  ;; Each beginning of the loop writes, also after the trap.
  (func (export "forever_writing") (loop $again (call $out32 (i32.const 0) (call $in32 (i32.const 0))) (br $again)))
  (func (export "input") (result i32) (call $in32 (i32.const 0x3fffffff)))
  (func (export "output") (call $out32 (i32.const -1) (i32.const 0)))
  (func (export "memory") (result i32) (i32.load offset=0xfffffffe (i32.const 0x7fffffff)))
  (func (export "memory_end") (param $at i32) (result i32)
    (i32.store (local.get $at) (i32.const 1234567)) (i32.load (local.get $at)))
  (func (export "divide") (param $by i32) (result i32) (i32.div_u (i32.const 100) (local.get $by)))
  (func (export "overflow") (param $n i32) (result i32) (i32.div_s (local.get $n) (i32.const -1)))
  (func (export "panic") (param $n i32) (result i32)
    (if (local.get $n) (then unreachable)) (local.get $n)))
