//! With any number of threads and any amount of memory, recovery returns the same pieces and errors.

mod common;

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;

use common::sample;
use pz::{DecodeOptions, Error, Level, Options, Piece, Pipeline, Recovery};

/// A piece or an error, and whether the end of a frame is missing in the part before it.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Block(u64, u64, Range<u64>, Range<u64>, Vec<u8>, bool),
    Lost(u64, Range<u64>, Option<Range<u64>>, bool),
    Failed(String, bool),
    End(bool),
}

/// Everything that recovery finds, up to the `errors`th error.
fn everything(file: impl Read + Seek, options: &DecodeOptions, errors: usize) -> Vec<Found> {
    let mut recovery = Recovery::new(file, options).unwrap();
    let (mut all, mut failed) = (Vec::new(), 0);
    assert!(!recovery.end_unknown());
    while failed < errors {
        // The piece borrows the recovery, which also tells whether an end is missing.
        let found = match recovery.next_piece() {
            Ok(Some(Piece::Block { frame, number, source, range, contents })) => {
                Found::Block(frame, number, source, range, contents.to_vec(), false)
            }
            Ok(Some(Piece::Lost { frame, source, range })) => {
                Found::Lost(frame, source, range, false)
            }
            Ok(Some(_)) => panic!("an unknown kind of piece"),
            Ok(None) => Found::End(false),
            Err(error) => {
                failed += 1;
                Found::Failed(error.to_string(), false)
            }
        };
        let is_end = found == Found::End(false);
        all.push(found);
        let Some(
            Found::Block(.., unknown)
            | Found::Lost(.., unknown)
            | Found::Failed(.., unknown)
            | Found::End(unknown),
        ) = all.last_mut()
        else {
            unreachable!()
        };
        *unknown = recovery.end_unknown();
        if is_end {
            break;
        }
    }
    all
}

fn on(threads: usize) -> DecodeOptions {
    DecodeOptions::new().threads(threads)
}

/// The bytes of each block of a file.
fn blocks(file: &[u8]) -> Vec<Vec<u8>> {
    let frames = pz::list(&mut Cursor::new(file), true).unwrap();
    let blocks = frames.iter().flat_map(|frame| &frame.blocks);
    blocks.map(|b| file[b.offset as usize..][..b.compressed_size as usize].to_vec()).collect()
}

/// A small block of 400 bytes, coded or stored, with its header.
fn small_block(pipeline: Pipeline) -> Vec<u8> {
    let mut contents = sample(1 << 16, 1);
    match pipeline {
        Pipeline::Store => contents.extend(sample(400, 2)),
        _ => contents.extend(b"ab".repeat(200)),
    }
    let file = pz::compress(&contents, &Options::new().pipeline(pipeline).block_size(1 << 16));
    let block = blocks(&file.unwrap()).remove(1);
    assert_eq!(block.len() < 100, pipeline != Pipeline::Store);
    block
}

/// Blocks, frames and single frames of every kind, one after another.
fn mixed() -> Vec<Vec<u8>> {
    let (coded, stored) = (small_block(Pipeline::Lzh), small_block(Pipeline::Store));
    let transformed = small_block(Pipeline::Bwt);
    let mut parts = vec![
        [&coded[..], b"!"].concat().repeat(2000),
        [&stored[..], b"!"].concat().repeat(500),
        [&coded[..], &stored, b"!"].concat().repeat(500),
        [&coded[..], &transformed].concat().repeat(20),
    ];
    for (level, block_log) in [(3, 16), (9, 17), (1, 20), (6, 18)] {
        let options = Options::new().level(Level::new(level).unwrap()).block_size(1 << block_log);
        parts.push(pz::compress(&sample(1 << 20, level.into()), &options).unwrap());
        parts.push(pz::compress(&sample(1000, level.into()), &options).unwrap().repeat(100));
        parts.push(pz::compress(&[level as u8; 3 << 16], &options).unwrap());
    }
    let stored = Options::new().pipeline(Pipeline::Store).block_size(1 << 16);
    parts.push(pz::compress(&sample(300_000, 5), &stored).unwrap());
    parts.push(pz::compress(&[], &stored).unwrap().repeat(1000));
    parts
}

