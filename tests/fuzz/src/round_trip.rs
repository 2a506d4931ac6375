//! Compresses any contents with a pipeline, and decompresses them.

use pz::{DecodeOptions, Level, Options, Pipeline};

/// The first byte gives the level; the rest is the contents. Tests the contents as they are, and again repeated with
/// changes to more than a block.
fn round_trip(pipeline: Pipeline, data: &[u8]) {
    let Some((first, contents)) = data.split_first() else { return };
    let level = Level::new(u32::from(first % 9) + 1).expect("1 to 9");
    let options = Options::new().level(level).pipeline(pipeline).block_size(1 << 16).threads(1);
    check(contents, &options);
    if first & 0x80 != 0 && !contents.is_empty() {
        let mut longer = Vec::new();
        while longer.len() < 70_000 {
            longer.extend_from_slice(contents);
            let at = longer.len() * 7 % contents.len();
            longer.push(contents[at] ^ longer.len() as u8);
        }
        check(&longer, &options);
    }
}

fn check(contents: &[u8], options: &Options) {
    let small = pz::compress(contents, options).expect("any contents can be compressed");
    let blocks = contents.len() / (1 << 16) + 1;
    assert!(small.len() <= contents.len() + 60 + 32 * blocks, "{} bytes", small.len());
    let two = pz::compress(contents, &options.clone().threads(2)).expect("the same");
    assert!(small == two, "threads change the bytes");
    let restored = pz::decompress(&small, &DecodeOptions::new().threads(1)).expect("a sound file");
    assert!(restored == contents, "other contents");
}

/// Pipeline `store`.
pub fn store(data: &[u8]) {
    round_trip(Pipeline::Store, data);
}

/// Pipeline `lzh`.
pub fn lzh(data: &[u8]) {
    round_trip(Pipeline::Lzh, data);
}

/// Pipeline `lzf`.
pub fn lzf(data: &[u8]) {
    round_trip(Pipeline::Lzf, data);
}

/// Pipeline `fse`.
pub fn fse(data: &[u8]) {
    round_trip(Pipeline::Fse, data);
}

/// Pipeline `bwt`.
pub fn bwt(data: &[u8]) {
    round_trip(Pipeline::Bwt, data);
}

/// Filters. The first line names a filter; the rest is the contents.
pub fn filter(data: &[u8]) {
    let Some(end) = data.iter().position(|&byte| byte == b'\n') else { return };
    let name = std::str::from_utf8(&data[..end]);
    let Some(filter) = name.ok().and_then(|name| name.parse().ok()) else { return };
    for pipeline in [Pipeline::Lzh, Pipeline::Bwt] {
        let options = Options::new().pipeline(pipeline).block_size(1 << 16).threads(1);
        check(&data[end + 1..], &options.filter(filter));
    }
}
