//! Recovery saves every undamaged block, and names exactly what is lost.
// Lists of ranges, not ranges of lists.
#![allow(clippy::single_range_in_vec_init)]

mod common;

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;

use common::{decode_options, sample};
use pz::{DecodeOptions, Error, Options, Piece, Recovery, RecoveryReport};

const BLOCK: u64 = 1 << 16;

struct Case {
    contents: Vec<u8>,
    file: Vec<u8>,
    /// Where each block lies in the file.
    blocks: Vec<Range<usize>>,
}

fn case() -> Case {
    let contents = sample(5 * BLOCK as usize + 1000, 11);
    let file = pz::compress(&contents, &Options::new().block_size(BLOCK)).unwrap();
    let blocks = pz::list(&mut Cursor::new(&file), true).unwrap().remove(0).blocks;
    let range = |b: &pz::BlockInfo| b.offset as usize..(b.offset + b.compressed_size) as usize;
    let blocks = blocks.iter().map(range).collect();
    Case { contents, file, blocks }
}

/// Recovers `file`, and compares what is saved with `contents`.
fn recover(file: &[u8], contents: &[u8]) -> RecoveryReport {
    let mut saved = Vec::new();
    let report = pz::recover(&mut Cursor::new(file), &mut saved, false, &decode_options()).unwrap();
    let mut expected = contents.to_vec();
    for lost in report.lost.iter().rev() {
        expected.drain(lost.start as usize..(lost.end as usize).min(expected.len()));
    }
    assert_eq!(report.bytes, saved.len() as u64);
    assert!(expected.starts_with(&saved), "{report:?}");
    assert!(report.end_unknown || saved.len() == expected.len(), "{report:?}");

    let mut filled = Vec::new();
    pz::recover(&mut Cursor::new(file), &mut filled, true, &decode_options()).unwrap();
    let mut expected = contents[..filled.len()].to_vec();
    for lost in &report.lost {
        expected[lost.start as usize..lost.end as usize].fill(0);
    }
    assert!(filled == expected);
    report
}

#[test]
fn a_sound_file_is_saved_whole() {
    let Case { contents, file, .. } = case();
    let report = recover(&file, &contents);
    assert_eq!(report.blocks, 6);
    assert!(report.lost.is_empty() && report.damaged.is_empty() && !report.end_unknown);
    let twice = [&file[..], &file[..]].concat();
    let report = recover(&twice, &contents.repeat(2));
    assert!(report.blocks == 12 && report.lost.is_empty() && report.damaged.is_empty());
}

#[test]
fn damage_costs_the_blocks_that_it_hits() {
    let Case { contents, file, blocks } = case();
    let end = contents.len() as u64;
    let whole = |number: u64| number * BLOCK..((number + 1) * BLOCK).min(end);
    for (number, block) in blocks.iter().enumerate() {
        let lost = [whole(number as u64)];
        // Damage in the payload, in the header, and in both markers.
        for at in [block.start, block.start + 5, block.start + 20, block.start + 100, block.end - 1]
        {
            let mut damaged = file.clone();
            damaged[at] ^= 0x40;
            let report = recover(&damaged, &contents);
            assert_eq!(report.lost, lost, "byte {at} of {block:?}");
            assert!(report.damaged[0].contains(&(at as u64)) && !report.end_unknown);
        }
        // Missing bytes, extra bytes, a missing block.
        let mut short = file.clone();
        short.drain(block.start + 50..block.start + 60);
        assert_eq!(recover(&short, &contents).lost, lost, "cut {block:?}");
        let mut long = file.clone();
        long.splice(block.start + 50..block.start + 50, [1, 2, 3]);
        assert_eq!(recover(&long, &contents).lost, lost, "inserted {block:?}");
        let mut gone = file.clone();
        gone.drain(block.clone());
        assert_eq!(recover(&gone, &contents).lost, lost, "gone {block:?}");
        let mut zeroed = file.clone();
        zeroed[block.clone()].fill(0);
        assert_eq!(recover(&zeroed, &contents).lost, lost, "zeroed {block:?}");
        // Damage across the border to the next block.
        if number + 1 < blocks.len() {
            let mut damaged = file.clone();
            damaged[block.end - 20..block.end + 20].fill(0xEE);
            let next = whole(number as u64 + 1);
            assert_eq!(recover(&damaged, &contents).lost, [lost[0].start..next.end]);
        }
    }
}

