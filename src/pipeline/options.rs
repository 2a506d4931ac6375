//! The options of compression and decompression.

use super::Level;
use super::auto::Auto;
use super::gpu::Gpu;
use super::modules::Modules;
use super::statistics::Statistics;
use crate::codec::filter::Filter;
use crate::codec::lz77::{MAX_BLOCK, MIN_CHUNK_LOG};
use crate::codec::{Codec, Recipe};
use crate::error::Error;
use crate::format::{MAX_BLOCKS, MAX_MODULES, ModuleTable, Pipeline};
use crate::gpu::coder::Encoding;

/// The default limit of [`Options`] and [`DecodeOptions`] on host memory, in bytes: 2 GiB.
pub const DEFAULT_MEMORY: u64 = 2 << 30;

/// The number of blocks back that level 9 searches for distant matches by default.
const LEVEL_9_BLOCKS_BACK: u64 = 4;

/// The most bytes back that it searches, with large blocks.
const LEVEL_9_MAX_BACK: u64 = 64 << 20;

/// What a job may use of the machine, whether it compresses or decompresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resources {
    /// The number of worker threads; 0 means one for each core.
    pub(crate) threads: usize,
    /// The limit on host memory, in bytes.
    pub(crate) memory: u64,
    pub(crate) gpu: Option<Gpu>,
    /// What chooses a GPU if none is named.
    pub(crate) auto: Option<Auto>,
    /// Counts the work.
    pub(crate) statistics: Option<Statistics>,
}

impl Default for Resources {
    fn default() -> Self {
        Self { threads: 0, memory: DEFAULT_MEMORY, gpu: None, auto: None, statistics: None }
    }
}

/// How to compress. The setters chain.
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
    pub(crate) long: Option<u64>,
    pub(crate) filter: Filter,
    pub(crate) modules: ModuleTable,
    pub(crate) content_size: Option<u64>,
    pub(crate) verify: bool,
    pub(crate) flush_ends_block: bool,
    pub(crate) rsyncable: bool,
    pub(crate) resources: Resources,
}

impl Options {
    /// Level 3 on all cores, in at most 2 GiB of memory.
    pub fn new() -> Self {
        Self {
            level: Level::DEFAULT,
            pipeline: None,
            block_size: None,
            window: None,
            long: None,
            filter: Filter::None,
            modules: ModuleTable::default(),
            content_size: None,
            verify: true,
            flush_ends_block: true,
            rsyncable: false,
            resources: Resources::default(),
        }
    }

