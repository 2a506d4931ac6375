//! On a full disk, without permission, or without a reader, the source stays and nothing appears under the final
//! name.

#![cfg(unix)]

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::support::{Folder, noise, program, sample, skip, wait_until};

#[test]
fn no_space_on_the_device() {
    if fs::metadata("/dev/full").is_err() {
        return skip("there is no /dev/full");
    }
    let folder = Folder::new();
    folder.write("a", &sample(100_000));
    folder.pz(&["compress", "a"]).silent();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for (arguments, line) in [
        (["compress", "-c", "a"], "pz: a: standard output: No space left on device\n"),
        (["decompress", "-c", "a.pz"], "pz: a.pz: standard output: No space left on device\n"),
    ] {
        let output = folder.command(&arguments).stdout(full()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*stderr), (Some(1), line));
    }
    folder
        .pz(&["compress", "-o", "/dev/full", "a"])
        .says(1, &["pz: a: /dev/full: No space left on device"]);
    for (arguments, line) in [
        (&["list", "a.pz"][..], "pz: No space left on device\n"),
        (&["--help"], "pz: No space left on device\n"),
        (&["completions", "bash"], "pz: No space left on device\n"),
        (&["man"], "pz: No space left on device\n"),
        (&["devices"], "pz: No space left on device\n"),
    ] {
        let output = folder.command(arguments).stdout(full()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*stderr), (Some(1), line), "{arguments:?}");
    }
    assert!(folder.read("a") == sample(100_000));
}

/// Any user can imitate a full disk with a limit on the size of files.
#[test]
fn files_that_may_not_grow() {
    let folder = Folder::new();
    folder.write("a", &noise(500_000));
    let script = format!("ulimit -f 100; exec '{}' compress --rm -p store a", program());
    let output =
        Command::new("bash").args(["-c", &script]).current_dir(folder.as_path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*stderr), (Some(1), "pz: a: a.pz: File too large\n"));
    assert_eq!(folder.names(), ["a"]);
}

/// If a new hash does not fit into the list of trusted modules, the list stays unchanged.
#[test]
fn a_list_that_may_not_grow() {
    let folder = Folder::new();
    let list = format!("# {}\n", "x".repeat(1000));
    folder.write("settings/pz/trusted-modules", list.as_bytes());
    let hash = "0f".repeat(32);
    let script = format!("ulimit -f 1; exec '{}' module trust {hash}", program());
    let mut command = Command::new("bash");
    command.env("XDG_CONFIG_HOME", folder.path("settings"));
    let output = command.args(["-c", &script]).current_dir(folder.as_path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.ends_with("trusted-modules: File too large\n"), "{stderr}");
    assert_eq!(folder.read("settings/pz/trusted-modules"), list.as_bytes());
}

#[test]
fn a_full_file_system() {
    let folder = Folder::new();
    folder.write("mount/.keep", b"");
    let script = format!(
        "mount -t tmpfs -o size=256k none mount || exit 77
         head -c 200000 /dev/urandom > mount/a
         '{}' compress --rm -p store mount/a; code=$?
         ls -A mount; exit $code",
        program()
    );
    let Some(ran) = folder.run_with_mounts(&script) else { return };
    assert_eq!(ran.says(1, &["pz: mount/a: mount/a.pz: No space left on device"]), b"a\n");
}

#[test]
fn read_only_folders() {
    let folder = Folder::new();
    let run = folder.restricted_pz();
    folder.write("d/a", &sample(1000));
    folder.write("secret", b"");
    folder.set_mode("d", 0o555);
    folder.set_mode("secret", 0o000);
    run(&["compress", "--rm", "d/a"]).says(1, &["pz: d/a: d/a.pz: Permission denied"]);
    run(&["compress", "-c", "secret"]).says(1, &["pz: secret: Permission denied"]);
    folder.set_mode("d", 0o755);
    assert!(folder.read("d/a") == sample(1000));
    assert_eq!(fs::read_dir(folder.path("d")).unwrap().count(), 1);
}

#[test]
fn a_reader_that_closes_the_pipe() {
    let folder = Folder::new();
    folder.pz_with(&["-o", "a.pz", "-1"], &sample(20_000_000)).silent();
    for arguments in
        [&["decompress", "-c", "a.pz"][..], &["compress", "-f", "-p", "store", "-c", "a.pz"]]
    {
        let mut child = folder
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut some = [0; 10];
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut some).unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        // A small output may have fitted into the pipe.
        assert!([None, Some(0)].contains(&output.status.code()), "{:?}", output.status);
        if output.status.code().is_none() {
            assert_eq!(output.status.signal(), Some(13));
        }
    }
}

