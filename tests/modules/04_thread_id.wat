;; Each lane gives its own number.
(module
  (import "gpu" "thread_id" (func $thread_id (result i32)))
  (func (export "main") (result i32) (call $thread_id)))
