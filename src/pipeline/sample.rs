//! Sample blocks of a file, and the CPU's rates on them.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rayon::prelude::*;

use super::cpu::CpuEngine;
use super::engine::{Coded, DecodeJob, EncodeJob, Engine};
use super::memory::cores;
use super::scheduler::thread_pool;
use super::workload::Direction;
use crate::clock::Instant;
use crate::codec::Recipe;
use crate::format::Method;
use crate::sync::Lock;

/// Blocks spread over a file, from which [`Auto::predict`](crate::Auto::predict) makes predictions.
#[derive(Debug, Clone)]
pub struct Sample {
    blocks: Vec<Vec<u8>>,
    /// The rates of workers that have been measured: the predictions for several devices need the same ones.
    measured: Arc<Lock<Vec<(CpuWork, f64)>>>,
}

/// Direction, recipe and number of workers.
type CpuWork = (Direction, Recipe, usize);

/// The most bytes to read of a file, unless the threads need more for two blocks each.
const MAX_BYTES: u64 = 64 << 20;

/// Roughly how long to measure the CPU; each worker does at least one block.
const CPU_TIME: Duration = Duration::from_millis(700);

/// Work that takes less time than this is measured a second time: the first time touches new memory, which a run does
/// only at its start.
const QUICK: Duration = Duration::from_millis(100);

/// The most distinct blocks to measure a device with; batches repeat them.
const MAX_BLOCKS_FOR_DEVICES: usize = 8;

impl Sample {
    /// Reads blocks of `block_size` bytes, spread over the `len` bytes of `reader`: enough for `threads` threads.
    ///
    /// # Errors
    /// If reading fails.
    pub fn of(
        reader: &mut (impl Read + Seek),
        len: u64,
        block_size: u64,
        threads: usize,
    ) -> io::Result<Self> {
        let block_size = block_size.clamp(1, len.max(1));
        let all = len / block_size;
        let count = (MAX_BYTES / block_size).max(2 * threads as u64).min(all);
        let mut blocks = Vec::new();
        for number in spread(count) {
            // The block in the middle of its part of the file.
            let at = (2 * number + 1) * all / (2 * count);
            reader.seek(SeekFrom::Start(at * block_size))?;
            let mut block = vec![0; block_size as usize];
            reader.read_exact(&mut block)?;
            blocks.push(block);
        }
        Ok(Self::of_blocks(blocks))
    }

    /// Synthetic text: lines of words, some of them frequent, that shrink to about a third.
    pub(crate) fn synthetic(len: usize) -> Self {
        Self::of_blocks(vec![text(len)])
    }

