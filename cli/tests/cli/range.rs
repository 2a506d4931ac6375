//! `--range`

use crate::support::{Folder, sample};

#[test]
fn any_range_is_restored() {
    let folder = Folder::new();
    let contents = sample(700_000);
    folder.write("a", &contents);
    for (level, pipeline) in [("-1", "lzh"), ("-9", "bwt"), ("-1", "store")] {
        folder.pz(&["compress", "-f", level, "-p", pipeline, "-b", "64K", "a"]).silent();
        let packed = folder.read("a.pz");
        for (range, from, to) in [
            ("..", 0, 700_000),
            ("0..0", 0, 0),
            ("0..1", 0, 1),
            ("64K..128K", 65_536, 131_072),
            ("65535..65537", 65_535, 65_537),
            ("100000..600000", 100_000, 600_000),
            ("699999..", 699_999, 700_000),
            ("700000..", 700_000, 700_000),
            ("..12", 0, 12),
            ("650000..1G", 650_000, 700_000),
        ] {
            let file = folder.pz(&["decompress", "-c", "--range", range, "a.pz"]).silent();
            assert!(file == contents[from..to], "{pipeline} {range}");
            let pipe = folder.pz_with(&["-d", "--range", range], &packed).silent();
            assert!(pipe == contents[from..to], "{pipeline} {range} of a pipe");
        }
    }
}

#[test]
fn ranges_cross_frames() {
    let folder = Folder::new();
    let contents = sample(300_000);
    let frames = [&contents[..100_000], &contents[100_000..100_001], &contents[100_001..]]
        .map(|part| folder.pz_with(&["-b", "64K"], part).silent());
    folder.write("a.pz", &frames.concat());
    for (from, to) in [(0, 300_000), (99_999, 100_002), (100_000, 100_001), (65_536, 299_999)] {
        let range = format!("{from}..{to}");
        let file = folder.pz(&["decompress", "-c", "--range", &range, "a.pz"]).silent();
        assert!(file == contents[from..to], "{range}");
    }
}

#[test]
fn ranges_go_to_named_files_too() {
    let folder = Folder::new();
    folder.pz_with(&["-o", "a.pz"], &sample(1000)).silent();
    folder.pz(&["decompress", "--range", "10..20", "-o", "part", "a.pz"]).silent();
    assert_eq!(folder.read("part"), &sample(1000)[10..20]);
}

#[test]
fn ranges_outside_are_refused() {
    let folder = Folder::new();
    folder.pz_with(&["-o", "a.pz"], &sample(1000)).silent();
    let line = "the range begins after the end of the contents (1000 bytes)";
    folder
        .pz(&["decompress", "-c", "--range", "1001..", "a.pz"])
        .says(1, &[&format!("pz: a.pz: {line}")]);
    folder
        .pz_with(&["-d", "--range", "1001.."], &folder.read("a.pz"))
        .says(1, &[&format!("pz: standard input: {line}")]);
}

/// The program decodes only the blocks that hold the range, so damage elsewhere does not matter.
#[test]
fn other_blocks_are_not_touched() {
    let folder = Folder::new();
    let contents = sample(300_000);
    folder.pz_with(&["-o", "a.pz", "-b", "64K"], &contents).silent();
    let mut packed = folder.read("a.pz");
    packed[1000] ^= 1;
    folder.write("a.pz", &packed);
    let range = folder.pz(&["decompress", "-c", "--range", "200000..", "a.pz"]).silent();
    assert!(range == contents[200_000..]);
    folder
        .pz(&["decompress", "-c", "--range", "..200000", "a.pz"])
        .complains(2, "pz: a.pz: corrupt: ");
}
