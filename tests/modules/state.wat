;; State that all lanes share, and the time.
(module
  (import "gpu" "thread_id" (func $thread_id (result i32)))
  (import "gpu" "atomic_add" (func $atomic_add (param i32 i32) (result i32)))
  (import "gpu" "read_state" (func $read_state (param i32) (result i32)))
  (import "gpu" "write_state" (func $write_state (param i32 i32)))
  (import "gpu" "get_time" (func $get_time (result i32)))
  ;; Word 0 becomes the sum of all lanes' numbers; each lane's own word, its number and the time.
  (func (export "main") (param $first i32) (result i32) (local $own i32)
    (local.set $own (i32.add (local.get $first) (call $thread_id)))
    (drop (call $atomic_add (i32.const 0) (call $thread_id)))
    (call $write_state (local.get $own) (i32.add (call $thread_id) (call $get_time)))
    (call $read_state (local.get $own))))
