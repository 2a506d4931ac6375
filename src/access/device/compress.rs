//! Compresses what lies in a buffer of a device, there.
//!
//! ```text
//! the caller's buffer ─▶ contents ─▶ payloads, packed ─▶ pinned host memory ─▶ writer
//!                    copy        encode           download            frames
//! ```
//!
//! A thread for each of the device's slots takes batches of blocks in turn. The calling thread writes what they make, in
//! order. The bytes are those of [`compress`](crate::compress): what the device declines, or gets wrong, comes to the host,
//! which encodes it. So does everything if filters are to be chosen for each block, if
//! blocks may repeat earlier ones, and at level 9, which tries two codecs.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crc32c::crc32c;

use super::buffer::{DeviceBuffer, OnDevice, Place};
use super::{Core, DeviceMemory};
use crate::clock::Instant;
use crate::codec::filter::{Filter, FilterChain};
use crate::codec::{Codec, Recipe};
use crate::error::Error;
use crate::format::{FrameHeader, Method};
use crate::gpu::coder::{
    Buffers, CoderError, Decoder, EncodedBlock, Encoder, Needs, PayloadPlace, Work,
};
use crate::gpu::device::{Device, DeviceError, budget_now};
use crate::gpu::model::budget::batches;
use crate::gpu::model::plan::{PlanError, Shape};
use crate::gpu::stages::pipelines;
use crate::pipeline::Options;
use crate::pipeline::buffer::zeroed;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{Coded, EncodeJob, Engine};
use crate::pipeline::modules::refusal;
use crate::pipeline::statistics::Statistics;
use crate::stream::{EncodeBasis, Encoder as StreamEncoder, FrameWriter, ReadAt};

impl DeviceBuffer {
    /// Compresses `range` of the buffer, and writes the result to `writer`. Returns the number of bytes written. They are
    /// those that [`compress`](crate::compress) makes of these contents.
    ///
    /// The device encodes, and decodes again to check unless [`Options::verify`] says otherwise. What it does not do, the
    /// CPU does as the options say: blocks that it gets wrong, everything at level 9, with [`Filter::Auto`] and with [`Options::long_distance`], contents
    /// of a single block, and a range that does not begin at a multiple of 4 bytes.
    ///
    /// # Errors
    /// [`Error::InvalidRange`], the errors of [`compress`](crate::compress) and of writing. An [`Error::Io`] whose source is
    /// a [`DeviceError`] if the contents cannot be read.
    ///
    /// ```
    /// use pz::access::DeviceMemory;
    /// let mut buffer = DeviceMemory::host().allocate(1000)?;
    /// buffer.copy_from_host(0, &[7; 1000])?;
    /// let mut compressed = Vec::new();
    /// buffer.compress_to(0..1000, &mut compressed, &pz::Options::new())?;
    /// assert_eq!(compressed, pz::compress(&[7; 1000], &pz::Options::new())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compress_to(
        &self,
        range: Range<u64>,
        mut writer: impl Write,
        options: &Options,
    ) -> Result<u64, Error> {
        if range.start > range.end || range.end > self.len() {
            let Range { start, end } = range;
            return Err(Error::InvalidRange { start, end, len: self.len() });
        }
        let (buffer, begin) = match &self.place {
            Place::Host(bytes) => {
                let contents = &bytes[range.start as usize..range.end as usize];
                return crate::compress_to(contents, writer, options);
            }
            Place::Device { buffer, start } => (buffer, *start),
        };
        let len = range.end - range.start;
        if let Some(declared) = options.content_size
            && declared != len
        {
            return Err(Error::Changed { declared, seen: len });
        }
        let contents = Contents {
            memory: self.memory().clone(),
            buffer: Arc::clone(buffer),
            start: begin + range.start,
            len,
        };
        match Job::new(&contents, buffer.core(), options)? {
            Some(job) => job.run(&mut writer),
            None => by_host(contents, writer, options),
        }
    }
}