#[test]
fn damage_outside_of_blocks_loses_nothing() {
    let Case { contents, file, blocks } = case();
    for at in (0..blocks[0].start).chain(blocks[5].end..file.len()) {
        let mut damaged = file.clone();
        damaged[at] ^= 1;
        let report = recover(&damaged, &contents);
        assert_eq!((report.blocks, &report.lost), (6, &vec![]), "byte {at}");
        assert!(report.damaged[0].contains(&(at as u64)));
        assert_eq!(report.end_unknown, at >= blocks[5].end);
    }
    // A file without its header, a file without its end, and a file inside other bytes.
    for (range, end_unknown) in [
        (blocks[0].start..file.len(), false),
        (0..blocks[5].end, true),
        (blocks[0].start..blocks[5].end, true),
    ] {
        let part = [&[0x89; 777], &file[range], &b"\x89PZF and other things\xB7\x42\xB7\x49"[..]];
        let report = recover(&part.concat(), &contents);
        assert_eq!((report.blocks, &report.lost), (6, &vec![]));
        assert_eq!((report.end_unknown, report.damaged.len()), (end_unknown, 2));
    }
}

#[test]
fn a_truncated_file_keeps_its_complete_blocks() {
    let Case { contents, file, blocks } = case();
    for block in &blocks {
        for len in [block.start, block.start + 10, block.start + 200] {
            let report = recover(&file[..len], &contents);
            assert!(report.end_unknown);
            assert_eq!(report.blocks, blocks.iter().filter(|b| b.end <= len).count() as u64);
        }
    }
    // With the length in its header, the frame's end is known.
    let options = Options::new().block_size(BLOCK).content_size(contents.len() as u64);
    let file = pz::compress(&contents, &options).unwrap();
    let report = recover(&file[..blocks[3].start + 8], &contents);
    assert_eq!(report.lost, [3 * BLOCK..contents.len() as u64]);
    assert!(!report.end_unknown);
}

#[test]
fn stored_contents_are_not_mistaken_for_frames() {
    let Case { file: inner, .. } = case();
    let contents = [inner.repeat(2), sample(200_000, 12)].concat();
    let options = Options::new().pipeline(pz::Pipeline::Store).block_size(BLOCK);
    let file = pz::compress(&contents, &options).unwrap();
    let mut damaged = file.clone();
    damaged[20] ^= 1;
    let report = recover(&damaged, &contents);
    assert_eq!(report.lost, [0..BLOCK]);
}

#[test]
fn frames_with_damage_between_them() {
    let Case { contents, file, blocks } = case();
    let mut twice = [&file[..], &file[..]].concat();
    let all = contents.repeat(2);
    twice[blocks[5].end..file.len() + blocks[0].start].fill(0);
    let report = recover(&twice, &all);
    assert_eq!((report.blocks, &report.lost), (12, &vec![]));
    twice[blocks[5].start..file.len() + blocks[1].start].fill(0);
    let report = recover(&twice, &[&contents[..5 * BLOCK as usize], &contents].concat());
    assert_eq!(report.blocks, 10);
    assert!(report.end_unknown);
}