/// With `--rm` any change is an error. Without it, pz keeps the output if it has read the file's whole original length.
#[test]
fn a_source_that_changes_during_the_run() {
    const FAILS: (i32, &str) = (1, "pz: a: changed while it was being read\n");
    const WARNS: (i32, &str) =
        (0, "pz: a: changed while it was being read; a.pz holds what was read\n");
    let folder = Folder::new();
    let contents = noise(12_000_000);
    for (change, kept) in [
        ("cut", FAILS),
        ("grow", WARNS),
        ("touch", WARNS),
        ("set back", (0, "")),
        ("link", (0, "")),
        ("mode", (0, "")),
        ("rename", (0, "")),
    ] {
        for (option, expected) in [("--rm", FAILS), ("-k", kept)] {
            let path = folder.write("a", &contents);
            let before = fs::metadata(&path).unwrap();
            // The clock of file times ticks slowly.
            let has_changed = || {
                let now = fs::metadata(&path).unwrap();
                (now.ctime(), now.ctime_nsec()) != (before.ctime(), before.ctime_nsec())
            };
            let mut child = folder
                .command(&["compress", "-9", "-T1", "-b", "1M", option, "a"])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            wait_until("an unfinished output", || !folder.unfinished().is_empty());
            let file = fs::File::options().write(true).open(&path).unwrap();
            match change {
                "cut" => file.set_len(6_000_000).unwrap(),
                "grow" => file.set_len(13_000_000).unwrap(),
                "set back" => wait_until("the clock's next tick", || {
                    file.write_all_at(&contents[11_999_999..], 11_999_999).unwrap();
                    file.set_modified(before.modified().unwrap()).unwrap();
                    has_changed()
                }),
                "link" | "rename" => wait_until("the clock's next tick", || {
                    let other = folder.path("b");
                    fs::hard_link(&path, &other).unwrap();
                    match change {
                        "rename" => fs::rename(&other, &path).unwrap(),
                        _ => fs::remove_file(&other).unwrap(),
                    }
                    let _ = fs::remove_file(&other);
                    has_changed()
                }),
                "mode" => wait_until("the clock's next tick", || {
                    folder.set_mode("a", 0o600);
                    has_changed()
                }),
                _ => file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap(),
            }
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            let code = child.wait().unwrap().code().unwrap();
            assert_eq!((code, &*stderr), expected, "{change} {option}");
            if expected == FAILS {
                assert_eq!(folder.names(), ["a"], "{change} {option}");
            } else {
                let restored = folder.pz(&["decompress", "-c", "a.pz"]).silent();
                assert!(restored == contents, "{change} {option}");
                fs::remove_file(folder.path("a.pz")).unwrap();
            }
        }
    }
}

/// Files in `/sys` claim to be as long as a page.
#[test]
fn files_with_a_wrong_length() {
    let names = ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/class/net/lo/mtu"];
    let Some(name) = names.into_iter().find(|name| fs::metadata(name).is_ok()) else {
        return skip("there is no /sys");
    };
    let contents = fs::read(name).unwrap();
    assert_ne!(fs::metadata(name).unwrap().len(), contents.len() as u64);
    let folder = Folder::new();
    let packed = folder.pz(&["compress", "-c", name]).silent();
    assert_eq!(folder.pz_with(&["-d"], &packed).silent(), contents);
    folder.pz(&["compress", "-o", "a.pz", name]).silent();
    assert_eq!(folder.pz(&["decompress", "-c", "a.pz"]).silent(), contents);
    folder.pz(&["list", name]).complains(1, &format!("pz: {name}: is not a regular file"));
    // A file that is one hole also has no blocks on disk, but its length is true.
    let hole = fs::File::create(folder.path("hole")).unwrap();
    hole.set_len(100_000).unwrap();
    folder.pz(&["compress", "--rm", "hole"]).silent();
    assert!(folder.pz(&["decompress", "-c", "hole.pz"]).silent() == vec![0; 100_000]);
}

/// The block device has no driver, so no data would be lost if the program opened it.
#[test]
fn block_devices_need_force() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    let mut mknod = Command::new("mknod");
    mknod.args(["block", "b", "240", "77"]).current_dir(folder.as_path()).stderr(Stdio::null());
    let made = mknod.status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("no device can be made here");
    }
    let line = "pz: a: block: is a block device; -f writes to it";
    folder.pz(&["compress", "-o", "block", "a"]).says(1, &[line]);
    let ran = folder.pz(&["compress", "-f", "-o", "block", "a"]);
    let line = ran.complains(1, "pz: a: block: ");
    assert!(!line.contains("-f"), "{line}");
}

/// Files that the kernel generates have no known length.
#[test]
fn files_without_a_length() {
    if fs::metadata("/proc/self/limits").is_err() {
        return skip("there is no /proc");
    }
    let folder = Folder::new();
    let packed = folder.pz(&["compress", "-c", "/proc/self/limits"]).silent();
    let text = String::from_utf8(folder.pz_with(&["-d"], &packed).silent()).unwrap();
    assert!(text.starts_with("Limit "), "{text}");
}
