//! Files in, files out.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use crate::support::{Folder, noise, sample};

#[test]
fn every_level_restores_every_size() {
    let folder = Folder::new();
    for size in [0, 1, 13, 65_535, 65_536, 65_537] {
        for (kind, contents) in
            [("text", sample(size)), ("noise", noise(size)), ("zeros", vec![0; size])]
        {
            folder.write("a", &contents);
            for level in 1..=9 {
                folder.pz(&["compress", "-f", &format!("-{level}"), "a"]).silent();
                folder.pz(&["test", "a.pz"]).silent();
                let restored = folder.pz(&["decompress", "-c", "a.pz"]).silent();
                assert!(restored == contents, "{size} bytes of {kind} at level {level}");
            }
        }
    }
}

#[test]
fn every_pipeline_restores() {
    let folder = Folder::new();
    let contents = sample(300_000);
    folder.write("a", &contents);
    for pipeline in ["lzh", "lzf", "bwt", "fse", "store"] {
        folder.pz(&["compress", "-f", "-p", pipeline, "-b", "64K", "a"]).silent();
        assert!(folder.pz(&["decompress", "-c", "a.pz"]).silent() == contents, "{pipeline}");
        let list = folder.pz(&["list", "--json", "a.pz"]).json();
        assert_eq!(list[0]["frames"][0]["pipeline"], pipeline);
        assert_eq!(list[0]["frames"][0]["block_size"], 65_536);
        assert_eq!(list[0]["blocks"], 5);
    }
}

#[test]
fn threads_do_not_change_the_bytes() {
    let folder = Folder::new();
    folder.write("a", &sample(3_000_000));
    for level in ["-1", "-6", "-9"] {
        let one = folder.pz(&["compress", "-c", level, "-b", "256K", "-T1", "a"]).silent();
        let two = folder.pz(&["compress", "-c", level, "-b", "256K", "-T2", "a"]).silent();
        assert!(one == two, "{level}");
        for threads in ["-T1", "-T2", "-T0"] {
            let restored = folder.pz_with(&["-d", threads], &one).silent();
            assert!(restored == folder.read("a"), "{level} {threads}");
        }
    }
}

/// In tmpfs several threads write to the output at once, large blocks and small ones in different ways.
#[test]
fn blocks_of_different_sizes_are_restored_in_memory_backed_storage() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let output = memory.path().join("a");
    let folder = Folder::new();
    let contents = sample(3_400_000);
    let (mut frames, mut expected) = (Vec::<u8>::new(), Vec::<u8>::new());
    for part in [&contents[..], &contents[..100_000]] {
        frames.extend(folder.pz_with(&["-1", "-b", "1M"], part).silent());
        expected.extend(part);
    }
    folder.write("a.pz", &frames.repeat(12));
    for _ in 0..5 {
        folder.pz(&["decompress", "-f", "-T2", "-o", output.to_str().unwrap(), "a.pz"]).silent();
        assert!(fs::read(&output).unwrap() == expected.repeat(12));
    }
}

#[test]
fn the_source_stays_without_rm() {
    let folder = Folder::new();
    let contents = sample(10_000);
    folder.write("a", &contents);
    folder.pz(&["compress", "a"]).silent();
    assert_eq!(folder.names(), ["a", "a.pz"]);
    folder.pz(&["compress", "--rm", "-f", "a"]).silent();
    assert_eq!(folder.names(), ["a.pz"]);
    folder.pz(&["decompress", "--rm", "-k", "a.pz"]).silent();
    assert_eq!(folder.names(), ["a", "a.pz"]);
    folder.pz(&["decompress", "-k", "--rm", "-f", "a.pz"]).silent();
    assert_eq!(folder.names(), ["a"]);
    assert!(folder.read("a") == contents);
}

#[cfg(unix)]
#[test]
fn mode_and_times_are_the_sources() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890);
    for mode in [0o640, 0o400, 0o755, 0o4711] {
        let path = folder.write("a", &sample(1000));
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(then).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        folder.pz(&["compress", "--rm", "a"]).silent();
        for name in ["a.pz", "a"] {
            let metadata = fs::metadata(folder.path(name)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o7777, mode & 0o777, "{name}");
            assert_eq!(metadata.modified().unwrap(), then, "{name}");
            if name == "a.pz" {
                folder.pz(&["decompress", "--rm", "a.pz"]).silent();
            }
        }
        fs::remove_file(folder.path("a")).unwrap();
    }
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    let folder = Folder::new();
    folder.write("a", b"first");
    folder.write("c", b"third");
    folder.pz(&["compress", "a", "b", "c"]).says(1, &["pz: b: No such file or directory"]);
    assert_eq!(folder.names(), ["a", "a.pz", "c", "c.pz"]);

    folder.write("bad.pz", b"this is no compressed file");
    let ran = folder.pz(&["decompress", "-f", "bad.pz", "b.pz", "c.pz"]);
    let lines = ["pz: bad.pz: not in pz format", "pz: b.pz: No such file or directory"];
    ran.says(2, &lines);
    assert_eq!(folder.names(), ["a", "a.pz", "bad.pz", "c", "c.pz"]);
    folder.pz(&["test", "a.pz", "bad.pz", "c.pz"]).says(2, &lines[..1]);
}

