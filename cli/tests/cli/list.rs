//! `pz list`

use crate::support::{Folder, sample};

#[test]
fn one_line_per_file() {
    let folder = Folder::new();
    folder.write("a", &[7; 100_000]);
    folder.write("b", &sample(70_000));
    folder.pz(&["compress", "-p", "store", "-b", "64K", "a", "b"]).silent();
    let ran = folder.pz(&["list", "a.pz"]);
    let lines: Vec<Vec<&str>> =
        ran.stdout_lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0],
        [
            "Frames",
            "Blocks",
            "Pipeline",
            "Compressed",
            "Contents",
            "Ratio",
            "Check",
            "Memory",
            "File"
        ]
    );
    assert_eq!(lines[1][..3], ["1", "2", "store"]);
    assert_eq!(*lines[1].last().unwrap(), "a.pz");
    assert_eq!(lines.len(), 2);

    let two = folder.pz(&["list", "a.pz", "b.pz"]);
    assert_eq!(two.stdout_lines().count(), 4);
    assert!(two.text().trim_end().ends_with("2 files"), "{}", two.text());
    let found = folder.pz(&["list", "-r", "."]);
    assert_eq!(found.stdout_lines().count(), 4);
}

#[test]
fn frames_of_one_block_and_of_several() {
    let folder = Folder::new();
    let frame = |contents: &[u8]| folder.pz_with(&["-1", "-b", "64K"], contents).silent();
    let parts = [sample(150_000), b"short".to_vec(), Vec::new(), sample(70_000), sample(400)];
    let file: Vec<u8> = parts.iter().flat_map(|part| frame(part)).collect();
    folder.write("mixed.pz", &file);
    let lens = parts.each_ref().map(Vec::len);
    let list = folder.pz(&["list", "-v", "--json", "mixed.pz"]).json();
    assert_eq!((&list[0]["content_size"], &list[0]["blocks"]), (&220_405.into(), &7.into()));
    let frames = list[0]["frames"].as_array().unwrap();
    assert_eq!(frames.len(), 5);
    let mut at = 0;
    for (listed, len) in frames.iter().zip(lens) {
        assert_eq!((&listed["offset"], &listed["content_size"]), (&at.into(), &len.into()));
        let blocks = listed["blocks"].as_array().map_or(0, Vec::len);
        assert_eq!(blocks, len.div_ceil(65_536));
        // The header records the length of a single block.
        assert_eq!(listed["size_in_header"], len <= 65_536);
        at += listed["compressed_size"].as_u64().unwrap();
    }
    assert_eq!(at, file.len() as u64);
    let ran = folder.pz(&["list", "mixed.pz"]);
    let line: Vec<_> = ran.stdout_lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(line[..2], ["5", "7"]);
}

#[test]
fn one_line_per_block() {
    let folder = Folder::new();
    folder.pz_with(&["-o", "a.pz", "-b", "64K", "-1"], &sample(200_000)).silent();
    let ran = folder.pz(&["list", "-v", "a.pz"]);
    let blocks = ran.stdout_lines().filter(|line| line.contains("lz77")).count();
    assert_eq!(blocks, 4, "{}", ran.text());
    assert!(ran.text().starts_with("a.pz: 200000 bytes of contents in "), "{}", ran.text());
}

#[test]
fn the_filter_of_each_block_is_listed() {
    let folder = Folder::new();
    let numbers: Vec<u8> = (0..40_000_u32).flat_map(|i| (i * 3 + i % 7).to_le_bytes()).collect();
    folder.write("a", &[&numbers[..131_072], &sample(65_536)].concat());
    for (filter, expected) in [
        ("i32", ["delta4,zigzag4,transpose4"; 3]),
        ("none", ["-"; 3]),
        ("auto", ["delta4,zigzag4,transpose4", "delta4,zigzag4,transpose4", "-"]),
    ] {
        folder.pz(&["compress", "-f", "-b", "64K", "--filter", filter, "a"]).silent();
        let ran = folder.pz(&["list", "-v", "a.pz"]);
        let filters: Vec<_> = ran
            .stdout_lines()
            .filter(|line| line.contains("lz77"))
            .filter_map(|line| line.split_whitespace().nth(2))
            .collect();
        assert_eq!(filters, expected, "{}", ran.text());
        let list = folder.pz(&["list", "-v", "--json", "a.pz"]).json();
        let block = &list[0]["frames"][0]["blocks"][2];
        match expected[2] {
            "-" => assert!(block["filter"].is_null()),
            name => assert_eq!(block["filter"], name),
        }
        folder.pz(&["decompress", "-f", "-o", "b", "a.pz"]).silent();
        assert!(folder.read("b") == folder.read("a"));
    }
}

#[test]
fn json_says_everything() {
    let folder = Folder::new();
    let contents = sample(200_000);
    folder.write("a", &contents);
    folder.pz(&["compress", "-9", "-b", "64K", "a"]).silent();
    let packed = folder.read("a.pz").len();
    let list = folder.pz(&["list", "--json", "-v", "a.pz"]).json();
    let file = &list[0];
    assert_eq!(file["file"], "a.pz");
    assert_eq!(file["compressed_size"], packed);
    assert_eq!(file["content_size"], 200_000);
    assert_eq!(file["blocks"], 4);
    assert!((file["ratio"].as_f64().unwrap() - 200_000.0 / packed as f64).abs() < 1e-9);
    assert!(file["decode_memory"].as_u64().unwrap() >= 65_536);
    let frame = &file["frames"][0];
    assert_eq!((&frame["pipeline"], &frame["level"]), (&"bwt".into(), &9.into()));
    assert_eq!((&frame["block_size"], &frame["block_count"]), (&65_536.into(), &4.into()));
    assert_eq!(frame["size_in_header"], true);
    let mut end = 0;
    for (number, block) in frame["blocks"].as_array().unwrap().iter().enumerate() {
        assert_eq!((&block["number"], &block["content_offset"]), (&number.into(), &end.into()));
        end += block["content_size"].as_u64().unwrap();
        for check in ["payload_checksum", "content_checksum"] {
            assert_eq!(block[check].as_str().unwrap().len(), 8);
        }
    }
    assert_eq!(end, 200_000);
    // No blocks without -v; standard input works too.
    let file = std::fs::File::open(folder.path("a.pz")).unwrap();
    let output = folder.command(&["-l", "--json"]).stdin(file).output().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list[0]["file"], "standard input");
    assert!(list[0]["frames"][0].get("blocks").is_none());
}

