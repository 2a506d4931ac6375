//! `pz module`: its reports on modules, and their results on every device.

use crate::support::{Folder, Ran, feed};

/// A folder with the modules of these names from `tests/modules`.
fn folder_with(names: &[&str]) -> Folder {
    let folder = Folder::new();
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/modules");
    for name in names {
        let module = wat::parse_file(sources.join(format!("{name}.wat"))).unwrap();
        folder.write(&format!("{name}.wasm"), &module);
    }
    folder
}

/// The CPU and every device, as `--device` names them.
fn devices(folder: &Folder) -> Vec<String> {
    let list = folder.pz(&["devices", "--json"]).json();
    let names = list["devices"].as_array().unwrap().iter().map(|found| found["device"].as_str());
    names.map(|name| name.unwrap().to_string()).collect()
}

#[test]
fn check_says_what_a_module_costs() {
    let folder = folder_with(&["02_two_helpers", "windows"]);
    let said = folder.pz(&["module", "check", "02_two_helpers.wasm"]).silent();
    let said = String::from_utf8(said).unwrap();
    let lines: Vec<_> = said.lines().collect();
    assert!(
        lines[0].starts_with("02_two_helpers.wasm: ") && lines[0].ends_with(" bytes"),
        "{said}"
    );
    assert!(lines[1].starts_with("  SHA-256  ") && lines[1].len() == 11 + 64, "{said}");
    assert_eq!(lines[2], "main(i32) -> i32");
    assert_eq!(lines[3], "  reaches  nothing");
    assert_eq!(lines[4], "  length   26 of 32768 instructions, from 3 functions, 2 deep");
    assert_eq!(lines[5], "  loops    0");
    assert_eq!(lines[6], "  memory   0 of 4096 bytes for each lane");
    let said = folder.pz(&["module", "check", "--json", "windows.wasm", "words"]).json();
    let words = &said["entries"][0];
    assert_eq!(words["imports"], serde_json::json!(["pz.in32", "pz.out32"]));
    assert_eq!((words["loops"].as_u64(), words["refused"].is_null()), (Some(1), true));
    assert!(words["opencl_bytes"].as_u64() < Some(10 * said["bytes"].as_u64().unwrap()));
}

#[test]
fn refusals_name_the_function_and_the_remedy() {
    let folder = folder_with(&["03_recursion", "09_mutual_recursion"]);
    let remedy = "a device has no call stack: write a loop instead, with a fixed array for what must be kept";
    let ran = folder.pz(&["module", "check", "03_recursion.wasm"]);
    assert!(
        ran.text().contains(&format!("\n  refused  function `factorial` calls itself; {remedy}\n"))
    );
    ran.says(2, &["pz: 03_recursion.wasm: 1 of 1 functions are refused"]);
    let ping = "function `ping` calls itself by way of `pong`";
    let line = format!("pz: 09_mutual_recursion.wasm: {ping}; {remedy}");
    folder.pz(&["module", "run", "09_mutual_recursion.wasm", "main", "5"]).says(2, &[&line]);
    folder.write("text.wasm", b"(module)");
    let begin = "pz: text.wasm: the module is not valid WebAssembly, at byte 0: ";
    folder.pz(&["module", "check", "text.wasm"]).complains(2, begin);
    let begin = "pz: absent.wasm: ";
    folder.pz(&["module", "check", "absent.wasm"]).complains(1, begin);
    folder.write("long.wasm", &vec![0; 70_000]);
    let begin = "pz: long.wasm: the module takes 70000 bytes, and at most 65536 are allowed; ";
    folder.pz(&["module", "check", "long.wasm"]).complains(2, begin);
    folder.write("longer.wasm", &vec![0; 2 << 20]);
    let begin = "pz: longer.wasm: a module takes at most 65,536 bytes, and this file has 2097152";
    folder.pz(&["module", "check", "longer.wasm"]).complains(2, begin);
}

