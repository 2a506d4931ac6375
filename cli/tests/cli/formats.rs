//! Files of other programs.

use std::io::Write;

use crate::support::{Folder, sample};

/// The same contents in each format that the program reads, with the format's suffix.
fn packed(contents: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(contents).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    bzip2.write_all(contents).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(contents).unwrap();
    let mut info =
        lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
    info.content_checksum = true;
    let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    lz4.write_all(contents).unwrap();
    let mut zst = zstd::Encoder::new(Vec::new(), 3).unwrap();
    zst.include_checksum(true).unwrap();
    zst.write_all(contents).unwrap();
    vec![
        ("gz", gzip.finish().unwrap()),
        ("bz2", bzip2.finish().unwrap()),
        ("xz", xz.finish().unwrap()),
        ("lz4", lz4.finish().unwrap()),
        ("zst", zst.finish().unwrap()),
    ]
}

#[test]
fn other_formats_are_decompressed_and_tested() {
    let folder = Folder::new();
    for len in [0, 1, 2_500_000] {
        let contents = sample(len);
        for (suffix, bytes) in packed(&contents) {
            let name = format!("a.{suffix}");
            folder.write(&name, &bytes);
            folder.pz(&["test", &name]).silent();
            folder.pz(&["decompress", "--rm", &name]).silent();
            assert_eq!(folder.names(), ["a"], "{suffix}");
            assert!(folder.read("a") == contents, "{len} bytes of {suffix}");
            assert!(folder.pz_with(&["-d"], &bytes).silent() == contents, "{suffix} as a filter");
            std::fs::remove_file(folder.path("a")).unwrap();
        }
    }
}

#[test]
fn concatenated_members_are_read_to_the_end() {
    let folder = Folder::new();
    let (one, two) = (sample(100_000), sample(5));
    for ((suffix, first), (_, second)) in packed(&one).into_iter().zip(packed(&two)) {
        let both = [first, second].concat();
        let contents = [&one[..], &two].concat();
        assert!(folder.pz_with(&["-d"], &both).silent() == contents, "{suffix}");
    }
}

#[test]
fn cut_files_are_noticed_wherever_they_are_cut() {
    let folder = Folder::new();
    for (suffix, bytes) in packed(&sample(300_000)) {
        let last = bytes.len() - 1;
        for cut in [7, 20, 1000, bytes.len() / 2, last - 8, last - 4, last] {
            folder.pz_with(&["-t"], &bytes[..cut]).complains(2, "pz: standard input: truncated ");
            assert!(cut < bytes.len(), "{suffix}");
        }
    }
}

#[test]
fn damaged_files_are_noticed() {
    let folder = Folder::new();
    for (suffix, bytes) in packed(&sample(300_000)) {
        for place in [bytes.len() / 4, bytes.len() / 2, bytes.len() - bytes.len() / 4] {
            let mut bad = bytes.clone();
            bad[place] ^= 0x55;
            let name = format!("bad.{suffix}");
            folder.write(&name, &bad);
            folder.pz(&["decompress", &name]).complains(2, &format!("pz: {name}: "));
            assert_eq!(folder.names(), [&*name]);
            std::fs::remove_file(folder.path(&name)).unwrap();
        }
    }
}

/// The name of the format of files with this suffix.
fn format_of(suffix: &str) -> &str {
    match suffix {
        "gz" => "gzip",
        "bz2" => "bzip2",
        "zst" => "zstd",
        other => other,
    }
}

/// Tapes, disks and archivers fill the last block of a file with zeros.
#[test]
fn files_may_end_with_zeros_and_nothing_else() {
    let folder = Folder::new();
    let contents = sample(100_000);
    for (suffix, file) in packed(&contents) {
        let format = format_of(suffix);
        let complaint = format!(
            "pz: standard input: corrupt {format} file: trailing bytes are neither {format} nor zeros ("
        );
        let refuse = |spoilt: &[u8], complaint: &str| {
            let ran = folder.pz_with(&["-d"], spoilt);
            assert!(ran.stdout.starts_with(&contents), "{suffix}: what is sound comes out");
            ran.complains(2, complaint);
        };
        for zeros in [1, 2, 511, 3_000_000] {
            let zeros = vec![0; zeros];
            for copies in [1, 2] {
                let padded = [&file.repeat(copies)[..], &zeros].concat();
                folder.pz_with(&["-t"], &padded).silent();
                let restored = folder.pz_with(&["-d"], &padded).silent();
                assert!(restored == contents.repeat(copies), "{suffix}");
            }
            for garbage in [&b"x"[..], &file[..1], &file[..3], &file] {
                let spoilt = [&file[..], &zeros, garbage].concat();
                // Streams of xz may follow padding.
                if suffix != "xz" || garbage == b"x" {
                    refuse(&spoilt, &complaint);
                }
            }
        }
        for garbage in [&b"x"[..], b"x\0\0", b"\x1e\x8b\x08"] {
            refuse(&[&file[..], garbage].concat(), &complaint);
        }
        let begun = [&file[..], &file[..1]].concat();
        refuse(&begun, &format!("pz: standard input: truncated {format} file ("));
    }
}

