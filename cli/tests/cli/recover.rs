//! `pz recover`

use crate::support::{Folder, sample};

const BLOCK: usize = 65_536;

/// A file of five blocks, in which `damage` bytes are overwritten from `at` (a share of the file) on.
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

    // With the contents on standard output, the report goes to standard error.
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
fn threads_do_not_change_the_report() {
    let folder = Folder::new();
    let contents = sample(40 * BLOCK);
    damaged(&folder, &contents, BLOCK);
    let report = |threads| {
        let ran = folder.pz(&["recover", threads, "--json", "-f", "-o", "saved", "a.pz"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        (ran.text(), ran.stderr, folder.read("saved"))
    };
    let expected = report("-T1");
    assert!(expected.2.len() < contents.len());
    for threads in ["-T2", "-T8"] {
        assert!(report(threads) == expected);
    }
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
fn frames_of_one_block_are_saved() {
    let folder = Folder::new();
    let parts = [sample(3000), sample(5000), sample(200)];
    let frames = parts.each_ref().map(|part| folder.pz_with(&["-3"], part).silent());
    let mut file = frames.concat();
    let second = frames[0].len();
    file[second + 100] ^= 1;
    folder.write("a.pz", &file);
    let ran = folder.pz(&["recover", "--fill", "a.pz"]);
    assert_eq!(
        (ran.code, &*ran.stderr),
        (Some(2), "pz: a.pz: damaged: 5000 bytes of contents are lost\n")
    );
    let text = ran.text();
    let end = second + frames[1].len();
    assert!(text.contains("a.pz: lost: bytes 3000..8000 of the contents\n"), "{text}");
    assert!(
        text.contains(&format!("a.pz: damaged: bytes {second}..{end} of the file\n")),
        "{text}"
    );
    assert!(text.contains("a.pz: saved: 2 blocks, 3200 bytes\n"), "{text}");
    assert!(folder.read("a") == [&parts[0][..], &[0; 5000], &parts[2]].concat());
    // If the file ends after a header, the header still tells the length of the contents.
    folder.write("cut.pz", &frames[1][..40]);
    let ran = folder.pz(&["recover", "--fill", "cut.pz"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(folder.read("cut") == [0; 5000]);
}

#[test]
fn nothing_to_save() {
    let folder = Folder::new();
    folder.write("plain.pz", &sample(10_000));
    let ran = folder.pz(&["recover", "plain.pz"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(folder.pz(&["recover", "none.pz"]).code, Some(1));
}

/// A frame header that declares `content_size` bytes of 64 MiB blocks, and nothing more.
fn header(content_size: u64) -> Vec<u8> {
    let mut bytes = b"\x89PZF\r\n\x1A\n\x01\x04\x1A\x09\x01".to_vec();
    bytes.extend_from_slice(&content_size.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn a_forged_length_fills_nothing() {
    let folder = Folder::new();
    folder.write("a.pz", &header(1 << 44));
    let line = "pz: a.pz: declares 16.0 TiB of contents, and a file of this length holds at most \
                0 B; --max-output 17592186044416 permits it";
    folder.pz(&["recover", "--fill", "a.pz"]).says(1, &[line]);
    assert_eq!(folder.pz(&["recover", "--fill", "-c", "a.pz"]).says(1, &[line]), b"");
    assert_eq!(folder.names(), ["a.pz"]);
    folder
        .pz(&["recover", "--fill", "--max-output", "1T", "a.pz"])
        .complains(1, "pz: a.pz: declares 16.0 TiB of contents");
    assert_eq!(folder.names(), ["a.pz"]);
}

#[cfg(unix)]
#[test]
fn holes_take_no_space() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new();
    let declared = 3 << 30;
    folder.write("a.pz", &header(declared));
    let ran = folder.pz(&["recover", "--fill", "--max-output", "3G", "a.pz"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let metadata = std::fs::metadata(folder.path("a")).unwrap();
    assert_eq!(metadata.len(), declared);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    // Zeros that are saved become holes, too.
    folder.write("zeros", &[0; 4 << 20]);
    folder.pz(&["compress", "zeros"]).silent();
    for (option, takes_space) in [("-f", false), ("--no-sparse", true)] {
        let saved = folder.pz(&["recover", option, "-o", &format!("saved{option}"), "zeros.pz"]);
        assert_eq!(saved.code, Some(0), "{saved:?}");
        let metadata = std::fs::metadata(folder.path(&format!("saved{option}"))).unwrap();
        assert_eq!((metadata.len(), metadata.blocks() > 0), (4 << 20, takes_space), "{option}");
    }
    // Holes also work in standard output if it is a file, but only at its end: the file keeps its old contents.
    let output = std::fs::File::create(folder.path("out")).unwrap();
    let mut command = folder.command(&["recover", "--fill", "--max-output", "3G", "-c", "a.pz"]);
    assert_eq!(command.stdout(output).output().unwrap().status.code(), Some(2));
    let metadata = std::fs::metadata(folder.path("out")).unwrap();
    assert_eq!(metadata.len(), declared);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
}

/// Reading this hole would take far too long.
#[cfg(target_os = "linux")]
#[test]
fn holes_of_the_input_are_not_read() {
    let folder = Folder::new();
    let contents = sample(5 * BLOCK);
    damaged(&folder, &contents, 10);
    let file = std::fs::File::options().write(true).open(folder.path("a.pz")).unwrap();
    file.set_len(10 << 40).unwrap();
    let ran = folder.pz(&["recover", "a.pz"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(folder.read("a") == [&contents[..2 * BLOCK], &contents[3 * BLOCK..]].concat());
}

#[test]
fn holes_between_blocks_keep_every_offset() {
    let folder = Folder::new();
    let contents = sample(5 * BLOCK);
    damaged(&folder, &contents, 10);
    let mut expected = contents.clone();
    expected[2 * BLOCK..3 * BLOCK].fill(0);
    folder.write("old", b"older bytes");
    // Append to a file that already has contents.
    let output = std::fs::File::options().append(true).open(folder.path("old")).unwrap();
    let mut command = folder.command(&["recover", "--fill", "-c", "a.pz"]);
    command.stdout(output).output().unwrap();
    assert!(folder.read("old") == [b"older bytes", &expected[..]].concat());
    let ran = folder.pz(&["recover", "--max-output", "100K", "-o", "b", "a.pz"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("--max-output") && !folder.has("b"), "{}", ran.stderr);
}

#[cfg(target_os = "linux")]
#[test]
fn memory_stays_under_its_limit() {
    use crate::support::peak_memory;
    let folder = Folder::new();
    folder.pz_with(&["-o", "one.pz", "-p", "store"], b"contents").silent();
    let (code, least) = peak_memory(&folder, &["recover", "-f", "one.pz"]);
    assert_eq!(code, 0);
    // Small blocks with a byte between them; damaged frames one after another; undamaged frames.
    let options = pz::Options::new().pipeline(pz::Pipeline::Store).block_size(1 << 16);
    let contents: Vec<u8> = (0..(1u32 << 16) + 2).map(|i| (i % 251) as u8).collect();
    let file = pz::compress(&contents, &options).unwrap();
    // The second block: a header of 19 bytes and two bytes of contents.
    let block = &file[17 + 19 + (1 << 16)..][..21];
    let empty = pz::compress(&[], &pz::Options::new()).unwrap();
    let plain = &["recover", "-M", "16M", "-o", "out", "-f", "many.pz"][..];
    let filled = &["recover", "-M", "16M", "--fill", "--json", "-o", "out", "-f", "many.pz"][..];
    let cases = [
        ([block, b"!"].concat().repeat(200_000), plain),
        // A file system may take long to free an output with many holes.
        ([block, b"!"].concat().repeat(10_000), filled),
        ([&empty[..17], b"!", &empty[17..]].concat().repeat(100_000), filled),
        (empty.repeat(200_000), filled),
    ];
    for (number, (case, arguments)) in cases.iter().enumerate() {
        folder.write("many.pz", case);
        let (_, peak) = peak_memory(&folder, arguments);
        let stderr = String::from_utf8(folder.read("stderr")).unwrap();
        assert!(!stderr.contains("memory"), "{stderr}");
        assert!(peak < least + (16 << 20), "case {number}: {peak} bytes, of which {least} always");
    }
    // Large blocks on several threads, in memory for some of them.
    let alone = pz::Options::new().block_size(1 << 20).long_distance(0);
    let options = alone.level(pz::Level::new(9).unwrap());
    let mut file = pz::compress(&sample(8 << 20), &options).unwrap();
    file[1000] ^= 1;
    folder.write("blocks.pz", &file);
    for memory in ["16M", "32M"] {
        let arguments = ["recover", "-T8", "-M", memory, "-o", "out", "-f", "blocks.pz"];
        let (code, peak) = peak_memory(&folder, &arguments);
        assert_eq!(code, 2);
        assert_eq!(folder.read("out").len(), 7 << 20);
        let limit = if memory == "16M" { 16 << 20 } else { 32 << 20 };
        assert!(peak < least + limit, "{peak} bytes, of which {least} always");
    }
    // A limit too small for one block is refused in one line.
    folder.pz_with(&["-o", "large.pz", "-b", "16M"], &sample(100_000)).silent();
    folder
        .pz(&["recover", "-M", "1M", "-o", "none", "large.pz"])
        .complains(1, "pz: large.pz: needs ");
    assert!(!folder.has("none"));
}
