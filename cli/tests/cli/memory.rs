//! The limit `-M`, and runs in which the system refuses memory.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::support::{Folder, Ran, pz, sample, skip};

/// The libraries that a run of the program has loaded, as the loader lists them.
fn loaded_by(folder: &Folder, arguments: &[&str], stdin: Option<&[u8]>) -> (Ran, String) {
    let log = folder.path("loaded");
    fs::create_dir(&log).unwrap();
    let mut command = folder.command(arguments);
    command.env("LD_DEBUG", "files").env("LD_DEBUG_OUTPUT", log.join("by"));
    command.env("XDG_CACHE_HOME", folder.path("cache"));
    let ran = match stdin {
        Some(bytes) => crate::support::feed(&mut command, bytes),
        None => Ran::from(command.output().unwrap()),
    };
    let read = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.unwrap().path());
    let text: String = fs::read_dir(&log).unwrap().map(|entry| read(entry).unwrap()).collect();
    fs::remove_dir_all(&log).unwrap();
    (ran, text)
}

fn has_drivers(loaded: &str) -> bool {
    ["libcuda", "libOpenCL", "libvulkan"].iter().any(|name| loaded.contains(name))
}

/// A frame's header and nothing else, declaring 4 TiB.
fn declares_4_tib(folder: &Folder) -> Vec<u8> {
    folder.write("small", &sample(70_000));
    folder.pz(&["compress", "-f", "--device", "cpu", "-b64K", "small"]).silent();
    let mut header = folder.read("small.pz")[..25].to_vec();
    // The most blocks that a frame may hold, of 16 MiB each.
    header[10] = 24;
    header[13..21].copy_from_slice(&(4_u64 << 40).to_le_bytes());
    let checksum = crc32c::crc32c(&header[..21]);
    header[21..].copy_from_slice(&checksum.to_le_bytes());
    header
}

#[test]
fn a_header_alone_starts_no_device_search() {
    let folder = Folder::new();
    let uses_drivers = cfg!(any(feature = "cuda", feature = "opencl", feature = "webgpu"));
    if uses_drivers && !has_drivers(&loaded_by(&folder, &["devices"], None).1) {
        return skip("there are no drivers, or the loader does not tell");
    }
    let header = declares_4_tib(&folder);
    folder.write("forged.pz", &header);
    let commands: [&[&str]; 3] = [
        &["test", "-T1", "forged.pz"],
        &["decompress", "-T1", "-c", "forged.pz"],
        &["test", "-T1"],
    ];
    for arguments in commands {
        let is_piped = arguments.len() == 2;
        let (ran, loaded) = loaded_by(&folder, arguments, is_piped.then_some(&header));
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("truncated"), "{}", ran.stderr);
        assert!(!has_drivers(&loaded), "{arguments:?} loads drivers");
    }
}

/// With a fresh cache, so that `auto` knows nothing, and with an input large enough for a device.
#[test]
fn drivers_that_auto_loads_count_as_memory() {
    const LIMIT: u64 = 19 << 20;
    /// The program itself, and the memory of the system's libraries.
    const OTHER: u64 = 24 << 20;
    let folder = Folder::new();
    let contents = sample(24 << 20);
    let arguments = ["compress", "-v", "-pbwt", "-b256K", "-T1", "-M19M", "-o", "out"];
    let mut command = folder.command(&arguments);
    command.env("XDG_CACHE_HOME", folder.path("cache"));
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&contents).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    drop(pipe);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("memory limit leaves no room for a device"), "{}", ran.stderr);
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    assert!(peak <= LIMIT + OTHER, "{peak} bytes: {}", ran.stderr);
    // A file whose length is known.
    folder.write("a", &contents);
    let arguments = ["compress", "-pbwt", "-b256K", "-T1", "-M19M", "a"];
    let (ran, loaded) = loaded_by(&folder, &arguments, None);
    ran.silent();
    assert!(!has_drivers(&loaded));
}

/// Whenever the system refuses memory, the program prints one line, exits with 1, and leaves no files behind.
#[test]
fn out_of_memory_is_an_error() {
    let folder = Folder::new();
    let contents = sample(3 << 20);
    folder.write("a", &contents);
    for level in ["-3", "-9"] {
        let output = if level == "-3" { "3.pz" } else { "9.pz" };
        folder.pz(&["compress", level, "--device", "cpu", "-o", output, "a"]).silent();
    }
    // With less, the system cannot even start the program.
    let least = (20..400).step_by(4).find(|&limit| limited(limit, &["--version"], &folder).0);
    let least = least.expect("the program starts in 400 MB");
    let commands: [&[&str]; 8] = [
        &["compress", "-3", "-o", "out", "a"],
        &["compress", "-9", "-o", "out", "a"],
        &["compress", "-3", "-T4", "-o", "out", "a"],
        &["decompress", "-o", "out", "3.pz"],
        &["decompress", "-o", "out", "9.pz"],
        &["test", "9.pz"],
        &["test", "-T4", "3.pz"],
        &["list", "-v", "3.pz"],
    ];
    let mut refusals = 0;
    for arguments in commands {
        let expected = match arguments {
            ["compress", "-9", ..] => folder.read("9.pz"),
            ["compress", ..] => folder.read("3.pz"),
            _ => contents.clone(),
        };
        for limit in (least..120).step_by(8).chain((120..=400).step_by(80)) {
            let (is_done, ran) = limited(limit, arguments, &folder);
            let what = format!("{arguments:?} in {limit} MB: {}", ran.stderr);
            assert_eq!(folder.unfinished(), [""; 0], "{what}");
            if is_done {
                assert_eq!(ran.stderr, "", "{what}");
                if folder.has("out") {
                    assert!(folder.read("out") == expected, "{what}");
                    fs::remove_file(folder.path("out")).unwrap();
                }
            } else {
                refusals += 1;
                assert_eq!(ran.stderr.lines().count(), 1, "{what}");
                assert!(!folder.has("out"), "{what}");
            }
        }
    }
    assert!(refusals > 0, "memory was never refused");
}

/// Runs the program with this many MB of address space and returns whether it exited with 0. It must exit with 0 or
/// 1, and not by a signal.
#[track_caller]
fn limited(limit: u64, arguments: &[&str], folder: &Folder) -> (bool, Ran) {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {}; exec \"$0\" \"$@\"", limit * 1000));
    command.arg(pz().get_program()).args(arguments).current_dir(folder.as_path());
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (signal, ran) = (output.status.signal(), Ran::from(output));
    if arguments != ["--version"] {
        assert_eq!(signal, None, "{arguments:?} in {limit} MB: {}", ran.stderr);
        assert!(
            matches!(ran.code, Some(0 | 1)),
            "{:?} {arguments:?} in {limit} MB: {}",
            ran.code,
            ran.stderr
        );
    }
    (ran.code == Some(0), ran)
}
