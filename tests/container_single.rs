//! Frames of a single block, alone and in files with frames of the longer form, and the zeros that may follow the last
//! frame.
// Lists of ranges, not ranges of lists.
#![allow(clippy::single_range_in_vec_init)]

mod common;

use std::io::{Cursor, Read, Write};

use common::{Trickle, decode_options, sample};
use pz::access::{Archive, ArchiveOptions, publish, withdraw};
use pz::{
    DecodeOptions, Decoder, Encoder, Error, FrameInfo, Listing, Options, Pipeline, Recovery,
    SeekableReader,
};

const BLOCK: u64 = 1 << 16;

fn options() -> Options {
    Options::new().block_size(BLOCK).threads(1)
}

/// One frame, and its contents.
struct Frame {
    file: Vec<u8>,
    contents: Vec<u8>,
    is_single: bool,
}

impl Frame {
    fn new(contents: Vec<u8>, options: &Options) -> Self {
        let file = pz::compress(&contents, options).unwrap();
        let is_single = contents.len() as u64 <= BLOCK;
        Self { file, contents, is_single }
    }

    /// A frame of one block in the longer form: the writer did not know that no other block would follow.
    fn of_unknown_end(contents: Vec<u8>) -> Self {
        let mut encoder = Encoder::new(Vec::new(), &options()).unwrap();
        encoder.write_all(&contents).unwrap();
        encoder.flush().unwrap();
        Self { file: encoder.finish().unwrap(), contents, is_single: false }
    }
}

/// Frames of each kind.
fn kinds() -> Vec<Frame> {
    let long = Frame::new(sample(BLOCK as usize + 3000, 41), &options());
    let stored = options().pipeline(Pipeline::Store);
    // A frame whose contents look like frames of the longer form.
    let of_frames = Frame::new(long.file.clone(), &stored);
    vec![
        Frame::new(Vec::new(), &options()),
        Frame::new(sample(700, 42), &options()),
        Frame::new(vec![7; 300], &stored),
        Frame::of_unknown_end(sample(500, 43)),
        of_frames,
        long,
    ]
}

/// Checks a list's entry for the frame at `offset`.
fn check_listed(info: &FrameInfo, (number, offset, frame): (usize, usize, &Frame)) {
    assert_eq!((info.number, info.offset), (number as u64, offset as u64));
    assert_eq!(info.compressed_size, frame.file.len() as u64);
    assert_eq!(info.content_size, frame.contents.len() as u64);
    assert_eq!(info.block_count, info.content_size.div_ceil(BLOCK));
    // A frame of a single block records the length of its contents.
    assert!(!frame.is_single || info.size_in_header, "{info:?}");
    assert_eq!(info.blocks.len() as u64, info.block_count);
    for block in &info.blocks {
        let payload_offset = block.payload_offset as usize - offset;
        let payload = &frame.file[payload_offset..][..block.payload_size as usize];
        assert_eq!(block.payload_checksum, crc32c::crc32c(payload));
        let contents = &frame.contents[block.content_offset as usize..];
        let contents = &contents[..block.content_size as usize];
        assert_eq!(block.content_checksum, crc32c::crc32c(contents));
    }
}

