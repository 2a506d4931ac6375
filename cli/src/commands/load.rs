//! `pz bench --load`: measures how fast archives get into the memory of a device, as a whole and in random ranges.
//!
//! Before it times a read, it compares the result with what the CPU decodes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pz::DecodeOptions;
use pz::access::{
    Archive, ArchiveError, ArchiveOptions, DeviceBuffer, DeviceMemory, DeviceMemoryOptions,
    RangeRead, ReadOptions, open_path, publish,
};
use pz::gpu::device::{Device, DeviceError};
use serde::Serialize;

use crate::args::Bench;
use crate::failure::{Failure, show};
use crate::remote;
use crate::sizes::{self, Human, Size};
use crate::table::Table;
use crate::trust::Trust;

/// Number of reads of the whole archive; the median counts.
const WHOLE: usize = 9;
/// Most ranges to read one at a time.
const ALONE: usize = 400;
/// Longest time to read ranges one at a time, and then many at a time.
const MEASURING_TIME: Duration = Duration::from_secs(1);
/// Threads that ask for ranges.
const THREADS: usize = 16;
/// The name of an archive that was read into memory.
const NAME: &str = "bench";
/// Bytes to compare at once.
const PIECE: u64 = 16 << 20;

/// One measurement.
#[derive(Serialize)]
pub struct Row {
    file: String,
    device: String,
    what: String,
    /// Bytes of contents of each read.
    bytes: u64,
    /// Contents divided by the compressed length.
    ratio: f64,
    /// 10^9 bytes of contents per second.
    gb_s: f64,
    reads_s: f64,
    median_ms: f64,
    /// 99% of the reads took no longer.
    p99_ms: f64,
}

/// What to measure, and with which options.
struct Subject<'a> {
    file: String,
    path: &'a Path,
    is_in_memory: bool,
    options: ArchiveOptions,
    name: &'a str,
    ratio: f64,
    memory: DeviceMemory,
    archive: Archive,
    in_flight: usize,
    range: u64,
}

/// Measures the archive at `path` on `device`, and adds the results to `rows`.
pub fn measure(
    path: &Path,
    (name, device): (&str, &Arc<dyn Device>),
    args: &Bench,
    rows: &mut Vec<Row>,
) -> Result<String, Failure> {
    let mut options = DeviceMemoryOptions::new().workers(args.workers);
    if let Some(Size(bytes)) = args.gpu_memory {
        options = options.memory(bytes);
    }
    if let Some(Size(bytes)) = args.batch {
        options = options.batch(bytes);
    }
    let compressed = std::fs::metadata(path)?.len();
    if args.in_memory {
        publish(NAME, std::fs::read(path)?);
    }
    let memory = DeviceMemory::of_device(Arc::clone(device), &options);
    let begun = Instant::now();
    let trust = Trust { allow_modules: args.allow_modules };
    let options = ArchiveOptions::new().decode(&DecodeOptions::new().modules(trust.modules()));
    let archive = open(path, args.in_memory, &options)?;
    let mut buffer = memory.allocate(archive.len()).map_err(device_failure)?;
    let prepared = begun.elapsed();
    let subject = Subject {
        file: show(path),
        path,
        is_in_memory: args.in_memory,
        options,
        name,
        ratio: sizes::ratio(archive.len(), compressed),
        memory,
        in_flight: args.in_flight.max(1),
        range: args.range_size.map_or(64 << 10, |Size(bytes)| bytes).min(archive.len()),
        archive,
    };
    let begun = Instant::now();
    subject.read_whole(&mut buffer)?;
    let first = begun.elapsed();
    subject.check_whole(&buffer)?;
    let mut found = vec![subject.row("whole, first", subject.archive.len(), 1, vec![first], first)];
    found.push(subject.whole(&mut buffer)?);
    drop(buffer);
    found.push(subject.second()?);
    found.push(subject.alone()?);
    found.push(subject.many()?);
    let statistics = subject.archive.statistics();
    let mut text = format!(
        "{} on {name}: {} bytes, ratio {:.3}, {} blocks decoded by the device and {} by the CPU; opened in {:.1} ms\n",
        subject.file,
        subject.archive.len(),
        subject.ratio,
        statistics.blocks_by_device,
        statistics.blocks_by_cpu,
        prepared.as_secs_f64() * 1e3,
    );
    let mut table = Table::new(&["<  what", "bytes", "GB/s", "reads/s", "median ms", "99% ms"]);
    for row in &found {
        table.row(vec![
            format!("  {}", row.what),
            Human(row.bytes).to_string(),
            format!("{:.2}", row.gb_s),
            format!("{:.0}", row.reads_s),
            format!("{:.3}", row.median_ms),
            format!("{:.3}", row.p99_ms),
        ]);
    }
    text += &table.to_text();
    rows.extend(found);
    Ok(text)
}