#[test]
fn several_files_to_standard_output_are_concatenated() {
    let folder = Folder::new();
    folder.write("a", &sample(100_000));
    folder.write("b", b"");
    folder.write("c", &noise(1000));
    let both = [folder.read("a"), folder.read("b"), folder.read("c")].concat();
    let packed = folder.pz(&["compress", "-c", "a", "b", "c"]).silent();
    folder.write("all.pz", &packed);
    assert!(folder.pz(&["decompress", "-c", "all.pz"]).silent() == both);
    assert!(folder.pz_with(&["-d"], &packed).silent() == both);
    let list = folder.pz(&["list", "--json", "all.pz"]).json();
    assert_eq!(list[0]["frames"].as_array().unwrap().len(), 3);
    assert_eq!(list[0]["content_size"], both.len());

    folder.pz(&["compress", "a", "b", "c"]).silent();
    let apart = folder.pz(&["decompress", "-c", "a.pz", "b.pz", "c.pz"]).silent();
    assert!(apart == both);
}

#[test]
fn outputs_can_be_named() {
    let folder = Folder::new();
    let contents = sample(5000);
    folder.write("a", &contents);
    folder.pz(&["compress", "-o", "x.bin", "a"]).silent();
    folder.pz(&["decompress", "-o", "y", "x.bin"]).silent();
    assert!(folder.read("y") == contents);
    let packed = folder.pz(&["compress", "-o", "-", "a"]).silent();
    assert!(packed == folder.read("x.bin"));
    folder.pz_with(&["decompress", "-o", "z"], &packed).silent();
    assert!(folder.read("z") == contents);
    let echoed = folder.pz_with(&["decompress", "-"], &packed).silent();
    assert!(echoed == contents);
}

#[cfg(unix)]
#[test]
fn a_file_from_standard_input_has_the_mode_of_any_new_file() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    folder.write("usual", b"");
    folder.pz_with(&["compress", "-o", "a.pz"], b"contents").silent();
    let mode = |name| fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("a.pz"), mode("usual"));
}

#[test]
fn directories_are_traversed() {
    let folder = Folder::new();
    folder.write("d/a", b"1");
    folder.write("d/e/b", b"2");
    folder.write("d/e/c.pz", b"not really");
    folder.write("f", b"3");
    folder.pz(&["compress", "-r", "--rm", "d", "f"]).silent();
    for (name, there) in
        [("d/a", false), ("d/a.pz", true), ("d/e/b", false), ("d/e/b.pz", true), ("f.pz", true)]
    {
        assert_eq!(folder.has(name), there, "{name}");
    }
    assert!(!folder.has("d/e/c.pz.pz"));
    folder.pz(&["test", "-r", "d"]).says(2, &["pz: d/e/c.pz: not in pz format"]);
    fs::remove_file(folder.path("d/e/c.pz")).unwrap();
    folder.write("d/unrelated.txt", b"");
    folder.pz(&["decompress", "-r", "--rm", "d"]).silent();
    assert_eq!(folder.read("d/e/b"), b"2");
    assert!(!folder.has("d/e/b.pz") && folder.has("d/unrelated.txt"));
}

#[test]
fn outputs_are_verified_on_request() {
    let folder = Folder::new();
    folder.write("a", &sample(400_000));
    for level in ["-1", "-9"] {
        folder.pz(&["compress", "--verify", "--rm", level, "a"]).silent();
        folder.pz(&["decompress", "--rm", "a.pz"]).silent();
    }
    assert!(folder.read("a") == sample(400_000));
    folder
        .pz(&["compress", "--verify", "-c", "a"])
        .says(1, &["pz: a: --verify needs an output that is a regular file"]);
}