#[test]
fn zeros_after_pz_files() {
    let folder = Folder::new();
    let contents = sample(300_000);
    folder.write("a", &contents);
    for block_size in ["64K", "1M"] {
        folder.pz(&["compress", "-f", "-b", block_size, "a"]).silent();
        let padded = [folder.read("a.pz"), vec![0; 10_240]].concat();
        folder.write("padded.pz", &padded);
        folder.pz(&["test", "padded.pz"]).silent();
        assert!(folder.pz(&["cat", "padded.pz"]).silent() == contents);
        assert!(folder.pz_with(&["-d"], &padded).silent() == contents);
        folder.pz(&["decompress", "-f", "-o", "restored", "padded.pz"]).silent();
        assert!(folder.read("restored") == contents);
        let part = folder.pz(&["cat", "--range", "299990..", "padded.pz"]).silent();
        assert!(part == contents[299_990..]);
        assert_eq!(folder.pz(&["recover", "-f", "-o", "saved", "padded.pz"]).code, Some(0));
        assert!(folder.read("saved") == contents);
        let listed = folder.pz(&["list", "-v", "--json", "padded.pz"]).json();
        assert_eq!(listed[0]["content_size"], 300_000);
        folder.write("bad.pz", &[&padded[..], b"x"].concat());
        folder.pz(&["test", "bad.pz"]).complains(
            2,
            "pz: bad.pz: corrupt: the bytes after the last frame are not in pz format (frame 1, ",
        );
    }
}

/// The bytes that the format's library decodes, one by one, until it fails.
fn sound_part(suffix: &str, bytes: &[u8]) -> usize {
    let reader: Box<dyn std::io::Read> = match suffix {
        "gz" => Box::new(flate2::bufread::GzDecoder::new(bytes)),
        "bz2" => Box::new(bzip2::bufread::BzDecoder::new(bytes)),
        "xz" => Box::new(liblzma::bufread::XzDecoder::new(bytes)),
        "lz4" => Box::new(lz4_flex::frame::FrameDecoder::new(bytes)),
        _ => Box::new(zstd::Decoder::with_buffer(bytes).unwrap()),
    };
    std::io::Read::bytes(reader).take_while(|byte| byte.is_ok()).count()
}

/// `pz cat` shows what is there of a log that is still being written.
#[test]
fn sound_contents_come_before_the_error() {
    let folder = Folder::new();
    let contents = sample(1_200_000);
    for (suffix, bytes) in packed(&contents) {
        for cut in [bytes.len() / 3, bytes.len() / 2, bytes.len() - 30] {
            let ran = folder.pz_with(&["-d"], &bytes[..cut]);
            assert!(contents.starts_with(&ran.stdout), "{suffix}");
            let sound = sound_part(suffix, &bytes[..cut]);
            assert!(ran.stdout.len() >= sound, "{suffix} {}, not {sound}", ran.stdout.len());
            // The first block of bzip2 holds 900 kB.
            assert!(sound > 0 || suffix == "bz2", "{suffix} cut at {cut}");
            ran.complains(2, "pz: standard input: truncated ");
        }
        let mut damaged = bytes.clone();
        let last = bytes.len() - 2;
        damaged[last / 2] ^= 0x55;
        for spoilt in [[&bytes[..], b"tail"].concat(), damaged] {
            let ran = folder.pz_with(&["-d"], &spoilt);
            // Libraries drop some of the bytes that they had decoded.
            let least = sound_part(suffix, &spoilt).min(contents.len()).saturating_sub(1 << 15);
            assert!(ran.stdout.len() >= least, "{suffix} {}, not {least}", ran.stdout.len());
            ran.complains(2, "pz: standard input: ");
        }
    }
    folder.write("a", &contents);
    folder.pz(&["compress", "-b", "64K", "a"]).silent();
    let file = folder.read("a.pz");
    let listed = folder.pz(&["list", "-v", "--json", "a.pz"]).json();
    let blocks = listed[0]["frames"][0]["blocks"].as_array().unwrap().clone();
    let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
    for block in [5, 12] {
        let cut = &file[..number(&blocks[block]["offset"]) + 40];
        folder.write("cut.pz", cut);
        for ran in [folder.pz_with(&["-d"], cut), folder.pz(&["cat", "cut.pz"])] {
            assert!(ran.stdout == contents[..block << 16], "{} bytes", ran.stdout.len());
            assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        }
    }
    let ran = folder.pz_with(&["-d"], &[&file[..], b"tail"].concat());
    assert!(ran.stdout == contents);
    assert_eq!(ran.code, Some(2));
}

