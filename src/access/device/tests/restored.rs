//! Archives whose blocks repeat others, or themselves.

use std::sync::Arc;

use super::faults::every_fault_ends_well;
use super::{archive_of, check, contents, faulty, local_archive_of, memory_of};
use crate::access::{ArchiveError, ArchiveOptions, DeviceMemory, DeviceMemoryOptions};
use crate::format::{BLOCK_MARKER, BlockHeader};
use crate::gpu::tests::faulty::Fault;
use crate::gpu::tests::testing::each_static_device;
use crate::test_data::noise;
use crate::{Level, Options, Pipeline};

/// Contents whose blocks copy from the block before, from earlier ones, and from several.
fn repeating() -> Vec<u8> {
    let part = contents(300_000);
    let mut pieces = Vec::new();
    for i in 0..90 {
        pieces.extend_from_slice(&part[i * 3001..][..600]);
        pieces.extend(noise(i as u32, 70, 256));
    }
    [&part[..], &part[..200_000], &noise(5, 50_000, 9), &pieces, &part].concat()
}

/// The options of an archive, and whether every device decodes all its blocks.
fn kinds() -> Vec<(Options, bool)> {
    let base = Options::new().block_size(1 << 16).long_distance(1 << 20);
    let level = |number| base.clone().level(Level::new(number).unwrap());
    vec![
        (level(1), true),
        (level(6).filter("delta1,transpose4".parse().unwrap()), true),
        (base.clone().pipeline(Pipeline::Fse), true),
        (base.clone().pipeline(Pipeline::Store), true),
        (base.clone().pipeline(Pipeline::Bwt), false),
        // Also finds matches within a block.
        (level(9), false),
        (level(9).block_size(1 << 20), false),
    ]
}

/// The headers of the blocks of a file, each with its place.
fn headers(packed: &[u8]) -> Vec<(usize, BlockHeader)> {
    let places = packed.windows(2).enumerate().filter(|(_, bytes)| **bytes == BLOCK_MARKER);
    places.filter_map(|(at, _)| Some((at, BlockHeader::parse(&packed[at..]).ok()?))).collect()
}

#[test]
fn devices_restore_blocks() {
    let contents = repeating();
    let len = contents.len();
    for (options, always) in kinds() {
        let packed = crate::compress(&contents, &options).unwrap();
        let count = headers(&packed).iter().filter(|(_, header)| header.own.is_some()).count();
        assert!(count > 0, "{options:?}");
        each_static_device(|device| {
            let memory = memory_of(device);
            for (_, archive) in [archive_of(packed.clone()), local_archive_of(packed.clone())] {
                for range in [
                    0..len,
                    400_000..400_100,
                    299_999..300_001,
                    333_333..499_999,
                    len - 77_777..len,
                ] {
                    check(&archive, &memory, &contents, (range, 3));
                }
                let statistics = archive.statistics();
                assert!(!always || statistics.blocks_by_cpu == 0, "{options:?}: {statistics:?}");
                assert!(statistics.blocks_by_device > 0, "{options:?}: {statistics:?}");
            }
        });
    }
}

/// A block is restored from at most sixteen others, however small the batches are.
#[test]
fn one_block_repeats_many() {
    let part = noise(7, 16 << 16, 256);
    let last: Vec<u8> =
        part.chunks(1 << 16).flat_map(|block| &block[5000..9000]).copied().collect();
    let contents = [&part[..], &last].concat();
    let options = Options::new().block_size(1 << 16).long_distance(1 << 21);
    let packed = crate::compress(&contents, &options).unwrap();
    each_static_device(|device| {
        let options = DeviceMemoryOptions::new().workers(2).batch(1 << 16);
        let memory = DeviceMemory::of_device(Arc::new(device), &options);
        for (_, archive) in [archive_of(packed.clone()), local_archive_of(packed.clone())] {
            check(&archive, &memory, &contents, (part.len() + 3..contents.len(), 1));
            assert_eq!(archive.statistics().blocks_by_cpu, 0);
        }
    });
}

