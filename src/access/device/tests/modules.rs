//! Archives whose frames have modules.

use super::faults::every_fault_ends_well;
use super::{archive_with, check, memory_of};
use crate::access::{Archive, ArchiveError, ArchiveOptions};
use crate::codec::filter::FilterChain;
use crate::format::{BLOCK_MARKER, BlockHeader, ModuleTable};
use crate::gpu::tests::testing::each_static_device;
use crate::pipeline::modules::tests::{other_table, table};
use crate::{DecodeOptions, Error, Level, Modules, Options, Pipeline};

/// Numbers of 16 bits that grow slowly.
fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|i| (5 * i + i / 999) as u8).collect()
}

fn packed(contents: &[u8], chain: &str, table: ModuleTable, level: u32) -> Vec<u8> {
    let options = Options::new().level(Level::new(level).unwrap()).block_size(1 << 16);
    let options = options.modules_of_tests(table).filter(chain.parse().unwrap());
    crate::compress(contents, &options).unwrap()
}

fn trusting() -> ArchiveOptions {
    ArchiveOptions::new().decode(&DecodeOptions::new().modules(Modules::Allow))
}

#[test]
fn devices_undo_what_modules_did() {
    each_static_device(|device| {
        let memory = memory_of(device);
        for (level, chain) in
            [(1, "module0:7"), (3, "module1:3,module0"), (4, "transpose2,module1"), (9, "module0")]
        {
            let contents = contents(300_001);
            let (_, archive) =
                archive_with(packed(&contents, chain, table(), level), true, &trusting());
            for range in [(0..300_001, 0), (65_535..65_537, 3), (140_000..299_999, 16)] {
                check(&archive, &memory, &contents, range);
            }
            let statistics = archive.statistics();
            assert!(statistics.blocks_by_device > 0, "{chain}: {statistics:?}");
            if level < 9 {
                assert_eq!(statistics.blocks_by_cpu, 0, "{chain}");
            }
        }
    });
}

/// Frames with modules, without modules, with other modules, and with the first modules again.
#[test]
fn frames_of_an_archive_have_modules_of_their_own() {
    let contents = contents(500_000);
    let mut file = packed(&contents[..150_000], "module0:5", table(), 1);
    file.extend(packed(&contents[150_000..150_700], "module1", table(), 1));
    file.extend(packed(&contents[150_700..300_000], "transpose2", ModuleTable::default(), 1));
    file.extend(packed(&contents[300_000..400_000], "module0", other_table(), 1));
    file.extend(packed(&contents[400_000..], "module0:5", table(), 1));
    each_static_device(|device| {
        let memory = memory_of(device);
        let (_, archive) = archive_with(file.clone(), false, &trusting());
        for range in [(0..500_000, 1), (149_999..300_001, 0), (390_000..410_000, 5)] {
            check(&archive, &memory, &contents, range);
        }
        assert_eq!(archive.statistics().blocks_by_cpu, 0);
    });
}

#[test]
fn untrusted_modules_do_not_run() {
    let file = packed(&contents(100_000), "module0", table(), 1);
    let source = super::Watched { bytes: file, ..Default::default() };
    let refused = Archive::of_source(std::sync::Arc::new(source), &ArchiveOptions::new());
    let error = refused.err().unwrap();
    let is_untrusted = matches!(
        &error,
        ArchiveError::Format { error, .. } if matches!(**error, Error::UntrustedModule { .. })
    );
    assert!(is_untrusted, "{error}");
}

/// Sets the argument of the module that filtered block `number` of a file.
fn forge_argument(file: &mut [u8], number: u32, argument: u16) {
    for at in 0..file.len() {
        let Some(bytes) = file.get_mut(at..).filter(|bytes| bytes.starts_with(&BLOCK_MARKER))
        else {
            continue;
        };
        let Ok(mut header) = BlockHeader::parse(bytes) else { continue };
        if header.number == number {
            let chain: FilterChain = format!("module0:{argument}").parse().unwrap();
            header.filters = Some(chain);
            let forged = header.to_bytes();
            bytes[..forged.len()].copy_from_slice(&forged);
            return;
        }
    }
    panic!("there is no block {number}");
}

#[test]
fn a_module_that_fails_is_damage_of_its_block_alone() {
    let contents = contents(300_000);
    let file = packed(&contents, "module0", table(), 1);
    each_static_device(|device| {
        let memory = memory_of(device);
        for (argument, what) in [
            (256, "gave up"),
            (257, "ran out of fuel"),
            (258, "reached beyond its input or output"),
            (259, "reached beyond its private memory"),
            (260, "divided by zero"),
            (3, "the checksum of the block's contents does not agree"),
        ] {
            let mut forged = file.clone();
            forge_argument(&mut forged, 2, argument);
            let (_, archive) = archive_with(forged, true, &trusting());
            let mut buffer = memory.allocate(300_000).unwrap();
            let error = archive.read_into(0..300_000, &mut buffer).unwrap_err().to_string();
            assert!(error.contains("block 2") && error.contains(what), "{argument}: {error}");
            check(&archive, &memory, &contents, (0..131_072, 2));
            check(&archive, &memory, &contents, (196_608..300_000, 0));
            assert_eq!(archive.statistics().blocks_by_cpu, 0, "{argument}");
        }
    });
}

#[test]
fn faults_end_in_right_bytes_or_errors() {
    let contents = contents(150_000);
    every_fault_ends_well(&packed(&contents, "module0", table(), 1), &trusting(), &contents);
}

#[test]
fn workers_are_prepared_for_an_archive() {
    let contents = contents(400_000);
    let options = Options::new().pipeline(Pipeline::Fse).block_size(1 << 16);
    let options = options.modules_of_tests(table()).filter("module1:9".parse().unwrap());
    let packed = crate::compress(&contents, &options).unwrap();
    each_static_device(|device| {
        let memory = memory_of(device);
        let (_, archive) = archive_with(packed.clone(), true, &trusting());
        archive.prepare_on(&memory).unwrap();
        check(&archive, &memory, &contents, (100_000..400_000, 0));
        assert_eq!(archive.statistics().blocks_by_cpu, 0);
    });
}