#[test]
fn files_that_cannot_be_listed() {
    let folder = Folder::new();
    folder.write("plain.pz", b"plain text that nobody compressed");
    folder.pz(&["list", "plain.pz"]).says(2, &["pz: plain.pz: not in pz format"]);
    folder
        .pz_with(&["list"], b"")
        .says(1, &["pz: standard input: is not a regular file, and listing needs to seek"]);
    folder.pz_with(&["-o", "a.pz"], b"contents").silent();
    // The program lists the other files anyway, and the JSON is complete.
    let ran = folder.pz(&["list", "--json", "plain.pz", "a.pz"]);
    let list: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((list.as_array().unwrap().len(), ran.code), (1, Some(2)));
}

/// Frames without contents, one after another.
fn empty_frames(count: usize) -> Vec<u8> {
    pz::compress(&[], &pz::Options::new()).unwrap().repeat(count)
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_number_of_frames_or_blocks() {
    use crate::support::peak_memory;
    use std::io::Write as _;
    let folder = Folder::new();
    folder.write("one.pz", &empty_frames(1));
    folder.write("frames.pz", &empty_frames(200_000));
    let options = pz::Options::new().block_size(1 << 16).threads(1);
    let mut encoder = pz::Encoder::new(Vec::new(), &options).unwrap();
    for _ in 0..20_000 {
        encoder.write_all(&[5; 1 << 16]).unwrap();
    }
    folder.write("blocks.pz", &encoder.finish().unwrap());
    let (code, least) = peak_memory(&folder, &["list", "one.pz"]);
    assert_eq!(code, 0);
    for arguments in [
        &["list", "-M", "4M", "frames.pz", "blocks.pz"][..],
        &["list", "-M", "4M", "-v", "frames.pz", "blocks.pz"],
        &["list", "-M", "4M", "-v", "--json", "frames.pz", "blocks.pz"],
        &["-l", "-M4M", "frames.pz"],
    ] {
        let (code, peak) = peak_memory(&folder, arguments);
        assert_eq!((code, &folder.read("stderr")[..]), (0, &b""[..]));
        assert!(
            peak < least + (3 << 20),
            "{peak} bytes, of which {least} whatever is listed: {arguments:?}"
        );
    }
    folder
        .pz(&["list", "-M", "100K", "one.pz"])
        .complains(1, "pz: one.pz: needs 262144 bytes of memory, more than the limit");
}

#[test]
fn many_frames_are_listed_in_order() {
    let folder = Folder::new();
    let contents = sample(300);
    let mut file = Vec::new();
    for i in 0..20_000 {
        let part = &contents[..i % 300];
        file.extend(pz::compress(part, &pz::Options::new().pipeline(pz::Pipeline::Store)).unwrap());
    }
    folder.write("a.pz", &file);
    let list = folder.pz(&["list", "--json", "a.pz"]).json();
    let frames = list[0]["frames"].as_array().unwrap();
    assert_eq!((frames.len(), &list[0]["compressed_size"]), (20_000, &file.len().into()));
    let mut at = 0;
    for (i, frame) in frames.iter().enumerate() {
        assert_eq!((&frame["number"], &frame["offset"]), (&i.into(), &at.into()));
        assert_eq!(frame["content_size"], i % 300);
        at += frame["compressed_size"].as_u64().unwrap();
    }
    let ran = folder.pz(&["list", "-v", "a.pz"]);
    let lines = ran.stdout_lines().filter(|line| line.starts_with("frame ")).count();
    assert_eq!(lines, 20_000);
}

/// Names in JSON are exact, although messages escape them.
#[cfg(unix)]
#[test]
fn json_has_exact_names() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    for (name, file, bytes) in [
        (&b"plain.pz"[..], "plain.pz", None),
        ("größer.pz".as_bytes(), "größer.pz", None),
        (b"two\nlines\x1b\"\\.pz", "two\nlines\u{1b}\"\\.pz", None),
        (b"caf\xe9.pz", "caf\u{fffd}.pz", Some("636166e92e707a")),
        (b"\xff\xfe", "\u{fffd}\u{fffd}", Some("fffe")),
    ] {
        let folder = Folder::new();
        let name = OsStr::from_bytes(name);
        let path = folder.as_path().join(name);
        std::fs::write(&path, pz_of(b"contents")).unwrap();
        for command in ["list", "recover"] {
            let mut command = folder.command(&[command, "--json"]);
            if command.get_args().next() == Some(OsStr::new("recover")) {
                command.args(["-o", "saved"]);
            }
            let output = command.arg(name).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let object = if json.is_array() { &json[0] } else { &json };
            assert_eq!(
                (object["file"].as_str(), object["file_bytes"].as_str()),
                (Some(file), bytes)
            );
        }
    }
}

fn pz_of(contents: &[u8]) -> Vec<u8> {
    Folder::new().pz_with(&["-1"], contents).silent()
}
