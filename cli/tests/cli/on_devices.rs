//! Whole runs of the program with GPUs: they do blocks, the output is right, and the program reports a missing GPU.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Folder, Ran, noise, sample, skip};

/// Bytes that the program reads before it waits for its device.
const BEGIN: usize = 200_000;

/// Arguments that leave most of the work to a device: blocks are small, and there is one thread.
const SMALL: [&str; 4] = ["-1", "-b", "64K", "-T1"];

/// Every device, software devices included: its `--device` value, and its name.
fn devices(folder: &Folder) -> Vec<(String, String)> {
    let list = folder.pz(&["devices", "--json"]).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_string();
    let all = list["devices"].as_array().unwrap();
    let found = all[1..].iter().map(|found| (text(&found["device"]), text(&found["name"])));
    let found: Vec<_> = found.collect();
    if found.is_empty() && cfg!(any(feature = "opencl", feature = "webgpu")) {
        skip("there is no device");
    }
    found
}

fn start(folder: &Folder, arguments: &[&str]) -> Child {
    spawn(folder.command(arguments))
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs the program with an input that pauses after its beginning, so that blocks are left when the device is open. The
/// input is a pipe, because the program would open no device for a file this short.
fn run_halting(folder: &Folder, arguments: &[&str], contents: &[u8], pause: Duration) -> Ran {
    let parts = contents.split_at(BEGIN.min(contents.len() / 2));
    halting(folder, arguments, parts, pause, |_| ()).1
}

/// Runs the program with an input of two parts and a pause between them. Once everything has been written, calls
/// `before_end` with the process id. The process is still running then, because it has not seen the end of its input.
fn halting<T: Send>(
    folder: &Folder,
    arguments: &[&str],
    (begin, rest): (&[u8], &[u8]),
    pause: Duration,
    before_end: impl FnOnce(u32) -> T + Send,
) -> (T, Ran) {
    let mut child = start(folder, arguments);
    let mut pipe = child.stdin.take().unwrap();
    let process = child.id();
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            // A program that gives up early reads no further.
            let _ = pipe.write_all(begin);
            thread::sleep(pause);
            let _ = pipe.write_all(rest);
            before_end(process)
        });
        let ran = Ran::from(child.wait_with_output().unwrap());
        (writer.join().unwrap(), ran)
    })
}

/// Calls `attempt` with longer and longer pauses, until devices are ready in time. Begins with half of the pause that
/// was last long enough.
#[track_caller]
fn until_it_takes_part(mut attempt: impl FnMut(Duration) -> bool) {
    static ENOUGH: AtomicU64 = AtomicU64::new(1);
    let mut seconds = ENOUGH.load(Ordering::Relaxed).div_ceil(2);
    while !attempt(Duration::from_secs(seconds)) {
        assert!(seconds <= 256, "a device never takes part");
        seconds *= 2;
    }
    ENOUGH.store(seconds, Ordering::Relaxed);
}

#[track_caller]
fn line<'r>(ran: &'r Ran, with: &str) -> &'r str {
    let found = ran.stderr.lines().find(|line| line.contains(with));
    found.unwrap_or_else(|| panic!("no '{with}' in {}", ran.stderr))
}

/// Whether the device with this name has done any block.
fn took_part(blocks: &str, name: &str) -> bool {
    blocks.contains(&format!(" on {name} (")) && !blocks.contains(": 0 on ")
}

/// The number of bytes in the parentheses at the end.
fn bytes_at_end(line: &str) -> u64 {
    let figure = line.rsplit_once('(').unwrap().1;
    figure.trim_end_matches(')').trim_end_matches(" bytes").parse().unwrap()
}

#[test]
fn devices_do_their_part_and_say_so() {
    let folder = Folder::new();
    let contents = sample(1_300_000);
    let packed = folder.pz_with(&[&SMALL[..], &["--device", "cpu"]].concat(), &contents).silent();
    for (device, name) in devices(&folder) {
        let machine = ["-v", "-T1", "--gpu-memory", "60M", "--device", &device];
        let encoding = [&SMALL[..], &machine].concat();
        let decoding = [&["-d"], &machine[..]].concat();
        for (arguments, input, expected, stage) in [
            (encoding, &contents, &packed, "checksum on the device "),
            (decoding, &packed, &contents, "decode on the device "),
        ] {
            until_it_takes_part(|pause| {
                let ran = run_halting(&folder, &arguments, input, pause);
                assert_eq!(ran.code, Some(0), "{}", ran.stderr);
                assert!(ran.stdout == *expected, "{device}: other bytes than the CPU's");
                let blocks = line(&ran, " blocks: ");
                assert!(blocks.contains(": 20 blocks: "), "{blocks}");
                // "using" names the device only if it was used.
                let using = line(&ran, "pz: using ");
                assert_eq!(using.contains(&name), took_part(blocks, &name), "{}", ran.stderr);
                if !took_part(blocks, &name) {
                    // Otherwise a line says why not.
                    let was_late = ran.stderr.contains(" no block was left for it");
                    assert!(was_late || ran.stderr.contains(" takes no part: "), "{}", ran.stderr);
                    return false;
                }
                let memory = line(&ran, ": device memory: ");
                let (predicted, peak) = memory.rsplit_once(", ").unwrap();
                let (predicted, peak) = (bytes_at_end(predicted), bytes_at_end(peak));
                assert_eq!(peak, predicted, "{memory}");
                assert!((1..=60 << 20).contains(&peak), "{memory}");
                assert!(line(&ran, ": device: opened in ").contains("; 0 blocks left to the CPU"));
                assert!(line(&ran, ": device threads: ").contains(", computing "));
                assert!(line(&ran, ": time: ").contains(stage), "{}", ran.stderr);
                true
            });
        }
    }
}

