//! Everything that the program refuses to do, and its exact messages.

use std::fs;

use crate::support::{Folder, sample};

/// A folder with one file of each kind.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    folder.pz(&["compress", "-o", "b.pz", "a"]).silent();
    folder.write("b", b"other contents");
    folder.write("d/x", b"");
    folder
}

#[test]
fn existing_outputs() {
    let folder = folder();
    folder.write("a.pz", b"old");
    for (arguments, line) in [
        (vec!["compress", "a"], "pz: a: a.pz: already exists; -f overwrites it"),
        (vec!["decompress", "b.pz"], "pz: b.pz: b: already exists; -f overwrites it"),
        (vec!["compress", "-o", "b", "a"], "pz: a: b: already exists; -f overwrites it"),
        (vec!["compress", "-o", "a", "a"], "pz: a: a: is the input file"),
        (vec!["compress", "-f", "-o", "./a", "a"], "pz: a: ./a: is the input file"),
        (vec!["compress", "-f", "-o", "d", "a"], "pz: a: d: is a directory"),
        (vec!["compress", "d"], "pz: d: is a directory; -r descends into it"),
        (vec!["compress", "-c", "d"], "pz: d: is a directory; -r descends into it"),
        (vec!["decompress", "d"], "pz: d: has no known suffix; -o names the output"),
        (vec!["test", "d"], "pz: d: is a directory; -r descends into it"),
        (vec!["list", "d"], "pz: d: is a directory; -r descends into it"),
        (vec!["decompress", "a"], "pz: a: has no known suffix; -o names the output"),
        (vec!["compress", "none"], "pz: none: No such file or directory"),
        (vec!["compress", "-o", "no/a.pz", "a"], "pz: a: no/a.pz: No such file or directory"),
        (vec!["compress", "a/b"], "pz: a/b: Not a directory"),
    ] {
        folder.pz(&arguments).says(1, &[line]);
    }
    assert_eq!(folder.read("a.pz"), b"old");
    assert_eq!(folder.read("b"), b"other contents");
    assert_eq!(folder.read("a"), sample(1000));
    assert_eq!(folder.unfinished(), [""; 0]);
    folder.pz(&["decompress", "-f", "b.pz"]).silent();
    assert_eq!(folder.read("b"), sample(1000));
}

