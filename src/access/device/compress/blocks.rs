//! Turns the blocks of a batch into payloads and headers.

use std::io;
use std::ops::Range;

use crc32c::crc32c;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::job::CompressJob;
use crate::error::Error;
use crate::format::Method;
use crate::gpu::coder::EncodedBlock;
use crate::gpu::device::DeviceError;
use crate::pipeline::buffer::zeroed;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{Coded, EncodeJob, Engine};
use crate::pipeline::modules::refusal;
use crate::stream::ReadAt;

/// A block that has been encoded.
pub(super) struct OutputBlock {
    pub(super) coded: Coded,
    pub(super) content_len: u32,
    pub(super) payload: OutputPayload,
}

/// Where a payload is.
pub(super) enum OutputPayload {
    /// In the memory that came with its batch, at this range.
    Batch(Range<usize>),
    /// A payload that the host has made, or contents that are stored.
    Host(Vec<u8>),
}

impl OutputBlock {
    pub(super) fn payload_len(&self) -> usize {
        match &self.payload {
            OutputPayload::Batch(range) => range.len(),
            OutputPayload::Host(bytes) => bytes.len(),
        }
    }
}

/// Encodes the blocks that a device leaves to the host.
pub(super) struct HostEncoder<'a> {
    job: &'a CompressJob,
    engine: CpuEngine,
}

impl<'a> HostEncoder<'a> {
    pub(super) fn new(job: &'a CompressJob) -> Self {
        Self { job, engine: CpuEngine::new() }
    }

    /// Completes blocks `numbers`. `encoded` is what the device made of each, if anything.
    pub(super) fn complete(
        &self,
        numbers: Range<u64>,
        encoded: &[Option<EncodedBlock>],
    ) -> Result<Vec<OutputBlock>, Error> {
        let made = |at: usize| encoded.get(at).copied().flatten();
        let count = (numbers.end - numbers.start) as usize;
        let block = |at| self.block(numbers.start + at as u64, made(at));
        (0..count).into_par_iter().map(block).collect()
    }

    /// Completes block `number`. `made` is what the device made of it, if anything. The host copies the contents if the
    /// device stored them, or if they may be one repeated byte, which has a method of its own.
    pub(super) fn block(
        &self,
        number: u64,
        made: Option<EncodedBlock>,
    ) -> Result<OutputBlock, Error> {
        let (offset, content_len) = self.job.block(number);
        let in_batch = |made: &EncodedBlock| {
            let (coded, (start, len)) = (self.job.coded(made), made.payload?);
            let range = start as usize..start as usize + len as usize;
            Some(OutputBlock { coded, content_len, payload: OutputPayload::Batch(range) })
        };
        let mut block = made.as_ref().and_then(in_batch);
        if let Some(block) = block.take_if(|block| !is_tiny(block.payload_len(), content_len)) {
            return Ok(block);
        }
        let len = content_len as usize;
        let refused = |_| Error::OutOfMemory { needed: len as u64 };
        let mut contents = zeroed(len).map_err(refused)?;
        self.job.contents.read_exact_at(&mut contents, offset)?;
        let mut payload = Vec::new();
        let mut job = EncodeJob::new(&contents, offset, &mut payload);
        if !CpuEngine::encode_fill(&mut job) {
            match (made, block) {
                (_, Some(block)) => return Ok(block),
                (Some(made), None) if made.content_crc == crc32c(&contents) => {
                    job.coded = Some(self.job.coded(&made));
                }
                (Some(_), None) => {
                    let wrong = DeviceError::Failed("it copied wrong bytes to the host".into());
                    return Err(Error::Io(io::Error::other(wrong)));
                }
                (None, None) => {
                    self.engine.encode(&self.job.recipe(), std::slice::from_mut(&mut job));
                }
            }
        }
        if let Some(refused) = job.refused {
            return Err(refusal(refused, self.job.modules(), number));
        }
        let coded = job.coded.ok_or(Error::Internal { what: "a block could not be encoded" })?;
        let bytes = if coded.method == Method::Store { contents } else { payload };
        Ok(OutputBlock { coded, content_len, payload: OutputPayload::Host(bytes) })
    }
}

/// Whether the payload is so short that the block may be one repeated byte.
fn is_tiny(payload_len: usize, content_len: u32) -> bool {
    payload_len < content_len as usize / 256 + 1024
}
