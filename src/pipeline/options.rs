//! What a caller may choose.

use super::Level;
use super::auto::Auto;
use super::gpu::Gpu;
use super::level::Recipe;
use super::statistics::Statistics;
use crate::codec::lz77::{MAX_BLOCK, MIN_CHUNK_LOG};
use crate::error::Error;
use crate::format::Pipeline;

/// Host memory that compression keeps under unless told otherwise: 2 GiB.
const DEFAULT_ENCODE_MEMORY: u64 = 2 << 30;
/// Host memory that decompression keeps under unless told otherwise: 1 GiB.
const DEFAULT_DECODE_MEMORY: u64 = 1 << 30;

/// How to compress. Each setter takes and gives the whole, so that they chain.
///
/// ```
/// use pz::{Level, Options};
/// let options = Options::new().level(Level::new(6)?).threads(2);
/// let small = pz::compress(&[7; 100_000], &options)?;
/// assert!(small.len() < 100);
/// # Ok::<(), pz::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    pub(crate) level: Level,
    pub(crate) pipeline: Option<Pipeline>,
    pub(crate) block_size: Option<u64>,
    pub(crate) window: Option<u64>,
    pub(crate) threads: usize,
    pub(crate) memory: u64,
    pub(crate) content_size: Option<u64>,
    pub(crate) gpu: Option<Gpu>,
    pub(crate) auto: Option<Auto>,
    pub(crate) statistics: Option<Statistics>,
    pub(crate) verify: bool,
    pub(crate) flush_ends_block: bool,
}

impl Options {
    /// Level 3 on all cores, in at most 2 GiB of memory.
    pub fn new() -> Self {
        Self {
            level: Level::DEFAULT,
            pipeline: None,
            block_size: None,
            window: None,
            threads: 0,
            memory: DEFAULT_ENCODE_MEMORY,
            content_size: None,
            gpu: None,
            auto: None,
            statistics: None,
            verify: true,
            flush_ends_block: true,
        }
    }

    /// Sets the level, which names a pipeline, a block size and the codec's parameters.
    pub fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Replaces the level's pipeline; the effort stays the level's.
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipeline = Some(pipeline);
        self
    }

    /// Replaces the level's block size. In bytes: a power of two within
    /// [`Pipeline::block_sizes`], which is checked when compression begins.
    pub fn block_size(mut self, bytes: u64) -> Self {
        self.block_size = Some(bytes);
        self
    }

    /// Replaces how far back the level's matches may reach. In bytes: a power of two from 64 KiB to 16 MiB, which is
    /// checked when compression begins; no more than the block size is of use. Windows are decoded in parallel with
    /// each other, also inside a block: with smaller ones a GPU decodes faster, and the output is larger. The pipelines
    /// `bwt`, `fse` and `store` have none.
    pub fn window(mut self, bytes: u64) -> Self {
        self.window = Some(bytes);
        self
    }

    /// Sets the number of worker threads; 0 means as many as the machine has cores. With 1 everything runs in the
    /// calling thread. The output does not depend on it.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the host memory, in bytes, that the work keeps under, whatever the input's length: fewer blocks are in
    /// flight when it is small. What the caller's own input and output take is not counted.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Has blocks encoded on a GPU as well, besides the threads. The output does not depend on it; what the device
    /// cannot do, or fails to do, the threads do.
    pub fn gpu(mut self, gpu: Gpu) -> Self {
        self.gpu = Some(gpu);
        self
    }

    /// Has `auto` choose whether a GPU is used, unless one is named by [`Self::gpu`]. The output does not depend on it.
    pub fn auto(mut self, auto: &Auto) -> Self {
        self.auto = Some(auto.clone());
        self
    }

    /// Has what the work does counted in `statistics`.
    pub fn statistics(mut self, statistics: &Statistics) -> Self {
        self.statistics = Some(statistics.clone());
        self
    }

    /// Sets whether what a GPU has encoded is decoded again before it is used, which is so unless told otherwise. It is
    /// done on the GPU, or where that is not possible by the threads, and checked against a checksum that the processor
    /// has taken of the input. It takes about as much of the GPU's time as decoding the file with it.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Sets whether `flush` of an [`Encoder`](crate::Encoder) ends the present block, so that all that has been written can
    /// be read. It does unless told otherwise; without it, flushes do not change the output.
    pub fn flush_ends_block(mut self, ends: bool) -> Self {
        self.flush_ends_block = ends;
        self
    }

    /// Declares the length of the input in bytes. It is recorded in the header, for readers that cannot seek,
    /// if it is more than a block; and compression fails with [`Error::Changed`] if the input has another length.
    pub fn content_size(mut self, bytes: u64) -> Self {
        self.content_size = Some(bytes);
        self
    }

    /// The level that was set.
    pub fn chosen_level(&self) -> Level {
        self.level
    }

    /// The pipeline that these options lead to.
    pub fn chosen_pipeline(&self) -> Pipeline {
        self.pipeline.unwrap_or_else(|| self.level.pipeline())
    }

    /// The block size in bytes that these options lead to.
    ///
    /// # Errors
    /// [`Error::InvalidBlockSize`] if it is not a power of two or outside of what the pipeline permits.
    pub fn chosen_block_size(&self) -> Result<u64, Error> {
        let pipeline = self.chosen_pipeline();
        let permitted = pipeline.block_sizes();
        match self.block_size {
            None => Ok(self.level.block_size().min(*permitted.end())),
            Some(size) if size.is_power_of_two() && permitted.contains(&size) => Ok(size),
            Some(size) => Err(Error::InvalidBlockSize { size, pipeline }),
        }
    }

    /// What these options do to each block.
    pub(crate) fn recipe(&self) -> Result<Recipe, Error> {
        let recipe = self.level.recipe(self.chosen_pipeline());
        let (Recipe::Lz77(params), Some(size)) = (recipe, self.window) else { return Ok(recipe) };
        let logs = MIN_CHUNK_LOG.into()..=MAX_BLOCK.ilog2();
        if !size.is_power_of_two() || !logs.contains(&size.ilog2()) {
            return Err(Error::InvalidWindow { size });
        }
        Ok(Recipe::Lz77(params.with_window(size.ilog2() as u8)))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// How to decompress, and what a decoder may spend on a file that it does not trust.
///
/// ```
/// use pz::{DecodeOptions, Error, Options};
/// let small = pz::compress(&[7; 100_000], &Options::new())?;
/// let limited = DecodeOptions::new().max_output(99_999);
/// assert!(matches!(pz::decompress(&small, &limited), Err(Error::LimitOutput { .. })));
/// # Ok::<(), pz::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeOptions {
    pub(crate) threads: usize,
    pub(crate) max_output: u64,
    pub(crate) max_memory: u64,
    pub(crate) input_size: Option<u64>,
    pub(crate) gpu: Option<Gpu>,
    pub(crate) auto: Option<Auto>,
    pub(crate) statistics: Option<Statistics>,
}

