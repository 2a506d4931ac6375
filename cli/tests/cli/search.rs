//! `pz search`: kernels, or threads in their place, search files and archives.

use crate::support::{Folder, noise, sample};

#[test]
fn files_and_archives() {
    let folder = Folder::new();
    let mut contents = sample(900_000);
    for at in [0, 262_140, 500_000, 899_994] {
        contents[at..at + 6].copy_from_slice(b"n33dle");
    }
    folder.write("d/plain", &contents);
    folder.write("d/inner/packed", &contents[10..]);
    folder.write("d/empty", b"");
    folder.pz(&["compress", "--rm", "-1", "-b", "64K", "d/inner/packed"]).silent();
    let expected = "d/inner/packed.pz:262130\nd/inner/packed.pz:499990\nd/inner/packed.pz:899984\n\
        d/plain:0\nd/plain:262140\nd/plain:500000\nd/plain:899994\n";
    for device in ["cpu", "opencl", "webgpu"] {
        let found = folder.pz(&["search", "--device", device, "n33dle", "d"]).silent();
        assert_eq!(String::from_utf8(found).unwrap(), expected, "{device}");
        let found = folder.pz(&["search", "--device", device, "is nowhere here", "d"]).silent();
        assert!(found.is_empty());
    }
    // More files than the program searches at once.
    for i in 0..300 {
        folder.write(&format!("many/{i:03}"), format!("{i} n33dle").as_bytes());
    }
    let found = String::from_utf8(folder.pz(&["search", "n33dle", "many"]).silent()).unwrap();
    assert_eq!((found.lines().count(), found.lines().last()), (300, Some("many/299:4")));
}

#[test]
fn unsearchable_files_are_reported() {
    let folder = Folder::new();
    folder.write("d/a.pz", b"no archive");
    folder.write("d/b", b"text");
    // The program notices a damaged block only when it reads it.
    folder.write("d/c", &noise(100_000));
    folder.pz(&["compress", "--rm", "-b", "64K", "d/c"]).silent();
    let mut damaged = folder.read("d/c.pz");
    damaged[1000] ^= 1;
    folder.write("d/c.pz", &damaged);
    for device in ["cpu", "opencl", "webgpu"] {
        let ran = folder.pz(&["search", "--device", device, "text", "d"]);
        assert_eq!((ran.code, ran.stdout.as_slice()), (Some(1), &b"d/b:0\n"[..]));
        let damage = "pz: d/c.pz: corrupt: the block's checksum does not agree (frame 0, block 0, byte 25); \
            1 part was not searched";
        ran.says(1, &["pz: d/a.pz: not in pz format", damage]);
    }
    folder.write("e/b", b"text");
    folder.pz(&["search", "", "e"]).complains(1, "pz: a pattern of 0 bytes");
    folder.pz(&["search", &"x".repeat(257), "e"]).complains(1, "pz: a pattern of 257 bytes");
    folder.pz(&["search", "x", "none"]).complains(1, "pz: none: ");
}
