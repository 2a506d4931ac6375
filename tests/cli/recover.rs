//! `pz recover`

use crate::support::{Folder, sample};

const BLOCK: usize = 65_536;

/// A file of five blocks, of which `damage` bytes from `at` (a share of the file) are overwritten.
fn damaged(folder: &Folder, contents: &[u8], damage: usize) -> Vec<u8> {
    folder.pz_with(&["-o", "a.pz", "-b", "64K"], contents).silent();
    let mut packed = folder.read("a.pz");
    let list = folder.pz(&["list", "--json", "-v", "a.pz"]).json();
    let third = list[0]["frames"][0]["blocks"][2]["offset"].as_u64().unwrap() as usize;
    packed[third + 100..third + 100 + damage].fill(0xff);
    folder.write("a.pz", &packed);
    packed
}

#[test]
fn undamaged_blocks_are_saved() {
    let folder = Folder::new();
    let contents = sample(5 * BLOCK - 1000);
    damaged(&folder, &contents, 10);
    let ran = folder.pz(&["recover", "-o", "saved", "a.pz"]);
    assert_eq!(
        (ran.code, &*ran.stderr),
        (Some(2), "pz: a.pz: damaged: 65536 bytes of contents are lost\n")
    );
    let text = ran.text();
    assert!(text.contains("a.pz: lost: bytes 131072..196608 of the contents\n"), "{text}");
    assert!(text.contains("a.pz: damaged: bytes "), "{text}");
    assert!(text.contains("a.pz: saved: 4 blocks, 261144 bytes\n"), "{text}");
    let expected = [&contents[..2 * BLOCK], &contents[3 * BLOCK..]].concat();
    assert!(folder.read("saved") == expected);

    let ran = folder.pz(&["recover", "--fill", "--json", "-f", "-o", "saved", "a.pz"]);
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["lost"][0]["start"], 2 * BLOCK);
    assert_eq!(report["lost"][0]["end"], 3 * BLOCK);
    assert_eq!(report["saved_blocks"], 4);
    let mut expected = contents.clone();
    expected[2 * BLOCK..3 * BLOCK].fill(0);
    assert!(folder.read("saved") == expected);

    // To standard output: the report makes way.
    let ran = folder.pz(&["recover", "--fill", "-c", "a.pz"]);
    assert!(ran.stdout == expected && ran.code == Some(2));
    assert!(ran.stderr.contains("lost: bytes 131072..196608"), "{}", ran.stderr);
}

#[test]
fn a_sound_file_is_saved_whole() {
    let folder = Folder::new();
    let contents = sample(3 * BLOCK);
    folder.pz_with(&["-o", "a.pz", "-b", "64K"], &contents).silent();
    let text = String::from_utf8(folder.pz(&["recover", "a.pz"]).silent()).unwrap();
    assert_eq!(text, "a.pz: saved: 3 blocks, 196608 bytes\n");
    assert!(folder.read("a") == contents);
    folder.pz(&["recover", "a.pz"]).says(1, &["pz: a.pz: a: already exists; -f overwrites it"]);
}

#[test]
fn a_cut_file_is_saved_to_its_end() {
    let folder = Folder::new();
    let contents = sample(5 * BLOCK);
    let packed = damaged(&folder, &contents, 0);
    folder.write("cut.pz", &packed[..packed.len() * 3 / 5]);
    let ran = folder.pz(&["recover", "-o", "saved", "cut.pz"]);
    assert_eq!(ran.code, Some(2));
    let saved = folder.read("saved");
    assert!(saved.len() >= BLOCK && contents.starts_with(&saved), "{} bytes", saved.len());
}

#[test]
fn nothing_to_save() {
    let folder = Folder::new();
    folder.write("plain.pz", &sample(10_000));
    let ran = folder.pz(&["recover", "plain.pz"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(folder.pz(&["recover", "none.pz"]).code, Some(1));
}