#[test]
fn single_frames_are_found() {
    let inner = pz::compress(&sample(3000, 21), &Options::new()).unwrap();
    let parts = [sample(20_000, 22), [&inner[..], &inner].concat(), vec![7; 500], sample(300, 23)];
    let pipelines = [pz::Pipeline::Lzh, pz::Pipeline::Store, pz::Pipeline::Bwt, pz::Pipeline::Bwt];
    let frames: Vec<_> = parts
        .iter()
        .zip(pipelines)
        .map(|(part, pipeline)| pz::compress(part, &Options::new().pipeline(pipeline)).unwrap())
        .collect();
    let (contents, file) = (parts.concat(), frames.concat());
    let report = recover(&file, &contents);
    assert_eq!((report.blocks, &report.lost), (4, &vec![]));
    assert!(report.damaged.is_empty() && !report.end_unknown);
    let (mut start, mut at) = (0, 0);
    for (part, frame) in parts.iter().zip(&frames) {
        let (end, after) = (start + part.len() as u64, at + frame.len());
        let lost = [start..end];
        // Damage in the payload and in the checksum.
        for byte in [at + 24.min(frame.len() - 5), after - 1] {
            let mut damaged = file.clone();
            damaged[byte] ^= 0x10;
            let report = recover(&damaged, &contents);
            assert_eq!(report.lost, lost, "byte {byte}");
            assert_eq!(report.damaged, [at as u64..after as u64]);
        }
        // If the end of a frame is missing, its stored contents may look like frames.
        if !part.starts_with(&inner) {
            let mut short = file.clone();
            short.drain(after - 4..after - 2);
            assert_eq!(recover(&short, &contents).lost, lost);
        }
        // Without its header, a frame's length is unknown. The other frames are saved.
        let mut gone = file.clone();
        gone[at..at + 4].fill(0);
        let mut others = contents.clone();
        others.drain(start as usize..end as usize);
        let mut saved = Vec::new();
        pz::recover(&mut Cursor::new(&gone), &mut saved, false, &decode_options()).unwrap();
        assert!(saved == others || part.starts_with(&inner), "{} bytes", saved.len());
        // If bytes after the frame are damaged, recovery still saves the frame.
        let mut followed = file[..after].to_vec();
        followed.extend(b"other things");
        let report = recover(&followed, &contents[..end as usize]);
        assert_eq!((report.lost.len(), report.damaged.len()), (0, 1));
        (start, at) = (end, after);
    }
}

/// A frame header that declares `content_size` bytes.
fn header(pipeline: u8, block_log: u8, content_size: u64) -> Vec<u8> {
    let mut bytes = b"\x89PZF\r\n\x1A\n".to_vec();
    bytes.extend_from_slice(&[1, pipeline, block_log, 0, 1]);
    bytes.extend_from_slice(&content_size.to_le_bytes());
    sealed(bytes)
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// A stored block.
fn stored(block_log: u8, number: u32, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xB7, 0x42, (block_log - 16) << 4];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&(contents.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(contents).to_le_bytes());
    let mut bytes = sealed(bytes);
    bytes.extend_from_slice(contents);
    bytes
}

/// Recovers with `fill`. Returns the outcome, and what was written.
fn fill(file: &[u8], options: &DecodeOptions) -> (Result<RecoveryReport, Error>, Vec<u8>) {
    let mut saved = Vec::new();
    (pz::recover(&mut Cursor::new(file), &mut saved, true, options), saved)
}

#[test]
fn a_forged_length_is_refused_before_anything_is_written() {
    let options = DecodeOptions::new();
    // 16 TiB declared in 25 bytes, alone and with a block.
    let file = header(4, 26, 1 << 44);
    let with_block = [&file[..], &stored(26, 0, b"contents")].concat();
    for file in [file, with_block] {
        let (refused, saved) = fill(&file, &options);
        assert!(matches!(refused, Err(Error::LimitOutput { .. })), "{refused:?}");
        assert!(saved.is_empty());
    }
    // Permitted lengths are written in full.
    let file = header(0, 16, 100_000);
    let (refused, saved) = fill(&file, &options.clone().max_output(99_999));
    assert!(matches!(refused, Err(Error::LimitOutput { limit: 99_999 })) && saved.is_empty());
    let (report, saved) = fill(&file, &options.max_output(100_000));
    assert_eq!(report.unwrap().lost, [0..100_000]);
    assert_eq!(saved, vec![0; 100_000]);
    // Without `fill` there is nothing to refuse.
    let report = pz::recover(&mut Cursor::new(&file), &mut Vec::new(), false, &decode_options());
    assert_eq!(report.unwrap().lost, [0..100_000]);
}

