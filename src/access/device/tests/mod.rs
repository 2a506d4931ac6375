//! Archives in the memory of every device.
//!
//! | module | |
//! |---|---|
//! | `ranges` | ranges of every kind of archive, to every kind of destination |
//! | `restored` | archives whose blocks repeat others, or themselves |
//! | `faults` | damaged archives, reads that are given up, and devices that fail |
//! | `modules` | archives whose frames have modules |
//! | `workers` | what the threads of a device take, keep and prepare |
//! | `background` | reads in the background |
//! | `compress` | contents of a device's memory, compressed there |

mod background;
mod compress;
mod faults;
#[cfg(feature = "modules")]
mod modules;
mod ranges;
mod restored;
mod workers;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{DeviceBuffer, DeviceMemory, DeviceMemoryOptions, DeviceSliceMut};
use crate::access::{Archive, ArchiveOptions, Part, Source, SourceError, SourceErrorKind};
use crate::gpu::device::Device;
use crate::gpu::tests::faulty::{Fault, Faulty};
use crate::gpu::tests::testing::PATIENCE;
use crate::stream::ReadAt;
use crate::test_data::{mixture, noise};

/// An archive in memory whose reads can be held up or made to fail.
#[derive(Default)]
struct Watched {
    bytes: Vec<u8>,
    /// Whether the source claims to be local.
    is_local: bool,
    /// Reads beyond this byte fail, unless it is 0.
    end: AtomicUsize,
    is_held: AtomicBool,
    fails: AtomicBool,
    /// How many parts were read, and in how many calls.
    parts: AtomicUsize,
    reads: AtomicUsize,
}

impl Source for Watched {
    fn uri(&self) -> &str {
        "watched"
    }

    fn is_local(&self) -> bool {
        self.is_local
    }
}

impl ReadAt for Watched {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_ranges(&mut [Part { offset, buffer }])
    }

    fn read_ranges(&self, parts: &mut [Part<'_>]) -> io::Result<()> {
        self.parts.fetch_add(parts.len(), Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        while self.is_held.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err(SourceError::new("watched", SourceErrorKind::Unavailable, "fails").into());
        }
        let end = self.end.load(Ordering::Relaxed) as u64;
        for part in parts {
            if end > 0 && part.end() > end {
                let what = "has become shorter";
                return Err(SourceError::new("watched", SourceErrorKind::Changed, what).into());
            }
            let from = part.offset as usize;
            part.buffer.copy_from_slice(&self.bytes[from..from + part.buffer.len()]);
        }
        Ok(())
    }
}

/// Text, bytes that do not compress, and repeated bytes.
fn contents(len: usize) -> Vec<u8> {
    let mut all = mixture(len / 2);
    all.extend(noise(3, len / 8, 256));
    all.extend(vec![7; len / 4]);
    all.extend(mixture(len / 8));
    all.resize(len, b'.');
    all
}

fn archive_of(packed: Vec<u8>) -> (Arc<Watched>, Archive) {
    archive_with(packed, false, &ArchiveOptions::new())
}

fn local_archive_of(packed: Vec<u8>) -> (Arc<Watched>, Archive) {
    archive_with(packed, true, &ArchiveOptions::new())
}

fn archive_with(
    packed: Vec<u8>,
    is_local: bool,
    options: &ArchiveOptions,
) -> (Arc<Watched>, Archive) {
    let source = Arc::new(Watched { bytes: packed, is_local, ..Watched::default() });
    let archive = Archive::of_source(source.clone(), options).unwrap();
    (source, archive)
}

/// Small batches, so that even short archives have several.
fn memory_of(device: impl Device + 'static) -> DeviceMemory {
    let options = DeviceMemoryOptions::new().workers(2).batch(256 << 10);
    DeviceMemory::of_device(Arc::new(device), &options)
}

/// Reads `range` to byte `at` of a buffer with bytes around it, and checks all of them.
fn check(
    archive: &Archive,
    memory: &DeviceMemory,
    contents: &[u8],
    (range, at): (std::ops::Range<usize>, usize),
) {
    let before = vec![0xa5; range.len() + at + 40];
    let mut buffer = memory.allocate(before.len() as u64).unwrap();
    buffer.copy_from_host(0, &before).unwrap();
    let slice = buffer.slice_mut(at as u64..(at + range.len()) as u64).unwrap();
    archive.read_into(range.start as u64..range.end as u64, slice).unwrap();
    let mut expected = before;
    expected[at..at + range.len()].copy_from_slice(&contents[range.clone()]);
    let mut found = vec![0; expected.len()];
    buffer.copy_to_host(0, &mut found).unwrap();
    let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(wrong, None, "{range:?} at {at}: the first byte that differs");
}

/// A device that several values share, so that a test can look at it after a read.
fn faulty(device: &'static dyn Device, fault: Fault) -> Arc<Faulty<&'static dyn Device>> {
    Arc::new(Faulty::new(device, fault).with_deadline(Duration::from_millis(300)))
}

/// Waits until something is so.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(is_so());
}
