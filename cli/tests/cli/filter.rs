//! The program without a command: as tar calls it, and in the short forms known from gzip and zstd.

use std::fs;
use std::process::Command;

use crate::support::{Folder, program, sample, skip};

#[test]
fn standard_input_to_standard_output() {
    let folder = Folder::new();
    for len in [0, 1, 100, 3_000_000] {
        let contents = sample(len);
        for level in ["-1", "-3", "-9"] {
            let packed = folder.pz_with(&[level], &contents).silent();
            folder.pz_with(&["-t"], &packed).silent();
            assert!(folder.pz_with(&["-d"], &packed).silent() == contents, "{len} {level}");
            // tar passes on the whole command, with the level.
            assert!(folder.pz_with(&[level, "-d"], &packed).silent() == contents);
        }
    }
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn tar_round_trip() {
    if Command::new("tar").arg("--version").output().is_err() {
        return skip("there is no tar");
    }
    let folder = Folder::new();
    folder.write("tree/a", &sample(200_000));
    folder.write("tree/sub/b", b"small");
    folder.write("out/.keep", b"");
    let tar = |arguments: &[&str]| {
        let output =
            Command::new("tar").args(arguments).current_dir(folder.as_path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.is_empty(), "tar {arguments:?}: {stderr}");
        output.stdout
    };
    for command in [program().to_string(), format!("{} -9 -T2", program())] {
        tar(&["-I", &command, "-cf", "tree.tar.pz", "tree"]);
        let names = String::from_utf8(tar(&["-I", &command, "-tf", "tree.tar.pz"])).unwrap();
        assert!(names.contains("tree/sub/b\n"), "{names}");
        tar(&["-I", &command, "-xf", "tree.tar.pz", "-C", "out"]);
        assert!(folder.read("out/tree/a") == sample(200_000));
        assert_eq!(folder.read("out/tree/sub/b"), b"small");
        fs::remove_dir_all(folder.path("out/tree")).unwrap();
    }
    folder.pz(&["test", "tree.tar.pz"]).silent();
}

#[test]
fn short_forms_of_the_commands() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    folder.pz(&["-8", "--rm", "a"]).silent();
    assert_eq!(folder.names(), ["a.pz"]);
    folder.pz(&["-t", "a.pz"]).silent();
    let short = folder.pz(&["-l", "a.pz"]).silent();
    assert_eq!(short, folder.pz(&["list", "a.pz"]).silent());
    assert_eq!(folder.pz(&["-l", "--json", "a.pz"]).json()[0]["content_size"], 1000);
    assert_eq!(folder.pz(&["-dc", "a.pz"]).silent(), sample(1000));
    assert_eq!(folder.pz(&["-d", "--range", "..9", "-c", "a.pz"]).silent(), &sample(1000)[..9]);
    folder.pz(&["-d", "--rm", "a.pz"]).silent();
    assert_eq!(folder.names(), ["a"]);
}

#[test]
fn short_forms_take_several_files() {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(name, &sample(1000 + name.len()));
    }
    folder.pz(&["-9", "--rm", "a", "b", "c"]).silent();
    assert_eq!(folder.names(), ["a.pz", "b.pz", "c.pz"]);
    folder.pz(&["-t", "a.pz", "b.pz", "c.pz"]).silent();
    let list = folder.pz(&["-l", "a.pz", "b.pz", "c.pz"]);
    assert!(list.text().contains("3 files") && list.code == Some(0), "{}", list.text());
    let list = folder.pz(&["-l", "--json", "a.pz", "c.pz"]).json();
    assert_eq!((&list[0]["file"], &list[1]["file"]), (&"a.pz".into(), &"c.pz".into()));
    // A file that fails does not stop the others.
    folder.write("bad.pz", b"no such format");
    for arguments in
        [&["-t", "bad.pz", "a.pz", "none.pz"][..], &["-l", "bad.pz", "a.pz", "none.pz"]]
    {
        let ran = folder.pz(arguments);
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(2), 2), "{}", ran.stderr);
    }
    folder.pz(&["-d", "--rm", "a.pz", "b.pz", "c.pz"]).silent();
    assert_eq!(folder.names(), ["a", "b", "bad.pz", "c"]);
}

#[test]
fn concatenated_files_decode_to_concatenated_contents() {
    let folder = Folder::new();
    let (a, b) = (sample(100_000), sample(77));
    let packed = [
        folder.pz_with(&["-1"], &a).silent(),
        folder.pz_with(&["-9"], &b).silent(),
        folder.pz_with(&["-p", "store"], b"").silent(),
    ]
    .concat();
    assert!(folder.pz_with(&["-d"], &packed).silent() == [a, b].concat());
}

#[test]
fn standard_input_that_has_been_read_in_part() {
    let folder = Folder::new();
    folder.write("a", b"first line\nsecond line\n");
    let script = format!("read line; '{0}' -1 | '{0}' -d", program());
    let output = Command::new("bash")
        .args(["-c", &script])
        .stdin(fs::File::open(folder.path("a")).unwrap())
        .output();
    match output {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout), "second line\n"),
        Err(_) => skip("there is no bash"),
    }
}

#[test]
fn help_and_version() {
    let folder = Folder::new();
    let help = String::from_utf8(folder.pz(&["--help"]).silent()).unwrap();
    assert!(help.lines().count() <= 27 && help.lines().all(|line| line.chars().count() <= 100));
    let version = String::from_utf8(folder.pz(&["--version"]).silent()).unwrap();
    assert_eq!(version, format!("pz {}\n", env!("CARGO_PKG_VERSION")));
    let commands = [
        "compress",
        "decompress",
        "cat",
        "test",
        "list",
        "bench",
        "devices",
        "recover",
        "serve",
        "completions",
        "man",
        "types",
    ];
    for command in commands {
        assert!(help.contains(&format!("\n  {command} ")), "{command}");
        let text = String::from_utf8(folder.pz(&[command, "--help"]).silent()).unwrap();
        assert!(text.contains("Example: pz "), "{command}: {text}");
        assert_eq!(folder.pz(&["help", command]).silent(), text.as_bytes());
    }
    assert_eq!(folder.pz(&["help"]).silent(), help.as_bytes());
    folder.pz(&["help", "zip"]).says(1, &["pz: unknown command 'zip' (see pz --help)"]);
}
