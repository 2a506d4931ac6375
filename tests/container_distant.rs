//! Blocks that repeat parts of earlier blocks: every way to read them, and the effects of damage.

mod common;

use std::io::{Cursor, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use common::{decode_options, sample};
use pz::access::{Archive, ArchiveError, ArchiveOptions, publish};
use pz::{DecodeOptions, Decoder, Encoder, Error, Level, Options, SeekableReader};

const BLOCK: usize = 1 << 16;

fn options() -> Options {
    Options::new().block_size(BLOCK as u64).long_distance(16 << 20)
}

/// Three parts, then pieces of them again, shifted and changed.
fn contents() -> Vec<u8> {
    let parts: Vec<_> = (3..6).map(|i| sample(200_000 + 777 * i, i as u64)).collect();
    let mut again = parts.concat();
    for at in (5000..again.len()).step_by(50_021) {
        again[at] ^= 1;
    }
    [&parts.concat()[..], &parts[1], &sample(70_000, 9), &again, &parts[0]].concat()
}

/// Where each block lies in the file, and whether it repeats others.
fn blocks(file: &[u8]) -> Vec<(Range<usize>, bool)> {
    let frames = pz::list(&mut Cursor::new(file), true).unwrap();
    let blocks = frames.iter().flat_map(|frame| &frame.blocks);
    let place = |b: &pz::BlockInfo| b.offset as usize..(b.offset + b.compressed_size) as usize;
    blocks.map(|block| (place(block), block.own_size.is_some())).collect()
}

/// An archive in memory.
fn archive(file: &[u8], name: &str) -> Result<Archive, ArchiveError> {
    publish(name, file.to_vec());
    Archive::open(&format!("memio://{name}"), &ArchiveOptions::new())
}

/// Memory into which threads write blocks at their places.
struct Places(Mutex<Vec<u8>>);

impl pz::WriteAt for Places {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        let mut all = self.0.lock().unwrap();
        let end = offset as usize + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }
}

#[test]
fn every_reader_restores_every_level() {
    let contents = contents();
    for level in Level::all() {
        let options = options().level(level);
        let file = pz::compress(&contents, &options.clone().threads(1)).unwrap();
        assert!(blocks(&file).iter().filter(|(_, repeats)| *repeats).count() > 10);
        assert!(file == pz::compress(&contents, &options.clone().threads(3)).unwrap());
        let near = pz::compress(&contents, &options.long_distance(0)).unwrap();
        assert!(file.len() < near.len() * 6 / 10, "{level}: {} {}", file.len(), near.len());
        for threads in [1, 3] {
            let options = DecodeOptions::new().threads(threads);
            assert!(pz::decompress(&file, &options).unwrap() == contents);
            let mut streamed = Vec::new();
            Decoder::new(&file[..], &options).unwrap().read_to_end(&mut streamed).unwrap();
            assert!(streamed == contents);
            let places = Arc::new(Places(Mutex::default()));
            let output: Arc<dyn pz::WriteAt> = places.clone();
            let mut decoder = Decoder::new(&file[..], &options).unwrap();
            let len = decoder.copy_to_places(&output, |_| {}).unwrap();
            assert_eq!(len, contents.len() as u64);
            assert!(*places.0.lock().unwrap() == contents);
        }
    }
}

/// Two blocks, each of which repeats itself. Each decodes without the other.
#[test]
fn blocks_that_repeat_themselves() {
    let mut again = sample(200_000, 3);
    again[77_777] ^= 1;
    let once = [&sample(200_000, 3)[..], &again].concat();
    let options = Options::new().level(Level::MAX).block_size(1 << 19).long_distance(1 << 21);
    for contents in [once.clone(), [&once[..], &sample(1 << 19, 4), &once].concat()] {
        let file = pz::compress(&contents, &options).unwrap();
        let alone = pz::compress(&contents, &options.clone().long_distance(0)).unwrap();
        assert!(!blocks(&alone)[0].1);
        assert!(blocks(&file)[0].1 && file.len() < alone.len());
        assert!(pz::decompress(&file, &decode_options()).unwrap() == contents);
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        contents.chunks(99_999).for_each(|part| encoder.write_all(part).unwrap());
        let streamed = encoder.finish().unwrap();
        assert!(pz::decompress(&streamed, &decode_options()).unwrap() == contents);
        let mut reader = SeekableReader::new(Cursor::new(&file), &decode_options()).unwrap();
        for range in [0..1000, 199_000..201_000, 399_000..400_000, 0..contents.len() as u64] {
            let mut part = Vec::new();
            reader.copy_range(range.clone(), &mut part).unwrap();
            assert!(part == contents[range.start as usize..range.end as usize]);
        }
        let mut saved = Vec::new();
        let mut headless = file.clone();
        headless[9] ^= 1;
        pz::recover(&mut Cursor::new(&headless), &mut saved, true, &decode_options()).unwrap();
        assert!(saved == contents);
        for at in (0..200).chain((200..file.len()).step_by(997)) {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(pz::decompress(&damaged, &decode_options()).is_err(), "byte {at}");
        }
    }
}