/// What to compress: bytes of a buffer of a device.
#[derive(Clone)]
struct Contents {
    memory: DeviceMemory,
    buffer: Arc<OnDevice>,
    /// Their offset in the buffer of the device.
    start: u64,
    len: u64,
}

impl ReadAt for Contents {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        // The same buffer, for the time of the copy.
        let view = DeviceBuffer::view(&self.memory, &self.buffer, self.start, self.len);
        view.copy_to_host(offset, into).map_err(io::Error::other)
    }
}

/// Compresses with the CPU's workers, each of which copies its blocks to the host.
fn by_host(contents: Contents, writer: impl Write, options: &Options) -> Result<u64, Error> {
    let len = contents.len;
    let mut encoder = StreamEncoder::new(writer, &options.for_len(len))?;
    let input: Arc<dyn ReadAt> = Arc::new(contents);
    encoder.read_range(&input, 0..len)?;
    encoder.finish_by_ref()?;
    Ok(encoder.bytes_out())
}

/// Contents that the device compresses.
struct Job<'a> {
    contents: &'a Contents,
    core: &'a Core,
    header: FrameHeader,
    recipe: Recipe,
    block_len: u32,
    verifies: bool,
    /// Threads, and the most blocks of a batch.
    slots: u32,
    batch: u32,
    /// What follows the last whole word of the contents.
    tail: Vec<u8>,
    statistics: Option<Statistics>,
}

/// A batch that has been encoded.
#[derive(Default)]
struct Encoded {
    blocks: Vec<EncodedOne>,
    /// The payloads, and the contents of stored blocks.
    bytes: Vec<u8>,
}

struct EncodedOne {
    coded: Coded,
    content_len: u32,
    /// Where its payload is among the bytes.
    at: Range<usize>,
}

/// What a device has made of a block, and where its payload is among the bytes; `None` if nothing that is right.
type Attempt = Option<(Coded, Range<usize>)>;

/// The ends of a slot's channels on the side of the calling thread.
struct Slot {
    encoded: Receiver<Result<Encoded, Error>>,
    /// Batches that have been written, for their memory.
    written: Sender<Encoded>,
}

impl<'a> Job<'a> {
    /// `None` if the host is to compress these contents.
    fn new(
        contents: &'a Contents,
        core: &'a Core,
        options: &Options,
    ) -> Result<Option<Self>, Error> {
        let EncodeBasis { header, recipe, .. } = EncodeBasis::new(options, None)?;
        let block_len = header.block_size() as u32;
        let is_for_device = matches!(recipe.codec, Codec::Lz77(_) | Codec::Bwt(_))
            && recipe.filter != Filter::Auto
            && options.long == 0
            && contents.len > u64::from(block_len)
            && contents.start.is_multiple_of(4);
        if !is_for_device {
            return Ok(None);
        }
        let device = core.device();
        let work = Work::Encode { recipe, verify: options.verify };
        let Ok(cost) = work.cost(device.limits(), block_len) else { return Ok(None) };
        let budget = budget_now(device, Some(core.budget()));
        let Some(fitting) = batches(device.limits(), budget, &cost) else { return Ok(None) };
        let blocks = contents.len.div_ceil(block_len.into());
        let slots = u64::from(fitting.slots);
        // Each slot has something to do. It has up to two batches on the host, and a third may be on its way to the writer.
        let in_memory = options.memory / (3 * slots * u64::from(block_len));
        let batch = u64::from(fitting.batch).min(blocks.div_ceil(slots)).min(in_memory);
        if batch == 0 {
            return Ok(None);
        }
        let batch = batch as u32;
        if let Some(statistics) = &options.statistics {
            let planned = cost.memory * u64::from(batch) * slots;
            statistics.device_joins(device.limits(), planned);
            statistics.on_device(|device| (device.slots, device.batch) = (fitting.slots, batch));
        }
        let mut tail = vec![0; (contents.len % 4) as usize];
        contents.read_exact_at(&mut tail, contents.len & !3)?;
        Ok(Some(Self {
            contents,
            core,
            header,
            recipe,
            block_len,
            verifies: options.verify,
            slots: fitting.slots,
            batch,
            tail,
            statistics: options.statistics.clone(),
        }))
    }

