//! Completions and man pages.

use std::process::Command;

use crate::support::{Folder, feed, skip};

#[test]
fn completions_know_commands_and_options() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = String::from_utf8(folder.pz(&["completions", shell]).silent()).unwrap();
        for word in ["decompress", "recover", "block-size"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    folder.pz(&["completions", "tcsh"]).complains(1, "pz: invalid value 'tcsh' for '<SHELL>'");
    let script = folder.pz(&["completions", "bash"]).silent();
    match Command::new("bash").arg("--version").output() {
        Ok(_) => drop(feed(Command::new("bash").arg("-n"), &script).silent()),
        Err(_) => skip("there is no bash"),
    }
}

#[test]
fn file_recognises_our_files() {
    let folder = Folder::new();
    let magic = folder.pz(&["types", "magic"]).silent();
    folder.write("magic", &magic);
    folder.write("a", &[b'a'; 1000]);
    folder.write("text", b"some text\n");
    folder.pz(&["compress", "-9", "a"]).silent();
    folder.pz(&["compress", "-1", "-o", "no suffix", "a"]).silent();
    // Both are frames of a single block; `long` is one of the longer form.
    assert!(
        [folder.read("a.pz")[12], folder.read("no suffix")[12]].iter().all(|flags| flags & 8 == 8)
    );
    folder.write("b", &[b'a'; 100_000]);
    folder.pz(&["compress", "-2", "-b64K", "-o", "long", "b"]).silent();
    assert_eq!(folder.read("long")[12] & 8, 0);
    folder.pz_with(&["-4", "-o", "empty"], b"").silent();
    let sized = b"\x89PZF\r\n\x1a\n\x01\x02\x14\x03\x01\xe8\x03\0\0\0\0\0\0";
    folder.write("sized", sized);
    folder.write("cut", &folder.read("a.pz")[..9]);
    let file = |arguments: &[&str]| {
        let mut command = Command::new("file");
        let ran =
            command.args(["-m", "magic"]).args(arguments).current_dir(folder.as_path()).output();
        ran.map(|ran| {
            let (stdout, stderr) = (String::from_utf8(ran.stdout), String::from_utf8(ran.stderr));
            assert_eq!((ran.status.code(), stderr.as_deref()), (Some(0), Ok("")));
            stdout.unwrap()
        })
    };
    let Ok(said) = file(&["a.pz", "no suffix", "cut", "text", "sized", "long", "empty"]) else {
        return skip("there is no file(1)");
    };
    let lines: Vec<_> = said.lines().collect();
    assert!(
        lines[0].contains("pz compressed data, version 1, Burrows-Wheeler transform"),
        "{said}"
    );
    assert!(lines[0].contains("level 9"), "{said}");
    assert!(lines[1].contains("LZ77 and Huffman coding") && lines[1].contains("level 1"), "{said}");
    assert!(lines[2].contains("pz compressed data") && !lines[3].contains("pz"), "{said}");
    assert!(
        lines[4].ends_with("LZ77 and FSE, blocks of 2^20 bytes, level 3, 1000 bytes of contents")
    );
    assert!(
        lines[0].contains("in a single block") && lines[1].contains("in a single block"),
        "{said}"
    );
    assert!(lines[5].contains("blocks of 2^16 bytes, level 2, 100000 bytes of"), "{said}");
    assert!(!lines[5].contains("single") && lines[6].contains("level 4, empty"), "{said}");
    for name in ["a.pz", "long", "empty"] {
        assert_eq!(file(&["-b", "--mime-type", name]).unwrap(), "application/x-pz\n");
    }
}

#[test]
fn desktops_recognise_our_files() {
    let folder = Folder::new();
    let package = String::from_utf8(folder.pz(&["types", "mime"]).silent()).unwrap();
    folder.write("a", b"contents");
    folder.pz(&["compress", "a"]).silent();
    let head = folder.read("a.pz")[..8].escape_ascii().to_string();
    let head = head.replace("\\r", "\\x0d").replace("\\n", "\\x0a");
    assert!(package.contains(&format!("value=\"{head}\"")), "{head}:\n{package}");
    for pattern in ["*.pz", "*.tar.pz", "*.tpz"] {
        assert!(package.contains(&format!("<glob pattern=\"{pattern}\"/>")), "{package}");
    }
    folder.write("mime/packages/pz.xml", package.as_bytes());
    match Command::new("update-mime-database").arg(folder.path("mime")).output() {
        Ok(ran) => assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr)),
        Err(_) => eprintln!("update-mime-database is not there: its view was not asked for"),
    }
}

#[test]
fn man_pages() {
    let folder = Folder::new();
    let page = String::from_utf8(folder.pz(&["man"]).silent()).unwrap();
    assert!(page.contains(".TH pz 1") && page.contains("PZ_LEVEL"), "{page}");
    folder.pz(&["man", "man1"]).silent();
    for command in
        ["", "-compress", "-decompress", "-test", "-list", "-bench", "-devices", "-recover"]
    {
        let page = String::from_utf8(folder.read(&format!("man1/pz{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    folder.write("file", b"");
    folder.pz(&["man", "file"]).complains(1, "pz: file: ");
}