#[test]
fn sums_of_forged_lengths_do_not_wrap() {
    let file = header(4, 26, 1 << 44).repeat(1 << 20);
    for fill in [false, true] {
        let mut saved = Vec::new();
        let outcome = pz::recover(&mut Cursor::new(&file), &mut saved, fill, &DecodeOptions::new());
        assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
        assert!(saved.is_empty());
    }
}

#[test]
fn stored_blocks_of_the_largest_size_are_saved() {
    let contents: Vec<u8> =
        (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let options = Options::new().pipeline(pz::Pipeline::Bwt).block_size(1 << 26);
    let file = pz::compress(&contents, &options).unwrap();
    let blocks = pz::list(&mut Cursor::new(&file), true).unwrap().remove(0).blocks;
    let file = match blocks[0].method {
        pz::Method::Store => file,
        _ => [&header(4, 26, 100_000)[..], &stored(26, 0, &contents)].concat(),
    };
    let report = recover(&file, &contents);
    assert_eq!((report.blocks, report.bytes), (1, 100_000));
}

#[test]
fn a_file_without_header_or_end_is_not_sound() {
    let Case { contents, blocks, .. } = case();
    let options = Options::new().block_size(BLOCK).content_size(contents.len() as u64);
    let file = pz::compress(&contents, &options).unwrap();
    let head = file.len()
        - (pz::compress(&contents, &Options::new().block_size(BLOCK)).unwrap().len()
            - blocks[0].start);
    let end = file.len() - 2 - 20 - 4 * 5;
    for range in [head..file.len(), 0..end, head..end] {
        let report = recover(&file[range.clone()], &contents);
        assert_eq!((report.blocks, &report.lost), (6, &vec![]));
        assert!(!report.damaged.is_empty(), "{range:?}");
    }
}

/// Whether the bytes from this frame header on are a single frame.
fn is_single(frame: &[u8]) -> bool {
    frame.get(12).is_some_and(|flags| flags & 8 != 0)
}

/// Splits a file into its parts: headers, blocks, and indices with their footers; a single frame into header, payload
/// and checksum.
fn parts(file: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    for frame in pz::list(&mut Cursor::new(file), true).unwrap() {
        let mut at = frame.offset;
        let mut take = |end: u64| {
            parts.push(file[at as usize..end as usize].to_vec());
            at = end;
        };
        for block in &frame.blocks {
            take(block.offset);
            take(block.offset + block.compressed_size);
        }
        let tail = match is_single(&file[frame.offset as usize..]) {
            true => 4,
            false => 22 + 4 * frame.blocks.len().saturating_sub(1) as u64,
        };
        take(frame.offset + frame.compressed_size - tail);
        take(frame.offset + frame.compressed_size);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Corrects a part's checksum.
fn reseal(part: &mut [u8]) {
    if is_single(part) && part[0] == 0x89 {
        let head = part.len() - 1;
        part[head] = crc32c::crc32c(&part[..head]) as u8;
        return;
    }
    let end = match part {
        [0x89, ..] | [0xB7, 0x49, ..] => part.len(),
        [0xB7, 0x42, method, ..] => {
            if *method & 15 == 0 {
                19
            } else {
                27
            }
        }
        _ => return,
    };
    if let Some(head) = part.get_mut(..end) {
        let checksum = crc32c::crc32c(&head[..end - 4]);
        head[end - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[test]
fn a_decoder_accepts_whatever_recovery_calls_sound() {
    let small = Options::new().block_size(BLOCK);
    let stored = small.clone().pipeline(pz::Pipeline::Store);
    let contents = sample(2 * BLOCK as usize + 500, 5);
    let files = [
        pz::compress(&contents, &small).unwrap(),
        pz::compress(&contents, &small.clone().content_size(contents.len() as u64)).unwrap(),
        pz::compress(&contents[..100], &small.clone().pipeline(pz::Pipeline::Bwt)).unwrap(),
        pz::compress(&[7; 70_000], &stored).unwrap(),
        pz::compress(&[], &stored).unwrap(),
    ];
    let pool: Vec<Vec<u8>> = files.iter().flat_map(|file| parts(file)).collect();
    let mut state = 0x1234_5678_9ABC_DEF1_u64;
    let mut random = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    };
    let options = DecodeOptions::new().threads(1).max_output(1 << 22);
    let (mut sound, mut refused) = (0, 0);
    for _ in 0..6000 {
        let mut parts = parts(&files[random(files.len())]);
        if random(3) == 0 {
            parts.extend(self::parts(&files[random(files.len())]));
        }
        for _ in 0..random(3) {
            let at = random(parts.len());
            match random(7) {
                0 => drop(parts.remove(at)),
                1 => parts.insert(at, pool[random(pool.len())].clone()),
                2 => parts[at] = pool[random(pool.len())].clone(),
                3 => {
                    let other = random(parts.len());
                    parts.swap(at, other);
                }
                _ => {
                    // Damage a field of a header, index or footer, and correct the checksum.
                    let part = &mut parts[at];
                    let n = match part.first_chunk() {
                        Some([0xB7, 0x42]) => part.len().min(27),
                        _ => part.len(),
                    };
                    let byte = random(n);
                    part[byte] = if random(2) == 0 {
                        part[byte] ^ 1 << random(8)
                    } else {
                        random(256) as u8
                    };
                    reseal(part);
                }
            }
            if parts.is_empty() {
                break;
            }
        }
        let file = parts.concat();
        let mut saved = Vec::new();
        let outcome = pz::recover(&mut Cursor::new(&file), &mut saved, false, &options);
        let decoded = pz::decompress(&file, &options);
        let is_sound = outcome.as_ref().is_ok_and(|report| {
            report.lost.is_empty() && report.damaged.is_empty() && !report.end_unknown
        });
        match (decoded, is_sound) {
            (Ok(contents), true) => {
                assert!(contents == saved);
                sound += 1;
            }
            (Err(_), false) => refused += 1,
            (decoded, _) => panic!("{:?}, but {outcome:?}: {file:02x?}", decoded.map(|c| c.len())),
        }
    }
    assert!(sound > 500 && refused > 500, "{sound} sound, {refused} refused");
}

/// A file of 2 PiB that is all holes, except for a few parts.
struct Sparse {
    parts: Vec<(u64, Vec<u8>)>,
    at: u64,
    read: u64,
}

const SPARSE_LEN: u64 = 1 << 51;

impl Read for Sparse {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min((SPARSE_LEN - self.at.min(SPARSE_LEN)) as usize);
        for (i, byte) in buffer[..len].iter_mut().enumerate() {
            let at = self.at + i as u64;
            let part = self
                .parts
                .iter()
                .find(|(start, part)| (*start..*start + part.len() as u64).contains(&at));
            *byte = part.map_or(0, |(start, part)| part[(at - start) as usize]);
        }
        self.at += len as u64;
        self.read += len as u64;
        assert!(self.read < 16 << 20, "holes are read");
        Ok(len)
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => SPARSE_LEN.saturating_add_signed(by),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

/// Holes before, within and after the rest of a frame.
#[test]
fn holes_are_not_read() {
    let Case { contents, file, blocks } = case();
    let cut = blocks[2].start;
    let parts = vec![(1 << 40, file[..cut].to_vec()), (1 << 50, file[cut..].to_vec())];
    let ends: Vec<_> =
        parts.iter().map(|(start, part)| (*start, start + part.len() as u64)).collect();
    let data_from = move |offset: u64| {
        let next = ends.iter().find(|(_, end)| offset < *end);
        next.map_or(SPARSE_LEN, |(start, _)| offset.max(*start))
    };
    let sparse = Sparse { parts, at: 0, read: 0 };
    let mut recovery = Recovery::sparse(sparse, &decode_options(), data_from).unwrap();
    let mut saved = Vec::new();
    while let Some(piece) = recovery.next_piece().unwrap() {
        if let Piece::Block { contents, .. } = piece {
            saved.extend_from_slice(contents);
        }
    }
    assert!(saved == contents);
    assert!(recovery.extent().unwrap().declared >= contents.len() as u64);
}