#[test]
fn requests_that_make_no_sense() {
    let folder = folder();
    for (arguments, line) in [
        (
            vec!["compress", "-o", "x", "a", "b"],
            "pz: -o names one output, but there are several inputs",
        ),
        (vec!["decompress", "--range", "0..1", "b.pz"], "pz: --range needs -o or -c"),
        (
            vec!["compress", "--rm", "-"],
            "pz: standard input: --rm needs an input and an output that are regular files",
        ),
        (
            vec!["compress", "-b", "100K", "a"],
            "pz: block size 102400 is not a power of two between 65536 and 16777216 (pipeline lzh)",
        ),
        (
            vec!["compress", "-b", "32M", "-p", "fse", "a"],
            "pz: block size 33554432 is not a power of two between 65536 and 16777216 (pipeline fse)",
        ),
        (
            vec!["compress", "--device", "opencl:98", "a"],
            "pz: device opencl:98: no such device; 'pz devices' lists the devices",
        ),
        (
            vec!["decompress", "--device", "webgpu:99", "b.pz"],
            "pz: device webgpu:99: no such device; 'pz devices' lists the devices",
        ),
        (
            vec!["-d", "--device=opencl:99"],
            "pz: device opencl:99: no such device; 'pz devices' lists the devices",
        ),
        (
            vec!["compress", "--device", "metal", "a"],
            "pz: invalid value 'metal' for '--device <DEVICE>': a device is auto, cpu, cuda[:N], opencl[:N] or \
             webgpu[:N] (see pz compress --help)",
        ),
        (
            vec!["compress", "--gpu-memory", "lots", "a"],
            "pz: invalid value 'lots' for '--gpu-memory <SIZE>': unknown unit 'lots': use K, M, \
             G or T (see pz compress --help)",
        ),
        (
            vec!["compress", "-M", "0", "a"],
            "pz: invalid value '0' for '--memory <SIZE>': must be more than 0 bytes (see pz \
             compress --help)",
        ),
        (
            vec!["compress", "-T", "many", "a"],
            "pz: invalid value 'many' for '--threads <N>': expected a number of threads (see pz \
             compress --help)",
        ),
        (
            vec!["compress", "-p", "zip", "a"],
            "pz: invalid value 'zip' for '--pipeline <NAME>': there is no pipeline \"zip\" (there are \
             lzh, lzf, bwt, fse and store) (see pz compress --help)",
        ),
        (
            vec!["compress", "--filter", "f17", "a"],
            "pz: invalid value 'f17' for '--filter <NAME>': there is no filter \"f17\" (there are none, \
             auto, types such as f32, bf16, i16 and i64x3, and chains such as \
             delta8,zigzag8,transpose8) (see pz compress --help)",
        ),
        (
            vec!["decompress", "--range", "2..1", "-c", "b.pz"],
            "pz: invalid value '2..1' for '--range <FROM..TO>': the range ends before it begins (see pz \
             decompress --help)",
        ),
    ] {
        folder.pz(&arguments).says(1, &[line]);
    }
    for arguments in [vec!["--frob"], vec!["compress", "--frob"], vec!["bench"], vec!["-d", "-t"]] {
        folder.pz(&arguments).complains(1, "pz: ");
    }
    assert_eq!(folder.names(), ["a", "b", "b.pz", "d"]);
}

#[test]
fn devices_that_are_there() {
    let folder = folder();
    for device in ["auto", "cpu"] {
        folder.pz(&["compress", "-f", "--device", device, "--gpu-memory", "1G", "a"]).silent();
        folder.pz(&["test", "--device", device, "a.pz"]).silent();
    }
}

/// The same for an input so long that work begins before the search for the device ends. The program leaves no files
/// behind.
#[test]
fn missing_devices() {
    const LINE: &str = "device opencl:99: no such device; 'pz devices' lists the devices";
    let folder = Folder::new();
    folder.write("large", &crate::support::noise(70 << 20));
    folder.pz(&["compress", "-p", "store", "large"]).silent();
    for arguments in [&["compress", "-f", "-1", "large"][..], &["decompress", "-f", "large.pz"]] {
        let before = folder.names();
        let ran = folder.pz(&[arguments, &["--device", "opencl:99"]].concat());
        ran.says(1, &[&format!("pz: {LINE}")]);
        assert_eq!(folder.names(), before);
    }
    folder.pz(&["test", "--device", "opencl:99", "large.pz"]).says(1, &[&format!("pz: {LINE}")]);
    folder.pz(&["devices", "opencl:99"]).says(1, &[&format!("pz: {LINE}")]);
}