/// The limit includes the drivers' memory, but not that of their compilers in the first run.
#[cfg(target_os = "linux")]
#[test]
fn the_process_stays_below_its_memory_limit() {
    let folder = Folder::new();
    let contents = sample(48 << 20);
    let limits = ["-M", "160M", "--gpu-memory", "160M"];
    for (device, name) in devices(&folder) {
        let arguments =
            [&["-pbwt", "-b1M", "-v", "-T2", "--device", &device], &limits[..]].concat();
        let mut was_compiled = false;
        until_it_takes_part(|pause| {
            let parts = contents.split_at(2 << 20);
            let (peak, ran) = halting(&folder, &arguments, parts, pause, peak_of);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            assert!(!was_compiled || peak <= 320 << 20, "{device}: {peak} bytes: {}", ran.stderr);
            let is_measured = was_compiled;
            was_compiled = took_part(line(&ran, " blocks: "), &name);
            is_measured && was_compiled
        });
    }
}

/// The peak memory of a process so far.
#[cfg(target_os = "linux")]
fn peak_of(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn eight_processes_share_a_device() {
    let folder = Folder::new();
    let contents = sample(1_300_000);
    let packed = folder.pz_with(&[&SMALL[..], &["--device", "cpu"]].concat(), &contents).silent();
    for (device, name) in devices(&folder) {
        let machine = ["-v", "-T1", "--gpu-memory", "40M", "--device", &device];
        let encoding = [&SMALL[..], &machine].concat();
        let decoding = [&["-d"], &machine[..]].concat();
        for (arguments, input, expected) in
            [(encoding, &contents, &packed), (decoding, &packed, &contents)]
        {
            until_it_takes_part(|pause| {
                let taking_part = thread::scope(|scope| {
                    let run = || {
                        let ran = run_halting(&folder, &arguments, input, pause);
                        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
                        assert!(ran.stdout == *expected, "{device}: other bytes than the CPU's");
                        took_part(line(&ran, " blocks: "), &name)
                    };
                    let runs: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
                    let took_part = runs.into_iter().map(|run| run.join().unwrap());
                    took_part.filter(|took_part| *took_part).count()
                });
                taking_part > 1
            });
        }
    }
}

/// A damaged input leads to the same message as on the CPU.
#[test]
fn damage_is_the_same_on_devices() {
    let folder = Folder::new();
    let contents = sample(600_000);
    let packed = folder.pz_with(&[&SMALL[..], &["--device", "cpu"]].concat(), &contents).silent();
    let damaged = |at: usize| {
        let mut packed = packed.clone();
        packed[at] ^= 0x10;
        packed
    };
    let len = packed.len();
    let inputs = [
        damaged(len / 2),
        damaged(len - 100),
        packed[..len * 2 / 3].to_vec(),
        packed[..len - 1].to_vec(),
        [&packed[..], b"more"].concat(),
    ];
    for (device, _) in devices(&folder) {
        for input in &inputs {
            let by_cpu = folder.pz_with(&["-d", "-T1", "--device", "cpu"], input);
            let arguments = ["-d", "-T1", "--gpu-memory", "60M", "--device", &device];
            let ran = run_halting(&folder, &arguments, input, Duration::from_millis(500));
            assert_eq!((ran.code, &ran.stderr), (Some(2), &by_cpu.stderr), "{device}");
            assert!(contents.starts_with(&ran.stdout), "{device}: wrong contents");
        }
    }
}

/// A missing device is an error, however short the work, and even if the program would not have used it.
#[test]
fn a_missing_device_is_an_error() {
    let folder = Folder::new();
    folder.write("empty", b"");
    folder.write("a", &sample(1000));
    // The input is large enough for work to begin at once, but the work ends before a device would help.
    folder.write("large", &noise(65 << 20));
    for name in ["empty", "a", "large"] {
        folder.pz(&["compress", "-1", "--device", "cpu", name]).silent();
    }
    for device in ["opencl:99", "webgpu:99"] {
        let begin = format!("pz: device {device}: ");
        for arguments in [
            &["compress", "-1", "-o", "out"][..],
            &["bench", "-1"],
            &["compress", "-q", "-1", "-o", "out"],
        ] {
            for name in ["empty", "a", "large"] {
                let ran = folder.pz(&[arguments, &["--device", device, name]].concat());
                ran.complains(1, &begin);
                assert!(!folder.has("out") && folder.unfinished().is_empty());
            }
        }
        for arguments in [&["decompress", "-o", "out"][..], &["test"]] {
            for name in ["empty.pz", "a.pz", "large.pz"] {
                let ran = folder.pz(&[arguments, &["--device", device, name]].concat());
                ran.complains(1, &begin);
                assert!(!folder.has("out") && folder.unfinished().is_empty());
            }
        }
        folder.pz_with(&["--device", device], b"contents").complains(1, &begin);
        folder.pz(&["cost", "--device", device]).complains(1, &begin);
    }
}

/// If a device cannot do some work, such as long windows on Vulkan's software drivers, the CPU does it, and a line says
/// so.
#[test]
fn a_device_that_cannot_do_the_work_takes_no_part() {
    let folder = Folder::new();
    folder.write("a", &sample(5 << 20));
    for (device, _) in devices(&folder) {
        let arguments =
            ["compress", "-f", "-T1", "-1", "-w", "4M", "-b", "4M", "--device", &device];
        let ran = folder.pz(&[&arguments[..], &["a"]].concat());
        assert_eq!(ran.code, Some(0), "{device}: {}", ran.stderr);
        let is_said = ran.stderr.lines().count() == 1 && ran.stderr.contains(" takes no part: ");
        assert!(ran.stderr.is_empty() || is_said, "{device}: {}", ran.stderr);
    }
}

/// If neither loader finds a driver, the program prints one line if the user named a device, and otherwise none.
#[test]
fn without_drivers_the_cpu_works_alone() {
    let folder = Folder::new();
    folder.write("a", &sample(300_000));
    folder.write("large", &noise(65 << 20));
    folder.pz(&["compress", "-1", "--device", "cpu", "large"]).silent();
    let nowhere = folder.as_path().join("nowhere");
    let run = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        for name in ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "VK_DRIVER_FILES", "VK_ICD_FILENAMES"]
        {
            command.env(name, &nowhere);
        }
        crate::support::feed(&mut command, b"")
    };
    for device in ["opencl", "webgpu"] {
        for arguments in [&["compress", "-f"][..], &["compress", "-f", "-9", "-T1"], &["bench"]] {
            let ran = run(&[arguments, &["--device", device, "a"]].concat());
            let said = ran.complains(1, &format!("pz: device {device}: "));
            assert!(said.contains("install "), "{said}");
            assert!(!folder.has("a.pz"));
        }
        // The same even if the cache knows devices that exist under other settings.
        folder.pz(&["devices", device]);
        let ran = run(&["decompress", "-o", "out", "--device", device, "large.pz"]);
        ran.complains(1, &format!("pz: device {device}: "));
        assert!(!folder.has("out") && folder.unfinished().is_empty());
    }
    run(&["compress", "--device", "auto", "a"]).silent();
    run(&["decompress", "-f", "--device", "auto", "a.pz"]).silent();
    let ran = run(&["compress", "-f", "-v", "a"]);
    line(&ran, ": choice: the CPU");
}

