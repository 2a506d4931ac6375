//! Many kinds of valid files of other programs. Each row is a file that its own program can restore.

use std::io::Write;

use flate2::{Compression, Crc, FlushCompress, GzBuilder};
use liblzma::stream::{Action, Check, Filters, LzmaOptions, Stream};

use crate::support::{Folder, noise, sample};

/// A file, a description, and its contents.
type Row = (String, Vec<u8>, Vec<u8>);

#[track_caller]
fn check(rows: Vec<Row>) {
    let folder = Folder::new();
    for (name, bytes, contents) in rows {
        let restored = folder.pz_with(&["-d"], &bytes);
        assert_eq!((restored.code, &*restored.stderr), (Some(0), ""), "{name}");
        assert!(restored.stdout == contents, "{name}: {} bytes", restored.stdout.len());
    }
}

fn row(name: impl Into<String>, bytes: Vec<u8>, contents: &[u8]) -> Row {
    (name.into(), bytes, contents.to_vec())
}

fn deflated(contents: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

/// A gzip member: `flags` say which of `fields` follow the header.
fn member(flags: u8, fields: &[u8], deflated: &[u8], contents: &[u8]) -> Vec<u8> {
    let mut crc = Crc::new();
    crc.update(contents);
    let header = [0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 2, 255];
    let trailer = [crc.sum().to_le_bytes(), (contents.len() as u32).to_le_bytes()].concat();
    [&header, fields, deflated, &trailer].concat()
}

#[test]
fn of_gzip() {
    let contents = sample(200_000);
    let of = |level| deflated(&contents, level);
    let plain = member(0, b"", &of(6), &contents);
    let empty = member(0, b"", b"\x03\x00", b"");
    let head_crc = |flags, fields: &[u8]| {
        let header = [&[0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 2, 255], fields].concat();
        let mut crc = Crc::new();
        crc.update(&header);
        [fields, &(crc.sum() as u16).to_le_bytes()].concat()
    };
    let mut flushed = Vec::new();
    let mut encoder = flate2::Compress::new(Compression::fast(), false);
    for (part, flush) in
        contents.chunks(1000).zip([FlushCompress::Sync, FlushCompress::Full].repeat(100))
    {
        flushed.reserve(2000);
        encoder.compress_vec(part, &mut flushed, flush).unwrap();
    }
    flushed.reserve(1000);
    encoder.compress_vec(b"", &mut flushed, FlushCompress::Finish).unwrap();
    // Blocks as bgzip writes them: each tells its length, and an empty one ends the file.
    let bgzf = |contents: &[u8]| {
        let deflated = deflated(contents, 6);
        let len = (12 + 6 + deflated.len() + 8 - 1) as u16;
        let field = [&b"\x06\0BC\x02\0"[..], &len.to_le_bytes()].concat();
        member(4, &field, &deflated, contents)
    };
    let blocks: Vec<u8> = contents.chunks(60_000).chain([&b""[..]]).flat_map(bgzf).collect();
    let built = GzBuilder::new().filename("a").comment("b").extra("c").mtime(7);
    let mut built = built.write(Vec::new(), Compression::best());
    built.write_all(&contents).unwrap();
    check(vec![
        row("stored", member(0, b"", &of(0), &contents), &contents),
        row("fast", member(0, b"", &of(1), &contents), &contents),
        row("best", member(0, b"", &of(9), &contents), &contents),
        row("noise", member(0, b"", &deflated(&noise(70_000), 6), &noise(70_000)), &noise(70_000)),
        row("empty, fixed codes", empty.clone(), b""),
        row("empty, stored", member(0, b"", b"\x01\0\0\xff\xff", b""), b""),
        row("FTEXT", member(1, b"", &of(6), &contents), &contents),
        row("FHCRC", member(2, &head_crc(2, b""), &of(6), &contents), &contents),
        row("FEXTRA", member(4, b"\x06\0ab\x02\0xy", &of(6), &contents), &contents),
        row("FEXTRA, empty", member(4, b"\0\0", &of(6), &contents), &contents),
        row(
            "FEXTRA, longest",
            member(4, &[&[0xff; 2], &[7; 0xffff][..]].concat(), &of(6), &contents),
            &contents,
        ),
        row("FNAME", member(8, b"name\0", &of(6), &contents), &contents),
        row("FNAME, Latin-1", member(8, b"gr\xf6\xdfe\0", &of(6), &contents), &contents),
        row("FCOMMENT", member(16, b"a comment\0", &of(6), &contents), &contents),
        row(
            "all fields",
            member(31, &head_crc(31, b"\x02\0xyname\0comment\0"), &of(6), &contents),
            &contents,
        ),
        row("as flate2 builds it", built.finish().unwrap(), &contents),
        row("flushed", member(0, b"", &flushed, &contents), &contents),
        row("two members", plain.repeat(2), &contents.repeat(2)),
        row("empty members", [&empty[..], &plain, &empty, &empty].concat(), &contents),
        row("300 members", member(8, b"a\0", &deflated(b"x", 6), b"x").repeat(300), &[b'x'; 300]),
        row("bgzip's blocks", blocks, &contents),
    ]);
}

fn zstd_frame(contents: &[u8], set: impl Fn(&mut zstd::Encoder<'_, Vec<u8>>)) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    set(&mut encoder);
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

/// A frame that decoders skip, with a number from 0 to 15.
fn skippable(number: u8, contents: &[u8]) -> Vec<u8> {
    let len = (contents.len() as u32).to_le_bytes();
    [&[0x50 | number, 0x2a, 0x4d, 0x18][..], &len, contents].concat()
}

#[test]
fn of_zstd() {
    let contents = sample(700_000);
    let sized = |encoder: &mut zstd::Encoder<'_, Vec<u8>>| {
        encoder.set_pledged_src_size(Some(contents.len() as u64)).unwrap();
        encoder.include_contentsize(true).unwrap();
    };
    let plain = zstd_frame(&contents, |_| ());
    let empty = zstd_frame(b"", |_| ());
    let mut rows = vec![
        row("unknown size", plain.clone(), &contents),
        row("size", zstd_frame(&contents, sized), &contents),
        row("checksum", zstd_frame(&contents, |e| e.include_checksum(true).unwrap()), &contents),
        row(
            "size and checksum",
            zstd_frame(&contents, |e| {
                sized(e);
                e.include_checksum(true).unwrap();
            }),
            &contents,
        ),
        row("small windows", zstd_frame(&contents, |e| e.window_log(10).unwrap()), &contents),
        row(
            "long distances",
            zstd_frame(&contents, |e| {
                e.long_distance_matching(true).unwrap();
                e.window_log(27).unwrap();
            }),
            &contents,
        ),
        row("noise", zstd_frame(&noise(300_000), |_| ()), &noise(300_000)),
        row("one byte, again and again", zstd_frame(&[7; 500_000], |_| ()), &[7; 500_000]),
        row("in one call", zstd::bulk::compress(&contents, 5).unwrap(), &contents),
        row("one segment", zstd::bulk::compress(b"few bytes", 19).unwrap(), b"few bytes"),
        row("empty", empty.clone(), b""),
        row("empty, with checksum", zstd_frame(b"", |e| e.include_checksum(true).unwrap()), b""),
        row("empty, in one call", zstd::bulk::compress(b"", 3).unwrap(), b""),
        row("two frames", plain.repeat(2), &contents.repeat(2)),
        row("empty frames", [&empty[..], &plain, &empty, &empty].concat(), &contents),
        row("300 frames", zstd::bulk::compress(b"x", 3).unwrap().repeat(300), &[b'x'; 300]),
        row("skipped before", [skippable(0, b"abc"), plain.clone()].concat(), &contents),
        row("skipped behind", [plain.clone(), skippable(15, b"")].concat(), &contents),
        row(
            "skipped between",
            [&plain[..], &skippable(7, &[0; 3000]), &skippable(8, b"\x28\xb5\x2f\xfd"), &plain]
                .concat(),
            &contents.repeat(2),
        ),
        row(
            "much skipped before",
            [skippable(0, &[1; 2_500_000]), plain.clone()].concat(),
            &contents,
        ),
        row("nothing but skipped", skippable(3, b"abc"), b""),
        // A window and no size; a raw block of 2 bytes, and a last block that repeats one byte 3 times.
        row("raw and RLE blocks", b"\x28\xb5\x2f\xfd\0\0\x10\0\0ab\x1b\0\0c".to_vec(), b"abccc"),
        // Sizes of 1, 2, 4 and 8 bytes; that of 2 counts from 256.
        row("size of 1 byte", b"\x28\xb5\x2f\xfd\x20\x02\x11\0\0ab".to_vec(), b"ab"),
        row("size of 2 bytes", b"\x28\xb5\x2f\xfd\x60\0\0\x03\x08\0x".to_vec(), &[b'x'; 256]),
        row("size of 4 bytes", b"\x28\xb5\x2f\xfd\xa0\x02\0\0\0\x11\0\0ab".to_vec(), b"ab"),
        row("size of 8 bytes", b"\x28\xb5\x2f\xfd\xe0\x02\0\0\0\0\0\0\0\x11\0\0ab".to_vec(), b"ab"),
        // The number of a dictionary, which is 0: none.
        row("dictionary 0", b"\x28\xb5\x2f\xfd\x21\0\x02\x11\0\0ab".to_vec(), b"ab"),
    ];
    for level in [-50, 1, 9, 19, 22] {
        let frame = zstd::encode_all(&contents[..300_000], level).unwrap();
        rows.push(row(format!("level {level}"), frame, &contents[..300_000]));
    }
    let mut flushed = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for part in contents.chunks(9000) {
        flushed.write_all(part).unwrap();
        flushed.flush().unwrap();
    }
    rows.push(row("flushed", flushed.finish().unwrap(), &contents));
    check(rows);
}

#[test]
fn of_bzip2() {
    let contents = sample(300_000);
    let of = |contents: &[u8], level| {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(level));
        encoder.write_all(contents).unwrap();
        encoder.finish().unwrap()
    };
    let (plain, empty) = (of(&contents, 9), of(b"", 9));
    let runs: Vec<u8> = (0..700).flat_map(|n| vec![n as u8; n]).collect();
    let mut rows = vec![
        row("empty", empty.clone(), b""),
        row("one byte", of(b"x", 1), b"x"),
        row("runs of all lengths", of(&runs, 1), &runs),
        row("noise", of(&noise(150_000), 1), &noise(150_000)),
        row("two streams", plain.repeat(2), &contents.repeat(2)),
        row(
            "streams of several levels",
            [of(&contents, 1), of(&contents, 5)].concat(),
            &contents.repeat(2),
        ),
        row("empty streams", [&empty[..], &plain, &empty, &empty].concat(), &contents),
        row("200 streams", of(b"x", 1).repeat(200), &[b'x'; 200]),
    ];
    // At level 1 the contents take several blocks.
    rows.extend(
        (1..=9).map(|level| row(format!("level {level}"), of(&contents, level), &contents)),
    );
    check(rows);
}

fn xz(contents: &[u8], filters: &Filters, check: Check) -> Vec<u8> {
    let stream = Stream::new_stream_encoder(filters, check).unwrap();
    let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn of_xz() {
    let contents = sample(200_000);
    let lzma2 = |options: &LzmaOptions| {
        let mut filters = Filters::new();
        filters.lzma2(options);
        filters
    };
    let preset = |level| LzmaOptions::new_preset(level).unwrap();
    let of = |level, check| xz(&contents, &lzma2(&preset(level)), check);
    let plain = of(6, Check::Crc64);
    let empty = xz(b"", &lzma2(&preset(6)), Check::Crc32);
    let mut odd = preset(1);
    odd.literal_context_bits(0).literal_position_bits(4).position_bits(4).dict_size(4096);
    let before = |set: fn(&mut Filters) -> &mut Filters| {
        let mut filters = Filters::new();
        set(&mut filters).lzma2(&preset(6));
        xz(&contents, &filters, Check::Crc64)
    };
    // Blocks end where the encoder is flushed.
    let mut blocks = Vec::with_capacity(1 << 20);
    let mut stream = Stream::new_easy_encoder(3, Check::Sha256).unwrap();
    for part in contents.chunks(20_000) {
        stream.process_vec(part, &mut blocks, Action::FullFlush).unwrap();
    }
    stream.process_vec(b"", &mut blocks, Action::Finish).unwrap();
    let padded = |zeros| [&plain[..], &vec![0; zeros]].concat();
    check(vec![
        row("no check", of(6, Check::None), &contents),
        row("CRC32", of(6, Check::Crc32), &contents),
        row("CRC64", plain.clone(), &contents),
        row("SHA-256", of(6, Check::Sha256), &contents),
        row("level 0", of(0, Check::Crc64), &contents),
        row("level 9", of(9, Check::Crc64), &contents),
        row("extreme", of(3 | liblzma::stream::PRESET_EXTREME, Check::Crc64), &contents),
        row("odd parameters", xz(&contents, &lzma2(&odd), Check::Crc64), &contents),
        row("noise", xz(&noise(100_000), &lzma2(&preset(1)), Check::Crc64), &noise(100_000)),
        row("filter for x86", before(|filters| filters.x86()), &contents),
        row("filter for Arm", before(|filters| filters.arm64()), &contents),
        row("filter for RISC-V", before(|filters| filters.riscv()), &contents),
        row(
            "filter of differences",
            before(|filters| filters.delta_properties(&[2]).unwrap()),
            &contents,
        ),
        row("several blocks", blocks, &contents),
        row("empty", empty.clone(), b""),
        row("two streams", plain.repeat(2), &contents.repeat(2)),
        row("empty streams", [&empty[..], &plain, &empty, &empty].concat(), &contents),
        row("padding behind", padded(4), &contents),
        row("much padding behind", padded(3000), &contents),
        row("padding between", [padded(8), padded(400)].concat(), &contents.repeat(2)),
    ]);
}

/// An LZ4 frame: its flags, the code of its block size, fields, blocks, and what follows them.
fn lz4_frame(flags: u8, size: u8, fields: &[u8], rest: &[u8]) -> Vec<u8> {
    let descriptor = [&[0x40 | flags, size << 4], fields].concat();
    let check = (twox_hash::XxHash32::oneshot(0, &descriptor) >> 8) as u8;
    [b"\x04\x22\x4d\x18", &descriptor[..], &[check], rest].concat()
}

/// A block of LZ4's legacy frames.
fn legacy_block(contents: &[u8]) -> Vec<u8> {
    let block = lz4_flex::block::compress(contents);
    [&(block.len() as u32).to_le_bytes()[..], &block].concat()
}

#[test]
fn of_lz4() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    let contents = sample(300_000);
    let of = |info: FrameInfo, contents: &[u8]| {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(contents).unwrap();
        encoder.finish().unwrap()
    };
    let info = || FrameInfo::new().block_size(BlockSize::Max64KB);
    let plain = of(info(), &contents);
    let empty = of(info(), b"");
    let full = 8 << 20;
    let (text, incompressible) = (sample(full + 1000), noise(full + 1000));
    let legacy = |contents: &[u8]| -> Vec<u8> {
        let blocks = contents.chunks(full).flat_map(legacy_block);
        b"\x02\x21\x4c\x18".iter().copied().chain(blocks).collect()
    };
    let long = of(info().block_mode(BlockMode::Linked).content_checksum(true), &text);
    check(vec![
        row("blocks of 64 KiB", plain.clone(), &contents),
        row("blocks of 256 KiB", of(info().block_size(BlockSize::Max256KB), &contents), &contents),
        row("blocks of 1 MiB", of(info().block_size(BlockSize::Max1MB), &contents), &contents),
        row("blocks of 4 MiB", of(info().block_size(BlockSize::Max4MB), &text), &text),
        row("linked blocks", of(info().block_mode(BlockMode::Linked), &contents), &contents),
        row("many linked blocks", long, &text),
        row("checksums of blocks", of(info().block_checksums(true), &contents), &contents),
        row("checksum of contents", of(info().content_checksum(true), &contents), &contents),
        row("size", of(info().content_size(Some(300_000)), &contents), &contents),
        row("noise", of(info().block_checksums(true), &noise(200_000)), &noise(200_000)),
        row("empty", empty.clone(), b""),
        row("empty, with checksum", of(info().content_checksum(true), b""), b""),
        row("two frames", plain.repeat(2), &contents.repeat(2)),
        row("empty frames", [&empty[..], &plain, &empty, &empty].concat(), &contents),
        row(
            "frames of several sizes",
            [&plain[..], &of(info().block_size(BlockSize::Max1MB), &contents)].concat(),
            &contents.repeat(2),
        ),
        // A block without contents, stored and compressed, then one of two bytes.
        row(
            "empty blocks",
            lz4_frame(0x20, 4, b"", b"\0\0\0\x80\x01\0\0\0\0\x02\0\0\x80ab\0\0\0\0"),
            b"ab",
        ),
        row("skipped before", [skippable(10, b"abc"), plain.clone()].concat(), &contents),
        row("skipped behind", [plain.clone(), skippable(0, b"abc")].concat(), &contents),
        row(
            "skipped between",
            [&plain[..], &skippable(15, b""), &plain].concat(),
            &contents.repeat(2),
        ),
        row("legacy", legacy(b"hello"), b"hello"),
        row("legacy, empty", legacy(b""), b""),
        row("legacy, several blocks", legacy(&text), &text),
        row("legacy, noise", legacy(&incompressible), &incompressible),
        row("two legacy frames", legacy(&contents).repeat(2), &contents.repeat(2)),
        row("legacy, skipped", [legacy(&contents), skippable(2, b"abc")].concat(), &contents),
        row(
            "legacy and other frames",
            [&plain[..], &legacy(&contents), &plain].concat(),
            &contents.repeat(3),
        ),
    ]);
}
