//! Writes encoded blocks to the output, in order.

use std::array;
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use crc32c::{crc32c_append, crc32c_combine};
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::blocks::{HostEncoder, OutputBlock, OutputPayload};
use super::job::CompressJob;
use super::sink::Sink;
use super::slot::Made;
use crate::access::device::core::DeviceCore;
use crate::error::Error;
use crate::gpu::device::HostMemory;
use crate::process::PerProcess;
use crate::stream::FrameWriter;

/// Bytes that a thread copies at a time. Whole payloads would not divide well: a batch has few, of different lengths.
const PIECE: usize = 256 << 10;

/// Bytes that are checked and copied at a time, so that they stay in the nearest cache.
const NEAR: usize = 16 << 10;

/// The place of each payload of a batch, and the bytes between the payloads.
pub(super) struct BatchLayout {
    /// The state of the frame writer after this batch.
    pub(super) frames: FrameWriter,
    /// Headers, indices and footers.
    around: Vec<u8>,
    /// How many of those bytes come before each payload.
    before: Vec<usize>,
    /// Bytes in all.
    pub(super) len: usize,
}

impl BatchLayout {
    /// The layout of `blocks` after the bytes that `frames` has written. If they `are_last`, the frame ends after them.
    pub(super) fn new(
        frames: &FrameWriter,
        blocks: &[OutputBlock],
        are_last: bool,
    ) -> Result<Self, Error> {
        let mut frames = frames.clone();
        let (mut around, mut before) = (Vec::new(), Vec::new());
        let mut payloads = 0;
        for (number, block) in (1..).zip(blocks) {
            let len = block.payload_len();
            let header = frames.begin_block(&mut around, block.coded, block.content_len, len)?;
            around.extend_from_slice(&header.to_bytes());
            before.push(around.len());
            payloads += len;
            frames.end_block(&mut around, &header, are_last && number == blocks.len())?;
        }
        let len = around.len() + payloads;
        Ok(Self { frames, around, before, len })
    }

    /// Writes the bytes between the payloads of `blocks` to `room`, and returns the place of each payload. If `room` is
    /// too short, places are shorter than their payloads, or empty.
    pub(super) fn places<'r>(
        &self,
        room: &'r mut [u8],
        blocks: &[OutputBlock],
    ) -> Vec<&'r mut [u8]> {
        let mut room = room;
        let mut take = |len: usize| {
            let all = std::mem::take(&mut room);
            let (taken, left) = all.split_at_mut(len.min(all.len()));
            room = left;
            taken
        };
        let mut done = 0;
        let mut put = |until: usize, to: &mut [u8]| {
            to.copy_from_slice(&self.around[done..][..to.len()]);
            done = until;
        };
        let mut written = 0;
        let mut places = Vec::with_capacity(blocks.len());
        for (block, &before) in blocks.iter().zip(&self.before) {
            put(before, take(before - written));
            written = before;
            places.push(take(block.payload_len()));
        }
        put(self.around.len(), take(self.around.len() - written));
        places
    }
}

/// The calling thread's part of a job.
pub(super) struct Writing<'a, S> {
    job: &'a CompressJob,
    core: &'a DeviceCore,
    sink: &'a mut S,
    frames: FrameWriter,
    host: HostEncoder<'a>,
    /// Bytes of contents written so far, and their compressed bytes.
    done: (u64, u64),
}

/// The ends of a thread's channels on the side of the calling thread.
pub(super) struct Inlet {
    pub(super) made: Receiver<Made>,
    /// Returns the memory of pieces that have been written.
    pub(super) written: Sender<HostMemory>,
}

impl<'a, S: Sink> Writing<'a, S> {
    pub(super) fn new(job: &'a CompressJob, core: &'a DeviceCore, sink: &'a mut S) -> Self {
        let frames = FrameWriter::new(job.header.clone());
        Self { job, core, sink, frames, host: HostEncoder::new(job), done: (0, 0) }
    }

    /// Writes the batches of all threads in turn. Returns the number of bytes.
    pub(super) fn run(mut self, inlets: &[Inlet]) -> Result<u64, Error> {
        let turns = inlets.iter().cycle().take(self.job.batches() as usize);
        for Inlet { made, written } in turns {
            let mut has_ended = false;
            while !has_ended {
                let made = self.next(made)?;
                has_ended = self.job.ends_batch(made.numbers.end);
                let memory = self.piece(made)?;
                // A thread without a receiver has ended.
                memory.map(|memory| written.send(memory));
            }
        }
        self.frames.finish(self.sink.writer())?;
        self.sink.writer().flush()?;
        Ok(self.frames.written())
    }

    /// Receives the next blocks of a thread. While it waits, touches memory that later payloads go to.
    fn next(&mut self, made: &Receiver<Made>) -> Result<Made, Error> {
        loop {
            match made.try_recv() {
                Ok(made) => return Ok(made),
                Err(TryRecvError::Empty) if self.sink.touch(self.expected()) => {}
                Err(_) => {
                    let lost = Error::Internal { what: "encoding on a device panicked" };
                    return made.recv().map_err(|_| lost);
                }
            }
        }
    }