/// Damage in a list, in own bytes, and in a block that others copy from; and a block with a wrong checksum whose
/// sources are right.
#[test]
fn damage_is_named() {
    let contents = repeating();
    let options = Options::new().block_size(1 << 16).long_distance(1 << 20);
    let packed = crate::compress(&contents, &options).unwrap();
    let repeats = |(_, header): &&(usize, BlockHeader)| header.own.is_some() && header.number > 4;
    let (at, header) = *headers(&packed).iter().find(repeats).unwrap();
    let payload = at + header.len();
    let list_len = header.own.unwrap().list_len as usize;
    let start = header.position() + 5;
    let resealed = |header: BlockHeader| {
        let mut changed = packed.clone();
        changed[at..payload].copy_from_slice(header.to_bytes().as_ref());
        changed
    };
    let flipped = |place: usize| {
        let mut damaged = packed.clone();
        damaged[place] ^= 1;
        damaged
    };
    let wrong = BlockHeader { content_crc: !header.content_crc, ..header };
    for (damaged, block) in [
        (flipped(payload), header.number),
        (flipped(payload + list_len), header.number),
        (flipped(payload + list_len + 40), header.number),
        // The first block, which the last one copies from.
        (flipped(headers(&packed)[0].0 + 200), 0),
        (resealed(wrong), header.number),
    ] {
        each_static_device(|device| {
            let memory = memory_of(device);
            for (_, archive) in [archive_of(damaged.clone()), local_archive_of(damaged.clone())] {
                let mut buffer = memory.allocate(1000).unwrap();
                let error = archive.read_into(start..start + 1000, &mut buffer).unwrap_err();
                let ArchiveError::Format { error, .. } = &error else { panic!("{error}") };
                let text = error.to_string();
                assert!(text.contains(&format!("block {block}")), "{text}");
                if block > 0 {
                    check(&archive, &memory, &contents, (10..131_072, 2));
                }
            }
        });
    }
}

#[test]
fn little_memory_and_faults_end_in_right_bytes_or_errors() {
    let part = contents(100_000);
    let contents = [&part[..], &part[20_000..]].concat();
    let options = Options::new().block_size(1 << 16).long_distance(1 << 20);
    let packed = crate::compress(&contents, &options).unwrap();
    let len = contents.len();
    each_static_device(|device| {
        let (_, archive) = archive_of(packed.clone());
        for most in [300 << 10, 1 << 20, 2 << 20, 4 << 20] {
            let device = faulty(device, Fault::MemoryAbove(most));
            let memory = memory_of(Arc::clone(&device));
            let mut buffer = memory.allocate(len as u64).unwrap();
            let read = archive.read_into(0..len as u64, &mut buffer);
            assert!(read.is_ok() || most < 1 << 20, "{most}: {read:?}");
            if read.is_ok() {
                let mut found = vec![0; len];
                buffer.copy_to_host(0, &mut found).unwrap();
                assert!(found == contents, "{most}");
            }
            assert!(device.most_used() <= most);
        }
    });
    every_fault_ends_well(&packed, &ArchiveOptions::new(), &contents);
}

#[test]
fn workers_are_prepared_for_them() {
    let contents = repeating();
    let options = Options::new().block_size(1 << 16).long_distance(1 << 20);
    let packed = crate::compress(&contents, &options).unwrap();
    each_static_device(|device| {
        let options = DeviceMemoryOptions::new().workers(2).batch(256 << 10).only_prepared();
        let memory = DeviceMemory::of_device(Arc::new(device), &options);
        let (_, archive) = archive_of(packed.clone());
        archive.prepare_on(&memory).unwrap();
        let before = archive.statistics();
        check(&archive, &memory, &contents, (310_000..450_000, 3));
        assert_eq!(archive.statistics().blocks_by_cpu, before.blocks_by_cpu);
    });
}
