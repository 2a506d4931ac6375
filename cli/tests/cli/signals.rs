//! Wherever a signal interrupts the program, the final file is absent or complete, and the source or the final file
//! exists.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Folder, noise, program, sample, wait_until};

const SIGNALS: [Signal; 5] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::KILL];

fn send(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

/// The program in a folder, not yet started. It ignores no signal, even if the tests run in a shell's background.
pub fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let plain = folder.command(arguments);
    if !cfg!(target_os = "linux") {
        return plain;
    }
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM,HUP,QUIT").arg(program()).args(arguments);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(folder.as_path()).stdin(Stdio::null());
    command
}

/// Interrupts the program in the middle of its work, while it waits for more input.
#[test]
fn in_the_middle_of_work() {
    for signal in SIGNALS {
        let folder = Folder::new();
        let mut child = command(&folder, &["compress", "-1", "-b", "64K", "-o", "out.pz"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&sample(1_000_000)).unwrap();
        wait_until("an unfinished output", || !folder.unfinished().is_empty());
        let unfinished = folder.path(&folder.unfinished()[0]);
        let mode = fs::metadata(unfinished).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!folder.has("out.pz"));
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(signal.as_raw()), "{signal:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{signal:?}");
        assert!(!folder.has("out.pz"), "{signal:?}");
        if signal != Signal::KILL {
            assert_eq!(folder.names(), [""; 0], "{signal:?}");
        }
        drop(stdin);
    }
}

#[test]
fn at_any_moment() {
    let contents = sample(2_000_000);
    let (mut interrupted, mut finished) = (0, 0);
    for round in 0..60u64 {
        let signal = SIGNALS[round as usize % SIGNALS.len()];
        let folder = Folder::new();
        folder.write("a", &contents);
        let mut child = command(&folder, &["compress", "-1", "--rm", "a"]).spawn().unwrap();
        thread::sleep(Duration::from_micros(round * round * 40));
        send(&child, signal);
        let status = child.wait().unwrap();
        if status.signal().is_some() {
            interrupted += 1;
            assert_eq!(status.signal(), Some(signal.as_raw()));
            if signal != Signal::KILL {
                assert_eq!(folder.unfinished(), [""; 0], "{signal:?} in round {round}");
            }
        } else {
            finished += 1;
            assert_eq!(status.code(), Some(0));
        }
        if folder.has("a.pz") {
            let restored = folder.pz(&["decompress", "-c", "a.pz"]).silent();
            assert!(restored == contents, "{signal:?} in round {round}");
        } else {
            assert!(folder.read("a") == contents, "{signal:?} in round {round}");
        }
    }
    println!("{interrupted} interrupted, {finished} finished");
}

/// The program removes files of dead processes only, and only if this machine can tell that they are dead.
#[cfg(target_os = "linux")]
#[test]
fn leftovers_of_killed_runs_are_removed() {
    let folder = Folder::new();
    let start = |name: &str| {
        let known = folder.unfinished();
        let mut child = command(&folder, &["compress", "-o", name]);
        let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"contents").unwrap();
        wait_until("an unfinished output", || folder.unfinished().len() > known.len());
        let name = folder.unfinished().into_iter().find(|name| !known.contains(name)).unwrap();
        (child, name)
    };
    let (mut live, of_live) = start("live.pz");
    let (mut dead, of_dead) = start("dead.pz");
    send(&dead, Signal::KILL);
    dead.wait().unwrap();
    assert!(folder.has(&of_dead));
    // The same process on another host or in another container: this machine cannot tell whether it runs.
    let (place, rest) = of_dead.strip_prefix(".pz-").unwrap().split_once('-').unwrap();
    let other_place: String = place.chars().map(|c| if c == '0' { '1' } else { '0' }).collect();
    let kept =
        [format!(".pz-{other_place}-{rest}"), ".pz-aB3x9z.tmp".into(), ".pz-notes.txt".into()];
    for name in &kept {
        folder.write(name, b"");
    }
    fs::create_dir(folder.path(&of_dead.replace(".tmp", "x.tmp"))).unwrap();
    folder.write("other/a", b"contents");

    folder.pz(&["compress", "other/a"]).silent();
    assert!(folder.has(&of_dead), "another folder's");
    folder.pz_with(&["-c"], b"contents").silent();
    assert!(folder.has(&of_dead), "nothing was written beside it");
    folder.pz_with(&["-o", "next.pz"], b"contents").silent();
    assert!(!folder.has(&of_dead) && folder.has(&of_live));
    assert!(folder.has(&of_dead.replace(".tmp", "x.tmp")));
    for name in &kept {
        assert!(folder.has(name), "{name}");
    }
    drop(live.stdin.take());
    assert_eq!(live.wait().unwrap().code(), Some(0));
    assert_eq!(folder.pz(&["decompress", "-c", "live.pz"]).silent(), b"contents");
}

/// `nohup`, and jobs in the background of a shell.
#[test]
fn signals_that_the_parent_ignores_stay_ignored() {
    let folder = Folder::new();
    let script = format!("trap '' HUP; exec '{}' compress -o out.pz", program());
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.as_path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"contents").unwrap();
    wait_until("an unfinished output", || !folder.unfinished().is_empty());
    send(&child, Signal::HUP);
    thread::sleep(Duration::from_millis(50));
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(folder.pz(&["decompress", "-c", "out.pz"]).silent(), b"contents");
}

/// The program cannot remove standard output, but it ends anyway.
#[test]
fn as_a_filter() {
    let folder = Folder::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = command(&folder, &["-1", "-b", "64K"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // More than the pipes hold, so the program is waiting or working. It ends before it has read everything.
        let writer = thread::spawn(move || stdin.write_all(&noise(64_000_000)).is_err());
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 8]).unwrap();
        send(&child, signal);
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        assert!(writer.join().unwrap());
    }
}
