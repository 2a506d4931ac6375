//! The seam between what flows (blocks) and what it runs on.
//!
//! An engine takes a batch of blocks and gives back a batch of blocks; it says what one block would cost it. The
//! scheduler sees nothing else of it. Every engine makes the same bytes.

use rayon::ThreadPool;

use crate::codec::OutOfMemory;
use crate::format::{BlockHeader, Fault, Method, Pipeline};

use super::level::Recipe;

/// How the contents of a block were coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coded {
    pub(crate) method: Method,
    /// CRC-32C of the payload.
    pub(crate) payload_crc: u32,
    /// CRC-32C of the contents.
    pub(crate) content_crc: u32,
}

/// One block to encode.
#[derive(Debug)]
pub(crate) struct EncodeJob<'a> {
    pub(crate) contents: &'a [u8],
    /// Takes the payload; stays empty if the block is to be stored, whose payload are the contents.
    pub(crate) payload: &'a mut Vec<u8>,
    /// What became of it; `None` before.
    pub(crate) coded: Option<Coded>,
    /// Whether it is coded, but has not been decoded again as it should be before it is used.
    pub(crate) is_unverified: bool,
    /// Why it was not coded, if the system refused memory.
    pub(crate) refused: Option<OutOfMemory>,
}

impl<'a> EncodeJob<'a> {
    pub(crate) fn new(contents: &'a [u8], payload: &'a mut Vec<u8>) -> Self {
        Self { contents, payload, coded: None, is_unverified: false, refused: None }
    }
}

/// One block to decode and check.
#[derive(Debug)]
pub(crate) struct DecodeJob<'a> {
    pub(crate) header: BlockHeader,
    /// The payload; `None` if it is stored and already lies in `contents`.
    pub(crate) payload: Option<&'a [u8]>,
    /// Exactly the length of the block's contents.
    pub(crate) contents: &'a mut [u8],
    /// What became of it; `None` before.
    pub(crate) outcome: Option<Result<(), Fault>>,
}

/// What runs blocks through codecs.
pub(crate) trait Engine: Send + Sync {
    /// Encodes each block of `batch` that has no outcome, and verifies those that are unverified. An engine of a device
    /// may leave blocks as they were.
    fn encode(&self, recipe: &Recipe, batch: &mut [EncodeJob<'_>]);

    /// Decodes and checks each block of `batch`. An engine of a device may leave blocks as they were.
    fn decode(&self, batch: &mut [DecodeJob<'_>]);

    /// Whether whoever runs it also has the time to write what it has decoded to where it belongs.
    fn has_time_to_write(&self) -> bool {
        true
    }

    /// Threads for what is to be done on the host for a whole batch; `None` if that is no more than one block.
    fn helpers(&self) -> Option<&ThreadPool> {
        None
    }

    /// Gives back the memory that is kept between batches.
    fn release(&self);

    /// Host memory in bytes that a worker takes to encode a block of `block_size` bytes, besides contents and
    /// payload.
    fn encode_memory(&self, recipe: &Recipe, block_size: usize) -> u64;

    /// Host memory in bytes that a worker takes to decode any block of a pipeline and block size, besides contents
    /// and payload.
    fn decode_memory(&self, pipeline: Pipeline, block_size: usize) -> u64;
}