#[test]
fn run_prints_results_on_every_device() {
    let folder = folder_with(&["07_parameters", "04_thread_id", "state", "stress", "windows"]);
    let input: Vec<u8> = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
    folder.write("in", &input);
    for device in devices(&folder) {
        let run = |arguments: &[&str]| {
            let arguments = [&["module", "run", "--device", &device], arguments].concat();
            String::from_utf8(folder.pz(&arguments).silent()).unwrap()
        };
        assert_eq!(run(&["07_parameters.wasm", "main", "0", "100", "50"]), "50\n", "{device}");
        assert_eq!(
            run(&["07_parameters.wasm", "main", "100", "-100", "0x4b"]),
            "-50\n",
            "{device}"
        );
        assert_eq!(
            run(&["04_thread_id.wasm", "main", "--lanes", "3"]),
            "0 0\n1 1\n2 2\n",
            "{device}"
        );
        assert_eq!(
            run(&["state.wasm", "main", "1", "--lanes", "2", "--state", "3", "--time", "50"]),
            "0 50\n1 51\nstate: 1 50 51\n",
            "{device}"
        );
        assert_eq!(run(&["stress.wasm", "operations", "-8", "3"]), run_on_cpu(&folder), "{device}");
        let arguments = ["words", "0", "1", "40000", "40000", "-1"];
        let files = ["--input", "in", "-o", "out", "-f"];
        assert_eq!(run(&[&["windows.wasm"][..], &arguments, &files].concat()), "", "{device}");
        assert!(folder.read("out").iter().zip(&input).all(|(out, byte)| *out == !byte), "{device}");
        // An output on standard output is alone there.
        let on = ["--input", "in", "-o", "-", "--state", "1", "--device", &device];
        let ran = folder.pz(&[&["module", "run", "windows.wasm"], &arguments[..], &on].concat());
        assert_eq!((ran.code, &*ran.stderr), (Some(0), "state: 0\n"), "{device}");
        assert!(ran.stdout == folder.read("out") && !folder.has("-"), "{device}");
    }
}

fn run_on_cpu(folder: &Folder) -> String {
    let arguments = ["module", "run", "--device", "cpu", "stress.wasm", "operations", "-8", "3"];
    String::from_utf8(folder.pz(&arguments).silent()).unwrap()
}

#[test]
fn a_picture_is_written() {
    let folder = folder_with(&["05_gradient"]);
    for device in devices(&folder) {
        let arguments = ["--picture", "out.png", "--size", "800x600", "-f", "--device", &device];
        let arguments = [&["module", "run", "05_gradient.wasm", "main"][..], &arguments].concat();
        assert_eq!(folder.pz(&arguments).silent(), b"", "{device}");
        let file = std::io::BufReader::new(std::fs::File::open(folder.path("out.png")).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut pixels = vec![0; 800 * 600 * 4];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (800, 600));
        for (at, pixel) in pixels.chunks_exact(4).enumerate() {
            assert_eq!(pixel, [(at % 800 * 255 / 799) as u8, 0, 0, 255], "{device}, pixel {at}");
        }
    }
    let arguments =
        ["module", "run", "05_gradient.wasm", "main", "--picture", "out.png", "--size", "8x6"];
    folder.pz(&arguments).complains(1, "pz: out.png: already exists; -f overwrites it");
    let both = ["-o", "/dev/stdout", "--picture", "-", "--size", "8x6"];
    let arguments = [&["module", "run", "05_gradient.wasm", "main"][..], &both].concat();
    folder.pz(&arguments).complains(1, "pz: both -o and --picture go to standard output");
}

