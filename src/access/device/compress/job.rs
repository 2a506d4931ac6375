//! Contents of a buffer that the device compresses.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use crc32c::crc32c;

use super::coder::{Coder, Key};
use super::encoders::Encoders;
use super::sink::Sink;
use super::slot::Slot;
use super::{Contents, failed};
use crate::access::device::Core;
use crate::clock::Instant;
use crate::codec::Codec;
use crate::codec::filter::Filter;
use crate::error::Error;
use crate::format::{FrameHeader, Method};
use crate::gpu::device::{Device, DeviceError, Limits};
use crate::gpu::model::budget::Batches;
use crate::pipeline::Options;
use crate::pipeline::buffer::zeroed;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{Coded, EncodeJob, Engine};
use crate::pipeline::modules::refusal;
use crate::pipeline::statistics::Statistics;
use crate::stream::{EncodeBasis, FrameWriter, ReadAt};

/// Contents that the device compresses.
pub(super) struct Job {
    pub(super) contents: Contents,
    header: FrameHeader,
    key: Key,
    /// What fits the device.
    fitting: Batches,
    /// How many threads encode, and the most blocks of their batches.
    slots: u32,
    batch: u32,
    /// The device memory of all batches.
    memory: u64,
    /// What follows the last whole word of the contents.
    pub(super) tail: Vec<u8>,
    statistics: Option<Statistics>,
}

/// Blocks that have been encoded.
#[derive(Default)]
pub(super) struct Encoded {
    pub(super) blocks: Vec<EncodedOne>,
    /// The payloads, and the contents of stored blocks.
    pub(super) bytes: Vec<u8>,
    /// Whether these are the last of a batch.
    ends_batch: bool,
}

pub(super) struct EncodedOne {
    pub(super) coded: Coded,
    pub(super) content_len: u32,
    /// Where its payload is among the bytes.
    pub(super) at: Range<usize>,
}

/// What a device has made of a block, and where its payload is among the bytes; `None` if nothing that is right.
pub(super) type Attempt = Option<(Coded, Range<usize>)>;

/// The ends of a thread's channels on the side of the calling thread.
struct Inlet {
    encoded: Receiver<Result<Encoded, Error>>,
    /// What has been written, for its memory.
    written: Sender<Encoded>,
}

/// Their other ends.
pub(super) struct Outlet {
    send: SyncSender<Result<Encoded, Error>>,
    recycled: Receiver<Encoded>,
}

impl Encoded {
    /// The blocks, each with its payload and whether its frame ends with it: the last one's does if these are the last.
    pub(super) fn payloads(
        &self,
        are_last: bool,
    ) -> impl Iterator<Item = (&EncodedOne, &[u8], bool)> {
        let last = self.blocks.len().saturating_sub(1);
        self.blocks.iter().enumerate().map(move |(number, block)| {
            (block, &self.bytes[block.at.clone()], are_last && number == last)
        })
    }
}

impl Job {
    /// `None` if the host is to compress these contents.
    pub(super) fn new(
        contents: &Contents,
        core: &Core,
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
        core.check().map_err(failed)?;
        let limits = core.device().limits();
        let key = Key { recipe, block_len, verifies: options.verify };
        let Ok(cost) = key.cost(limits) else { return Ok(None) };
        let fitting = core.encoders().fitting(core, &key, &cost);
        let Some(fitting) = fitting else { return Ok(None) };
        let blocks = contents.len.div_ceil(block_len.into());
        // A slot has up to two batches on the host, and a third may be on its way to the writer.
        let in_memory = options.memory / (3 * u64::from(block_len));
        let slots = u64::from(fitting.slots).min(in_memory);
        if slots == 0 {
            return Ok(None);
        }
        // Each has something to do.
        let batch = u64::from(fitting.batch).min(blocks.div_ceil(slots)).min(in_memory / slots);
        let memory = cost.memory * batch * slots;
        let (slots, batch) = (slots as u32, batch as u32);
        if let Some(statistics) = &options.statistics {
            statistics.device_joins(limits, memory);
            statistics.on_device(|device| (device.slots, device.batch) = (slots, batch));
        }
        let mut tail = vec![0; (contents.len % 4) as usize];
        contents.read_exact_at(&mut tail, contents.len & !3)?;
        Ok(Some(Self {
            contents: contents.clone(),
            header,
            key,
            fitting,
            slots,
            batch,
            memory,
            tail,
            statistics: options.statistics.clone(),
        }))
    }