/// A dictionary made by `zstd --train`.
const DICTIONARY: &[u8] = include_bytes!("data/words.zdict");

fn with_dictionary(contents: &[u8]) -> Vec<u8> {
    let mut compressor = zstd::bulk::Compressor::with_dictionary(3, DICTIONARY).unwrap();
    compressor.compress(contents).unwrap()
}

#[test]
fn missing_dictionaries_are_named() {
    let folder = Folder::new();
    let id = u32::from_le_bytes(*DICTIONARY[4..].first_chunk().unwrap());
    let zstd = with_dictionary(b"the length of the block and the offset");
    let line = |format: &str, id| {
        format!(
            "pz: standard input: needs the dictionary {id} that this {format} file was made with"
        )
    };
    folder.pz_with(&["-d"], &zstd).says(2, &[&line("zstd", id)]);
    // Another frame comes before it.
    let plain = zstd::encode_all(&b"plain "[..], 3).unwrap();
    let out = folder.pz_with(&["-d"], &[plain, zstd].concat()).says(2, &[&line("zstd", id)]);
    assert_eq!(out, b"plain ");
    let descriptor = b"\x61\x40\x07\0\0\0";
    let check = (twox_hash::XxHash32::oneshot(0, descriptor) >> 8) as u8;
    let lz4 = [&b"\x04\x22\x4d\x18"[..], descriptor, &[check], &[0; 4]].concat();
    folder.pz_with(&["-d"], &lz4).says(2, &[&line("lz4", 7)]);
}

/// A `.warc.zst` file begins with a skippable frame that holds its dictionary, compressed or not.
#[test]
fn web_archives_bring_their_dictionary() {
    let folder = Folder::new();
    let records = [&b"the length of the block "[..], b"and the offset of the frame ", b""];
    let frames: Vec<u8> = records.iter().flat_map(|record| with_dictionary(record)).collect();
    let skippable = |magic: u8, contents: &[u8]| {
        let len = (contents.len() as u32).to_le_bytes();
        [&[magic, 0x2a, 0x4d, 0x18][..], &len, contents].concat()
    };
    let coded = zstd::encode_all(DICTIONARY, 19).unwrap();
    for dictionary in [DICTIONARY, &coded] {
        let file = [skippable(0x5d, dictionary), frames.clone()].concat();
        folder.write("a.warc.zst", &file);
        folder.pz(&["test", "a.warc.zst"]).silent();
        assert_eq!(folder.pz(&["cat", "a.warc.zst"]).silent(), records.concat());
        let cut = &file[..dictionary.len() / 2];
        folder.pz_with(&["-d"], cut).complains(2, "pz: standard input: truncated zstd file (");
    }
    // In any other place, the frame is not a dictionary.
    let elsewhere = [skippable(0x50, b""), skippable(0x5d, DICTIONARY), frames.clone()].concat();
    folder.pz_with(&["-d"], &elsewhere).complains(2, "pz: standard input: needs the dictionary ");
    let bad = [skippable(0x5d, &coded[..100]), frames].concat();
    folder.pz_with(&["-d"], &bad).complains(
        2,
        "pz: standard input: corrupt zstd file: the file's dictionary cannot be decoded (",
    );
}