#[test]
fn no_output_replaces_a_module_or_another_file_of_the_run() {
    let folder = folder_with(&["windows", "05_gradient", "filter"]);
    folder.write("in", b"to be read");
    folder.write("d/in", b"");
    let modules = [folder.read("windows.wasm"), folder.read("filter.wasm")];
    let words = ["module", "run", "-f", "windows.wasm", "words", "0", "1", "2", "2", "-1"];
    let gradient = ["module", "run", "-f", "05_gradient.wasm", "main", "--size", "8x6"];
    let compress = ["compress", "-f", "--filter", "filter.wasm", "in"];
    for (begin, end, line) in [
        (&words[..], ["--input", "in", "-o", "d/../in"], "d/../in: is another input"),
        (&words, ["--input", "in", "-o", "./windows.wasm"], "./windows.wasm: is the input file"),
        (
            &gradient,
            ["-o", "new", "--picture", "d/../new"],
            "d/../new: is another output of this run",
        ),
        (&compress, ["-o", "./filter.wasm", "-b", "64K"], "in: ./filter.wasm: is another input"),
    ] {
        folder.pz(&[begin, &end].concat()).says(1, &[&format!("pz: {line}")]);
    }
    let now = [folder.read("windows.wasm"), folder.read("filter.wasm")];
    assert!(folder.read("in") == b"to be read" && now == modules && !folder.has("new"));
}

#[test]
fn failed_runs_say_why() {
    let folder = folder_with(&["hostile", "02_two_helpers"]);
    let run = |arguments: &[&str]| folder.pz(&[&["module", "run"], arguments].concat());
    for device in devices(&folder) {
        let on = ["--device", &device];
        let arguments = [&["hostile.wasm", "forever", "--fuel", "1000"], &on[..]].concat();
        run(&arguments).says(
            2,
            &["pz: hostile.wasm: lane 0: it ran out of fuel: its loops do more work than allowed"],
        );
        let arguments = [&["hostile.wasm", "memory_end", "4093"], &on[..]].concat();
        run(&arguments)
            .says(2, &["pz: hostile.wasm: lane 0: it reached beyond its private memory"]);
    }
    let line = "pz: main takes 1 arguments, and 0 were given";
    run(&["02_two_helpers.wasm", "main"]).says(1, &[line]);
    let begin = "pz: 02_two_helpers.wasm: the module does not export mein; it exports main";
    run(&["02_two_helpers.wasm", "mein"]).says(2, &[begin]);
}

/// A sawtooth, whose differences are small.
fn sawteeth(len: usize) -> Vec<u8> {
    (0..len).map(|i| (3 * i + i / 1000 * 7) as u8).collect()
}

/// Runs pz with a folder of settings of its own.
fn with_settings(folder: &Folder, arguments: &[&str]) -> Ran {
    let mut command = folder.command(arguments);
    feed(command.env("XDG_CONFIG_HOME", folder.path("settings")), b"")
}