/// Every sequence of up to three frames, and some of four.
#[test]
fn mixed_frames_are_listed_and_restored() {
    let kinds = kinds();
    let n = kinds.len();
    let mut files = 0;
    for len in 1..=4 {
        // Test one in seven of the sequences of four.
        for number in (0..n.pow(len)).step_by(if len == 4 { 7 } else { 1 }) {
            let frames: Vec<_> = (0..len).map(|at| &kinds[number / n.pow(at) % n]).collect();
            let file: Vec<u8> = frames.iter().flat_map(|frame| frame.file.clone()).collect();
            let contents: Vec<u8> =
                frames.iter().flat_map(|frame| frame.contents.clone()).collect();
            let infos = pz::list(&mut Cursor::new(&file), true).unwrap();
            assert_eq!(infos.len(), frames.len());
            let mut offset = 0;
            for (number, (info, frame)) in infos.iter().zip(&frames).enumerate() {
                check_listed(info, (number, offset, frame));
                offset += frame.file.len();
            }
            // Skips the blocks of some frames, then reads everything again.
            let options = decode_options().max_memory(1 << 18);
            let mut listing = Listing::new(Cursor::new(&file), &options).unwrap();
            for skips in [true, false] {
                for info in &infos {
                    let found = listing.next_frame().unwrap().unwrap();
                    let mut expected = info.clone();
                    expected.blocks.clear();
                    assert_eq!(found, expected);
                    for block in info.blocks.iter().take(if skips { 1 } else { usize::MAX }) {
                        assert_eq!(listing.next_block().unwrap().as_ref(), Some(block));
                    }
                }
                assert_eq!(listing.next_frame().unwrap(), None);
                listing.rewind();
            }
            assert!(pz::decompress(&file, &decode_options()).unwrap() == contents);
            let mut reader = SeekableReader::new(Cursor::new(&file), &decode_options()).unwrap();
            let mut restored = Vec::new();
            reader.read_to_end(&mut restored).unwrap();
            assert!(restored == contents);
            files += 1;
        }
    }
    assert!(files > 400, "{files}");
}

/// A frame in the longer form that ends with as many zeros.
fn ending_with_zeros(zeros: usize) -> Frame {
    // For stored blocks, the length of the contents determines everything before the checksum of index and footer.
    let block_len = 19 + BLOCK;
    let ends_so = |n: &u64| {
        let mut end = b"\xb7\x49".to_vec();
        end.extend_from_slice(&(block_len as u32).to_le_bytes());
        end.extend_from_slice(&(BLOCK + n).to_le_bytes());
        end.extend_from_slice(&(25 + block_len + 19 + n + 26).to_le_bytes());
        crc32c::crc32c(&end).leading_zeros() >= 8 * zeros as u32
    };
    let n = (1..=BLOCK).find(ends_so).unwrap();
    let stored = options().pipeline(Pipeline::Store).content_size(BLOCK + n);
    let frame = Frame::new((0..BLOCK + n).map(|i| (i * 7 + i / 251) as u8).collect(), &stored);
    assert!(frame.file.ends_with(&vec![0; zeros]));
    frame
}

/// Checks that every reader restores `contents` without an error.
fn check_every_reader(file: &[u8], contents: &[u8], frames: &[&Frame]) {
    let options = decode_options();
    assert!(pz::decompress(file, &options).unwrap() == contents);
    assert_eq!(pz::content_size(file).unwrap(), contents.len() as u64);
    let mut streamed = Vec::new();
    Decoder::new(Trickle(file), &options).unwrap().copy_to(&mut streamed).unwrap();
    assert!(streamed == contents);
    let infos = pz::list(&mut Cursor::new(file), true).unwrap();
    assert_eq!(infos.len(), frames.len());
    let mut offset = 0;
    for (number, (info, frame)) in infos.iter().zip(frames).enumerate() {
        check_listed(info, (number, offset, frame));
        offset += frame.file.len();
    }
    let mut reader = SeekableReader::new(Cursor::new(file), &options).unwrap();
    let mut restored = Vec::new();
    reader.copy_range(0..contents.len() as u64, &mut restored).unwrap();
    assert!(restored == contents);
    let (report, saved) = fill(file, &options).unwrap();
    assert!(saved == contents);
    assert!(report.lost.is_empty() && report.damaged.is_empty() && !report.end_unknown);
    publish("zeros", file);
    let archive = Archive::open("memio://zeros", &ArchiveOptions::new()).unwrap();
    let mut restored = vec![0; contents.len()];
    archive.read_into(0..contents.len() as u64, &mut restored[..]).unwrap();
    assert!(restored == contents);
    withdraw("zeros");
}