    /// The expected compressed length of the next batch of every thread.
    fn expected(&self) -> usize {
        let (contents, written) = if self.done.0 > 0 { self.done } else { (4, 1) };
        let next = self.job.round().min(self.job.contents.len - self.done.0);
        (u128::from(next) * u128::from(written) / u128::from(contents)) as usize
    }

    /// Writes blocks, and returns the memory of their payloads. The host encodes blocks that the device left, and those
    /// whose payloads arrive wrong.
    fn piece(&mut self, Made { numbers, piece, begun }: Made) -> Result<Option<HostMemory>, Error> {
        let encoded = piece.as_ref().map_or(&[][..], |piece| &piece.blocks);
        let count = numbers.end - numbers.start;
        let mut by_device: Vec<_> =
            (0..count).map(|at| encoded.get(at as usize).is_some_and(Option::is_some)).collect();
        let mut blocks = self.host.complete(numbers.clone(), encoded)?;
        let bytes = piece.as_ref().map_or(&[][..], |piece| &piece.bytes);
        let len = loop {
            let layout = BatchLayout::new(&self.frames, &blocks, numbers.end == self.job.blocks())?;
            let room = self.sink.room(layout.len)?;
            let wrong = fill(layout.places(room, &blocks), &blocks, bytes);
            if wrong.is_empty() {
                self.frames = layout.frames;
                self.sink.advance(layout.len)?;
                break layout.len;
            }
            for at in wrong {
                by_device[at] = false;
                blocks[at] = self.host.block(numbers.start + at as u64, None)?;
            }
        };
        let contents: u64 = blocks.iter().map(|block| u64::from(block.content_len)).sum();
        self.done = (self.done.0 + contents, self.done.1 + len as u64);
        if let Some(statistics) = &self.job.statistics {
            let ended = u64::from(self.job.ends_batch(numbers.end));
            let done = numbers.zip(&by_device).filter(|(_, by_device)| **by_device);
            let lens = done.map(|(number, _)| u64::from(self.job.block(number).1));
            let (blocks, bytes) = lens.fold((0, 0), |(count, sum), len| (count + 1, sum + len));
            statistics.device_batch(begun, blocks, bytes, self.core.pool.high_water());
            statistics.on_device(|device| {
                device.batches += ended;
                device.left += count - blocks;
            });
        }
        Ok(piece.map(|piece| piece.bytes))
    }
}

/// Copies payloads to their places; those of a device are in `bytes`. Returns the indices of payloads whose checksums
/// are wrong.
fn fill(places: Vec<&mut [u8]>, blocks: &[OutputBlock], bytes: &[u8]) -> Vec<usize> {
    let pieces = places.into_iter().zip(blocks).enumerate().flat_map(|(at, (to, block))| {
        let from = match &block.payload {
            OutputPayload::Host(bytes) => bytes,
            OutputPayload::Batch(range) => &bytes[range.clone()],
        };
        let mut to = to;
        // The remainder comes first, so that all other pieces are whole.
        let (rest, whole) = from.split_at(from.len() % PIECE);
        [rest].into_iter().chain(whole.chunks(PIECE)).map(move |from| {
            let all = std::mem::take(&mut to);
            let (now, later) = all.split_at_mut(from.len().min(all.len()));
            to = later;
            (at, now, from)
        })
    });
    let copies: Vec<_> = pieces.collect();
    let copied: Vec<_> =
        copies.into_par_iter().with_max_len(1).map(|(at, to, from)| (at, copy(to, from))).collect();
    let mut crcs = vec![0; blocks.len()];
    for (at, crc) in copied {
        crcs[at] = before_piece(crcs[at]) ^ crc;
    }
    let is_wrong = |at: &usize| blocks[*at].coded.payload_crc != crcs[*at];
    (0..blocks.len()).filter(is_wrong).collect()
}

/// Copies as much of `from` as `to` has room for. Returns the CRC-32C of `from`.
fn copy(to: &mut [u8], from: &[u8]) -> u32 {
    let (mut crc, mut to) = (0, to);
    for near in from.chunks(NEAR) {
        crc = crc32c_append(crc, near);
        let (now, later) = to.split_at_mut(near.len().min(to.len()));
        now.copy_from_slice(&near[..now.len()]);
        to = later;
    }
    crc
}

/// Shifts a CRC-32C over [`PIECE`] further bytes. The sum of the result and the CRC-32C of these bytes is that of both
/// parts together. The shift is linear, so a table of the 32 single bits replaces the general function, which takes
/// microseconds.
fn before_piece(crc: u32) -> u32 {
    static OF_BITS: PerProcess<[u32; 32]> = PerProcess::new();
    let of_bits = OF_BITS.get_or_init(|| array::from_fn(|bit| crc32c_combine(1 << bit, 0, PIECE)));
    let of_bit = |bit: usize| if crc >> bit & 1 == 1 { of_bits[bit] } else { 0 };
    (0..32).fold(0, |sum, bit| sum ^ of_bit(bit))
}
