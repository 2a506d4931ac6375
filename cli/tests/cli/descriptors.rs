//! Closed standard input and output, and paths that lead to open files.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::{Folder, Ran, program, sample};

/// Runs a shell command in the folder; `pz` in it is the program.
fn shell(folder: &Folder, line: &str) -> Ran {
    let script = format!("pz() {{ '{}' \"$@\"; }}\n{line}", program());
    let mut command = Command::new("bash");
    let plain = folder.command(&[]);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["-c", &script]).current_dir(folder.as_path());
    Ran::from(command.output().unwrap())
}

#[test]
fn using_closed_descriptors_is_an_error() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    folder.pz(&["compress", "-o", "b.pz", "a"]).silent();
    for (line, message) in [
        ("pz compress -c a >&-", "pz: a: standard output is closed"),
        ("pz decompress -c b.pz >&-", "pz: b.pz: standard output is closed"),
        ("pz <a >&-", "pz: standard input: standard output is closed"),
        ("pz -d <b.pz >&-", "pz: standard input: standard output is closed"),
        ("pz <&-", "pz: standard input: is closed"),
        ("pz -d <&-", "pz: standard input: is closed"),
        ("pz -o c.pz <&-", "pz: standard input: is closed"),
        ("pz test <&-", "pz: standard input: is closed"),
        ("pz list <&-", "pz: standard input: is closed"),
        ("pz list b.pz >&-", "pz: standard output is closed"),
        ("pz list --json b.pz >&-", "pz: standard output is closed"),
        ("pz cat b.pz >&-", "pz: standard output is closed"),
        ("pz types magic >&-", "pz: standard output is closed"),
        ("pz devices >&-", "pz: standard output is closed"),
        ("pz bench -1 a >&-", "pz: standard output is closed"),
        ("pz cost >&-", "pz: standard output is closed"),
        ("pz man >&-", "pz: standard output is closed"),
        ("pz completions bash >&-", "pz: standard output is closed"),
        ("pz help >&-", "pz: standard output is closed"),
        ("pz --help >&-", "pz: standard output is closed"),
        ("pz --version >&-", "pz: standard output is closed"),
        ("pz recover -o c b.pz >&-", "pz: standard output is closed"),
        ("pz compress -o /dev/stdout a >&-", "pz: a: standard output is closed"),
        // Standard output is open, but not for writing.
        ("pz list b.pz 1<a", "pz: Bad file descriptor"),
        ("pz compress -c a 1<b.pz", "pz: a: standard output: Bad file descriptor"),
    ] {
        let ran = shell(&folder, line);
        let expected = format!("{message}\n");
        assert_eq!((ran.code, ran.stderr), (Some(1), expected), "{line}");
        assert_eq!(folder.names(), ["a", "b.pz"], "{line}");
    }
}

#[test]
fn unused_closed_descriptors_do_no_harm() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    shell(&folder, "pz compress a <&- >&- 2>&-").silent();
    shell(&folder, "pz test a.pz <&- >&-").silent();
    // If standard error is closed, a file may get its descriptor's number. Messages must not end up in that file.
    let ran = shell(&folder, "pz decompress -v -f a.pz none <&- >&- 2>&-");
    assert_eq!((ran.code, folder.names()), (Some(1), vec!["a".into(), "a.pz".into()]));
    assert!(folder.read("a") == sample(1000));
}

/// Rust's runtime replaces a closed descriptor with the same device.
#[test]
fn the_null_device_is_not_closed() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    shell(&folder, "pz compress -c a >/dev/null").silent();
    for line in ["pz </dev/null", "pz <>/dev/null"] {
        let packed = shell(&folder, line).silent();
        assert_eq!(folder.pz_with(&["-d"], &packed).silent(), b"", "{line}");
    }
    shell(&folder, "pz compress -c a 1<>/dev/null").silent();
    shell(&folder, "pz devices cpu 1<>/dev/null").silent();
}

/// Renaming over such a name would replace the link. For `/dev/stdout`, it would do so for every program of the
/// machine.
#[test]
fn paths_that_lead_to_open_files_are_written_to() {
    let folder = Folder::new();
    let contents = sample(1000);
    folder.write("a", &contents);
    symlink("/proc/self/fd/1", folder.path("one")).unwrap();
    symlink("one", folder.path("other")).unwrap();
    symlink("/dev/fd/3", folder.path("three")).unwrap();
    for (line, before) in [
        ("pz compress -o one a > out", ""),
        ("pz compress -f -o one a > out", ""),
        ("pz compress -f -o other a > out", ""),
        ("pz compress -f -o /dev/stdout a > out", ""),
        ("pz compress -f -o three a 3> out", ""),
        ("pz recover -f -o one packed.pz 2> report | pz > out", ""),
        // What the shell wrote stays.
        ("{ printf before; pz compress -f -o one a; } > out", "before"),
        ("printf before > out; pz compress -f -o one a >> out", "before"),
        ("{ printf before >&3; pz compress -f -o three a; } 3> out", "before"),
    ] {
        folder.pz(&["compress", "-f", "-o", "packed.pz", "a"]).silent();
        shell(&folder, line).silent();
        let out = folder.read("out");
        let packed = out.strip_prefix(before.as_bytes()).unwrap();
        assert!(folder.pz_with(&["-d"], packed).silent() == contents, "{line}");
        for link in ["one", "other", "three"] {
            let metadata = fs::symlink_metadata(folder.path(link)).unwrap();
            assert!(metadata.is_symlink(), "{line}");
        }
    }
    assert_eq!(folder.unfinished(), [""; 0]);
}