/// Checks that no reader accepts the file.
fn check_refused(file: &[u8]) {
    let options = decode_options();
    assert!(matches!(pz::decompress(file, &options), Err(Error::NotPz { .. })));
    assert!(Decoder::new(Trickle(file), &options).unwrap().verify().is_err());
    assert!(pz::list(&mut Cursor::new(file), true).is_err());
    assert!(SeekableReader::new(Cursor::new(file), &options).is_err());
    assert!(!fill(file, &options).unwrap().0.damaged.is_empty());
}

#[test]
fn zeros_may_follow_the_last_frame_and_nothing_else() {
    let zero_ended = [1, 2].map(ending_with_zeros);
    let kinds = kinds();
    let empty = &kinds[0];
    for last in kinds.iter().chain(&zero_ended) {
        for frames in [&[last][..], &[empty, last], &[last, last]] {
            let file: Vec<u8> = frames.iter().flat_map(|frame| frame.file.clone()).collect();
            let contents: Vec<u8> =
                frames.iter().flat_map(|frame| frame.contents.clone()).collect();
            for zeros in [0, 1, 11, 12, 512, 4096, 200_000] {
                let padded = [&file[..], &vec![0; zeros]].concat();
                check_every_reader(&padded, &contents, frames);
                if zeros > 0 {
                    for other in [&b"x"[..], &file] {
                        check_refused(&[&padded[..], other].concat());
                    }
                }
            }
        }
    }
    // Zeros alone are not a file.
    for zeros in [1, 17, 39, 100_000] {
        let file = vec![0; zeros];
        assert!(matches!(pz::decompress(&file, &decode_options()), Err(Error::NotPz { .. })));
        assert!(pz::list(&mut Cursor::new(&file), true).is_err());
    }
}

/// Every reader that reads the end of the file notices a cut in any frame.
#[test]
fn cut_files_are_not_listed() {
    for kind in kinds() {
        for before in kinds() {
            for missing in [1, 2, 4, 5, 17] {
                let file = [&before.file[..], &kind.file].concat();
                let cut = Cursor::new(&file[..file.len() - missing]);
                assert!(pz::list(&mut cut.clone(), true).is_err());
                assert!(Listing::new(cut.clone(), &decode_options()).is_err());
                assert!(SeekableReader::new(cut, &decode_options()).is_err());
            }
        }
    }
}

/// A checksum covers every byte of a frame without contents.
#[test]
fn an_empty_frame_with_a_damaged_byte_is_refused() {
    let sound = pz::compress(&[], &options()).unwrap();
    assert_eq!(sound.len(), 18);
    let followed = [&sound[..], &pz::compress(b"contents", &options()).unwrap()].concat();
    for file in [sound, followed] {
        for bit in 0..18 * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(pz::decompress(&damaged, &decode_options()).is_err(), "bit {bit}");
            let decoder = Decoder::new(&damaged[..], &decode_options());
            assert!(decoder.and_then(|mut decoder| decoder.verify()).is_err(), "bit {bit}");
            assert!(pz::list(&mut Cursor::new(&damaged), true).is_err(), "bit {bit}");
            assert!(SeekableReader::new(Cursor::new(&damaged), &decode_options()).is_err());
        }
    }
}

/// Where the payload of a frame of a single block begins.
fn payload_offset(file: &[u8]) -> usize {
    pz::list(&mut Cursor::new(file), true).unwrap()[0].blocks[0].payload_offset as usize
}

/// Recovers `file`. Returns what is lost, and the contents with holes filled.
fn fill(file: &[u8], options: &DecodeOptions) -> Result<(pz::RecoveryReport, Vec<u8>), Error> {
    let mut saved = Vec::new();
    let report = pz::recover(&mut Cursor::new(file), &mut saved, true, options)?;
    Ok((report, saved))
}