#[test]
fn any_range_can_be_read() {
    let contents = contents();
    let file = pz::compress(&contents, &options()).unwrap();
    let file = [&file[..], &pz::compress(&contents[..99_999], &options()).unwrap(), &file].concat();
    let contents = [&contents[..], &contents[..99_999], &contents].concat();
    let len = contents.len();
    let archive = archive(&file, "ranges").unwrap();
    let mut reader = SeekableReader::new(Cursor::new(&file), &decode_options()).unwrap();
    let mut seed = 1_usize;
    let random = (0..60).map(|_| {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345) % (1 << 31);
        let start = seed % len;
        start..len.min(start + seed / 7 % 200_000)
    });
    for range in random.chain([0..len, len - 1..len, len / 2..len]) {
        let wanted = &contents[range.clone()];
        let mut part = Vec::new();
        reader.copy_range(range.start as u64..range.end as u64, &mut part).unwrap();
        assert!(part == wanted, "{range:?}");
        reader.seek(SeekFrom::Start(range.start as u64)).unwrap();
        let mut part = vec![0; range.len().min(1000)];
        reader.read_exact(&mut part).unwrap();
        assert!(part == wanted[..part.len()], "{range:?}");
        let mut part = vec![0; range.len()];
        archive.read_into(range.start as u64..range.end as u64, &mut part[..]).unwrap();
        assert!(part == wanted, "{range:?}");
    }
}

#[test]
fn flushes_and_unknown_lengths() {
    let contents = contents();
    let mut encoder = Encoder::new(Vec::new(), &options()).unwrap();
    for part in contents.chunks(300_000) {
        encoder.write_all(part).unwrap();
    }
    let file = encoder.finish().unwrap();
    assert!(blocks(&file).iter().any(|(_, repeats)| *repeats));
    assert!(pz::decompress(&file, &decode_options()).unwrap() == contents);
    // Each flush ends a frame, whose blocks repeat nothing of another's.
    let mut encoder = Encoder::new(Vec::new(), &options()).unwrap();
    for part in [&contents[..300_000], &contents, &contents[300_000..]] {
        encoder.write_all(part).unwrap();
        encoder.flush().unwrap();
    }
    let file = encoder.finish().unwrap();
    let all = [&contents[..300_000], &contents, &contents[300_000..]].concat();
    assert!(pz::decompress(&file, &decode_options()).unwrap() == all);
    // Inputs of less than a block, and of nothing.
    for len in [0, 1, 1000, BLOCK, BLOCK + 1] {
        let part = &contents[..len];
        assert!(
            pz::decompress(&pz::compress(part, &options()).unwrap(), &decode_options()).unwrap()
                == part
        );
    }
}

/// If a block is lost, the blocks that repeat it are lost too.
#[test]
fn recovery_saves_blocks_that_do_not_depend_on_damage() {
    let contents = contents();
    let file = pz::compress(&contents, &options()).unwrap();
    let blocks = blocks(&file);
    let recovered = |file: &[u8]| {
        let mut saved = Vec::new();
        let report =
            pz::recover(&mut Cursor::new(file), &mut saved, true, &decode_options()).unwrap();
        (report, saved)
    };
    assert!(recovered(&file).1 == contents);
    // Without the frame's header.
    let mut damaged = file.clone();
    damaged[9] ^= 1;
    let (report, saved) = recovered(&damaged);
    assert!(report.lost.is_empty() && saved == contents);
    for (number, (place, _)) in blocks.iter().enumerate() {
        let mut damaged = file.clone();
        damaged[place.end - 5] ^= 1;
        let (report, saved) = recovered(&damaged);
        let lost: Vec<_> = report.lost.iter().collect();
        assert!(
            lost.iter().any(|lost| lost.start == (number * BLOCK) as u64),
            "{number}: {lost:?}"
        );
        assert_eq!(saved.len(), contents.len());
        for (at, (saved, wanted)) in saved.chunks(BLOCK).zip(contents.chunks(BLOCK)).enumerate() {
            let start = (at * BLOCK) as u64;
            let is_lost = lost.iter().any(|lost| (lost.start..lost.end).contains(&start));
            assert!(if is_lost { at >= number } else { saved == wanted }, "{number} {at}");
        }
        let error = pz::decompress(&damaged, &decode_options()).unwrap_err();
        assert!(
            matches!(error, Error::Corrupt { place, .. } if place.block == Some(number as u64))
        );
        // Ranges of undamaged blocks that repeat a damaged one fail too.
        let mut reader = SeekableReader::new(Cursor::new(&damaged), &decode_options()).unwrap();
        for lost in &lost {
            let error = reader.copy_range((*lost).clone(), &mut Vec::new()).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
    }
}

#[test]
fn any_damage_ends_in_right_bytes_or_an_error() {
    let contents = contents();
    let file = pz::compress(&contents, &options()).unwrap();
    let blocks = blocks(&file);
    let (distant, _) = blocks.iter().find(|(_, repeats)| *repeats).unwrap();
    for at in
        (0..60).chain(distant.start..distant.start + 300).chain((60..file.len()).step_by(1999))
    {
        let mut damaged = file.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(pz::decompress(&damaged, &decode_options()).is_err(), "byte {at}");
        let archive = archive(&damaged, "damaged");
        let mut part = vec![0; contents.len()];
        if let Ok(archive) = archive {
            let read = archive.read_into(0..contents.len() as u64, &mut part[..]);
            assert!(read.is_err() || part == contents, "byte {at}");
        }
    }
    for len in (0..file.len()).step_by(4999) {
        assert!(pz::decompress(&file[..len], &decode_options()).is_err());
    }
}

/// If the reach of a frame is less than its blocks need, decoding in order refuses the frame.
#[test]
fn matches_beyond_the_reach_are_refused() {
    let contents = contents();
    let mut file = pz::compress(&contents, &options()).unwrap();
    // Sets the field `reach`, and the checksum of the header after it.
    for reach in [1_u64 << 20, 1 << 17] {
        file[24..32].copy_from_slice(&reach.to_le_bytes());
        let checksum = crc32c::crc32c(&file[..32]);
        file[32..36].copy_from_slice(&checksum.to_le_bytes());
        let decoded = pz::decompress(&file, &decode_options());
        if reach == 1 << 20 {
            assert!(decoded.unwrap() == contents);
        } else {
            let error = decoded.unwrap_err();
            assert!(error.to_string().contains("farther"), "{error}");
        }
    }
}