#[test]
fn the_number_of_threads_does_not_change_what_is_found() {
    let mut parts = mixed();
    let sound = parts.concat();
    // Damage each part; then cut off its beginning, and its end.
    for part in &mut parts {
        let (len, third) = (part.len(), part.len() / 3);
        part[third] ^= 4;
        part[len - 3] ^= 4;
    }
    let damaged = parts.concat();
    for part in &mut parts {
        let len = part.len();
        part.drain(..len / 10);
        part.truncate(len / 2);
    }
    for file in [sound, damaged, parts.concat()] {
        let expected = everything(Cursor::new(&file), &on(1), 1);
        assert!(expected.len() > 3000, "{} pieces", expected.len());
        for threads in [0, 2, 3, 8] {
            let found = everything(Cursor::new(&file), &on(threads), 1);
            assert!(found == expected, "{threads} threads");
        }
    }
    // Each part alone. Some are so short that no threads start.
    for part in parts {
        let part = [small_block(Pipeline::Lzh), part].concat();
        let expected = everything(Cursor::new(&part), &on(1), 1);
        assert!(everything(Cursor::new(&part), &on(4), 1) == expected);
    }
}

#[test]
fn a_block_that_needs_too_much_memory_is_an_error_in_its_place() {
    let frame = |log: u8, len| {
        let options = Options::new().level(Level::new(9).unwrap()).block_size(1 << log);
        // Each block is decoded alone.
        pz::compress(&sample(len, 3), &options.long_distance(0)).unwrap()
    };
    let small = small_block(Pipeline::Lzh).repeat(300);
    let mut file = [frame(16, 1 << 20), frame(22, 5 << 20), small, frame(17, 1 << 20)].concat();
    file[100_000] ^= 1;
    let least = pz::list(&mut Cursor::new(frame(17, 1 << 18)), false).unwrap()[0].decode_memory;
    for (limit, errors) in [(1 << 30, 0), (16 << 20, 2), (2 * least, 2)] {
        let expected = everything(Cursor::new(&file), &on(1).max_memory(limit), 9);
        let failed = expected.iter().filter(|found| matches!(found, Found::Failed(..)));
        assert_eq!(failed.count(), errors, "{limit}");
        for threads in [2, 8] {
            let found = everything(Cursor::new(&file), &on(threads).max_memory(limit), 9);
            assert!(found == expected, "{threads} threads in {limit} bytes");
        }
    }
}

/// A file with some unreadable bytes.
struct Faulty<'a> {
    file: Cursor<&'a [u8]>,
    bad: Range<u64>,
}

impl Read for Faulty<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let at = self.file.position();
        if self.bad.contains(&at) {
            return Err(io::Error::other("these bytes cannot be read"));
        }
        let n = if at < self.bad.start { (self.bad.start - at) as usize } else { buf.len() };
        let n = n.min(buf.len());
        self.file.read(&mut buf[..n])
    }
}

impl Seek for Faulty<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[test]
fn errors_of_reading_come_after_the_pieces_before_them() {
    let small = small_block(Pipeline::Lzh).repeat(1000);
    let options = Options::new().block_size(1 << 17);
    let large = pz::compress(&sample(4 << 20, 4), &options).unwrap();
    let file = [&large[..], &small, &large].concat();
    let second = (large.len() + small.len()) as u64;
    // Within the payload of a large block, between small blocks, and across a border of large blocks.
    for start in [10_000, large.len() as u64 + 20_000, second + 100_000, second + 200_001] {
        let bad = start..start + 100;
        let faulty = || Faulty { file: Cursor::new(&file), bad: bad.clone() };
        let expected = everything(faulty(), &on(1), 3);
        let is_failed = |found: &Found| matches!(found, Found::Failed(..));
        assert!(expected.iter().any(is_failed), "{bad:?}");
        for threads in [2, 8] {
            assert!(everything(faulty(), &on(threads), 3) == expected, "{bad:?}");
        }
    }
}

#[test]
fn a_recovery_may_end_before_its_file() {
    let file = pz::compress(&sample(4 << 20, 6), &Options::new().block_size(1 << 16)).unwrap();
    let mut recovery = Recovery::new(Cursor::new(&file), &on(3)).unwrap();
    for expected in 0..10 {
        let Ok(Some(Piece::Block { number, .. })) = recovery.next_piece() else { panic!() };
        assert_eq!(number, expected);
        // This call reads the whole file, and does not change the next results.
        assert_eq!(recovery.extent().unwrap().declared, 4 << 20);
    }
    drop(recovery);
    let mut recovery = Recovery::new(Cursor::new(&file), &on(3).max_memory(1000)).unwrap();
    assert!(matches!(recovery.next_piece(), Err(Error::LimitMemory { .. })));
}