    /// Compresses the contents, and returns the number of bytes written.
    fn run(self, writer: &mut impl Write) -> Result<u64, Error> {
        let mut frames = FrameWriter::new(self.header.clone());
        let blocks = self.contents.len.div_ceil(self.block_len.into());
        let rounds = blocks.div_ceil(self.batch.into());
        let job = &self;
        let written = thread::scope(|scope| {
            let mut slots = Vec::new();
            for number in 0..u64::from(job.slots) {
                let (send, encoded) = sync_channel(1);
                let (written, recycled) = channel();
                let start = move || job.work(number, rounds, &send, &recycled);
                let name = format!("pz encodes {number}");
                thread::Builder::new().name(name).spawn_scoped(scope, start)?;
                slots.push(Slot { encoded, written });
            }
            let mut left = blocks;
            for slot in (0..slots.len()).cycle().take(rounds as usize) {
                let Slot { encoded, written } = &slots[slot];
                let lost = Error::Internal { what: "encoding on a device panicked" };
                let batch = encoded.recv().unwrap_or(Err(lost))?;
                for EncodedOne { coded, content_len, at } in &batch.blocks {
                    left -= 1;
                    let payload = &batch.bytes[at.clone()];
                    frames.one_of_several(writer, *coded, *content_len, payload, left == 0)?;
                }
                // Without a receiver, nothing comes after it.
                let _ = written.send(batch);
            }
            frames.finish(writer)?;
            writer.flush()?;
            Ok(frames.written())
        });
        self.core.trim();
        written
    }

    /// Encodes every batch of slot `number`.
    fn work(
        &self,
        number: u64,
        rounds: u64,
        send: &SyncSender<Result<Encoded, Error>>,
        recycled: &Receiver<Encoded>,
    ) {
        self.core.device().stay_on_thread();
        let mut coder: Option<Coder<'_>> = None;
        let engine = CpuEngine::new();
        // The most blocks at once; 0 when the device is not to be used any more.
        let mut most = self.batch;
        for round in (number..rounds).step_by(self.slots as usize) {
            let mut encoded = recycled.try_recv().unwrap_or_default();
            encoded.blocks.clear();
            encoded.bytes.clear();
            let end = self.contents.len.div_ceil(self.block_len.into());
            let first = round * u64::from(self.batch);
            let mut left = first..end.min(first + u64::from(self.batch));
            let mut outcome = Ok(());
            while !left.is_empty() && outcome.is_ok() {
                let some = left.start..left.end.min(left.start + u64::from(most.max(1)));
                let (begin, begun) = (encoded.bytes.len(), Instant::now());
                let coded = match self.by_device(&mut coder, most, some.clone(), &mut encoded) {
                    Ok(coded) => coded,
                    Err(error) => {
                        coder = None;
                        encoded.bytes.truncate(begin);
                        let has_memory =
                            !matches!(error, CoderError::Device(DeviceError::OutOfMemory { .. }));
                        most = if has_memory { 0 } else { most / 2 };
                        self.core.trim();
                        continue;
                    }
                };
                left.start = some.end;
                self.count(some.clone(), &coded, begun);
                outcome = self.complete(&engine, some, coded, &mut encoded);
            }
            if send.send(outcome.map(|()| encoded)).is_err() {
                return;
            }
        }
    }

    /// Counts what the device has done of a batch since `begun`.
    fn count(&self, numbers: Range<u64>, coded: &[Attempt], begun: Instant) {
        let Some(statistics) = &self.statistics else { return };
        let lens = numbers.zip(coded).filter(|(_, coded)| coded.is_some());
        let (mut blocks, mut bytes) = (0, 0);
        for (number, _) in lens {
            blocks += 1;
            bytes += u64::from(self.block(number).1);
        }
        statistics.device_batch(begun, blocks, bytes, self.core.pool().high_water());
        statistics.on_device(|device| {
            device.batches += 1;
            device.left += coded.len() as u64 - blocks;
        });
    }

