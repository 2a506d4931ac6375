//! A damaged file leads to the right output, or to exit code 2 and one line, and leaves nothing behind.

use crate::support::{Folder, noise, sample};

#[test]
fn damaged_files_are_refused() {
    let folder = Folder::new();
    let contents = sample(150_000);
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for pipeline in ["lzh", "lzf", "bwt", "fse", "store"] {
        let sound = folder.pz_with(&["-p", pipeline, "-b", "64K"], &contents).silent();
        for round in 0..30 {
            let mut bad = sound.clone();
            match round % 3 {
                0 => bad[random(sound.len())] ^= 1 << random(8),
                1 => bad.truncate(random(sound.len())),
                _ => {
                    let start = random(sound.len());
                    let end = (start + 1 + random(500)).min(sound.len());
                    bad[start..end].fill(random(256) as u8);
                }
            }
            folder.write("bad.pz", &bad);
            let ran = folder.pz(&["decompress", "-f", "bad.pz"]);
            if ran.code == Some(0) {
                assert!(folder.read("bad") == contents, "{pipeline} {round}: wrong contents");
                std::fs::remove_file(folder.path("bad")).unwrap();
            } else {
                ran.complains(2, "pz: bad.pz: ");
                folder.pz(&["test", "bad.pz"]).complains(2, "pz: bad.pz: ");
            }
            assert_eq!(folder.names(), ["bad.pz"]);
        }
    }
}

/// Several threads read a file, and one reads a pipe.
#[test]
fn files_and_pipes_give_the_same_contents_and_messages() {
    let folder = Folder::new();
    let blocks = |more: &[&str], contents: &[u8]| {
        folder.pz_with(&[&["-b", "64K"], more].concat(), contents).silent()
    };
    let long = [sample(200_000), noise(300_000), sample(200_000)].concat();
    let parts = [
        blocks(&[], &sample(400_000)),
        blocks(&["--long"], &long),
        blocks(&["-p", "store"], &noise(100_000)),
        blocks(&[], &sample(50_000)),
        blocks(&[], b""),
    ];
    let compare = |file: &[u8], threads: &str, what: &str| {
        folder.write("a.pz", file);
        let rename = |line: String| line.replace("standard input", "a.pz");
        let piped = folder.pz_with(&["-d", "-c", "-T", threads], file);
        let read = folder.pz(&["-d", "-c", "-T", threads, "a.pz"]);
        let message = rename(piped.stderr);
        assert!(read.stdout == piped.stdout, "{what}");
        assert_eq!((read.code, &read.stderr), (piped.code, &message), "{what}");
        let tested = folder.pz(&["test", "-T", threads, "a.pz"]);
        assert_eq!((tested.code, &tested.stderr), (piped.code, &message), "{what}");
        let named = folder.pz(&["-d", "-f", "-T", threads, "-o", "a", "a.pz"]);
        assert_eq!((named.code, &named.stderr), (piped.code, &message), "{what}");
        if named.code == Some(0) {
            assert!(folder.read("a") == piped.stdout, "{what}");
            std::fs::remove_file(folder.path("a")).unwrap();
        }
        assert_eq!(folder.names(), ["a.pz"]);
        piped.code
    };
    let all = parts.concat();
    for (number, file) in parts.iter().chain([&all]).enumerate() {
        for threads in ["1", "7"] {
            assert_eq!(compare(file, threads, "sound"), Some(0));
            let trailing = [&file[..], b"more"].concat();
            assert_eq!(compare(&trailing, threads, "trailing bytes"), Some(2));
            let len = file.len();
            // Inside the frame's header, the first block's header, payloads, the index and the footer.
            for at in
                [4, 20, 40, len / 3, len / 2, len * 2 / 3, len.saturating_sub(30), len - 9, len - 1]
            {
                let what = format!("file {number}, byte {at} of {len}, {threads} threads");
                compare(&file[..at.min(len)], threads, &format!("{what}: cut"));
                let mut damaged = file.clone();
                damaged[at % len] ^= 0x10;
                compare(&damaged, threads, &format!("{what}: damaged"));
            }
        }
    }
}

#[test]
fn an_empty_file_with_a_damaged_checksum_is_refused() {
    let folder = Folder::new();
    let sound = folder.pz_with(&[], b"").silent();
    for at in sound.len() - 5..sound.len() {
        let mut damaged = sound.clone();
        damaged[at] ^= 4;
        folder.write("a.pz", &damaged);
        for arguments in [["test", "a.pz"], ["decompress", "a.pz"], ["list", "a.pz"]] {
            folder.pz(&arguments).complains(2, "pz: a.pz: ");
        }
        assert_eq!(folder.names(), ["a.pz"]);
    }
}

#[test]
fn bytes_after_the_last_frame_are_damage() {
    let folder = Folder::new();
    let mut packed = folder.pz_with(&[], b"contents").silent();
    packed.extend_from_slice(b"trailing bytes that are no frame, and more than a header's length");
    folder.pz_with(&["-t"], &packed).complains(2, "pz: standard input: corrupt: ");
}

#[test]
fn a_limit_on_memory_holds() {
    let folder = Folder::new();
    folder.pz_with(&["-o", "a.pz", "-9"], &sample(9_000_000)).silent();
    let line = folder.pz(&["test", "-M", "64K", "a.pz"]).complains(1, "pz: a.pz: needs ");
    assert!(line.ends_with(" more than the limit of 65536 bytes; -M raises it\n"), "{line}");
    assert_eq!(folder.pz(&["decompress", "-M", "64K", "a.pz"]).code, Some(1));
    assert_eq!(folder.names(), ["a.pz"]);
    folder.write("a", b"contents");
    folder.pz(&["compress", "-M", "64K", "-o", "b.pz", "a"]).complains(1, "pz: a: needs ");
    assert_eq!(folder.names(), ["a", "a.pz"]);
}
