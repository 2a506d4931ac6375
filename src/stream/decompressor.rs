//! Decompresses whole slices, and can keep its threads, tables and buffers from call to call.

use std::io::Cursor;
use std::sync::Arc;

use rayon::ThreadPool;
use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};

use super::block::{Block, Layout, Placement};
use super::decoder::Decoder;
use super::directory::{FrameEntry, read_directory};
use crate::codec::reserve;
use crate::error::{Error, Place};
use crate::pipeline::DecodeOptions;
use crate::pipeline::auto_session::AutoSession;
use crate::pipeline::buffer::zeroed;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::Engine;
use crate::pipeline::memory::Cost;
use crate::pipeline::modules::{FrameModules, LastModules};
use crate::pipeline::scheduler::thread_pool;
use crate::pipeline::statistics::Counted;
use crate::pipeline::workload::Workload;
use crate::process::OfProcess;

/// Decompresses `input`, which is one or more frames in a row.
///
/// Checks headers, indices and footers of the whole input before it allocates anything; then decodes blocks in
/// parallel, each to its place. Many calls are faster with a [`Decompressor`].
///
/// # Errors
/// [`Error::NotPz`], [`Error::Truncated`], [`Error::Corrupt`] and [`Error::Unsupported`] say what is wrong with the
/// input, and where. [`Error::LimitOutput`] and [`Error::LimitMemory`] say that it needs more than the options permit.
pub fn decompress(input: &[u8], options: &DecodeOptions) -> Result<Vec<u8>, Error> {
    Decompressor::new(options).decompress(input)
}

/// Decompresses `input` to the beginning of `output`. Returns the length of the contents.
///
/// # Errors
/// The errors of [`decompress`], and [`Error::LimitOutput`] if the contents are longer than `output`. `output` may then
/// contain anything.
///
/// ```
/// let compressed = pz::compress(b"some contents", &pz::Options::new())?;
/// let mut output = [0; 20];
/// let len = pz::decompress_into(&compressed, &mut output, &pz::DecodeOptions::new())?;
/// assert_eq!(&output[..len], b"some contents");
/// # Ok::<(), pz::Error>(())
/// ```
pub fn decompress_into(
    input: &[u8],
    output: &mut [u8],
    options: &DecodeOptions,
) -> Result<usize, Error> {
    Decompressor::new(options).decompress_into(input, output)
}

/// The length in bytes of the contents of `input`, which is one or more frames in a row. Nothing is decoded.
///
/// # Errors
/// The first fault of headers, indices and footers, with its place. If the input is untrusted, compare the result with
/// a limit before you allocate that many bytes.
///
/// ```
/// let compressed = pz::compress(b"some contents", &pz::Options::new())?;
/// assert_eq!(pz::content_size(&compressed)?, 13);
/// # Ok::<(), pz::Error>(())
/// ```
pub fn content_size(input: &[u8]) -> Result<u64, Error> {
    let frames = read_directory(&mut Cursor::new(input), u64::MAX)?;
    Ok(frames.last().map_or(0, |last| last.content_start + last.footer.content_size))
}

/// Decompresses one slice after another, and keeps threads, tables and buffers from call to call.
///
/// The first input of more than one block starts the threads. See [`Compressor`](crate::Compressor) for an example.
pub struct Decompressor {
    options: DecodeOptions,
    engine: Arc<dyn Engine>,
    /// The threads, and their number.
    pool: Option<OfProcess<(usize, ThreadPool)>>,
}

impl Decompressor {
    /// Prepares to decompress with `options`.
    pub fn new(options: &DecodeOptions) -> Self {
        let engine =
            Counted::new(Arc::new(CpuEngine::new()), options.resources.statistics.as_ref(), false);
        Self { options: options.clone(), engine, pool: None }
    }

    /// Decompresses `input`.
    ///
    /// # Errors
    /// The errors of [`decompress`].
    pub fn decompress(&mut self, input: &[u8]) -> Result<Vec<u8>, Error> {
        self.decompress_with(input, |len| zeroed(len).map_err(|fault| fault.at(Place::default())))
    }

    /// Decompresses `input` to memory from `allocate`, which is called once with the length of the contents, after
    /// headers, indices and footers have been checked.
    ///
    /// # Errors
    /// The errors of [`decompress`] and of `allocate`, and [`Error::LimitOutput`] if its memory is too short.
    ///
    /// ```
    /// let compressed = pz::compress(b"some contents", &pz::Options::new())?;
    /// let mut decompressor = pz::Decompressor::new(&pz::DecodeOptions::new());
    /// let contents = decompressor.decompress_with(&compressed, |len| Ok(vec![0; len].into_boxed_slice()))?;
    /// assert_eq!(&contents[..], b"some contents");
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn decompress_with<T: AsMut<[u8]>>(
        &mut self,
        input: &[u8],
        allocate: impl FnOnce(usize) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let survey = self.survey(input, u64::MAX)?;
        let needed = survey.layout.len();
        let len = usize::try_from(needed).map_err(|_| Error::OutOfMemory { needed })?;
        let mut memory = allocate(len)?;
        let output = memory.as_mut();
        let limit = output.len() as u64;
        let output = output.get_mut(..len).ok_or(Error::LimitOutput { limit })?;
        self.decode(input, survey, output)?;
        Ok(memory)
    }