    /// Offset and length of the contents of block `number`.
    fn block(&self, number: u64) -> (u64, u32) {
        let offset = number * u64::from(self.block_len);
        (offset, (self.contents.len - offset).min(self.block_len.into()) as u32)
    }

    /// Encodes the blocks `numbers` on the device, at most `most` at once, and appends their payloads to those of `encoded`.
    /// Returns what has become of each; nothing of those that are left to the host.
    fn by_device(
        &self,
        coder: &mut Option<Coder<'a>>,
        most: u32,
        numbers: Range<u64>,
        encoded: &mut Encoded,
    ) -> Result<Vec<Attempt>, CoderError> {
        if most == 0 {
            return Ok(numbers.map(|_| None).collect());
        }
        let made = match coder.take() {
            Some(made) => made,
            None => Coder::new(self.core, self.recipe, self.block_len, most, self.verifies)?,
        };
        coder.insert(made).encode(self, numbers, &mut encoded.bytes)
    }

    /// Adds the blocks `numbers` to `encoded`. Those that the device did not code are encoded here.
    fn complete(
        &self,
        engine: &CpuEngine,
        numbers: Range<u64>,
        coded: Vec<Attempt>,
        encoded: &mut Encoded,
    ) -> Result<(), Error> {
        let Encoded { blocks, bytes } = encoded;
        for (number, coded) in numbers.zip(coded) {
            let (offset, content_len) = self.block(number);
            let is_coded = |coded: &Coded| coded.method != Method::Store;
            if let Some((coded, at)) = coded.clone().filter(|(coded, _)| is_coded(coded))
                && !is_tiny(at.len(), content_len)
            {
                blocks.push(EncodedOne { coded, content_len, at });
                continue;
            }
            let len = content_len as usize;
            let refused = |_| Error::OutOfMemory { needed: len as u64 };
            let mut contents = zeroed(len).map_err(refused)?;
            self.contents.read_exact_at(&mut contents, offset)?;
            let mut payload = Vec::new();
            let mut job = EncodeJob::new(&contents, offset, &mut payload);
            if !CpuEngine::encode_fill(&mut job) {
                match coded {
                    Some((coded, at)) if is_coded(&coded) => {
                        blocks.push(EncodedOne { coded, content_len, at });
                        continue;
                    }
                    Some((coded, _)) if coded.content_crc == crc32c(&contents) => {
                        job.coded = Some(coded);
                    }
                    Some(_) => {
                        let wrong = DeviceError::Failed("it copied wrong bytes to the host".into());
                        return Err(Error::Io(io::Error::other(wrong)));
                    }
                    None => engine.encode(&self.recipe, std::slice::from_mut(&mut job)),
                }
            }
            if let Some(refused) = job.refused {
                return Err(refusal(refused, &self.header.modules, number));
            }
            let lost = Error::Internal { what: "a block could not be encoded" };
            let coded = job.coded.ok_or(lost)?;
            let at = bytes.len();
            bytes.extend(if coded.method == Method::Store { &contents } else { &payload });
            blocks.push(EncodedOne { coded, content_len, at: at..bytes.len() });
        }
        Ok(())
    }
}

/// Whether a block with such a payload may be one repeated byte, which has a method of its own.
fn is_tiny(payload_len: usize, content_len: u32) -> bool {
    payload_len < content_len as usize / 256 + 1024
}

/// The encoder of a slot, and the decoder that checks it.
struct Coder<'d> {
    encoder: Encoder<'d>,
    checker: Option<Decoder<'d>>,
    method: Method,
    filters: Option<FilterChain>,
}

