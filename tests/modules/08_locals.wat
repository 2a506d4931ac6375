;; A helper with locals of its own: main(5) is 13 * 13 - 10 = 159. The second call finds its locals 0 again.
(module
  (func $complex (param $x i32) (result i32) (local $a i32) (local $b i32) (local $c i32)
    (local.set $a (i32.add (local.get $c) (i32.mul (local.get $x) (i32.const 2))))
    (local.set $b (i32.add (local.get $a) (i32.const 3)))
    (local.set $c (i32.mul (local.get $b) (local.get $b)))
    (i32.sub (local.get $c) (local.get $a)))
  (func (export "main") (param $n i32) (result i32)
    (drop (call $complex (i32.const 77)))
    (call $complex (local.get $n))))