#[cfg(unix)]
#[test]
fn links() {
    use std::os::unix::fs::symlink;

    let folder = folder();
    symlink("a", folder.path("soft")).unwrap();
    symlink("nowhere", folder.path("dangling.pz")).unwrap();
    fs::hard_link(folder.path("a"), folder.path("hard")).unwrap();
    for (arguments, line) in [
        (vec!["compress", "soft"], "pz: soft: is a symbolic link; -f follows it"),
        (vec!["compress", "-f", "-o", "hard", "a"], "pz: a: hard: is the input file"),
        (vec!["compress", "-f", "-o", "soft", "a"], "pz: a: soft: is the input file"),
        (
            vec!["compress", "-o", "dangling.pz", "a"],
            "pz: a: dangling.pz: already exists; -f overwrites it",
        ),
        (vec!["decompress", "-c", "dangling.pz"], "pz: dangling.pz: No such file or directory"),
    ] {
        folder.pz(&arguments).says(1, &[line]);
    }
    // The contents would stay under the other name, so removing this name would free no space.
    let line = "pz: hard: has 2 hard links, and --rm would remove only this one; -f removes it";
    folder.pz(&["compress", "--rm", "hard"]).says(1, &[line]);
    assert!(folder.has("hard") && !folder.has("hard.pz"));
    folder.pz(&["compress", "hard"]).silent();
    folder.pz(&["compress", "--rm", "-f", "hard"]).silent();
    assert!(!folder.has("hard") && folder.has("a"));
    // Writing to standard output endangers no file.
    let packed = folder.pz(&["compress", "-c", "soft"]).silent();
    assert!(folder.pz_with(&["-d"], &packed).silent() == sample(1000));
    // With -f the program follows the link, and removes only the link.
    folder.pz(&["compress", "-f", "--rm", "soft"]).silent();
    assert!(!folder.has("soft") && folder.has("soft.pz") && folder.has("a"));
    let metadata = fs::symlink_metadata(folder.path("soft.pz")).unwrap();
    assert!(metadata.is_file());
}