    /// Decompresses `input` to the beginning of `output`. Returns the length of the contents.
    ///
    /// # Errors
    /// The errors of [`decompress_into`].
    pub fn decompress_into(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, Error> {
        let survey = self.survey(input, output.len() as u64)?;
        let output = &mut output[..survey.layout.len() as usize];
        self.decode(input, survey, output)?;
        Ok(output.len())
    }

    /// Goes through all structures of `input`, whose contents may take `room` bytes.
    fn survey(&self, input: &[u8], room: u64) -> Result<Survey, Error> {
        let max_memory = self.options.resources.memory;
        let layout = Layout::of_slice(input, max_memory, self.options.max_output.min(room))?;
        let (mut last, mut modules, mut cost) = (LastModules::default(), Vec::new(), NO_COST);
        for (number, frame) in layout.frames().iter().enumerate() {
            let place = layout.place(number);
            modules.push(last.of(&frame.header.modules, &self.options.modules, place)?);
            // Contents and payloads lie in the caller's memory.
            let of_frame = Cost { block: 0, ..Cost::of_decoding(&*self.engine, &frame.header) };
            of_frame.share(1, max_memory)?;
            if of_frame.least() > cost.least() {
                cost = of_frame;
            }
        }
        Ok(Survey { layout, modules, cost })
    }

    /// Decodes the surveyed blocks to `output`, which has the length of the contents.
    fn decode(&mut self, input: &[u8], survey: Survey, output: &mut [u8]) -> Result<(), Error> {
        let Survey { layout, modules, cost } = survey;
        let count = layout.frames().iter().map(FrameEntry::block_count).sum::<u64>() as usize;
        // Counting the cores takes longer than decoding a small block.
        let permitted = if count > 1 || self.options.resources.auto.is_some() {
            cost.share(self.options.resources.threads, self.options.resources.memory)?.workers
        } else {
            1
        };
        let mut blocks = Vec::new();
        reserve(&mut blocks, count)?;
        for Placement { block: id, .. } in layout.placements(0..layout.len(), 0) {
            blocks.push(layout.block_in(id, input, modules[id.frame].as_deref())?);
        }
        let is_long = blocks.iter().any(|(block, _)| block.header.own.is_some());
        if self.options.resources.gpu.is_some() || self.options.resources.auto.is_some() || is_long
        {
            let mut options = self.options.clone();
            // The length is known here, even if no header records it.
            if options.resources.gpu.is_none()
                && let Some(frame) = layout.frames().first()
                && let Some(mut session) =
                    AutoSession::new(&options.resources, Workload::decoding(&frame.header))
            {
                options.resources.gpu = session.choose(None, Some(layout.len()), permitted);
            }
            options.resources.auto = None;
            if options.resources.gpu.is_some() || is_long {
                // A decoder can hand batches to a device, and keeps own bytes that later blocks may repeat.
                Decoder::new(input, &options)?.copy_to(&mut Cursor::new(output))?;
                return Ok(());
            }
        }
        let mut rest = output;
        let mut parts = Vec::new();
        reserve(&mut parts, count)?;
        for (block, place) in blocks {
            let (contents, later) = rest.split_at_mut(block.header.content_len as usize);
            rest = later;
            parts.push((block, place, contents));
        }
        let engine = &*self.engine;
        let workers = permitted.min(parts.len());
        // Keep the pool if it has enough threads and no more than memory permits. Too many do no harm if there are few
        // blocks.
        let is_usable = |threads: usize| {
            threads >= workers && (threads <= permitted || parts.len() <= permitted)
        };
        let pool = self.pool.as_ref().and_then(OfProcess::get);
        if workers > 1 && !pool.is_some_and(|(threads, _)| is_usable(*threads)) {
            self.pool = None;
            self.pool = thread_pool(workers).map(|pool| OfProcess::new((workers, pool)));
        }
        let decode = |(block, place, contents): &mut (Block<'_>, Place, &mut [u8])| {
            block.decode(engine, contents).map_err(|fault| fault.at(*place))
        };
        match self.pool.as_ref().and_then(OfProcess::get) {
            Some((_, pool)) if workers > 1 => {
                pool.install(|| parts.par_iter_mut().try_for_each(decode))
            }
            _ => parts.iter_mut().try_for_each(decode),
        }
    }
}

/// The cost of an input without frames.
const NO_COST: Cost = Cost { fixed: 0, worker: 0, block: 0 };

/// The structures of an input.
struct Survey {
    layout: Layout,
    /// What runs the modules of each frame, if it has some.
    modules: Vec<Option<Arc<FrameModules>>>,
    /// The cost of the frame whose blocks need the most memory.
    cost: Cost,
}