#[cfg(unix)]
mod signals {
    use std::os::unix::process::ExitStatusExt;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    /// Interrupts the program while it finds, opens, prepares or uses a device. The program waits for more input, so it
    /// cannot end by itself.
    #[test]
    fn devices_do_not_hold_up_an_interrupted_program() {
        let contents = sample(600_000);
        let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL];
        for (device, _) in devices(&Folder::new()) {
            let moments = [0, 5, 30, 100, 300, 700, 1500, 3000];
            for (moment, signal) in moments.into_iter().zip(signals.into_iter().cycle()) {
                let folder = Folder::new();
                let machine = ["compress", "-o", "out", "--gpu-memory", "60M", "--device", &device];
                let arguments = [&machine[..], &SMALL].concat();
                let mut child = spawn(crate::signals::command(&folder, &arguments));
                let mut pipe = child.stdin.take().unwrap();
                pipe.write_all(&contents).unwrap();
                thread::sleep(Duration::from_millis(moment));
                let _ = kill_process(Pid::from_child(&child), signal);
                let output = child.wait_with_output().unwrap();
                drop(pipe);
                let said = String::from_utf8(output.stderr).unwrap();
                assert_eq!(output.status.signal(), Some(signal.as_raw()), "{said}");
                // A driver's compiler may print something when interrupted; the program does not.
                assert!(!said.contains("pz"), "{device}, {signal:?} after {moment} ms: {said}");
                assert!(!folder.has("out"));
                if signal != Signal::KILL {
                    assert_eq!(folder.unfinished(), [""; 0], "{device}, {signal:?}, {moment} ms");
                }
            }
        }
    }

    #[test]
    fn a_full_output_ends_a_run_on_a_device() {
        if std::fs::metadata("/dev/full").is_err() {
            return skip("there is no /dev/full");
        }
        let folder = Folder::new();
        let contents = sample(600_000);
        for (device, _) in devices(&folder) {
            let arguments = ["compress", "-o", "/dev/full", "--device", &device];
            let arguments = [&arguments[..], &SMALL].concat();
            let ran = run_halting(&folder, &arguments, &contents, Duration::from_secs(1));
            let said = ran.complains(1, "pz: standard input: /dev/full: ");
            assert!(said.contains("No space left on device"), "{said}");
        }
    }
}
