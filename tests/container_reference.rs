//! A decoder written from `src/format/FORMAT.md` alone, in its order and its words, for clarity rather than speed.
//! Whatever the library writes must follow that text.

mod common;

use common::{levels_and_pipelines, sample};
use pz::internal::{bwt, lz77};
use pz::{Options, Pipeline};

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 * (crc & 1)))
    })
}

/// Takes `N` bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (head, tail) = bytes.split_first_chunk().expect("the file goes on");
    *bytes = tail;
    *head
}

fn decode(file: &[u8]) -> Vec<u8> {
    let mut contents = Vec::new();
    let mut left = file;
    assert!(!left.is_empty());
    while !left.is_empty() {
        left = frame(left, &mut contents);
    }
    contents
}

/// Decodes the frame at the start of `frame`. Returns the bytes after it.
fn frame<'a>(frame: &'a [u8], contents: &mut Vec<u8>) -> &'a [u8] {
    let mut left = frame;
    let start = contents.len();
    assert_eq!(take::<8>(&mut left), [0x89, 0x50, 0x5A, 0x46, 0x0D, 0x0A, 0x1A, 0x0A]);
    let [version, pipeline, block_log, _level, flags] = take(&mut left);
    assert_eq!(version, 1);
    let (methods, largest): (&[u8], u8) = match pipeline {
        0 => (&[0, 1], 24),
        1..=3 => (&[0, 1, 2], 24),
        4 => (&[0, 1, 2, 3], 26),
        reserved => panic!("pipeline {reserved}"),
    };
    assert!((16..=largest).contains(&block_log));
    if flags & 8 != 0 {
        return single_frame(frame, methods, contents);
    }
    assert_eq!(flags & !1, 0);
    let declared = (flags & 1 != 0).then(|| u64::from_le_bytes(take(&mut left)));
    let header_len = frame.len() - left.len();
    assert_eq!(u32::from_le_bytes(take(&mut left)), crc(&frame[..header_len]));

    let block_size = 1_usize << block_log;
    let mut lengths: Vec<u32> = Vec::new();
    while left[..2] == [0xB7, 0x42] {
        assert_eq!(contents.len() - start, lengths.len() * block_size, "the last was not full");
        let block = left;
        let [_, _, kind] = take(&mut left);
        let method = kind & 15;
        assert_eq!(kind >> 4, block_log - 16);
        assert!(methods.contains(&method));
        assert_eq!(u32::from_le_bytes(take(&mut left)) as usize, lengths.len());
        let content_len = u32::from_le_bytes(take(&mut left)) as usize;
        assert!((1..=block_size).contains(&content_len));
        let coded = (method != 0).then(|| {
            let payload_len = u32::from_le_bytes(take(&mut left)) as usize;
            assert!((1..content_len).contains(&payload_len));
            (payload_len, u32::from_le_bytes(take(&mut left)))
        });
        let content_checksum = u32::from_le_bytes(take(&mut left));
        let (payload_len, payload_checksum) = coded.unwrap_or((content_len, content_checksum));
        let header_len = block.len() - left.len();
        assert_eq!(u32::from_le_bytes(take(&mut left)), crc(&block[..header_len]));
        let (payload, rest) = left.split_at(payload_len);
        left = rest;
        assert_eq!(crc(payload), payload_checksum);
        let out = block_contents(method, payload, content_len);
        assert_eq!(crc(&out), content_checksum);
        contents.extend(out);
        lengths.push((block.len() - left.len()) as u32);
    }

    let index = left;
    assert_eq!(take(&mut left), [0xB7, 0x49]);
    if let Some((_, but_the_last)) = lengths.split_last() {
        for length in but_the_last {
            assert_eq!(u32::from_le_bytes(take(&mut left)), *length);
        }
    }
    let content_size = u64::from_le_bytes(take(&mut left));
    assert_eq!(content_size, (contents.len() - start) as u64);
    assert!(declared.is_none_or(|declared| declared == content_size));
    assert_eq!(content_size.div_ceil(block_size as u64), lengths.len() as u64);
    let frame_len = u64::from_le_bytes(take(&mut left));
    let checked = index.len() - left.len();
    assert_eq!(u32::from_le_bytes(take(&mut left)), crc(&index[..checked]));
    assert_eq!(frame_len, (frame.len() - left.len()) as u64);
    left
}

/// Decodes the payload of a block.
fn block_contents(method: u8, payload: &[u8], content_len: usize) -> Vec<u8> {
    let mut out = vec![0; content_len];
    match method {
        0 => out.copy_from_slice(payload),
        1 => {
            assert!(payload.len() == 1 && content_len >= 2);
            out.fill(payload[0]);
        }
        2 => {
            assert!(content_len <= 1 << 24);
            lz77::Decoder::new().decode(payload, &mut out).unwrap();
        }
        _ => bwt::Decoder::new().decode(payload, &mut out).unwrap(),
    }
    out
}

/// Decodes the single frame at the start of `frame`. Returns the bytes after it.
fn single_frame<'a>(frame: &'a [u8], methods: &[u8], contents: &mut Vec<u8>) -> &'a [u8] {
    let mut left = &frame[10..];
    let [block_log, level_and_method, flags] = take(&mut left);
    let method = level_and_method >> 4;
    assert!(methods.contains(&method));
    assert_eq!(flags & 0b1100_1111, 8);
    let w = usize::from(flags >> 4 & 3);
    let mut number = || {
        let mut bytes = [0; 4];
        let (head, tail) = left.split_at(w);
        bytes[..w].copy_from_slice(head);
        left = tail;
        u32::from_le_bytes(bytes) as usize
    };
    let content_len = if w == 0 { 0 } else { number() + 1 };
    let payload_len = match method {
        0 => content_len,
        1 => 1,
        _ => number() + 1,
    };
    match w {
        0 => assert_eq!(method, 0),
        1 => assert!((1..=256).contains(&content_len)),
        2 => assert!((257..=65_536).contains(&content_len)),
        _ => assert!((65_537..=1 << 24).contains(&content_len)),
    }
    assert!(content_len <= 1 << block_log);
    assert!(method == 0 || payload_len < content_len);
    let checked = frame.len() - left.len();
    let [check] = take(&mut left);
    assert_eq!(check, crc(&frame[..checked]) as u8);
    let header = &frame[..checked + 1];
    let (payload, rest) = left.split_at(payload_len);
    left = rest;
    let out = block_contents(method, payload, content_len);
    let counted = [header, if method == 0 { &[] } else { payload }, &out].concat();
    assert_eq!(u32::from_le_bytes(take(&mut left)), crc(&counted));
    contents.extend(out);
    left
}

#[test]
fn files_follow_the_text_of_the_format() {
    let mut file = Vec::new();
    let mut contents = Vec::new();
    for len in [0, 1, 2, 100, 256, 257, 500, 65_536, 65_537, 100_000, 300_000] {
        for (options, _) in levels_and_pipelines() {
            let part = sample(len, len as u64);
            let options = options
                .block_size(if len == 100_000 { 1 << 17 } else { 1 << 16 })
                .content_size(len as u64);
            file.extend(pz::compress(&part, &options).unwrap());
            contents.extend(part);
        }
    }
    let zeros = vec![0; 200_000];
    for block_size in [1 << 17, 1 << 18] {
        let options = Options::new().pipeline(Pipeline::Store).block_size(block_size);
        file.extend(pz::compress(&zeros, &options).unwrap());
        contents.extend(&zeros);
    }
    assert!(decode(&file) == contents);
}
