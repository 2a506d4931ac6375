//! Cost blocks: the errors that the parser finds, their places, and the values of formulas.

use crate::gpu::model::cost::{CostError, KernelCost};

const SOUND: &str = "\
// A kernel.
//
// @pz_cost {
//   threads: N/64
//   passes: 3
//   buffers: contents=N, sizes=4,
//            matches=N*4 + 64,
//            tables= N/3+N/2+7
//   local_mem: 8192
//   note: free text, with commas: and colons
//     on two lines
// }
__kernel void f() {}
";

fn parse(text: &str) -> Result<KernelCost, CostError> {
    KernelCost::parse("kernels/f.cl", text)
}

#[test]
fn a_sound_block() {
    let cost = parse(SOUND).unwrap();
    assert_eq!((cost.threads.eval(1000), cost.passes.eval(1000)), (Ok(16), Ok(3)));
    assert_eq!(cost.local_mem, 8192);
    let names: Vec<_> = cost.buffers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["contents", "sizes", "matches", "tables"]);
    let at = |n| names.iter().map(|name| cost.buffer(name).unwrap().eval(n).unwrap()).collect();
    let all: [Vec<u64>; 3] = [at(0), at(1), at(1000)];
    assert_eq!(all, [vec![0, 4, 64, 7], vec![1, 4, 68, 9], vec![1000, 4, 4064, 841]]);
    assert_eq!(cost.memory_bytes(1000), Ok(5909));
    let missing = cost.buffer("others").unwrap_err().to_string();
    assert_eq!(missing, "others: no kernel's cost names this buffer");
    // Another order, other spaces, other text around the block, no note.
    let bare = "code\n  //@pz_cost{\n//passes:1\n\t// local_mem : 0\n//\n// threads: N*2\n//buffers:a=1\n//}";
    assert_eq!(parse(bare).unwrap().threads.eval(7), Ok(14));
}

/// A text of [`SOUND`] to replace, its replacement, and the expected error: line, column, and a part of the message.
const WRONG: &[(&str, &str, usize, usize, &str)] = &[
    // The block.
    ("// @pz_cost {", "// no cost", 13, 1, "no cost block"),
    ("// }\n", "// }\n// @pz_cost {\n// }\n", 13, 4, "a second cost block"),
    ("//   passes: 3", "// @pz_cost {", 5, 4, "a second cost block"),
    ("@pz_cost {", "@pz_cost", 3, 4, "not followed by '{'"),
    ("@pz_cost {", "@pz_cost { passes: 3", 3, 4, "not followed by '{'"),
    ("// }\n", "", 3, 4, "not closed"),
    ("//   passes: 3", "passes: 3", 3, 4, "not closed"),
    ("// }\n__kernel void f() {}\n", "//", 3, 4, "not closed"),
    // Keys.
    ("passes: 3", "phases: 3", 5, 6, "unknown key 'phases'"),
    ("passes: 3", "passes: 3\n//   passes: 3", 6, 6, "key 'passes' is repeated"),
    ("note: free", "local_mem: free", 10, 6, "key 'local_mem' is repeated"),
    ("passes: 3", "passes 3", 5, 6, "neither a key"),
    ("//   threads: N/64\n", "", 3, 4, "'threads' is missing"),
    ("//   passes: 3\n", "", 3, 4, "'passes' is missing"),
    ("//   local_mem: 8192\n", "", 3, 4, "'local_mem' is missing"),
    // Numbers.
    ("N/64", "1e-3", 4, 15, "'1e-3' is not an integer"),
    ("N/64", "-1", 4, 15, "'-1' is not an integer"),
    ("N/64", "0.5", 4, 15, "'0.5' is not an integer"),
    ("N/64", "", 4, 14, "'' is not an integer"),
    ("N/64", "2N", 4, 15, "'2N' is not an integer"),
    ("passes: 3", "passes: 3.5", 5, 14, "'3.5' is not an integer"),
    ("passes: 3", "passes: +3", 5, 14, "'' is not an integer"),
    ("8192", "8 KiB", 9, 17, "'8 KiB' is not an integer"),
    ("8192", "18446744073709551616", 9, 17, "not an integer of 64 bits"),
    // Buffers.
    ("contents=N", "contents", 6, 15, "not 'name=formula'"),
    ("contents=N, sizes", "contents=N,, sizes", 6, 26, "not 'name=formula'"),
    ("contents=N", "Contents=N", 6, 15, "'Contents' is not a buffer's name"),
    ("contents=N", "1st=N", 6, 15, "'1st' is not a buffer's name"),
    ("contents=N", "=N", 6, 15, "'' is not a buffer's name"),
    ("sizes=4", "contents=4", 6, 27, "buffer 'contents' is repeated"),
    ("matches=", "sizes=", 7, 15, "buffer 'sizes' is repeated"),
    ("sizes=4,", "sizes=4", 6, 27, "ends its lines with ','"),
    ("N/2+7", "N/2+7,", 8, 33, "not 'name=formula'"),
    // Formulas.
    ("contents=N", "contents=n", 6, 24, "'n' is not an integer"),
    ("contents=N", "contents=", 6, 24, "'' is not an integer"),
    ("contents=N", "contents=N+", 6, 26, "'' is not an integer"),
    ("contents=N", "contents=N**2", 6, 26, "'' is not an integer"),
    ("contents=N", "contents=N-4", 6, 24, "'N-4' is not an integer"),
    ("contents=N", "contents=4/N", 6, 26, "'N' is not an integer"),
    ("contents=N", "contents=N/(2)", 6, 26, "'' is not an integer"),
    ("contents=N", "contents=N*(0)", 6, 26, "a factor of 0"),
    ("contents=N", "contents=N)", 6, 25, "')' is too much"),
    ("N/2+7", "(N/2+7", 8, 33, "a parenthesis is not closed"),
    ("contents=N", "contents=(N+1)2", 6, 29, "'2' is too much"),
    ("contents=N", "contents=ln(N)", 6, 24, "unknown function 'ln'"),
    ("contents=N", "contents=min(N)", 6, 29, "'min' takes two values"),
    ("contents=N", "contents=max(N, 1, 2)", 6, 32, "not closed"),
    ("contents=N", "contents=log2(N, 1)", 6, 30, "not closed"),
    ("N*4 + 64", "N*4 + sixty", 7, 29, "'sixty' is not an integer"),
    ("N/3", "N/0", 8, 25, "a factor of 0"),
    ("N*4", "N* 0", 7, 26, "a factor of 0"),
    ("+7", "+99999999999999999999", 8, 31, "not an integer of 64 bits"),
    // Columns count characters, not bytes.
    ("contents=N", "größe=N", 6, 15, "'größe' is not a buffer's name"),
    ("contents=N, sizes=4", "ab=N, é=4", 6, 21, "'é' is not a buffer's name"),
];