    /// What of the device is kept for the next job; `None` if that would be much of its memory.
    pub(super) fn kept(&self, limits: &Limits) -> Option<(Key, Batches, u64)> {
        (self.memory <= limits.memory / 2).then_some((self.key, self.fitting, self.memory))
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// How many batches there are.
    fn batches(&self) -> u64 {
        self.contents.len.div_ceil(self.key.block_len.into()).div_ceil(self.batch.into())
    }

    /// Compresses the contents, and returns the number of bytes written.
    pub(super) fn run(self, core: &Arc<Core>, sink: &mut impl Sink) -> Result<u64, Error> {
        let job = Arc::new(self);
        let (mut inlets, mut outlets) = (Vec::new(), Vec::new());
        for _ in 0..job.slots {
            let (send, encoded) = sync_channel(1);
            let (written, recycled) = channel();
            inlets.push(Inlet { encoded, written });
            outlets.push(Outlet { send, recycled });
        }
        let (ended, started) = Encoders::start(core, &job, outlets);
        let written = started.map_err(failed).and_then(|()| job.write(&inlets, sink));
        // Those who still encode find that nobody waits for it.
        drop(inlets);
        ended.wait();
        written
    }

    /// Writes what comes from the threads, which take turns.
    fn write(&self, inlets: &[Inlet], sink: &mut impl Sink) -> Result<u64, Error> {
        let mut frames = FrameWriter::new(self.header.clone());
        let blocks = self.contents.len.div_ceil(self.key.block_len.into());
        let mut number = 0;
        let turns = inlets.iter().cycle().take(self.batches() as usize);
        for Inlet { encoded, written } in turns {
            let mut has_ended = false;
            while !has_ended {
                let lost = Error::Internal { what: "encoding on a device panicked" };
                let some = encoded.recv().unwrap_or(Err(lost))?;
                number += some.blocks.len() as u64;
                sink.batch(&mut frames, &some, number == blocks)?;
                has_ended = some.ends_batch;
                // Without a receiver, nothing comes after it.
                let _ = written.send(some);
            }
        }
        frames.finish(sink.writer())?;
        sink.writer().flush()?;
        Ok(frames.written())
    }

    /// Encodes the batches of slot `number`, and sends them.
    pub(super) fn work<'d>(
        &self,
        core: &'d Core,
        coder: &mut Option<Coder<'d>>,
        number: u64,
        outlet: &Outlet,
    ) {
        let engine = CpuEngine::new();
        let blocks = self.contents.len.div_ceil(self.key.block_len.into());
        let batch = u64::from(self.batch);
        let of_slot = (number..self.batches()).step_by(self.slots as usize);
        let batches = of_slot.map(|at| at * batch..blocks.min((at + 1) * batch)).collect();
        let mut slot = Slot::new(self, batches, self.batch);
        loop {
            let mut encoded = outlet.recycled.try_recv().unwrap_or_default();
            encoded.blocks.clear();
            let begun = Instant::now();
            let Some((numbers, attempts)) = slot.next(core, coder, &mut encoded.bytes) else {
                break;
            };
            self.count(core, numbers.clone(), &attempts, begun);
            encoded.ends_batch = numbers.end.is_multiple_of(batch) || numbers.end == blocks;
            let outcome = self.complete(&engine, numbers, attempts, &mut encoded);
            let has_failed = outcome.is_err();
            if outlet.send.send(outcome.map(|()| encoded)).is_err() || has_failed {
                break;
            }
        }
        slot.settle(coder);
    }

    /// Counts what the device has done of a batch since `begun`.
    fn count(&self, core: &Core, numbers: Range<u64>, coded: &[Attempt], begun: Instant) {
        let Some(statistics) = &self.statistics else { return };
        let lens = numbers.zip(coded).filter(|(_, coded)| coded.is_some());
        let (mut blocks, mut bytes) = (0, 0);
        for (number, _) in lens {
            blocks += 1;
            bytes += u64::from(self.block(number).1);
        }
        statistics.device_batch(begun, blocks, bytes, core.pool().high_water());
        statistics.on_device(|device| {
            device.batches += 1;
            device.left += coded.len() as u64 - blocks;
        });
    }

    /// Offset and length of the contents of block `number`.
    pub(super) fn block(&self, number: u64) -> (u64, u32) {
        let offset = number * u64::from(self.key.block_len);
        (offset, (self.contents.len - offset).min(self.key.block_len.into()) as u32)
    }

    /// Adds the blocks `numbers` to `encoded`. Those that the device did not code are encoded here.
    fn complete(
        &self,
        engine: &CpuEngine,
        numbers: Range<u64>,
        coded: Vec<Attempt>,
        encoded: &mut Encoded,
    ) -> Result<(), Error> {
        let Encoded { blocks, bytes, .. } = encoded;
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
                    None => engine.encode(&self.key.recipe, std::slice::from_mut(&mut job)),
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