#[test]
fn a_module_filter_travels_with_the_file() {
    let folder = folder_with(&["filter", "words"]);
    let contents = sawteeth(300_000);
    folder.write("in", &contents);
    let pz = |arguments: &[&str]| with_settings(&folder, arguments);
    let chain = "filter.wasm:7,transpose2";
    pz(&["compress", "--filter", chain, "-b", "64K", "--verify", "in"]).silent();
    let said = String::from_utf8(pz(&["module", "check", "filter.wasm"]).silent()).unwrap();
    let hash = said.lines().nth(1).unwrap().trim_start_matches("  SHA-256  ").to_string();
    // No command runs an untrusted module.
    let refusal = format!(
        "in.pz: needs the module {hash}, which is not trusted (frame 0, byte 0); \
         pz module trust {hash} trusts it, --allow-modules all"
    );
    let refused = format!("pz: {refusal}");
    for command in ["cat", "test"] {
        pz(&[command, "in.pz"]).says(1, &[&refused]);
    }
    pz(&["cat", "--range", "5..10", "in.pz"]).says(1, &[&refused]);
    pz(&["-dc", "in.pz"]).says(1, &[&refused]);
    pz(&["-t", "--allow-modules", "in.pz"]).silent();
    pz(&["recover", "-c", "in.pz"]).complains(1, &format!("pz: in.pz: needs the module {hash}"));
    assert!(pz(&["cat", "--allow-modules", "in.pz"]).silent() == contents);
    assert!(pz(&["-dc", "--allow-modules", "in.pz"]).silent() == contents);
    let part = pz(&["cat", "--allow-modules", "--range", "70000..70010", "in.pz"]).silent();
    assert!(part == contents[70_000..70_010]);
    // Listings show it.
    let listed = pz(&["list", "in.pz"]).silent();
    assert!(String::from_utf8(listed).unwrap().contains("in.pz (needs a module, not trusted)"));
    let listed = String::from_utf8(pz(&["list", "-v", "in.pz"]).silent()).unwrap();
    let line = format!("module0 {hash}: \"bytes\", ");
    let line = listed.lines().find(|other| other.starts_with(&line)).unwrap();
    assert!(line.ends_with(" bytes, 4096 bytes a lane, fuel 65536, not trusted"), "{line}");
    assert!(listed.contains("  module0:7,transpose2  "), "{listed}");
    let json = pz(&["list", "--json", "in.pz"]).json();
    let module = &json[0]["frames"][0]["modules"][0];
    assert_eq!(module["sha256"], hash.as_str());
    assert_eq!(module["is_trusted"], false);
    // All commands run a trusted module.
    assert!(pz(&["module", "trusted"]).silent().is_empty());
    let list = folder.path("settings").join("pz").join("trusted-modules");
    let added = format!("{hash} added to {}\n", list.display());
    assert_eq!(pz(&["module", "trust", &hash]).silent(), added.as_bytes());
    let again = format!("{hash} is in {} already\n", list.display());
    assert_eq!(pz(&["module", "trust", "filter.wasm"]).silent(), again.as_bytes());
    pz(&["module", "trust", "words.wasm"]).silent();
    let trusted = String::from_utf8(pz(&["module", "trusted"]).silent()).unwrap();
    assert_eq!(trusted.lines().next(), Some(&*hash));
    assert!(trusted.lines().nth(1).unwrap().ends_with(" words.wasm"));
    assert!(pz(&["cat", "in.pz"]).silent() == contents);
    pz(&["test", "in.pz"]).silent();
    pz(&["recover", "-o", "saved", "in.pz"]);
    assert!(folder.read("saved") == contents);
    let listed = pz(&["list", "in.pz"]).silent();
    assert!(String::from_utf8(listed).unwrap().contains("in.pz (needs a module, trusted)"));
    // A line that a full disk has cut does not affect the others. `pz module trusted` reports it.
    let whole = std::fs::read(&list).unwrap();
    std::fs::write(&list, [&whole[..], &hash.as_bytes()[..40]].concat()).unwrap();
    pz(&["test", "in.pz"]).silent();
    let line =
        format!("pz: {}: line 3 is no SHA-256, and nothing is trusted for it", list.display());
    assert_eq!(pz(&["module", "trusted"]).says(1, &[&line]), trusted.as_bytes());
    // The program ignores a list that other users may write to. `pz module trusted` says so.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o622)).unwrap();
        pz(&["test", "in.pz"]).says(1, &[&refused]);
        let line = format!(
            "pz: {}: others may write to it, so nothing in it is trusted; chmod go-w",
            list.display()
        );
        pz(&["module", "trusted"]).says(1, &[&line]);
    }
}

#[test]
fn every_device_restores_what_a_module_filtered() {
    let folder = folder_with(&["filter", "words"]);
    let contents = sawteeth(300_000);
    folder.write("in", &contents);
    folder.pz(&["compress", "--filter", "words.wasm:3,filter.wasm", "-b", "64K", "in"]).silent();
    for device in devices(&folder) {
        let arguments = ["cat", "--allow-modules", "--device", &device, "in.pz"];
        // If the CPU finishes before a device is ready, the program says that the device took no part.
        let ran = folder.pz(&arguments);
        assert_eq!(ran.code, Some(0), "{device}: {}", ran.stderr);
        assert!(ran.stdout == contents, "{device}");
    }
}