impl<'d> Coder<'d> {
    fn new(
        core: &'d Core,
        recipe: Recipe,
        block_len: u32,
        blocks: u32,
        verifies: bool,
    ) -> Result<Self, CoderError> {
        let declined = |what: &str| CoderError::Plan(PlanError::Declined(what.into()));
        let method = match recipe.codec {
            Codec::Lz77(_) => Method::Lz77,
            Codec::Bwt(_) => Method::Bwt,
            Codec::Store | Codec::Smallest(_) => return Err(declined("several codecs, or none")),
        };
        let filters = match recipe.filter {
            Filter::Chain(chain) => Some(chain),
            Filter::None | Filter::Auto => None,
        };
        let shape = Shape::new(blocks, block_len);
        let encoder = Encoder::with_recipe(core.pool(), recipe, shape, Buffers::default())?;
        let checker = match verifies {
            true => Some(encoder.checker(pipelines::decoding(&recipe))?),
            false => None,
        };
        Ok(Self { encoder, checker, method, filters })
    }

    /// See [`Job::by_device`].
    fn encode(
        &mut self,
        job: &Job<'_>,
        numbers: Range<u64>,
        bytes: &mut Vec<u8>,
    ) -> Result<Vec<Attempt>, CoderError> {
        let Self { encoder, checker, method, filters } = self;
        let (method, filters) = (*method, *filters);
        let mut lens = Vec::new();
        for (at, number) in (0..).zip(numbers) {
            let (offset, len) = job.block(number);
            let from = (job.contents.buffer.id(), job.contents.start + offset);
            encoder.copy_from(at, from, len, &job.tail)?;
            lens.push(len);
        }
        let encoded = encoder.encode(&lens)?;
        let ranges: Vec<_> = encoded
            .iter()
            .filter_map(|block| block.payload.map(|(start, len)| (start, len as usize)))
            .collect();
        let total: usize = ranges.iter().map(|(_, len)| len).sum();
        let refused = |_| DeviceError::OutOfMemory { bytes: total as u64 };
        bytes.try_reserve(total).map_err(refused)?;
        let mut at = bytes.len();
        encoder.read_all(&ranges, |_, piece| bytes.extend_from_slice(piece))?;
        let (mut results, mut places, mut owns) = (Vec::new(), Vec::new(), Vec::new());
        for (EncodedBlock { payload, payload_crc, content_crc }, content_len) in
            encoded.into_iter().zip(lens)
        {
            let Some((start, payload_len)) = payload else {
                results.push(Some((Coded::stored(content_crc), at..at)));
                continue;
            };
            let own = at..at + payload_len as usize;
            at = own.end;
            let coded = Coded { method, filters, payload_crc, content_crc };
            // What arrived is what the device has.
            let is_right = bytes.get(own.clone()).is_some_and(|own| crc32c(own) == payload_crc);
            places.push(PayloadPlace { start, payload_len, content_len, position: 0, filters });
            owns.push(own.clone());
            results.push(is_right.then_some((coded, own)));
        }
        let Some(checker) = checker.as_mut().filter(|_| !places.is_empty()) else {
            return Ok(results);
        };
        checker.clear();
        for (own, place) in owns.into_iter().zip(&places) {
            let payload = bytes.get(own).unwrap_or_default();
            checker.expect(Needs::of(payload, place.content_len as usize));
        }
        let mut decoded = checker.decode(&places)?.into_iter();
        for result in &mut results {
            let is_stored = matches!(result, Some((coded, _)) if coded.method == Method::Store);
            let Some(decoded) = (if is_stored { None } else { decoded.next() }) else { continue };
            let is_sound = |coded: &Coded| {
                decoded.is_decoded
                    && (decoded.payload_crc, decoded.content_crc)
                        == (coded.payload_crc, coded.content_crc)
            };
            if !result.as_ref().is_some_and(|(coded, _)| is_sound(coded)) {
                *result = None;
            }
        }
        Ok(results)
    }
}