    /// Sets the level, which names a pipeline, a block size and the codec's parameters.
    pub fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Replaces the level's pipeline, but keeps its effort.
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipeline = Some(pipeline);
        self
    }

    /// Replaces the level's block size, in bytes: a power of two within [`Pipeline::block_sizes`]. Compression checks
    /// it when it begins.
    pub fn block_size(mut self, bytes: u64) -> Self {
        self.block_size = Some(bytes);
        self
    }

    /// Replaces the level's window, which limits how far back matches reach, in bytes: a power of two from 64 KiB to 16
    /// MiB. Compression checks it when it begins. A window larger than a block has no further effect. A GPU decodes
    /// windows in parallel, even within a block, so smaller windows decode faster there, but make the output larger.
    /// The pipelines `bwt`, `fse` and `store` have no windows.
    pub fn window(mut self, bytes: u64) -> Self {
        self.window = Some(bytes);
        self
    }

    /// Also looks for repetitions of earlier blocks, up to `bytes` back; 0 turns it off. Only bytes that are no
    /// repetition themselves count. For archives that hold long stretches of the same data far apart. Encoding and
    /// decoding a stream then take about as much more memory, but no more than the contents have, if their length is
    /// [declared](Self::content_size). To read a range, blocks that its blocks repeat are decoded too: at most 16 for
    /// each.
    ///
    /// The default is 0, and at level 9 without a filter four blocks, at most 64 MiB. There it also takes out what a
    /// block repeats of itself.
    ///
    /// ```
    /// let part: Vec<u8> = (0..1_000_000_u32).map(|i| (i.wrapping_mul(i) >> 11) as u8).collect();
    /// let twice = [&part[..], &part].concat();
    /// let options = pz::Options::new().block_size(1 << 18);
    /// let near = pz::compress(&twice, &options)?;
    /// let far = pz::compress(&twice, &options.long_distance(64 << 20))?;
    /// assert!(far.len() < near.len() * 6 / 10);
    /// assert_eq!(pz::decompress(&far, &pz::DecodeOptions::new())?, twice);
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn long_distance(mut self, bytes: u64) -> Self {
        self.long = Some(bytes);
        self
    }

    /// Filters each block before it is compressed, so that typed data (numbers, pixels, sound) gets smaller. The
    /// default is [`Filter::None`]. A block that a chain does not make smaller is stored without it. Where nothing is
    /// compressed, as in the pipeline `store`, nothing is filtered either.
    ///
    /// ```
    /// let floats: Vec<u8> = (0..50_000).flat_map(|i| (i as f32).sqrt().to_le_bytes()).collect();
    /// let options = pz::Options::new();
    /// let plain = pz::compress(&floats, &options)?;
    /// let filtered = pz::compress(&floats, &options.filter("f32".parse()?))?;
    /// assert!(filtered.len() < plain.len());
    /// assert_eq!(pz::decompress(&filtered, &pz::DecodeOptions::new())?, floats);
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Sets the modules that chains name: `module0` is the first. The output carries those modules if the filter is a
    /// chain that names one. At most six are allowed: compression checks that when it begins. If a module cannot filter
    /// a block so that the block can be restored, compression fails with [`Error::ModuleFailed`].
    #[cfg(feature = "modules")]
    pub fn modules(mut self, modules: impl IntoIterator<Item = super::FilterModule>) -> Self {
        self.modules = super::FilterModule::table(modules);
        self
    }

    /// The same, for tests.
    #[cfg(all(test, feature = "modules"))]
    pub(crate) fn modules_of_tests(self, modules: ModuleTable) -> Self {
        Self { modules, ..self }
    }

    /// Sets the number of worker threads; 0 means one for each core. With 1, everything runs in the calling
    /// thread. The output does not depend on it.
    pub fn threads(mut self, threads: usize) -> Self {
        self.resources.threads = threads;
        self
    }

    /// Sets the limit on host memory, in bytes, whatever the input's length. With less memory, fewer blocks are in
    /// flight. The limit excludes the caller's own input and output.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.resources.memory = bytes;
        self
    }

    /// Encodes blocks on a GPU as well as on the threads. The output does not depend on it. The threads do what the GPU
    /// cannot do or fails to do.
    pub fn gpu(mut self, gpu: Gpu) -> Self {
        self.resources.gpu = Some(gpu);
        self
    }

    /// Lets `auto` choose whether to use a GPU, unless [`Self::gpu`] names one. The output does not depend on the
    /// choice.
    pub fn auto(mut self, auto: &Auto) -> Self {
        self.resources.auto = Some(auto.clone());
        self
    }

    /// Counts the work in `statistics`.
    pub fn statistics(mut self, statistics: &Statistics) -> Self {
        self.resources.statistics = Some(statistics.clone());
        self
    }

    /// Sets whether to decode each block that a GPU has encoded before using it (the default). The GPU decodes it, or
    /// else the threads do, and the result is checked against a checksum that the CPU took of the input. This takes
    /// about as much GPU time as decoding the file.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Sets whether `flush` of an [`Encoder`](crate::Encoder) ends the current block, so that everything written so far
    /// can be read. The default is yes. If not, flushes do not change the output.
    pub fn flush_ends_block(mut self, ends: bool) -> Self {
        self.flush_ends_block = ends;
        self
    }

    /// Sets whether frames end where the contents decide, every 1.5 MB on average, so that after a change of the
    /// contents most of the output is as it was before: `rsync` and backup programs that know parts again then send and
    /// store little. The default is no. The output gets a few percent larger, since matches do not cross frames.
    /// Headers do not record the length of the contents, and whoever opens the file for random access goes from frame
    /// to frame.
    ///
    /// ```
    /// let mut state = 1_u64;
    /// let mut random = || {
    ///     state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    ///     (state >> 60) as u8
    /// };
    /// let contents: Vec<u8> = (0..9_000_000).map(|_| random()).collect();
    /// let options = pz::Options::new().rsyncable(true);
    /// let before = pz::compress(&contents, &options)?;
    /// let after = pz::compress(&[b"x", &contents[..]].concat(), &options)?;
    /// assert!(before[before.len() / 2..] == after[after.len() - before.len().div_ceil(2)..]);
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn rsyncable(mut self, rsyncable: bool) -> Self {
        self.rsyncable = rsyncable;
        self
    }

    /// The same without a GPU.
    #[cfg(test)]
    pub(crate) fn without_gpu(mut self) -> Self {
        self.resources.gpu = None;
        self
    }

    /// Declares the length of the input in bytes. If that is more than a block, the header records it, for readers that
    /// cannot seek. Compression fails with [`Error::Changed`] if the input has another length.
    pub fn content_size(mut self, bytes: u64) -> Self {
        self.content_size = Some(bytes);
        self
    }

    /// The level that was set.
    pub fn chosen_level(&self) -> Level {
        self.level
    }

    /// The pipeline: the one set, or else the level's.
    pub fn chosen_pipeline(&self) -> Pipeline {
        self.pipeline.unwrap_or_else(|| self.level.pipeline())
    }

    /// The block size in bytes: the one set, or else the level's.
    ///
    /// # Errors
    /// [`Error::InvalidBlockSize`] if it is not a power of two or the pipeline does not permit it.
    pub fn chosen_block_size(&self) -> Result<u64, Error> {
        let pipeline = self.chosen_pipeline();
        let permitted = pipeline.block_sizes();
        match self.block_size {
            None => Ok(self.level.block_size().min(*permitted.end())),
            Some(size) if size.is_power_of_two() && permitted.contains(&size) => Ok(size),
            Some(size) => Err(Error::InvalidBlockSize { size, pipeline }),
        }
    }

    /// How blocks are encoded with these options, for a device's [`coder`](crate::gpu::coder).
    ///
    /// # Errors
    /// Fails if the options are invalid.
    pub fn encoding(&self) -> Result<Encoding, Error> {
        let block_len = u32::try_from(self.chosen_block_size()?).unwrap_or(u32::MAX);
        Ok(Encoding { recipe: self.recipe()?, block_len, verify: self.verify })
    }

    /// Whether blocks are coded as by level 9's default: by its own pipeline, without a filter.
    fn is_smallest(&self) -> bool {
        let is_typed = self.filter != Filter::None;
        self.level == Level::MAX && self.chosen_pipeline() == Pipeline::Bwt && !is_typed
    }

    /// The number of bytes back to search for distant matches: the one set, or else the level's.
    pub(crate) fn chosen_long_distance(&self) -> u64 {
        let of_level = || match self.chosen_block_size() {
            Ok(size) if self.is_smallest() => LEVEL_9_MAX_BACK.min(LEVEL_9_BLOCKS_BACK * size),
            _ => 0,
        };
        self.long.unwrap_or_else(of_level)
    }

    /// Whether blocks may also repeat parts of themselves. Filtered blocks may not: without these parts their elements
    /// would no longer follow one another.
    pub(crate) fn is_near(&self) -> bool {
        self.is_smallest() && self.chosen_long_distance() > 0
    }

    /// The reach of distant matches with blocks of this size: at most from a frame's last block to its first.
    pub(crate) fn reach(&self, block_size: u64) -> u64 {
        let before_last = |size: u64| (size.div_ceil(block_size).saturating_sub(1)) * block_size;
        // Headers must not depend on contents that are elsewhere.
        let known = self.content_size.filter(|_| !self.rsyncable);
        let most = known.map_or(u64::MAX, before_last);
        let reach = self.chosen_long_distance().min(most).min(MAX_BLOCKS * block_size);
        // Repetitions within a block need no reach, but a frame with a reach of 0 has no matches.
        reach.max(self.is_near().into())
    }

    /// These options for an input of `len` bytes. If they set how far distant matches reach, they declare that length,
    /// so that decoding takes no more memory than these contents need.
    pub(crate) fn for_len(&self, len: u64) -> Self {
        let mut options = self.clone();
        if options.long.is_some_and(|reach| reach > 0) {
            options.content_size.get_or_insert(len);
        }
        options
    }

    /// The modules that frames carry: those set, if the filter needs one.
    pub(crate) fn modules_of_frames(&self) -> ModuleTable {
        match &self.filter {
            Filter::Chain(chain)
                if chain.has_modules() && self.chosen_pipeline() != Pipeline::Store =>
            {
                self.modules.clone()
            }
            _ => ModuleTable::default(),
        }
    }

    /// How these options encode each block.
    pub(crate) fn recipe(&self) -> Result<Recipe, Error> {
        let codec = match self.level.codec(self.chosen_pipeline()) {
            // LZ77 does not take such long blocks.
            Codec::Smallest(parts) if self.chosen_block_size()? > MAX_BLOCK as u64 => {
                Codec::Bwt(parts.bwt)
            }
            codec => codec,
        };
        let filter = if codec == Codec::Store { Filter::None } else { self.filter };
        if let Filter::Chain(chain) = &filter {
            let has_module = |number: u8| usize::from(number) < self.modules.records().len();
            let is_known = chain.modules().all(has_module);
            if !is_known || (self.modules.records().len() > MAX_MODULES) {
                return Err(Error::InvalidFilter { name: chain.to_string() });
            }
        }
        let (Codec::Lz77(params), Some(size)) = (codec, self.window) else {
            return Ok(Recipe { filter, ..codec.into() });
        };
        let logs = MIN_CHUNK_LOG.into()..=MAX_BLOCK.ilog2();
        if !size.is_power_of_two() || !logs.contains(&size.ilog2()) {
            return Err(Error::InvalidWindow { size });
        }
        let codec = Codec::Lz77(params.with_window(size.ilog2() as u8));
        Ok(Recipe { filter, ..codec.into() })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// How to decompress, and how much memory and output an untrusted file may take.
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
    pub(crate) max_output: u64,
    pub(crate) input_size: Option<u64>,
    pub(crate) modules: Modules,
    pub(crate) resources: Resources,
}

