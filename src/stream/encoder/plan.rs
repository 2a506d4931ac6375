//! What an encoder derives from its options before it encodes.

use std::sync::Arc;

use crate::codec::Recipe;
use crate::codec::distant::{self, Finder};
use crate::error::Error;
use crate::format::FrameHeader;
use crate::gpu::coder::BlockTask;
use crate::pipeline::Options;
use crate::pipeline::auto_session::AutoSession;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::Engine;
use crate::pipeline::flow::Flow;
use crate::pipeline::gpu::{Accelerator, Job};
use crate::pipeline::memory::Cost;
use crate::pipeline::modules::FrameModules;
use crate::pipeline::statistics::{Counted, Statistics};
use crate::pipeline::workload::Workload;
use crate::stream::tasks::EncodeTask;

/// What follows from the options alone.
pub(crate) struct EncodeBasis {
    pub(crate) header: FrameHeader,
    pub(crate) recipe: Recipe,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) cost: Cost,
}

impl EncodeBasis {
    /// The engine's work is counted in `statistics`.
    pub(crate) fn new(options: &Options, statistics: Option<&Statistics>) -> Result<Self, Error> {
        let pipeline = options.chosen_pipeline();
        let block_size = options.chosen_block_size()?;
        let header = FrameHeader {
            pipeline,
            block_log: block_size.trailing_zeros() as u8,
            level: options.level.get(),
            // A block records its own length. A frame that ends where the contents decide has an unknown one.
            content_size: options
                .content_size
                .filter(|&size| size > block_size && !options.rsyncable),
            single: None,
            reach: options.reach(block_size),
            modules: options.modules_of_frames(),
        };
        let recipe = options.recipe()?;
        let modules = FrameModules::of_encoder(&header.modules)?;
        let engine = Arc::new(CpuEngine::with_modules(modules));
        let engine = Counted::new(engine, statistics, true);
        let mut cost = Cost::of_encoding(&*engine, &recipe, header.block_size());
        if header.reach > 0 {
            let is_near = options.is_near();
            cost.fixed += Finder::memory(header.reach, is_near, header.block_size());
            cost.block += distant::memory_of_block(header.block_size(), is_near);
        }
        Ok(Self { header, recipe, engine, cost })
    }
}

/// What follows from the options and the input's length.
pub(crate) struct EncodePlan {
    pub(crate) header: FrameHeader,
    pub(crate) recipe: Recipe,
    pub(crate) cost: Cost,
    pub(crate) flow: Flow<EncodeTask>,
    pub(crate) auto_session: Option<AutoSession>,
    pub(crate) statistics: Option<Statistics>,
    pub(crate) finder: Option<Finder>,
}

impl EncodePlan {
    /// `len` is the input's length, if known.
    pub(crate) fn new(options: &Options, len: Option<u64>) -> Result<Self, Error> {
        let workload = Workload::encoding(options)?;
        let mut auto_session = AutoSession::new(&options.resources, workload.clone());
        let of_session = auto_session.as_ref().map(AutoSession::statistics);
        let statistics = options.resources.statistics.as_ref().or(of_session).cloned();
        let EncodeBasis { header, recipe, engine, cost } =
            EncodeBasis::new(options, statistics.as_ref())?;
        let known = options.content_size.filter(|_| !options.rsyncable);
        let blocks = known.map(|size| header.block_count(size));
        let mut share =
            cost.share_for(blocks, options.resources.threads, options.resources.memory)?;
        let named = options.resources.gpu.as_ref();
        let gpu = match &mut auto_session {
            Some(session) => session.choose(named, len, share.workers),
            None => named.cloned(),
        };
        let job = Job {
            work: BlockTask::Encode { recipe, verify: options.verify },
            block_len: header.block_size() as u32,
            bytes: len,
            cost: &cost,
            memory: options.resources.memory,
            statistics: statistics.as_ref(),
            learned: options.resources.auto.clone().map(|auto| (auto, workload)),
        };
        let accelerator = gpu.as_ref().and_then(|gpu| Accelerator::new(gpu, job, &mut share));
        let finder = (header.reach > 0).then(|| match options.is_near() {
            true => Finder::with_near(header.reach, header.block_size()),
            false => Finder::new(header.reach),
        });
        let finder = finder.transpose()?;
        let flow = Flow::new(engine, share, accelerator);
        Ok(Self { header, recipe, cost, flow, auto_session, statistics, finder })
    }
}
