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
    let mut info = lz4_flex::frame::FrameInfo::new();
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
fn are_decompressed_and_tested() {
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

/// Tapes and disks fill the last block of a file with zeros.
#[test]
fn gzip_files_may_end_with_zeros_and_nothing_else() {
    let folder = Folder::new();
    let contents = sample(100_000);
    let gzip = packed(&contents).swap_remove(0).1;
    let two = [&gzip[..], &gzip].concat();
    for zeros in [1, 2, 511, 3_000_000] {
        let zeros = vec![0; zeros];
        let padded = [&gzip[..], &zeros].concat();
        assert!(folder.pz_with(&["-d"], &padded).silent() == contents);
        let padded = [&two[..], &zeros].concat();
        assert!(folder.pz_with(&["-d"], &padded).silent() == [&contents[..], &contents].concat());
        for garbage in [&b"x"[..], b"\x1f", b"\x1f\x8b\x08", &gzip] {
            let spoilt = [&gzip[..], &zeros, garbage].concat();
            folder.pz_with(&["-t"], &spoilt).complains(
                2,
                "pz: standard input: corrupt gzip file: trailing bytes are neither gzip nor zeros (",
            );
        }
    }
    for garbage in [&b"x"[..], b"x\0\0", b"\x1e\x8b\x08"] {
        let spoilt = [&gzip[..], garbage].concat();
        folder.pz_with(&["-t"], &spoilt).complains(2, "pz: standard input: corrupt gzip file: ");
    }
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
fn ranges_of_them() {
    let folder = Folder::new();
    let contents = sample(2_500_000);
    for (suffix, bytes) in packed(&contents) {
        let range = folder.pz_with(&["-d", "--range", "1048570..1048580"], &bytes).silent();
        assert!(range == contents[1_048_570..1_048_580], "{suffix}");
    }
}

#[test]
fn are_not_listed() {
    let folder = Folder::new();
    for (suffix, bytes) in packed(b"contents") {
        let name = format!("a.{suffix}");
        folder.write(&name, &bytes);
        let format = match suffix {
            "gz" => "gzip",
            "bz2" => "bzip2",
            "zst" => "zstd",
            other => other,
        };
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
