//! Blocks as the CPU encodes them: the program measures devices on them, and compares what devices do with them.

use std::sync::Arc;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::Options;
use super::cpu::CpuEngine;
use super::engine::{Coded, EncodeJob, Engine};
use super::memory::cores;
use super::modules::{FrameModules, refusal};
use super::scheduler::thread_pool;
use crate::codec::filter::FilterChain;
use crate::error::Error;
use crate::format::Method;
use crate::gpu::coder::Decoder;

/// The blocks of an input, each encoded alone.
pub struct CpuBlocks<'a> {
    blocks: Vec<CpuBlock<'a>>,
    /// What runs the modules of the options, if the filter names some.
    modules: Option<Arc<FrameModules>>,
}

/// A block, as the CPU has encoded it.
pub struct CpuBlock<'a> {
    /// What was encoded.
    pub contents: &'a [u8],
    /// Where the block begins in the input, in bytes.
    pub position: u64,
    /// How it is coded.
    pub method: Method,
    /// The filters that the contents went through before.
    pub filters: Option<FilterChain>,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// CRC-32C of the contents.
    pub content_crc: u32,
    /// The payload; empty if the block is stored.
    pub payload: Vec<u8>,
}

impl CpuBlock<'_> {
    /// Whether a module filtered it.
    pub fn has_modules(&self) -> bool {
        self.filters.is_some_and(|filters| filters.has_modules())
    }
}

impl<'a> CpuBlocks<'a> {
    /// Splits `data` into blocks and encodes them by `options`, on all cores.
    ///
    /// # Errors
    /// Fails if the options are invalid, or if a module cannot filter a block.
    pub fn encode(data: &'a [u8], options: &Options) -> Result<Self, Error> {
        let block_size = options.chosen_block_size()?;
        let recipe = options.recipe()?.first();
        let table = options.modules_of_frames();
        let modules = FrameModules::of_encoder(&table)?;
        let engine = CpuEngine::with_modules(modules.clone());
        let encode = |(number, contents): (u64, &'a [u8])| {
            let position = number * block_size;
            let mut payload = Vec::new();
            let mut job = EncodeJob::new(contents, position, &mut payload);
            engine.encode(&recipe, std::slice::from_mut(&mut job));
            match (job.coded, job.refused) {
                (Some(Coded { method, filters, payload_crc, content_crc }), _) => Ok(CpuBlock {
                    contents,
                    position,
                    method,
                    filters,
                    payload_crc,
                    content_crc,
                    payload,
                }),
                (None, Some(refused)) => Err(refusal(refused, &table, number)),
                (None, None) => Err(Error::Internal { what: "a block was not encoded" }),
            }
        };
        let blocks: Vec<_> = (0..).zip(data.chunks(block_size as usize)).collect();
        let blocks = match thread_pool(cores().min(blocks.len())) {
            Some(pool) => {
                pool.install(|| blocks.into_par_iter().map(encode).collect::<Result<_, _>>())
            }
            None => blocks.into_iter().map(encode).collect(),
        }?;
        Ok(Self { blocks, modules })
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> &[CpuBlock<'a>] {
        &self.blocks
    }

    /// Makes `decoder` undo the filters of the options' modules.
    pub fn set_modules(&self, decoder: &mut Decoder<'_>) {
        decoder.set_modules(self.modules.as_deref().map_or(&[], FrameModules::on_devices));
    }
}
