//! Decodes parts of blocks from a file's bytes to any places of a buffer, on every device.

use super::testing::{GARBAGE, PATIENCE, each_device};
use crate::codec::Recipe;
use crate::codec::filter::{Context, FilterChain, apply};
use crate::format::{Method, Pipeline};
use crate::gpu::coder::{CoderError, MovedPart, Origin, RangeDecoder, RangeTask, RawBlock};
use crate::gpu::device::pool::Pool;
use crate::gpu::device::{BufferId, Device};
use crate::gpu::model::plan::PlanError;
use crate::gpu::stages::lz77_decode::PayloadFeatures;
use crate::gpu::tests::coder::on_cpu;
use crate::test_data::{mixture, noise};
use crate::{Level, Options};

/// Numbers without a pattern.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

/// A buffer of the caller's, and its expected contents.
struct Destination<'d> {
    device: &'d dyn Device,
    buffer: BufferId,
    expected: Vec<u8>,
}

impl<'d> Destination<'d> {
    fn new(device: &'d dyn Device, bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(4);
        let buffer = device.allocate(bytes as u64).unwrap();
        let expected = vec![GARBAGE; bytes];
        let mut queue = device.queue().unwrap();
        queue.write(buffer, 0, &expected).unwrap();
        queue.finish().unwrap();
        Self { device, buffer, expected }
    }

    fn end(&self) -> u64 {
        self.expected.len() as u64
    }

    fn assert(&self, what: &str) {
        let mut found = vec![0; self.expected.len()];
        self.device.queue().unwrap().read(self.buffer, 0, &mut found).unwrap();
        let wrong =
            found.iter().zip(&self.expected).position(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "{what}: the first byte that differs");
    }
}

impl Drop for Destination<'_> {
    fn drop(&mut self) {
        self.device.free(self.buffer);
    }
}

#[test]
fn bytes_move_from_anywhere_to_anywhere() {
    each_device(|device| {
        let mut decoder =
            RangeDecoder::new(device, device.queue().unwrap(), RangeTask::Move, 40_000, 3).unwrap();
        let raw = noise(5, decoder.room() as usize, 256);
        decoder.upload_with(0, (raw.len(), 0), &mut |into| into.copy_from_slice(&raw)).unwrap();
        let mut numbers = Numbers(7);
        let mut to = Destination::new(device, 300_000);
        let mut other = Destination::new(device, 1000);
        let mut parts = Vec::new();
        // Adjacent parts, more than a dispatch moves.
        let mut at = 3;
        for turn in 0..60 {
            let most = [1, 3, 20, 900, 40_000][turn % 5];
            let bytes = 1 + numbers.below(most);
            let from = numbers.below(raw.len() - bytes + 1);
            if at + bytes > to.expected.len() {
                break;
            }
            let origin = if turn % 7 == 6 {
                to.expected[at..at + bytes].fill(turn as u8);
                Origin::Fill(turn as u8)
            } else {
                to.expected[at..at + bytes].copy_from_slice(&raw[from..from + bytes]);
                Origin::Raw(from as u32)
            };
            parts.push(MovedPart {
                origin,
                bytes: bytes as u32,
                buffer: to.buffer,
                buffer_end: to.end(),
                at: at as u64,
            });
            at += bytes + numbers.below(2) * numbers.below(40);
        }
        // Every alignment of both ends.
        for (from, at) in (0..16).flat_map(|from| (0..4).map(move |at| (from, at))) {
            let (from, at, bytes) = (from as usize, 13 * from as usize + 3 * at, 1 + at);
            other.expected[at..at + bytes].copy_from_slice(&raw[from..from + bytes]);
            let (bytes, buffer, buffer_end) = (bytes as u32, other.buffer, other.end());
            let origin = Origin::Raw(from as u32);
            parts.push(MovedPart { origin, bytes, buffer, buffer_end, at: at as u64 });
        }
        // A part that does not fit has no effect: beyond either end, or one byte too long.
        let end = other.end();
        for (from, bytes, at) in [
            (raw.len() as u32 - 3, 4, 700),
            (u32::MAX - 1, 4, 700),
            (0, 5, end - 4),
            (0, 1, end),
            (0, 4, u64::MAX - 1),
            (0, 9, 1 << 40),
        ] {
            let (origin, buffer) = (Origin::Raw(from), other.buffer);
            parts.push(MovedPart { origin, bytes, buffer, buffer_end: end, at });
        }
        other.expected[end as usize - 3..].copy_from_slice(&raw[1..4]);
        let (origin, buffer) = (Origin::Raw(1), other.buffer);
        parts.push(MovedPart { origin, bytes: 3, buffer, buffer_end: end, at: end - 3 });
        decoder.submit(&[], &mut parts).unwrap();
        assert!(decoder.wait().unwrap().is_empty());
        to.assert("parts that touch");
        other.assert("every alignment");
    });
}

/// Blocks of each codec, with and without filters.
fn recipes() -> Vec<(String, Recipe)> {
    let mut recipes: Vec<_> = Level::all()
        .map(|level| {
            let recipe = Options::new().level(level).recipe().unwrap().first();
            (format!("level {level}"), recipe)
        })
        .collect();
    let fse = Options::new().pipeline(Pipeline::Fse).recipe().unwrap();
    recipes.push(("fse".into(), fse));
    recipes
}