#[cfg(unix)]
#[test]
fn standard_output_that_is_the_input() {
    let folder = folder();
    let output = fs::File::options().append(true).open(folder.path("a")).unwrap();
    let ran = folder.command(&["compress", "-c", "a"]).stdout(output).output().unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(
        (ran.status.code(), &*stderr),
        (Some(1), "pz: a: standard output is the input file\n")
    );
    assert!(folder.read("a") == sample(1000));
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_not_files() {
    let folder = folder();
    folder
        .pz(&["compress", "/dev/null"])
        .says(1, &["pz: /dev/null: is not a regular file; -c reads it"]);
    let empty = folder.pz(&["compress", "-c", "/dev/null"]).silent();
    assert_eq!(folder.pz_with(&["-d"], &empty).silent(), b"");
    folder.pz(&["compress", "-o", "/dev/null", "a"]).silent();
    folder
        .pz(&["compress", "--rm", "-o", "/dev/null", "a"])
        .says(1, &["pz: a: --rm needs an input and an output that are regular files"]);
    assert!(folder.has("a"));
}

#[test]
fn numbers_that_are_not_levels() {
    let folder = folder();
    for arguments in
        [&["-12"][..], &["-19", "a"], &["compress", "-k12", "a"], &["bench", "-19", "a"]]
    {
        let ran = folder.pz(arguments);
        assert!(ran.stdout.is_empty());
        let help = match arguments[0] {
            "-12" | "-19" => "(see pz --help)\n".into(),
            command => format!("(see pz {command} --help)\n"),
        };
        let line = ran.complains(1, "pz: there is no level 1");
        assert!(line.contains("levels are 1 to 9") && line.ends_with(&help), "{line}");
    }
    let line = folder.pz(&["compress", "-10", "a"]).complains(1, "pz: there is no level 10: ");
    assert!(line.contains("-8 and -9 make the smallest output"), "{line}");
    folder.pz(&["-0", "a"]).complains(1, "pz: there is no level 0: ");
    assert_eq!(folder.names(), ["a", "b", "b.pz", "d"]);
    // A digit among other flags is a level, and several digits are several levels.
    for (flags, level) in [("-kf9", 9), ("-8k", 8), ("-fT12", 3), ("-f5T12", 5)] {
        folder.pz(&["compress", flags, "-f", "a"]).silent();
        let list = folder.pz(&["list", "--json", "a.pz"]).json();
        assert_eq!(list[0]["frames"][0]["level"], level, "{flags}");
    }
    assert_eq!(folder.pz(&["decompress", "-cd9", "a.pz"]).code, Some(1));
    assert_eq!(folder.pz(&["-cd9", "a.pz"]).silent(), sample(1000));
    let levels = folder.pz(&["bench", "-1", "-3", "-9", "--csv", "a"]);
    assert_eq!(levels.stdout_lines().count(), 4, "{}", levels.text());
}

#[test]
fn words_that_are_not_commands() {
    let folder = folder();
    for (arguments, line) in [
        (
            vec!["decompres", "b.pz"],
            "pz: unknown command 'decompres'; did you mean 'pz decompress'? (see pz --help)",
        ),
        (
            vec!["-9", "comprss", "a"],
            "pz: unknown command 'comprss'; did you mean 'pz compress'? (see pz --help)",
        ),
        (
            vec!["-9", "compress", "a"],
            "pz: put the command before its options: pz compress ... (see pz --help)",
        ),
        (vec!["shrink", "a"], "pz: 'shrink' is neither a command nor a file (see pz --help)"),
        (vec!["help", "lst"], "pz: unknown command 'lst'; did you mean 'list'? (see pz --help)"),
    ] {
        folder.pz(&arguments).says(1, &[line]);
    }
    assert_eq!(folder.names(), ["a", "b", "b.pz", "d"]);
}

/// A file name alone could mean either direction.
#[test]
fn files_without_a_command() {
    let folder = folder();
    for (arguments, name) in [
        (vec!["a"], "a"),
        (vec!["b.pz", "a"], "b.pz"),
        (vec!["-f", "--rm", "a"], "a"),
        (vec!["-c", "b.pz"], "b.pz"),
        (vec!["-o", "x", "a"], "a"),
        (vec!["-r", "d"], "d"),
    ] {
        folder.pz(&arguments).says(
            1,
            &[&format!(
                "pz: {name}: say what to do: 'pz compress {name}' or 'pz decompress {name}' (see pz \
                 --help)"
            )],
        );
    }
    assert_eq!(folder.names(), ["a", "b", "b.pz", "d"]);
    // Standard input, however named, is compressed; and some options imply what to do with a file.
    let packed = folder.pz_with(&["-c", "-"], b"text").silent();
    assert_eq!(folder.pz_with(&["-d", "-"], &packed).silent(), b"text");
    folder.pz(&["-9", "a"]).silent();
    folder.pz(&["-t", "a.pz"]).silent();
    // A file may have a command's name.
    folder.write("list", b"text");
    folder.pz(&["-5", "./list"]).silent();
    assert!(folder.has("list.pz"));
}

#[test]
fn compressed_files_are_not_compressed_again() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    folder.pz(&["compress", "a"]).silent();
    let packed = folder.read("a.pz");
    // The contents decide, not the name.
    folder.write("d/photo", &packed);
    folder.write("d/text.gz", b"only called so");
    folder.write("d/x.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03");
    folder.write("xz", b"\xfd7zXZ\x00\x00\x04");
    for (arguments, line) in [
        (&["compress", "a.pz"][..], "pz: a.pz: is compressed already (pz); -f compresses it again"),
        (
            &["-9", "-c", "d/x.gz"],
            "pz: d/x.gz: is compressed already (gzip); -f compresses it again",
        ),
        (&["compress", "xz"], "pz: xz: is compressed already (xz); -f compresses it again"),
    ] {
        assert_eq!(folder.pz(arguments).says(1, &[line]), b"");
    }
    assert_eq!(folder.names(), ["a", "a.pz", "d", "xz"]);
    // The user did not name the files of a directory.
    folder.pz(&["compress", "-r", "d"]).silent();
    assert!(folder.has("d/text.gz.pz") && !folder.has("d/x.gz.pz") && !folder.has("d/photo.pz"));
    let ran = folder.pz(&["compress", "-v", "-f", "-r", "d"]);
    assert!(ran.code == Some(0) && folder.has("d/x.gz.pz"), "{}", ran.stderr);
    // A filter takes any input.
    let twice = folder.pz_with(&["-1"], &packed).silent();
    assert!(folder.pz_with(&["-d"], &twice).silent() == packed);
    folder.pz(&["compress", "-f", "a.pz"]).silent();
    assert!(folder.pz(&["cat", "a.pz.pz"]).silent() == packed);
}