    fn of_blocks(blocks: Vec<Vec<u8>>) -> Self {
        Self { blocks, measured: Arc::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Bytes a second of one of `workers` workers while all of them work. Each does at least one block, if there are
    /// enough. To measure decoding, makes the payloads with `recipe`. Measures each kind of work once.
    pub(crate) fn worker_rate(&self, direction: Direction, recipe: &Recipe, workers: usize) -> f64 {
        let workers = workers.clamp(1, self.blocks.len().max(1));
        let work = (direction, *recipe, workers);
        let mut measured = self.measured.lock();
        if let Some((_, rate)) = measured.iter().find(|(other, _)| *other == work) {
            return *rate;
        }
        let rate = self.measure(direction, recipe, workers);
        measured.push((work, rate));
        rate
    }

    fn measure(&self, direction: Direction, recipe: &Recipe, workers: usize) -> f64 {
        let engine = CpuEngine::new();
        let (begun, next) = (Instant::now(), AtomicUsize::new(0));
        let work = || {
            let (mut bytes, mut busy) = (0, Duration::ZERO);
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let is_late = at >= workers && begun.elapsed() >= CPU_TIME;
                let Some(contents) = self.blocks.get(at).filter(|_| !is_late) else {
                    return (bytes, busy);
                };
                let time = match direction {
                    Direction::Encode => measure_warm(QUICK, || encode(&engine, recipe, contents)),
                    Direction::Decode => encode(&engine, recipe, contents).and_then(|block| {
                        let mut decoded = vec![0; contents.len()];
                        // The first block touches new memory. For decoding that takes a sixth of the time.
                        let quick = if bytes == 0 { Duration::MAX } else { QUICK };
                        measure_warm(quick, || block.decode(&engine, &mut decoded))
                    }),
                };
                if let Some(time) = time {
                    busy += time;
                    bytes += contents.len();
                }
            }
        };
        let done = thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            let mut done = vec![work()];
            done.extend(others.into_iter().filter_map(|thread| thread.join().ok()));
            done
        });
        let bytes: usize = done.iter().map(|(bytes, _)| bytes).sum();
        let busy: Duration = done.iter().map(|(_, busy)| busy).sum();
        bytes as f64 / busy.as_secs_f64().max(1e-9)
    }

    /// Some of the blocks, encoded. For decoding, leaves out blocks that do not shrink: there is nothing to decode.
    pub(crate) fn encoded(&self, recipe: &Recipe, direction: Direction) -> Option<Encoded<'_>> {
        let some = &self.blocks[..self.blocks.len().min(MAX_BLOCKS_FOR_DEVICES)];
        let engine = CpuEngine::new();
        let is_work = |block: &Block<'_>| {
            direction == Direction::Encode || block.coded.method != Method::Store
        };
        let encode = |contents| encode(&engine, recipe, contents).filter(is_work);
        // Rayon's own pool would outlive the call.
        let blocks: Vec<_> = match thread_pool(cores().min(some.len())) {
            Some(pool) => {
                pool.install(|| some.par_iter().filter_map(|block| encode(block)).collect())
            }
            None => some.iter().filter_map(|block| encode(block)).collect(),
        };
        (!blocks.is_empty()).then_some(Encoded(blocks))
    }
}

/// The numbers below `count`, in an order whose first few are spread over the whole range.
fn spread(count: u64) -> impl Iterator<Item = u64> {
    let bits = count.next_power_of_two().trailing_zeros();
    let reversed = move |i: u64| if bits == 0 { i } else { i.reverse_bits() >> (64 - bits) };
    (0..1 << bits).map(reversed).filter(move |i| *i < count)
}

/// The time that `work` takes; that of a second run if the first took less than `quick`. `None` if it fails.
fn measure_warm<T>(quick: Duration, mut work: impl FnMut() -> Option<T>) -> Option<Duration> {
    let mut time = || {
        let begun = Instant::now();
        std::hint::black_box(work()?);
        Some(begun.elapsed())
    };
    let first = time()?;
    if first < quick { time() } else { Some(first) }
}

fn encode<'a>(engine: &CpuEngine, recipe: &Recipe, contents: &'a [u8]) -> Option<Block<'a>> {
    let mut payload = Vec::new();
    let mut job = EncodeJob::new(contents, 0, &mut payload);
    engine.encode(recipe, std::slice::from_mut(&mut job));
    let coded = job.coded?;
    Some(Block { contents, payload, coded })
}

/// A block with its payload.
struct Block<'a> {
    contents: &'a [u8],
    payload: Vec<u8>,
    coded: Coded,
}

impl Block<'_> {
    fn job<'a>(&'a self, contents: &'a mut [u8]) -> DecodeJob<'a> {
        let header = self.coded.header(self.contents.len(), self.payload.len());
        let payload = match self.coded.method {
            Method::Store => self.contents,
            _ => &self.payload[..],
        };
        DecodeJob::new(header, None, Some(payload), contents)
    }

    fn decode(&self, engine: &dyn Engine, contents: &mut [u8]) -> Option<()> {
        let mut job = self.job(contents);
        engine.decode(std::slice::from_mut(&mut job));
        matches!(job.outcome, Some(Ok(()))).then_some(())
    }
}

/// Sample blocks with their payloads, to measure a device with.
pub(crate) struct Encoded<'a>(Vec<Block<'a>>);