/// `pz bench` takes modules as `pz compress` does, also in chains: on the CPU, on devices, and on devices alone.
#[test]
fn bench_measures_module_filters() {
    let folder = folder_with(&["filter", "words", "02_two_helpers"]);
    folder.write("in", &sawteeth(300_000));
    let chain = "words.wasm:3,filter.wasm";
    let filters = ["--filter", chain, "--filter", "filter.wasm", "--lane-bytes", "2K"];
    let bench = [&["bench", "-1", "-b", "64K", "--json"], &filters[..], &["in"]].concat();
    let rows = folder.pz(&bench).json();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    for (row, (name, shown)) in rows
        .as_array()
        .unwrap()
        .iter()
        .zip([(chain, "module0:3,module1"), ("filter.wasm", "module0")])
    {
        let own =
            ["compress", "-1", "-b", "64K", "--lane-bytes", "2K", "--filter", name, "-c", "in"];
        assert_eq!((&row["filter"], &row["chain"]), (&name.into(), &shown.into()));
        assert_eq!(row["compressed"], folder.pz(&own).silent().len());
    }
    for device in devices(&folder).iter().filter(|device| *device != "cpu") {
        // The CPU applies the filter, and the device undoes it.
        let ran = folder.pz(&[&bench[..], &["--device", device]].concat());
        assert_eq!(ran.code, Some(0), "{device}: {}", ran.stderr);
        let said = format!("level 1, compressing: {device} did none of the blocks");
        assert!(ran.stderr.contains(&said), "{}", ran.stderr);
        let ran = folder.pz(&[&bench[..], &["--resident", "--device", device]].concat());
        let declined =
            format!("pz: {device}: -1 encode: declined: modules filter blocks on the CPU\n");
        assert_eq!(ran.stderr, declined.repeat(2));
        let rows: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), 2, "{rows}");
        for row in rows.as_array().unwrap() {
            assert_eq!((&row["direction"], &row["bytes"]), (&"decode".into(), &300_000.into()));
        }
        // Archives go into a device's memory.
        folder.pz(&["compress", "-f", "-b", "64K", "--filter", chain, "in"]).silent();
        let load = ["bench", "--load", "--json", "--device", device, "in.pz"];
        folder.pz(&load).complains(1, "pz: in.pz: needs the module ");
        let rows = folder.pz(&[&load[..], &["--allow-modules"]].concat()).json();
        assert_eq!(rows.as_array().unwrap().len(), 5);
    }
    let bench = |arguments: &[&str]| folder.pz(&[&["bench"], arguments, &["in"]].concat());
    let line = "pz: in: the module filter.wasm cannot filter block 0: `encode` ran out of fuel";
    for how in [&[][..], &["--resident", "--device", "opencl"]] {
        let ran = bench(&[&["-1", "--filter", "filter.wasm", "--fuel", "1000"], how].concat());
        assert_eq!((ran.code, ran.stderr.trim_end()), (Some(1), line));
    }
    bench(&["--filter", "02_two_helpers.wasm"]).complains(2, "pz: 02_two_helpers.wasm: the module");
    let line = "pz: --lane-bytes and --fuel are for modules: --filter FILE.wasm";
    bench(&["--filter", "f32", "--fuel", "7"]).says(1, &[line]);
}

#[test]
fn filters_that_cannot_work_say_why() {
    let folder = folder_with(&["filter", "02_two_helpers"]);
    folder.write("in", &sawteeth(70_000));
    let pz = |arguments: &[&str]| folder.pz(&[&["compress"], arguments, &["in"]].concat());
    let begin = "pz: 02_two_helpers.wasm: the module does not export encode; it exports main";
    pz(&["--filter", "02_two_helpers.wasm"]).says(2, &[begin]);
    pz(&["--filter", "absent.wasm"]).complains(1, "pz: absent.wasm: ");
    let line = "pz: in: the module filter.wasm cannot filter block 0: `encode` ran out of fuel";
    pz(&["--filter", "filter.wasm", "--fuel", "1000"]).says(1, &[line]);
    assert!(!folder.path("in.pz").exists());
    let begin = "pz: filter.wasm: the module has lanes for 100 bytes; ";
    pz(&["--filter", "filter.wasm", "--lane-bytes", "100"]).complains(2, begin);
    let line = "pz: --lane-bytes and --fuel are for modules: --filter FILE.wasm";
    pz(&["--filter", "f32", "--fuel", "7"]).says(1, &[line]);
    pz(&["--filter", "filter.wasm:x"]).complains(1, "pz: ");
    pz(&["--filter", "module0"]).complains(1, "pz: ");
}