#[test]
fn errors_say_where() {
    for &(from, to, line, column, what) in WRONG {
        assert_eq!(SOUND.matches(from).count(), 1, "{from}");
        let text = SOUND.replace(from, to);
        let error = parse(&text).expect_err(&text);
        assert!(error.what.contains(what), "{to:?}: {error}");
        assert_eq!((error.line, error.column), (line, column), "{to:?}: {error}");
        assert_eq!(error.to_string(), format!("kernels/f.cl:{line}:{column}: {}", error.what));
    }
    assert!(parse("").unwrap_err().what.contains("no cost block"));
}

#[test]
fn what_does_not_fit_is_an_error() {
    let of = |formulas: &str| {
        let text = format!(
            "// @pz_cost {{\n// threads: 1\n// passes: 1\n// buffers: {formulas}\n// local_mem: 0\n// }}"
        );
        parse(&text).unwrap()
    };
    let eval = |formula: &str, n| of(&format!("a={formula}")).buffer("a").unwrap().eval(n);
    assert_eq!(eval("N*2", u64::MAX / 2), Ok(u64::MAX - 1));
    assert!(eval("N*2", u64::MAX / 2 + 1).is_err());
    assert!(eval("N+1", u64::MAX).is_err());
    assert_eq!(eval("N/2", u64::MAX), Ok(1 << 63));
    assert!(eval("18446744073709551615+1", 0).is_err());
    let two = of("a=N, b=N+1");
    assert!(two.memory_bytes(u64::MAX / 2).is_ok());
    let error = two.memory_bytes(u64::MAX / 2 + 1).unwrap_err();
    assert_eq!(error.to_string(), "b: its size does not fit into 64 bits");
}

#[test]
fn formulas() {
    let eval = |formula: &str, n| {
        let text = SOUND.replace("N/64", formula);
        parse(&text).unwrap_or_else(|error| panic!("{error}")).threads.eval(n)
    };
    for (formula, n, value) in [
        ("2*N+3", 5, 13),
        ("3+2*N", 5, 13),
        ("N*N", 5, 25),
        ("N*2/3", 5, 4),
        ("N/3*2", 5, 4),
        ("N/2/2", 5, 2),
        ("2*(N+1)*(3 + 4)", 5, 84),
        ("( (N) )", 5, 5),
        ("min(N, 7)", 5, 5),
        ("min(N, 7)", 9, 7),
        ("max( N*2 , min(7,N) ) + 1", 3, 7),
        ("log2(N)", 0, 0),
        ("log2(N)", 1, 0),
        ("log2(N)", 2, 1),
        ("log2(N)", 1 << 20, 20),
        ("log2(N)", (1 << 20) + 1, 21),
        ("log2(N)", u64::MAX, 64),
        ("3*log2(N/8)*(1+2*(log2(N/128)/8))", 1 << 20, 255),
    ] {
        assert_eq!(eval(formula, n), Ok(value), "{formula} of {n}");
    }
    assert!(eval("N*N", 1 << 32).is_err());
    let nested = |depth| format!("{}N{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(eval(&nested(16), 3), Ok(3));
    let error = parse(&SOUND.replace("N/64", &nested(100))).unwrap_err();
    assert!(error.what.contains("too many"), "{error}");
    // A comma in parentheses does not end an entry of the list.
    let list = parse(&SOUND.replace("sizes=4", "sizes=max(4, N/2)")).unwrap();
    assert_eq!(list.buffer("sizes").unwrap().eval(100), Ok(50));
    assert_eq!(list.buffers.len(), 4);
}

#[test]
fn differences_between_languages() {
    let cost = parse(SOUND).unwrap();
    assert_eq!(cost.difference(&cost.clone()), None);
    for (from, to, key) in [
        ("N/64", "N/16", "threads"),
        ("passes: 3", "passes: 4", "passes"),
        ("N*4 + 64", "N*4 + 60", "buffers"),
        ("sizes=4", "lens=4", "buffers"),
        ("8192", "4096", "local_mem"),
    ] {
        let other = parse(&SOUND.replace(from, to)).unwrap();
        assert_eq!(cost.difference(&other), Some(key));
    }
    let other_note = parse(&SOUND.replace("free text", "other text")).unwrap();
    assert_eq!(cost.difference(&other_note), None);
}