/// Lengths of blocks.
const LENS: [usize; 5] = [70_000, 1, 5_000, 20_001, 9_000];

/// Blocks of the lengths [`LENS`], as far as one pipeline decodes them.
struct Encoded {
    payloads: Vec<u8>,
    blocks: Vec<RawBlock>,
    /// The contents of each block.
    all: Vec<Vec<u8>>,
    pipeline: Pipeline,
}

fn encoded(recipe: &Recipe) -> Encoded {
    const CHAINS: [Option<&str>; 4] =
        [None, Some("transpose4"), Some("delta2,zigzag2,transpose2"), Some("rotate2,transpose2")];
    let mut payloads = vec![0xff; 16];
    let mut blocks = Vec::new();
    let mut all = Vec::new();
    let mut pipeline = None;
    for (number, len) in LENS.into_iter().enumerate() {
        let mut contents = mixture(len);
        contents.resize(len, b'.');
        contents.rotate_left(number * 700 % len);
        let chain: Option<FilterChain> =
            CHAINS[number % CHAINS.len()].map(|chain| chain.parse().unwrap());
        let mut filtered = contents.clone();
        let chain = chain.filter(|chain| {
            let (mut out, mut unit) = (Vec::new(), Vec::new());
            let fits = apply(chain, &contents, &mut out, &mut unit, Context::default()).unwrap();
            if fits {
                filtered = out;
            }
            fits
        });
        let (coded, payload) = on_cpu(recipe, &filtered);
        let own = match coded.method {
            Method::Lz77 => Pipeline::Lzf,
            Method::Bwt => Pipeline::Bwt,
            Method::Store | Method::Fill => continue,
        };
        if *pipeline.get_or_insert(own) != own {
            continue;
        }
        blocks.push(RawBlock {
            payload_start: payloads.len() as u32,
            payload_len: payload.len() as u32,
            content_len: len as u32,
            position: 0,
            filters: chain,
            features: PayloadFeatures::of(&payload, len),
        });
        payloads.extend(payload);
        payloads.resize(payloads.len().next_multiple_of(16), 0xee);
        all.push(contents);
    }
    Encoded { payloads, blocks, all, pipeline: pipeline.unwrap() }
}

/// Three parts of each block with gaps, from the last part of the last block to the first. Puts into `to` what it must
/// hold once they have moved there.
fn scattered_parts(
    all: &[Vec<u8>],
    numbers: &mut Numbers,
    to: &mut Destination<'_>,
) -> Vec<MovedPart> {
    let mut parts = Vec::new();
    let mut at = 1;
    for (number, contents) in all.iter().enumerate() {
        // The block from its beginning to its end in three parts with gaps, the last part first.
        let cuts = [0, numbers.below(contents.len()), numbers.below(contents.len())];
        for (turn, cut) in cuts.into_iter().enumerate() {
            let end = if turn == 2 { contents.len() } else { contents.len().min(cut + 9000) };
            let bytes = end - cut;
            if at + bytes > to.expected.len() {
                break;
            }
            to.expected[at..at + bytes].copy_from_slice(&contents[cut..end]);
            parts.push(MovedPart {
                origin: Origin::Contents(number as u32, cut as u32),
                bytes: bytes as u32,
                buffer: to.buffer,
                buffer_end: to.end(),
                at: at as u64,
            });
            at += bytes + turn;
        }
    }
    parts.reverse();
    parts
}

#[test]
fn ranges_of_blocks_of_every_level_and_filter() {
    each_device(|device| {
        for (name, recipe) in recipes() {
            let device = Pool::new(device).filled_with(GARBAGE);
            let mut numbers = Numbers(3);
            let Encoded { payloads, blocks, all, pipeline } = encoded(&recipe);
            let queue = device.queue().unwrap();
            let count = LENS.len() as u32;
            let made =
                RangeDecoder::new(&device, queue, RangeTask::Decode(pipeline), 70_000, count);
            let mut decoder = match made {
                Err(CoderError::Plan(PlanError::Declined(why))) => {
                    println!("{name}: declined: {why}");
                    continue;
                }
                made => made.unwrap(),
            };
            decoder.batch_deadline(PATIENCE);
            let mut to = Destination::new(&device, 2 * all.iter().map(Vec::len).sum::<usize>());
            let parts = scattered_parts(&all, &mut numbers, &mut to);
            let fill = &mut |into: &mut [u8]| into.copy_from_slice(&payloads);
            decoder.upload_with(0, (payloads.len(), 0), fill).unwrap();
            // Twice in the same memory; then the first blocks alone.
            for count in [blocks.len(), blocks.len(), 1] {
                let mut some: Vec<_> = parts
                    .iter()
                    .filter(|part| matches!(part.origin, Origin::Contents(b, _) if (b as usize) < count))
                    .copied()
                    .collect();
                decoder.submit(&blocks[..count], &mut some).unwrap();
                for (block, contents) in decoder.wait().unwrap().iter().zip(&all) {
                    assert!(block.is_decoded && !block.is_filtered, "{name}");
                    assert_eq!(block.content_crc, crc32c::crc32c(contents), "{name}");
                }
                to.assert(&name);
            }
            // The destination is one of the pool's buffers as well.
            let own = to.expected.len() as u64;
            assert_eq!(device.high_water(), decoder.memory() + own, "{name}");
        }
    });
}
