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