#[test]
fn cut_frames_keep_their_place() {
    let contents = sample(3000, 44);
    for pipeline in Pipeline::ALL {
        let file = pz::compress(&contents, &options().pipeline(pipeline)).unwrap();
        let header = payload_offset(&file);
        // A file with only this frame, and a file with another frame before it.
        let first = pz::compress(b"first", &options()).unwrap();
        for cut in 1..file.len() {
            let options = decode_options().max_output(1 << 20);
            let outcome = fill(&file[..cut], &options);
            let both = fill(&[&first[..], &file[..cut]].concat(), &options).unwrap();
            if cut < header {
                assert!(matches!(outcome, Err(Error::NotPz { .. })), "{cut}: {outcome:?}");
                assert!(both.1 == b"first" && both.0.lost.is_empty(), "{cut}");
            } else {
                // The header declares how much is lost, but no frame with a block of that length has only 20 bytes.
                let is_refused = fill(&file[..cut], &decode_options()).is_err();
                assert_eq!(is_refused, cut < 21, "{cut}");
                let (report, saved) = outcome.unwrap();
                assert_eq!((report.blocks, &report.lost), (0, &vec![0..3000]), "{cut}");
                assert!(saved == vec![0; 3000] && !report.end_unknown);
                assert_eq!(both.0.lost, [5..3005], "{cut}");
                assert!(both.1[..5] == *b"first" && both.1[5..] == vec![0; 3000]);
            }
            assert!(!both.0.damaged.is_empty(), "{cut}");
        }
    }
}

/// The header of a frame that stores `content_len` bytes in a single block.
fn header_of_stored(content_len: u32) -> Vec<u8> {
    let mut bytes = b"\x89PZF\r\n\x1A\n\x01\x00\x18\x03\x38".to_vec();
    bytes.extend_from_slice(&(content_len - 1).to_le_bytes()[..3]);
    bytes.push(crc32c::crc32c(&bytes) as u8);
    bytes
}

#[test]
fn declared_lengths_are_plausible_if_frames_can_hold_them() {
    let extent = |file: &[u8]| {
        Recovery::new(Cursor::new(file), &decode_options()).unwrap().extent().unwrap()
    };
    for kind in kinds().into_iter().filter(|kind| kind.is_single) {
        let file = kind.file.repeat(3);
        let found = extent(&file);
        assert_eq!(found.declared, 3 * kind.contents.len() as u64);
        assert!(found.plausible >= found.declared, "{found:?}");
    }
    // A file of the largest blocks, each of one repeated byte, holds a million times its length. So the limit must not
    // be lower.
    let large = Options::new().pipeline(Pipeline::Store).block_size(1 << 24).threads(1);
    let fills = pz::compress(&vec![7; 1 << 24], &large).unwrap().repeat(20);
    let mut damaged = fills.clone();
    for at in (0..fills.len()).step_by(fills.len() / 20) {
        damaged[at + fills.len() / 20 - 1] ^= 1;
    }
    for file in [&fills, &damaged] {
        let found = extent(file);
        assert_eq!(found.declared, 20 << 24);
        // As much may be lost in addition to what the frames declare.
        assert_eq!(found.plausible, 40 << 24);
    }
    // Headers without their blocks: each takes 17 bytes, and the shortest frame of such a block 22.
    let header = header_of_stored(1 << 24);
    let file = header.repeat(1000);
    let found = extent(&file);
    assert_eq!((found.declared, found.plausible), (1000 << 24, (17_000 / 22) << 24));
    assert!(matches!(fill(&file, &decode_options()), Err(Error::LimitOutput { .. })));
    assert!(matches!(fill(&header, &decode_options()), Err(Error::LimitOutput { .. })));
    let (report, saved) = fill(&header, &decode_options().max_output(1 << 24)).unwrap();
    assert_eq!((report.lost, saved.len()), (vec![0..1 << 24], 1 << 24));
}