/// The program syncs files together and removes their sources together. A file that fails does not stop the others.
#[test]
fn many_sources_are_removed() {
    let folder = Folder::new();
    let names: Vec<String> = (0..150).map(|number| format!("f{number:03}")).collect();
    for name in &names {
        folder.write(name, name.as_bytes());
    }
    folder.write("f070.pz", b"in the way");
    let mut arguments = vec!["compress", "--rm"];
    arguments.extend(names.iter().map(String::as_str));
    let line = "pz: f070: f070.pz: already exists; -f overwrites it";
    folder.pz(&arguments).says(1, &[line]);
    for name in &names {
        assert_eq!(folder.has(name), name == "f070");
        if name != "f070" {
            let packed = format!("{name}.pz");
            assert_eq!(folder.pz(&["decompress", "-c", &packed]).silent(), name.as_bytes());
        }
    }
}

/// The next file notices an output that is not yet synced.
#[test]
fn outputs_that_are_inputs_in_turn() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    // With -f, because the program otherwise refuses compressed files.
    folder.pz(&["compress", "-f", "--rm", "a", "a.pz"]).silent();
    assert_eq!(folder.names(), ["a.pz.pz"]);
    folder.pz(&["decompress", "--rm", "a.pz.pz", "a.pz"]).silent();
    assert_eq!(folder.names(), ["a"]);
    folder
        .pz(&["compress", "--rm", "a", "a"])
        .says(1, &["pz: a: a.pz: is another output of this run"]);
    assert_eq!(folder.names(), ["a.pz"]);
}

#[test]
fn verbose_says_what_was_done() {
    let folder = Folder::new();
    folder.write("a", &[b'x'; 100_000]);
    let ran = folder.pz(&["compress", "-v", "-T1", "a"]);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines[0], "pz: using the CPU, 1 thread");
    assert!(lines[1].starts_with("pz: a: 97.7 KiB to "), "{}", lines[1]);
    assert!(lines[1].contains(" in a.pz, ratio "), "{}", lines[1]);
    assert_eq!(lines[2], "pz: a: choice: the CPU: there is a thread for each block");
    assert_eq!(lines[3], "pz: a: 1 block: all on the CPU");
    assert!(lines[4].starts_with("pz: a: time: reading 0."), "{}", lines[4]);
    assert!(lines[4].contains(", encoding on the CPU (all threads) 0."), "{}", lines[4]);
    assert_eq!((lines.len(), ran.code), (5, Some(0)));
    let ran = folder.pz(&["decompress", "-v", "-T1", "--device", "cpu", "-c", "a.pz"]);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines[2], "pz: a.pz: 1 block: all on the CPU");
    assert!(lines[3].contains(", decoding on the CPU (all threads) 0."), "{}", lines[3]);
    folder.pz(&["test", "-v", "-q", "a.pz"]).silent();
}

#[test]
fn names_that_are_not_unicode() {
    let folder = Folder::new();
    folder.write("two\nlines", b"contents");
    folder.pz(&["compress", "two\nlines"]).silent();
    assert!(folder.has("two\nlines.pz"));
    folder
        .pz(&["compress", "two\nlines"])
        .says(1, &["pz: two\\nlines: two\\nlines.pz: already exists; -f overwrites it"]);
    folder.pz(&["compress", "--", "-x"]).says(1, &["pz: -x: No such file or directory"]);
}

#[test]
fn eight_processes_at_once_are_all_correct() {
    let folder = Folder::new();
    let contents = sample(2_000_000);
    folder.write("a", &contents);
    let names: Vec<String> = (0..8).map(|number| format!("{number}.pz")).collect();
    let start =
        |name: &String| folder.command(&["compress", "-6", "-o", name, "a"]).spawn().unwrap();
    let children: Vec<_> = names.iter().map(start).collect();
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    for name in &names {
        assert!(folder.read(name) == folder.read("0.pz"), "{name}");
    }
    assert!(folder.pz(&["decompress", "-c", "0.pz"]).silent() == contents);
}

/// If several processes want the same output name, one gets it with a whole file, and the others change nothing.
#[test]
fn several_processes_want_one_name() {
    let folder = Folder::new();
    let contents = sample(500_000);
    folder.write("a", &contents);
    let start = |_| folder.command(&["compress", "-q", "a"]).stderr(Stdio::null()).spawn().unwrap();
    let children: Vec<_> = (0..8).map(start).collect();
    let codes = children.into_iter().map(|mut child| child.wait().unwrap().code().unwrap());
    let mut codes: Vec<i32> = codes.collect();
    codes.sort();
    assert_eq!(codes, [0, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(folder.names(), ["a", "a.pz"]);
    assert!(folder.pz(&["decompress", "-c", "a.pz"]).silent() == contents);
}