impl DecodeOptions {
    /// All cores, at most 1 GiB of memory, output of any length.
    pub fn new() -> Self {
        Self {
            threads: 0,
            max_output: u64::MAX,
            max_memory: DEFAULT_DECODE_MEMORY,
            input_size: None,
            gpu: None,
            auto: None,
            statistics: None,
        }
    }

    /// Sets the number of worker threads; 0 means as many as the machine has cores. With 1 everything runs in the
    /// calling thread.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the most bytes that may come out, over all frames; more is [`Error::LimitOutput`].
    pub fn max_output(mut self, bytes: u64) -> Self {
        self.max_output = bytes;
        self
    }

    /// Sets the host memory, in bytes, that decoding keeps under. What a file needs is known from each frame's
    /// header: one that needs more, even one block at a time, is [`Error::LimitMemory`]. What the caller's own input
    /// and output take is not counted.
    pub fn max_memory(mut self, bytes: u64) -> Self {
        self.max_memory = bytes;
        self
    }

    /// Says how many bytes of compressed input there are. [`Auto`] then decides at once: it believes a header that declares
    /// no more than so many bytes can hold. Without this it decides by the blocks that it has seen.
    pub fn input_size(mut self, bytes: u64) -> Self {
        self.input_size = Some(bytes);
        self
    }

    /// Has blocks decoded on a GPU as well, besides the threads. What the device cannot do, or fails to do, the threads
    /// do; whether a block is sound they say as well.
    pub fn gpu(mut self, gpu: Gpu) -> Self {
        self.gpu = Some(gpu);
        self
    }

    /// Has `auto` choose whether a GPU is used, unless one is named by [`Self::gpu`].
    pub fn auto(mut self, auto: &Auto) -> Self {
        self.auto = Some(auto.clone());
        self
    }

    /// Has what the work does counted in `statistics`.
    pub fn statistics(mut self, statistics: &Statistics) -> Self {
        self.statistics = Some(statistics.clone());
        self
    }
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self::new()
    }
}
