//! Measures how fast a device works on data in its own memory, stage by stage, after verifying every byte.

use std::time::{Duration, Instant};

use pz::gpu::coder::{
    CallerBuffers, CoderError, DecodedBlock, Decoder, EncodedBlock, Encoder, Encoding,
    PayloadPlace, PlanError, StageTime,
};
use pz::gpu::device::{Device, DeviceError};
use pz::internal::measure::{CpuBlock, CpuBlocks, budget_now};
use pz::{Error, Method, Options, Pipeline};

/// A measurement of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Blocks on the device at once.
    pub blocks: u32,
    /// Total length of their contents in bytes.
    pub bytes: u64,
    /// Total length of their payloads in bytes.
    pub payload_bytes: u64,
    /// Device memory in use, in bytes.
    pub memory: u64,
    /// The median time of each stage on the device; empty if the device cannot measure it.
    pub stages: Vec<StageTime>,
    /// The median time from the upload of the first job to the download of the last result.
    pub wall: Duration,
}

impl Measurement {
    /// The sum of all stages, or the wall-clock time if no stages were measured.
    pub fn time(&self) -> Duration {
        let sum: Duration = self.stages.iter().map(|stage| stage.time).sum();
        if sum.is_zero() { self.wall } else { sum }
    }
}

/// The data to measure a device with: blocks, and their payloads as made by the CPU.
pub struct Subject<'a> {
    encoding: Encoding,
    pipeline: Pipeline,
    encoded: CpuBlocks<'a>,
    copies: usize,
}

impl<'a> Subject<'a> {
    /// Splits `data` into blocks by `options`. The device gets copies of them until it has `total` bytes.
    ///
    /// # Errors
    /// Fails if the options are invalid, or if a module cannot filter a block.
    pub fn new(data: &'a [u8], options: &Options, total: u64) -> Result<Self, Error> {
        let encoding = options.encoding()?;
        let encoded = CpuBlocks::encode(data, options)?;
        let copies = (total / (data.len() as u64).max(1)).max(1) as usize;
        Ok(Self { encoding, pipeline: options.chosen_pipeline(), encoded, copies })
    }

    fn blocks(&self) -> &[CpuBlock<'a>] {
        self.encoded.blocks()
    }

    /// Compression ratio of the blocks that are not stored.
    pub fn ratio(&self) -> f64 {
        let sums = self.blocks().iter().filter(|block| is_coded(block)).fold(
            (0, 0),
            |(contents, payloads), block| {
                (contents + block.contents.len(), payloads + block.payload.len())
            },
        );
        sums.0 as f64 / (sums.1 as f64).max(1.0)
    }

