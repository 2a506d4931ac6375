//! The seam between the flow of blocks and the hardware that codes them.
//!
//! An engine codes a batch of blocks. It also says how much host memory one block costs it. The scheduler knows nothing
//! else about it. Every engine produces the same bytes.

use rayon::ThreadPool;

use super::modules::FrameModules;
use crate::codec::Recipe;
use crate::codec::filter::{ApplyFault, Context, FilterChain, RunModule};
use crate::format::{BlockHeader, Fault, Method, Pipeline};

/// How the contents of a block were coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coded {
    pub(crate) method: Method,
    /// The filters applied to the contents before the codec.
    pub(crate) filters: Option<FilterChain>,
    /// CRC-32C of the payload.
    pub(crate) payload_crc: u32,
    /// CRC-32C of the contents.
    pub(crate) content_crc: u32,
}

impl Coded {
    /// A block that is stored, with this CRC-32C of the contents.
    pub(crate) const fn stored(content_crc: u32) -> Self {
        Self { method: Method::Store, filters: None, payload_crc: content_crc, content_crc }
    }

    /// The header of such a block, as if it were a frame's first, with these lengths of contents and payload.
    pub(crate) const fn header(&self, content_len: usize, payload_len: usize) -> BlockHeader {
        BlockHeader {
            method: self.method,
            filters: self.filters,
            own: None,
            block_log: 0,
            number: 0,
            content_len: content_len as u32,
            payload_len: payload_len as u32,
            payload_crc: self.payload_crc,
            content_crc: self.content_crc,
        }
    }
}

/// One block to encode.
#[derive(Debug)]
pub(crate) struct EncodeJob<'a> {
    pub(crate) contents: &'a [u8],
    /// Where the block begins in the contents of its frame, in bytes.
    pub(crate) position: u64,
    /// Receives the payload. Stays empty if the block is stored: then the contents are the payload.
    pub(crate) payload: &'a mut Vec<u8>,
    /// The result; `None` until the block is coded.
    pub(crate) coded: Option<Coded>,
    /// Whether the block is coded but has yet to be verified before use.
    pub(crate) is_unverified: bool,
    /// The filters that a device's engine has chosen for the block.
    pub(crate) filters: Option<FilterChain>,
    /// The reason why the block is not coded: the system refused memory, or a module failed.
    pub(crate) refused: Option<ApplyFault>,
}

impl<'a> EncodeJob<'a> {
    pub(crate) fn new(contents: &'a [u8], position: u64, payload: &'a mut Vec<u8>) -> Self {
        let (coded, filters, refused) = (None, None, None);
        Self { contents, position, payload, coded, is_unverified: false, filters, refused }
    }
}

/// One block to decode and check.
#[derive(Debug)]
pub(crate) struct DecodeJob<'a> {
    pub(crate) header: BlockHeader,
    /// Runs the modules of the block's frame, if it has some.
    pub(crate) modules: Option<&'a FrameModules>,
    /// The payload; `None` if the block is stored and already in `contents`.
    pub(crate) payload: Option<&'a [u8]>,
    /// Receives the contents, and has exactly their length.
    pub(crate) contents: &'a mut [u8],
    /// The result; `None` until the block is decoded.
    pub(crate) outcome: Option<Result<(), Fault>>,
}

impl<'a> DecodeJob<'a> {
    pub(crate) fn new(
        header: BlockHeader,
        modules: Option<&'a FrameModules>,
        payload: Option<&'a [u8]>,
        contents: &'a mut [u8],
    ) -> Self {
        Self { header, modules, payload, contents, outcome: None }
    }

    /// Whether a module filtered the block.
    pub(crate) fn needs_modules(&self) -> bool {
        self.header.filters.is_some_and(|filters| filters.has_modules())
    }

    /// The context of the block's filters.
    pub(crate) fn context(&self) -> Context<'a> {
        let modules = self.modules.map(|modules| modules as &dyn RunModule);
        Context { modules, position: self.header.position() }
    }
}

/// Runs batches of blocks through codecs.
pub(crate) trait Engine: Send + Sync {
    /// Encodes each block of `batch` that has no outcome, and verifies those that are unverified. A device's engine may
    /// leave blocks untouched.
    fn encode(&self, recipe: &Recipe, batch: &mut [EncodeJob<'_>]);

    /// Decodes and checks each block of `batch`. A device's engine may leave blocks untouched.
    fn decode(&self, batch: &mut [DecodeJob<'_>]);

    /// Whether the thread that decodes a block should also write it to its destination.
    fn has_time_to_write(&self) -> bool {
        true
    }

    /// Threads for the host's work on a whole batch; `None` if a batch is a single block.
    fn helpers(&self) -> Option<&ThreadPool> {
        None
    }

    /// Frees the memory that the engine keeps between batches.
    fn release(&self);

    /// Bytes of host memory that a worker takes to encode a block of `block_size` bytes, besides contents and payload.
    fn encode_memory(&self, recipe: &Recipe, block_size: usize) -> u64;

    /// Bytes of host memory that a worker takes to decode any block of a pipeline and block size, besides contents and
    /// payload.
    fn decode_memory(&self, pipeline: Pipeline, block_size: usize) -> u64;
}