impl Encoded<'_> {
    fn first(&self, count: usize) -> impl Iterator<Item = &Block<'_>> {
        self.0.iter().cycle().take(count)
    }

    /// Bytes of the contents of `count` blocks.
    pub(crate) fn bytes(&self, count: usize) -> u64 {
        self.first(count).map(|block| block.contents.len() as u64).sum()
    }

    /// Encodes `count` blocks with `engine`; returns how many it did.
    pub(crate) fn encode(&self, engine: &dyn Engine, recipe: &Recipe, count: usize) -> usize {
        let blocks = self.first(count);
        let mut payloads: Vec<_> =
            blocks.map(|block| Vec::with_capacity(block.payload.len())).collect();
        let jobs = self.first(count).zip(&mut payloads);
        let mut jobs: Vec<_> =
            jobs.map(|(block, payload)| EncodeJob::new(block.contents, 0, payload)).collect();
        engine.encode(recipe, &mut jobs);
        jobs.iter().filter(|job| job.coded.is_some()).count()
    }

    /// Encodes the first block with `engine`: whether the payload is the same; `None` if the engine does not do it.
    pub(crate) fn encodes_alike(&self, engine: &dyn Engine, recipe: &Recipe) -> Option<bool> {
        let block = self.0.first()?;
        let mut payload = Vec::new();
        let mut job = EncodeJob::new(block.contents, 0, &mut payload);
        engine.encode(recipe, std::slice::from_mut(&mut job));
        let coded = job.coded?;
        Some(coded.method == block.coded.method && payload == block.payload)
    }

    /// Decodes `count` blocks with `engine`; returns how many it did.
    pub(crate) fn decode(&self, engine: &dyn Engine, count: usize) -> usize {
        let blocks = self.first(count);
        let mut all: Vec<_> = blocks.map(|block| vec![0; block.contents.len()]).collect();
        let jobs = self.first(count).zip(&mut all);
        let mut jobs: Vec<_> = jobs.map(|(block, contents)| block.job(contents)).collect();
        engine.decode(&mut jobs);
        jobs.iter().filter(|job| matches!(job.outcome, Some(Ok(())))).count()
    }
}

fn text(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words: Vec<Vec<u8>> = (0..2048)
        .map(|_| {
            let bits = random();
            (0..2 + bits % 9).map(|i| b'a' + ((bits >> (8 + 5 * i)) % 26) as u8).collect()
        })
        .collect();
    let mut bytes = Vec::with_capacity(len + 64);
    while bytes.len() < len {
        let bits = random();
        // Small numbers are more frequent than large ones.
        let word = ((bits & 2047) * (bits >> 11 & 2047) * (bits >> 22 & 2047)) >> 22;
        bytes.extend_from_slice(&words[word as usize]);
        bytes.push(if bits >> 40 & 15 == 0 { b'\n' } else { b' ' });
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, Pipeline};
    use std::io::Cursor;

    #[test]
    fn blocks_are_spread_over_the_file() {
        for (len, block_size, threads, expected) in
            [(0, 4, 2, vec![]), (3, 4, 2, vec![0]), (4, 4, 2, vec![0]), (9, 4, 2, vec![0, 4])]
        {
            let file: Vec<u8> = (0..len as u8).collect();
            let sample = Sample::of(&mut Cursor::new(file), len, block_size, threads).unwrap();
            let firsts: Vec<_> = sample.blocks.iter().map(|block| block[0]).collect();
            assert_eq!(firsts, expected, "{len} bytes");
        }
        let numbers: Vec<_> = spread(6).collect();
        assert_eq!(numbers, [0, 4, 2, 1, 5, 3]);
        let file = vec![7; 80 << 20];
        let sample = Sample::of(&mut Cursor::new(file), 80 << 20, 4 << 20, 2).unwrap();
        assert_eq!(sample.blocks.len(), 16);
    }

    #[test]
    fn workers_are_measured_both_ways() {
        let sample = Sample::of_blocks(vec![text(1 << 16); 5]);
        let recipe = Level::MIN.codec(Pipeline::Lzh).into();
        for workers in [1, 3, 9] {
            for direction in [Direction::Encode, Direction::Decode] {
                assert!(sample.worker_rate(direction, &recipe, workers) > 1e5);
            }
        }
    }
}
