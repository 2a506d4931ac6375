;; A picture of 800 by 600 pixels whose red grows from left to right: a lane for each pixel.
(module
  (import "gpu" "thread_id" (func $thread_id (result i32)))
  (import "gpu" "set_pixel" (func $set_pixel (param i32 i32 i32)))
  (func (export "main") (local $id i32) (local $x i32)
    (local.set $id (call $thread_id))
    (local.set $x (i32.rem_u (local.get $id) (i32.const 800)))
    (call $set_pixel
      (local.get $x)
      (i32.div_u (local.get $id) (i32.const 800))
      (i32.or
        (i32.div_u (i32.mul (local.get $x) (i32.const 255)) (i32.const 799))
        (i32.const 0xff000000)))))