    /// Repeats the blocks until they reach the wanted total, or fill the memory of `device`.
    fn batch(
        &self,
        device: &dyn Device,
        permitted: Option<u64>,
        wanted: impl Fn(&CpuBlock<'_>) -> bool,
        memory_for: impl Fn(u32) -> Result<u64, CoderError>,
    ) -> Result<Vec<usize>, CoderError> {
        let wanted: Vec<usize> =
            (0..self.blocks().len()).filter(|&b| wanted(&self.blocks()[b])).collect();
        let mut count = (wanted.len() * self.copies) as u32;
        let budget = budget_now(device, permitted);
        while count > 1 && memory_for(count)? > budget {
            count -= count.div_ceil(16);
        }
        Ok(wanted.iter().copied().cycle().take(count as usize).collect())
    }

    /// Measures decoding.
    ///
    /// # Errors
    /// Fails if the device does, or if it decodes wrongly.
    pub fn decode(
        &self,
        device: &dyn Device,
        permitted: Option<u64>,
        runs: usize,
    ) -> Result<Measurement, CoderError> {
        let pipeline = self.pipeline;
        let longest = self.longest();
        let memory_for = |count| Decoder::memory_for(device.limits(), pipeline, longest, count);
        let made = |count| Decoder::new(device, pipeline, longest, count, CallerBuffers::default());
        let (batch, mut decoder) =
            fitting(self.batch(device, permitted, is_coded, memory_for)?, |batch| {
                made(batch.len() as u32)
            })?;
        let mut places = Vec::with_capacity(batch.len());
        for &b in &batch {
            let CpuBlock { contents, position, filters, payload, .. } = &self.blocks()[b];
            let place = decoder.write(payload, contents.len() as u32)?;
            let place = place.ok_or_else(|| wrong("a payload is too long"))?;
            let (position, filters) = (*position, *filters);
            places.push(PayloadPlace { position, filters, ..place });
        }
        self.encoded.set_modules(&mut decoder);
        let decoded = decoder.decode(&places)?;
        if decoded.iter().any(|block| block.is_filtered) {
            let what = "devices do not undo filters of decimal floats";
            return Err(CoderError::Plan(PlanError::Declined(what.into())));
        }
        let mut bytes = vec![0; longest as usize];
        for (number, (&b, block)) in (0..).zip(batch.iter().zip(&decoded)) {
            let cpu = &self.blocks()[b];
            let bytes = &mut bytes[..cpu.contents.len()];
            decoder.read(number, bytes)?;
            let DecodedBlock { is_decoded, payload_crc, content_crc, .. } = *block;
            if !is_decoded && cpu.has_modules() && device.limits().ends_long_loops() {
                let what = "the device ends loops after about 65,535 turns, and a lane of a module takes more";
                return Err(CoderError::Plan(PlanError::Declined(what.into())));
            }
            let is_right = is_decoded
                && (payload_crc, content_crc) == (cpu.payload_crc, cpu.content_crc)
                && bytes == cpu.contents;
            if !is_right {
                return Err(wrong("a block is decoded wrongly"));
            }
        }
        warm_up(|| decoder.decode(&places).map(drop))?;
        decoder.set_timing(true);
        let mut all = Runs::default();
        for _ in 0..runs.max(1) {
            all.time(&mut decoder, |d| d.decode(&places).map(drop), Decoder::take_times)?;
        }
        let sum = |f: fn(&PayloadPlace) -> u32| places.iter().map(|p| u64::from(f(p))).sum();
        Ok(all.measurement(
            places.len(),
            sum(|p| p.content_len),
            sum(|p| p.payload_len),
            decoder.memory(),
        ))
    }

    /// Measures encoding.
    ///
    /// # Errors
    /// Fails if the device does, or if it encodes differently from the CPU.
    pub fn encode(
        &self,
        device: &dyn Device,
        permitted: Option<u64>,
        runs: usize,
    ) -> Result<Measurement, CoderError> {
        let memory_for = |count| Encoder::memory_for(device.limits(), &self.encoding, count);
        let made = |count| Encoder::new(device, &self.encoding, count, CallerBuffers::default());
        let wanted = |block: &CpuBlock<'_>| block.method != Method::Fill;
        let (batch, mut encoder) =
            fitting(self.batch(device, permitted, wanted, memory_for)?, |batch| {
                made(batch.len() as u32)
            })?;
        let mut lens = Vec::with_capacity(batch.len());
        for (number, &b) in (0..).zip(&batch) {
            let contents = self.blocks()[b].contents;
            encoder.write(number, contents)?;
            lens.push(contents.len() as u32);
        }
        let encoded = encoder.encode(&lens)?;
        let mut payload_bytes = 0;
        let mut bytes = vec![0; self.longest() as usize];
        for (&b, block) in batch.iter().zip(&encoded) {
            let cpu = &self.blocks()[b];
            let EncodedBlock { payload: place, content_crc, payload_crc } = *block;
            let is_right = match place {
                Some((start, len)) => {
                    let bytes = &mut bytes[..len as usize];
                    encoder.read(start, bytes)?;
                    payload_bytes += u64::from(len);
                    *bytes == cpu.payload && payload_crc == cpu.payload_crc
                }
                None => cpu.method == Method::Store,
            };
            if !is_right || content_crc != cpu.content_crc {
                return Err(wrong("a block is not encoded as the CPU encodes it"));
            }
        }
        warm_up(|| encoder.encode(&lens).map(drop))?;
        encoder.set_timing(true);
        let mut all = Runs::default();
        for _ in 0..runs.max(1) {
            all.time(&mut encoder, |e| e.encode(&lens).map(drop), Encoder::take_times)?;
        }
        let total = lens.iter().map(|&len| u64::from(len)).sum();
        Ok(all.measurement(lens.len(), total, payload_bytes, encoder.memory()))
    }

    fn longest(&self) -> u32 {
        self.blocks().iter().map(|block| block.contents.len()).max().unwrap_or(1) as u32
    }
}

/// Keeps the device busy until it has reached its clock rate, because it may have been idle.
fn warm_up(mut run: impl FnMut() -> Result<(), CoderError>) -> Result<(), CoderError> {
    let begun = Instant::now();
    while begun.elapsed() < WARM_UP {
        run()?;
    }
    Ok(())
}

/// How long warming up takes.
const WARM_UP: Duration = Duration::from_millis(300);

fn is_coded(block: &CpuBlock<'_>) -> bool {
    matches!(block.method, Method::Lz77 | Method::Bwt)
}

fn wrong(what: &str) -> CoderError {
    CoderError::Device(DeviceError::Failed(what.into()))
}

/// Makes a coder for a batch, or for as much of it as fits the device's buffers and memory.
fn fitting<C>(
    mut batch: Vec<usize>,
    make: impl Fn(&[usize]) -> Result<C, CoderError>,
) -> Result<(Vec<usize>, C), CoderError> {
    if batch.is_empty() {
        let why = "there is no block that such a device would be given".into();
        return Err(CoderError::Plan(PlanError::Declined(why)));
    }
    loop {
        match make(&batch) {
            Ok(coder) => return Ok((batch, coder)),
            Err(CoderError::Device(DeviceError::OutOfMemory { .. })) if batch.len() > 1 => {
                batch.truncate(batch.len() - batch.len().div_ceil(16));
            }
            Err(error) => return Err(error),
        }
    }
}

/// The times of several runs.
#[derive(Default)]
struct Runs {
    wall: Vec<Duration>,
    stages: Vec<(&'static str, Vec<Duration>)>,
}

impl Runs {
    fn time<C>(
        &mut self,
        coder: &mut C,
        run: impl FnOnce(&mut C) -> Result<(), CoderError>,
        take_times: impl FnOnce(&mut C) -> Result<Vec<StageTime>, CoderError>,
    ) -> Result<(), CoderError> {
        let start = Instant::now();
        run(coder)?;
        self.wall.push(start.elapsed());
        for StageTime { stage, time } in take_times(coder)? {
            match self.stages.iter_mut().find(|(other, _)| *other == stage) {
                Some((_, times)) => times.push(time),
                None => self.stages.push((stage, vec![time])),
            }
        }
        Ok(())
    }

    fn measurement(
        self,
        blocks: usize,
        bytes: u64,
        payload_bytes: u64,
        memory: u64,
    ) -> Measurement {
        let stage = |(stage, times)| StageTime { stage, time: median(times) };
        Measurement {
            blocks: blocks as u32,
            bytes,
            payload_bytes,
            memory,
            stages: self.stages.into_iter().map(stage).collect(),
            wall: median(self.wall),
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
