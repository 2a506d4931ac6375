//! Compresses the contents of a device's buffer on the device.
//!
//! ```text
//! the caller's buffer ─▶ contents ─▶ outbox ─▶ pinned host memory ─▶ output
//!                    copy        encode    download            copy
//! ```
//!
//! Threads (`encoders`) take batches of blocks in turn. If batches would slow each other down, there is one thread.
//! While the device encodes its next batch, each thread fetches the payloads of the one before, a piece at a time, and
//! checks them (`slot`, `coder`). The calling thread (`writing`) lays out one piece after another in the output
//! (`sink`), and all threads copy the payloads there. The output has the bytes of [`compress`](crate::compress): the
//! host encodes blocks that the device declines or gets wrong (`blocks`). The host does everything if filters are
//! chosen for each block, if blocks may have distant matches, and at level 9, which tries two codecs.

mod blocks;
mod coder;
mod encoders;
mod job;
mod sink;
mod slot;
mod writing;

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::channel;

pub(super) use self::encoders::Encoders;
use self::job::{CoderKey, CompressJob, DeviceContents, failed};
use self::sink::{RoomSink, Sink, StreamSink};
use self::slot::Outlet;
use self::writing::{Inlet, Writing};
use super::core::DeviceCore;
use super::memory::{BufferPlace, DeviceBuffer};
use crate::error::Error;
use crate::gpu::model::budget::BlockCost;
use crate::pipeline::Options;
use crate::stream::{Encoder as StreamEncoder, ReadAt};

impl DeviceBuffer {
    /// Compresses `range` of the buffer, and writes the result to `writer`. Returns the number of bytes written. They
    /// are the bytes that [`compress`](crate::compress) returns for these contents.
    ///
    /// The device encodes the blocks, and decodes them again to check them unless [`Options::verify`] is off. The CPU
    /// encodes blocks that the device gets wrong. It does everything at level 9, with
    /// [`Filter::Auto`](crate::Filter::Auto), [`Options::long_distance`] or [`Options::rsyncable`], for contents of a
    /// single block, and for a range that does not begin at a multiple of 4 bytes.
    ///
    /// The threads and their device memory stay for the next call until they have been
    /// [idle](crate::access::DeviceMemoryOptions::idle) for a while. They take up to half of the device's memory, or
    /// what a single block needs.
    ///
    /// # Errors
    /// [`Error::InvalidRange`], the errors of [`compress`](crate::compress) and of writing. If the contents cannot be
    /// read, an [`Error::Io`] whose source is a [`DeviceError`](crate::gpu::device::DeviceError).
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
        writer: impl Write,
        options: &Options,
    ) -> Result<u64, Error> {
        self.compress(range, StreamSink::new(writer), options)
    }

    /// Like [`DeviceBuffer::compress_to`], but into memory, which several threads fill at once. Returns the number of
    /// compressed bytes. If it is more than `room` has, `room` holds unspecified bytes.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::compress_to`].
    ///
    /// ```
    /// use pz::access::DeviceMemory;
    /// let buffer = DeviceMemory::host().allocate(1000)?;
    /// let mut room = [0; 100];
    /// let len = buffer.compress_to_slice(0..1000, &mut room, &pz::Options::new())?;
    /// let restored = pz::decompress(&room[..len as usize], &pz::DecodeOptions::new())?;
    /// assert_eq!(restored, [0; 1000]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compress_to_slice(
        &self,
        range: Range<u64>,
        room: &mut [u8],
        options: &Options,
    ) -> Result<u64, Error> {
        self.compress(range, RoomSink::new(room), options)
    }

    fn compress(
        &self,
        range: Range<u64>,
        mut sink: impl Sink,
        options: &Options,
    ) -> Result<u64, Error> {
        if range.start > range.end || range.end > self.len() {
            let Range { start, end } = range;
            return Err(Error::InvalidRange { start, end, len: self.len() });
        }
        let (buffer, begin) = match &self.place {
            BufferPlace::Host(bytes) => {
                let contents = &bytes[range.start as usize..range.end as usize];
                return crate::compress_to(contents, sink.writer(), options);
            }
            BufferPlace::Device { buffer, start } => (buffer, *start),
        };
        let len = range.end - range.start;
        if let Some(declared) = options.content_size
            && declared != len
        {
            return Err(Error::Changed { declared, seen: len });
        }
        let contents =
            DeviceContents { buffer: Arc::clone(buffer), start: begin + range.start, len };
        if let Some(workers) = self.memory().workers() {
            let encoders = &workers.encoders;
            let fitting = |key: &CoderKey, cost: &BlockCost| encoders.fitting(key, cost);
            if let Some(job) = CompressJob::new(&contents, &workers.core, options, fitting)? {
                return by_device(job, &workers.core, encoders, &mut sink);
            }
        }
        by_host(contents, sink.writer(), options)
    }
}

/// Starts the device's threads on a job, and writes what they encode.
fn by_device(
    job: CompressJob,
    core: &DeviceCore,
    encoders: &Arc<Encoders>,
    sink: &mut impl Sink,
) -> Result<u64, Error> {
    let job = Arc::new(job);
    let (mut inlets, mut outlets) = (Vec::new(), Vec::new());
    for _ in 0..job.slots {
        let ((made, receiver), (written, back)) = (channel(), channel());
        inlets.push(Inlet { made: receiver, written });
        outlets.push(Outlet { made, written: back });
    }
    let (ended, started) = encoders.start(&job, outlets);
    let writing = Writing::new(&job, core, sink);
    let written = started.map_err(failed).and_then(|()| writing.run(&inlets));
    // Threads that still encode see the closed channels and stop.
    drop(inlets);
    ended.wait();
    written
}

/// Compresses with the CPU's workers, each of which copies its blocks to the host.
fn by_host(contents: DeviceContents, writer: impl Write, options: &Options) -> Result<u64, Error> {
    let len = contents.len;
    let mut encoder = StreamEncoder::new(writer, &options.for_len(len))?;
    let input: Arc<dyn ReadAt> = Arc::new(contents);
    encoder.read_range(&input, 0..len)?;
    encoder.finish_by_ref()?;
    Ok(encoder.bytes_out())
}
