//! What is refused, and with which words.

use super::shared::{module, source};
use crate::{Module, Refusal};

/// Why the entry `main` of a text is refused.
fn refusal(text: &str) -> Refusal {
    let bytes = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"));
    Module::read(bytes)
        .and_then(|module| module.entry("main"))
        .err()
        .unwrap_or_else(|| panic!("{text}"))
}

fn said(text: &str) -> String {
    refusal(text).to_string()
}

#[test]
fn recursion_is_refused_by_the_functions_name() {
    assert_eq!(
        said(source!("03_recursion")),
        "function `factorial` calls itself; a device has no call stack: write a loop instead, with a fixed array for \
         what must be kept"
    );
    assert!(
        said(source!("09_mutual_recursion"))
            .starts_with("function `ping` calls itself by way of `pong`; ")
    );
    let text = "(module (func $a (call $b)) (func $b (call $c)) (func $c (call $a)) (func (export \"main\") (call \
        $a)))";
    assert!(said(text).starts_with("function `a` calls itself by way of `b` and `c`; "));
    // Without names, by its export or number.
    let text = "(module (func (export \"main\") (call 0)))";
    assert!(said(text).starts_with("function `main` calls itself; "));
    let text = "(module (func (call 0)) (func (export \"main\") (call 0)))";
    assert!(said(text).starts_with("function number 0 calls itself; "));
    let text = "(module (table 1 funcref) (elem (i32.const 0) $main)
        (func $main (export \"main\") (call_indirect (i32.const 0))))";
    assert!(said(text).starts_with("function `main` calls a function through a table; "));
}

#[test]
fn limits_are_kept() {
    // Calls that double at each level, 30 levels deep.
    let mut doubling = String::from("(module (func $f0 (param i32) (result i32) (local.get 0))");
    for level in 1..30 {
        let below = level - 1;
        doubling += &format!(
            "(func $f{level} (param i32) (result i32) (call $f{below} (call $f{below} (local.get 0))))"
        );
    }
    doubling += "(func (export \"main\") (param i32) (result i32) (call $f29 (local.get 0))))";
    let refusal = refusal(&doubling);
    assert_eq!(refusal.function.as_deref(), Some("`f13`"));
    assert!(refusal.what.ends_with("instructions once all that it calls is inlined"), "{refusal}");

    let chain = |levels: u32| {
        let mut text = String::from("(module (func $f1)");
        for level in 2..levels {
            text += &format!("(func $f{level} (call $f{}))", level - 1);
        }
        text + &format!("(func (export \"main\") (call $f{})))", levels - 1)
    };
    assert_eq!(module(&chain(32)).entry("main").unwrap().call_depth(), 32);
    assert!(said(&chain(33)).contains("level 33 of nested calls"), "{}", said(&chain(33)));

    let locals =
        |count| format!("(module (func (export \"main\") (local {})))", "i64 ".repeat(count));
    assert!(module(&locals(512)).entry("main").is_ok());
    assert!(said(&locals(513)).starts_with("function `main` has 513 locals"));

    let nested = |depth: usize| {
        format!(
            "(module (func (export \"main\") (param i32) {} {}))",
            "(block (br_if 0 (local.get 0))".repeat(depth),
            ")".repeat(depth)
        )
    };
    assert!(module(&nested(99)).entry("main").is_ok());
    assert!(
        said(&nested(100)).contains("nests blocks more than 100 deep"),
        "{}",
        said(&nested(100))
    );

    let long = format!("(module (func (export \"main\") {}))", "nop ".repeat(40_000));
    assert!(said(&long).starts_with("function `main` has 40001 instructions"));
    let long = format!("(module (func (export \"main\") {}))", "nop ".repeat(70_000));
    assert!(said(&long).contains("and at most 65536 are allowed"));
    let many = format!("(module (func (export \"main\") (param {})))", "i32 ".repeat(9));
    assert!(said(&many).starts_with("function `main` has 9 parameters and 0 results"));
}

#[test]
fn memory_is_small() {
    let memory = |size: u32, at: u32| {
        format!(
            "(module (memory 1) (global (export \"__heap_base\") i32 (i32.const {size}))
            (data (i32.const {at}) \"abcd\") (func (export \"main\") (result i32) (i32.load (i32.const 0))))"
        )
    };
    assert_eq!(module(&memory(4096, 4092)).entry("main").unwrap().private_bytes(), 4096);
    assert_eq!(module(&memory(20, 8)).entry("main").unwrap().private_bytes(), 32);
    assert!(said(&memory(4097, 0)).contains("4097 bytes of stack and data"));
    assert!(said(&memory(20, 30)).contains("4 bytes of data at 30"));
    // What is not used does not count.
    let unused = "(module (memory 17) (global (export \"__heap_base\") i32 (i32.const 1048576)) (func (export \
        \"main\")))";
    assert_eq!(module(unused).entry("main").unwrap().private_bytes(), 0);
}

#[test]
fn what_devices_lack_is_refused() {
    for (text, what) in [
        ("(module (func (export \"other\")))", "the module does not export main; it exports other"),
        ("(module)", "the module does not export main; it exports no function"),
        (
            "(module (func (export \"main\") (param f32)))",
            "function `main` computes with floating-point numbers; ",
        ),
        (
            "(module (func $half (drop (f64.div (f64.const 1) (f64.const 2)))) (func (export \"main\") (call $half)))",
            "function `half` computes with floating-point numbers; ",
        ),
        (
            "(module (memory 1) (func (export \"main\") (drop (memory.grow (i32.const 1)))))",
            "function `main` uses memory.grow; private memory has a fixed size",
        ),
        (
            "(module (memory 1) (data (i32.const 65533) \"abcd\") (func (export \"main\")))",
            "the module has data beyond its memory; ",
        ),
        (
            "(module (func $begin) (start $begin) (func (export \"main\")))",
            "the module has a start function, ",
        ),
        (
            "(module (import \"env\" \"puts\" (func)))",
            "the module imports env.puts, which is unknown; ",
        ),
        (
            "(module (import \"env\" \"memory\" (memory 1)))",
            "the module imports env.memory, which is unknown; ",
        ),
        (
            "(module (import \"pz\" \"in8\" (func (param i64) (result i32))))",
            "the module imports pz.in8 with another type; declare it with 1 parameters and 1 results, all i32",
        ),
        (
            "(module (import \"pz\" \"in8\" (func $f (param i32) (result i32))) (export \"main\" (func $f)))",
            "function `f` is an import; ",
        ),
        (
            "(module (table 1 funcref) (func (export \"main\") (drop (table.get 0 (i32.const 0)))))",
            "function `main` uses table.get; ",
        ),
        (
            "(module (global $g (mut f32) (f32.const 1)) (func (export \"main\") (drop (global.get $g))))",
            "function `main` uses a global that is no integer constant at first; ",
        ),
    ] {
        assert!(said(text).starts_with(what), "{}\n{what}", said(text));
    }
    let refusal = Module::read(*b"\0asm\x01\0\0\0\x01").err().unwrap().to_string();
    assert!(refusal.starts_with("the module is not valid WebAssembly, at byte "), "{refusal}");
    // What is not reached may be anything.
    let text = "(module (func $other (param f32)) (func (export \"main\")))";
    assert!(module(text).entry("main").is_ok());
}