/// Opens the archive at `path`, or the one that was read into memory.
fn open(path: &Path, in_memory: bool, options: &ArchiveOptions) -> Result<Archive, Failure> {
    let opened = match in_memory {
        true => Archive::open(&format!("memio://{NAME}"), options),
        false => open_path(path)
            .map_err(ArchiveError::from)
            .and_then(|source| Archive::of_source(source, options)),
    };
    opened.map_err(failure)
}

fn failure(error: ArchiveError) -> Failure {
    match error {
        ArchiveError::Source(error) => remote::failure(error),
        ArchiveError::Format { error, .. } => Failure::from(&*error),
        error => Failure::environment(error.to_string()),
    }
}

fn device_failure(error: DeviceError) -> Failure {
    Failure::environment(error.to_string())
}

fn differs(what: &str) -> Failure {
    Failure::bug(format!("{what} in device memory differs from what the CPU decodes"))
}

/// Pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}

impl Subject<'_> {
    fn row(
        &self,
        what: &str,
        bytes: u64,
        reads: usize,
        mut times: Vec<Duration>,
        total: Duration,
    ) -> Row {
        times.sort_unstable();
        let milliseconds = |at: usize| times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3);
        let seconds = total.as_secs_f64().max(1e-9);
        Row {
            file: self.file.clone(),
            device: self.name.to_string(),
            what: what.to_string(),
            bytes,
            ratio: self.ratio,
            gb_s: bytes as f64 * reads as f64 / seconds / 1e9,
            reads_s: reads as f64 / seconds,
            median_ms: milliseconds(times.len() / 2),
            p99_ms: milliseconds((times.len() * 99 / 100).min(times.len().saturating_sub(1))),
        }
    }

    fn read_whole(&self, buffer: &mut DeviceBuffer) -> Result<(), Failure> {
        let read = self.archive.read_into(0..self.archive.len(), buffer);
        read.map_err(failure)
    }

    /// Compares the whole contents with what the CPU decodes.
    fn check_whole(&self, buffer: &DeviceBuffer) -> Result<(), Failure> {
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < self.archive.len() {
            let end = (at + PIECE).min(self.archive.len());
            found.resize((end - at) as usize, 0);
            expected.resize((end - at) as usize, 0);
            buffer.copy_to_host(at, &mut found).map_err(device_failure)?;
            let read = self.archive.read_into(at..end, &mut expected);
            read.map_err(failure)?;
            if found != expected {
                return Err(differs(&format!("what is at bytes {at} to {end}")));
            }
            at = end;
        }
        Ok(())
    }

    /// Times reads of the whole archive.
    fn whole(&self, buffer: &mut DeviceBuffer) -> Result<Row, Failure> {
        let mut times = Vec::new();
        for _ in 0..WHOLE {
            let begun = Instant::now();
            self.read_whole(buffer)?;
            times.push(begun.elapsed());
        }
        self.check_whole(buffer)?;
        times.sort_unstable();
        let median = times[times.len() / 2];
        Ok(self.row("whole", self.archive.len(), 1, times, median))
    }

    /// Times opening the archive and reading its first bytes.
    fn second(&self) -> Result<Row, Failure> {
        let len = self.archive.len().min(4096);
        let mut buffer = self.memory.allocate(len).map_err(device_failure)?;
        let mut times = Vec::new();
        for _ in 0..20 {
            let begun = Instant::now();
            let archive = open(self.path, self.is_in_memory, &self.options)?;
            let read = archive.read_into(0..len, &mut buffer);
            read.map_err(failure)?;
            times.push(begun.elapsed());
        }
        let total = times.iter().sum();
        Ok(self.row("opened again, first bytes", len, times.len(), times, total))
    }

    fn range(&self, numbers: &mut Numbers) -> std::ops::Range<u64> {
        let start = numbers.below(self.archive.len() - self.range + 1);
        start..start + self.range
    }

    /// Times random ranges, one at a time.
    fn alone(&self) -> Result<Row, Failure> {
        let mut buffer = self.memory.allocate(self.range).map_err(device_failure)?;
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let mut bytes = vec![0; self.range as usize];
        let mut expected = bytes.clone();
        for _ in 0..16 {
            let range = self.range(&mut numbers);
            let read = self.archive.read_into(range.clone(), &mut buffer);
            read.and_then(|()| self.archive.read_into(range, &mut expected)).map_err(failure)?;
            buffer.copy_to_host(0, &mut bytes).map_err(device_failure)?;
            if bytes != expected {
                return Err(differs("a range"));
            }
        }
        let (mut times, mut total) = (Vec::new(), Duration::ZERO);
        while times.len() < ALONE && total < MEASURING_TIME {
            let range = self.range(&mut numbers);
            let begun = Instant::now();
            let read = self.archive.read_into(range, &mut buffer);
            read.map_err(failure)?;
            let time = begun.elapsed();
            times.push(time);
            total += time;
        }
        Ok(self.row("ranges, one at a time", self.range, times.len(), times, total))
    }

    /// Times random ranges, many at a time: several threads each read many in one call.
    fn many(&self) -> Result<Row, Failure> {
        let threads = THREADS.min(self.in_flight);
        let each = self.in_flight / threads;
        let done = AtomicUsize::new(0);
        let begun = Instant::now();
        let one = |number: usize| -> Result<Vec<Duration>, Failure> {
            let bytes = self.range * each as u64;
            let mut buffer = self.memory.allocate(bytes).map_err(device_failure)?;
            let mut numbers = Numbers(77 + number as u64);
            let mut times = Vec::new();
            while begun.elapsed() < MEASURING_TIME {
                let mut rest = (&mut buffer).into();
                let mut reads = Vec::with_capacity(each);
                for _ in 0..each {
                    let slice: pz::access::DeviceSliceMut<'_> = rest;
                    let Some((own, after)) = slice.split_at_mut(self.range) else {
                        return Err(Failure::bug("the buffer is too short"));
                    };
                    reads.push(RangeRead::new(self.range(&mut numbers), own));
                    rest = after;
                }
                let start = Instant::now();
                let read = self.archive.read(&mut reads, &ReadOptions::new());
                read.map_err(failure)?;
                times.push(start.elapsed());
                done.fetch_add(each, Ordering::Relaxed);
            }
            Ok(times)
        };
        let mut times = Vec::new();
        let outcomes: Vec<_> = thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> =
                (0..threads).map(|number| scope.spawn(move || one(number))).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        for outcome in outcomes {
            times.extend(outcome.map_err(|_| Failure::bug("a thread panicked"))??);
        }
        let total = begun.elapsed();
        let what = format!("ranges, {} at a time", each * threads);
        Ok(self.row(&what, self.range, done.into_inner(), times, total))
    }
}