#[test]
fn formats_that_pz_does_not_read_are_named() {
    let folder = Folder::new();
    let tar = [&b"a"[..], &[0; 256], b"ustar\x0000", &[0; 700]].concat();
    for (head, what) in [
        (&b"\x1f\x9d\x90abc"[..], "is a compress (.Z) file, which pz does not read"),
        (b"LZIP\x01\x0c", "is a lzip file, which pz does not read"),
        (b"\x89LZO\x00\r\n\x1a\n", "is a lzop file, which pz does not read"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", "is a 7z file, which pz does not read"),
        (b"Rar!\x1a\x07\x01\x00", "is a rar file, which pz does not read"),
        (
            b"\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0",
            "is a lzma file, which pz does not read",
        ),
        (b"plain text that nobody compressed", "not in pz format"),
        (
            &tar,
            "is a plain tar archive: tar -a does not know .pz; tar -I pz -cf makes a compressed one",
        ),
    ] {
        folder.write("a.pz", head);
        for arguments in [&["test", "a.pz"][..], &["cat", "a.pz"], &["list", "a.pz"]] {
            folder.pz(arguments).says(2, &[&format!("pz: a.pz: {what}")]);
        }
    }
}

/// Like `gzip -dcf`, which `zcat -f` runs.
#[test]
fn plain_bytes_pass_if_forced_to_standard_output() {
    let folder = Folder::new();
    let text = sample(3_000_000);
    folder.write("text", &text);
    for plain in [&text[..], b"short", b"", b"\x89P", b"\x1f"] {
        folder.write("plain", plain);
        assert!(folder.pz(&["-dcf", "plain"]).silent() == plain);
        assert!(folder.pz(&["decompress", "-c", "-f", "plain"]).silent() == plain);
        assert!(folder.pz_with(&["-df"], plain).silent() == plain);
    }
    assert_eq!(folder.pz(&["-dcf", "--range", "2..4", "plain"]).code, Some(1));
    assert_eq!(folder.pz(&["-dcf", "--range", "2..9", "text"]).silent(), text[2..9]);
    for (suffix, bytes) in packed(&text) {
        assert!(folder.pz_with(&["-dcf"], &bytes).silent() == text, "{suffix}");
    }
    folder.pz_with(&["-dc"], b"plain").says(2, &["pz: standard input: not in pz format"]);
    folder.pz_with(&["-dcf"], b"LZIP\x01\x0c").complains(2, "pz: standard input: is a lzip file");
    folder.pz(&["decompress", "-f", "-o", "out", "text"]).complains(2, "pz: text: not in pz");
}

#[test]
fn memory_is_limited() {
    let folder = Folder::new();
    for (suffix, bytes) in packed(&sample(3_000_000)) {
        if ["xz", "zst"].contains(&suffix) {
            let name = format!("a.{suffix}");
            folder.write(&name, &bytes);
            let line =
                format!("pz: {name}: needs more than 65536 bytes of memory; -M raises the limit");
            folder.pz(&["test", "-M", "64K", &name]).says(1, &[&line]);
            folder.pz(&["test", "-M", "64M", &name]).silent();
        }
    }
}

#[test]
fn ranges_of_other_formats() {
    let folder = Folder::new();
    let contents = sample(2_500_000);
    for (suffix, bytes) in packed(&contents) {
        let range = folder.pz_with(&["-d", "--range", "1048570..1048580"], &bytes).silent();
        assert!(range == contents[1_048_570..1_048_580], "{suffix}");
    }
}

#[test]
fn other_formats_are_not_listed() {
    let folder = Folder::new();
    for (suffix, bytes) in packed(b"contents") {
        let name = format!("a.{suffix}");
        folder.write(&name, &bytes);
        let format = format_of(suffix);
        let line = format!("pz: {name}: is a {format} file; only pz files can be listed");
        folder.pz(&["list", &name]).says(2, &[&line]);
    }
}

#[test]
fn plain_files_are_in_no_format() {
    let folder = Folder::new();
    folder.write("a.pz", b"plain text that nobody compressed");
    folder.write("empty.pz", b"");
    folder.pz(&["test", "a.pz"]).says(2, &["pz: a.pz: not in pz format"]);
    folder.pz(&["decompress", "empty.pz"]).complains(2, "pz: empty.pz: ");
}