impl DecodeOptions {
    /// All cores, at most 2 GiB of memory, output of any length.
    pub fn new() -> Self {
        Self {
            max_output: u64::MAX,
            input_size: None,
            modules: Modules::Refuse,
            resources: Resources::default(),
        }
    }

    /// Sets the number of worker threads; 0 means one for each core. With 1, everything runs in the calling
    /// thread.
    pub fn threads(mut self, threads: usize) -> Self {
        self.resources.threads = threads;
        self
    }

    /// Sets the most bytes of output, over all frames; more is [`Error::LimitOutput`].
    pub fn max_output(mut self, bytes: u64) -> Self {
        self.max_output = bytes;
        self
    }

    /// Sets the limit on host memory, in bytes. Each frame's header tells how much memory the frame needs. If that
    /// exceeds the limit even with one block at a time, decoding fails with [`Error::LimitMemory`]. The limit excludes
    /// the caller's own input and output.
    pub fn max_memory(mut self, bytes: u64) -> Self {
        self.resources.memory = bytes;
        self
    }

    /// Declares the length of the compressed input in bytes. [`Auto`] can then decide at once: it trusts a header that
    /// declares no more contents than that many bytes can hold. Without it, [`Auto`] decides from the blocks seen so
    /// far.
    pub fn input_size(mut self, bytes: u64) -> Self {
        self.input_size = Some(bytes);
        self
    }

    /// Sets which modules of the compressed input may run. The default is [`Modules::Refuse`].
    pub fn modules(mut self, modules: Modules) -> Self {
        self.modules = modules;
        self
    }

    /// Decodes blocks on a GPU as well as on the threads. The threads do what the GPU cannot do or fails to do, and
    /// only they report a block as corrupt.
    pub fn gpu(mut self, gpu: Gpu) -> Self {
        self.resources.gpu = Some(gpu);
        self
    }

    /// Lets `auto` choose whether to use a GPU, unless [`Self::gpu`] names one.
    pub fn auto(mut self, auto: &Auto) -> Self {
        self.resources.auto = Some(auto.clone());
        self
    }

    /// Counts the work in `statistics`.
    pub fn statistics(mut self, statistics: &Statistics) -> Self {
        self.resources.statistics = Some(statistics.clone());
        self
    }
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self::new()
    }
}
