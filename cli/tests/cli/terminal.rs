//! On a terminal the program shows progress, and refuses to print compressed data.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Folder, sample};

/// A pseudo-terminal that records what is written to it.
struct Terminal {
    user: File,
    screen: JoinHandle<String>,
}

impl Terminal {
    fn new() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let user = File::options().read(true).write(true).open(name).unwrap();
        let screen = thread::spawn(move || {
            let mut master = File::from(master);
            let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
            // Reading fails once the last program has closed the terminal.
            while let Ok(count @ 1..) = master.read(&mut chunk) {
                text.extend_from_slice(&chunk[..count]);
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        Terminal { user, screen }
    }

    fn end(&self) -> Stdio {
        Stdio::from(self.user.try_clone().unwrap())
    }

    /// What the terminal showed, after all programs on it have ended.
    fn text(self) -> String {
        drop(self.user);
        self.screen.join().unwrap()
    }
}

/// Feeds a command for long enough that progress appears; returns what the terminal showed.
fn slow_run(mut command: Command) -> String {
    let terminal = Terminal::new();
    let mut child = command.stdin(Stdio::piped()).stderr(terminal.end()).spawn().unwrap();
    drop(command);
    let mut stdin = child.stdin.take().unwrap();
    for _ in 0..4 {
        stdin.write_all(&sample(200_000)).unwrap();
        thread::sleep(Duration::from_millis(250));
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    terminal.text()
}

#[test]
fn progress_is_shown_after_a_while() {
    let folder = Folder::new();
    let shown = slow_run(folder.command(&["compress", "-1", "-b", "64K", "-o", "a.pz"]));
    assert!(shown.contains("standard input") && shown.contains("ratio "), "{shown:?}");
    for silent in ["-q", "--no-progress"] {
        let command = folder.command(&["compress", silent, "-f", "-1", "-b", "64K", "-o", "a.pz"]);
        assert_eq!(slow_run(command), "", "{silent}");
    }
}

#[test]
fn short_runs_show_nothing() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    let terminal = Terminal::new();
    let mut command = folder.command(&["compress", "a"]);
    assert!(command.stderr(terminal.end()).status().unwrap().success());
    drop(command);
    assert_eq!(terminal.text(), "");
}

#[test]
fn compressed_bytes_are_not_for_terminals() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    let run = |arguments: &[&str]| {
        let terminal = Terminal::new();
        let mut command = folder.command(arguments);
        let output = command.stdout(terminal.end()).stderr(Stdio::piped()).spawn().unwrap();
        drop(command);
        let output = output.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), stderr, terminal.text())
    };
    let (code, stderr, shown) = run(&["compress", "-c", "a"]);
    let line =
        "pz: a: refusing to write compressed data to a terminal; -f forces it, -o names a file\n";
    assert_eq!((code, &*stderr, &*shown), (Some(1), line, ""));
    let (code, stderr, shown) = run(&[]);
    assert_eq!((code, &*stderr), (Some(1), &*line.replace("pz: a:", "pz: standard input:")));
    assert_eq!(shown, "");
    let (code, _, shown) = run(&["compress", "-f", "-c", "a"]);
    assert!(code == Some(0) && !shown.is_empty());
    folder.write("b", b"text");
    folder.pz(&["compress", "b"]).silent();
    assert_eq!(run(&["decompress", "-c", "b.pz"]), (Some(0), String::new(), "text".into()));
}

#[test]
fn compressed_bytes_do_not_come_from_terminals() {
    let folder = Folder::new();
    for arguments in [["-d"], ["-t"]] {
        let terminal = Terminal::new();
        let mut command = folder.command(&arguments);
        let output = command.stdin(terminal.end()).output().unwrap();
        drop(command);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let line = "pz: standard input: is a terminal; expected compressed data\n";
        assert_eq!((output.status.code(), &*stderr), (Some(1), line));
        terminal.text();
    }
}
