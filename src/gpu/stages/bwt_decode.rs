//! Plans that decode BWT payloads: from `payload` to `contents`, with a status for each block.
//!
//! | stage | |
//! |---|---|
//! | `header` | reads the fixed fields, the list and the start rows |
//! | `tables` | reads the directory and the table descriptions, three lanes per block, and builds the tables |
//! | `segments` | decodes the second stage, a lane per segment, to runs of labels: positions in its first list |
//! | `expand` | updates the lists segment by segment, and writes the transform with them |
//! | `link` | counts bytes to find where each place of the transform leads |
//! | `walk` | writes the contents, with a walker for each stored row |

use crate::gpu::device::{Api, Kind, Limits, Teams};
use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::{
    BWT_DESCRIBE, BWT_EXPAND, BWT_HEADER, BWT_INVERSE, BWT_SEGMENTS, BWT_TABLES, Kernel,
};
use crate::gpu::model::plan::{Plan, PlanError, Run, Shape, Step};

/// The longest block: a link has 32 bits, 8 of which hold a byte.
const MAX_SLOT: u32 = 1 << 24;
/// Bytes of the transform that a team counts and links.
const CHUNK: u32 = 8192;
/// Bytes of the transform that a team writes.
const TILE: u32 = 4096;
const MAX_SETS: u32 = 8;
/// Number of tables in all sets.
const TABLES: u32 = MAX_SETS * 384;
/// Columns of the run-length tables, which have more columns than the rank tables.
const COLUMNS: u32 = MAX_SETS * 8;
/// The shortest segment, except for the last one of a block.
const MIN_SEGMENT: u32 = 1024;
/// The shortest distance between stored rows.
const MIN_START: u32 = 256;

/// Registers per lane on NVIDIA devices: the limit that lets seven workgroups of 96 lanes run at once.
const LANE_REGISTERS: u32 = 96;

/// How segments are decoded: how much of the tables and lists is in workgroup memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Lanes per workgroup. They share one set of tables.
    pub count: u32,
    /// 16-byte units of each lane's list that are in workgroup memory. 15 covers everything but the front, which is in
    /// registers; the last units are hardly ever needed.
    pub near: u32,
    /// Distinct rank tables, and as many run tables, that are in workgroup memory: at most 255 of each. The CPU's
    /// encoder makes up to about 60.
    pub kept: u32,
}

impl Lanes {
    /// The fastest choice for this much workgroup memory, if any fits.
    pub(crate) fn of(limits: &Limits) -> Option<Self> {
        // WebGPU offers less workgroup memory. There, more lanes at once gain more than lists in workgroup memory.
        let choices = match limits.api {
            Api::Cuda | Api::OpenCl => [(96, 14), (64, 14), (32, 7), (32, 1)],
            Api::WebGpu => [(64, 3), (32, 3), (32, 2), (32, 1)],
        };
        let choices = choices.map(|(count, near)| Self { count, near, kept: 64 });
        choices.into_iter().find(|lanes| lanes.fit(limits))
    }

    fn fit(self, limits: &Limits) -> bool {
        let memory = 2 * self.kept * 72 + 384 + self.count * self.near * 16 + 17 * 16 + 4;
        memory <= limits.local_memory && self.count <= limits.max_workgroup
    }
}

/// The fewest bytes that one dispatch walks. Where stretches are longer, the kernel saves the positions of the walks.
const MIN_WALKED: u32 = 1 << 18;

/// How much of a serial task one dispatch may do.
struct Limit {
    segments: u32,
    columns: u32,
    walked: u32,
}

impl Limit {
    fn of(limits: &Limits) -> Self {
        match (limits.api, limits.kind) {
            (Api::Cuda | Api::OpenCl, _) => {
                Self { segments: 1 << 16, columns: 1 << 16, walked: MAX_SLOT }
            }
            // At most 60,000 iterations per work item, for any payload: software devices stop there.
            (_, Kind::Software | Kind::Other) => {
                Self { segments: 256, columns: 4, walked: MIN_WALKED }
            }
            // A system that draws with its GPU resets it when a dispatch takes a second or two.
            (_, Kind::Discrete | Kind::Integrated) => {
                Self { segments: 1 << 16, columns: 1 << 16, walked: 1 << 20 }
            }
        }
    }
}

/// Makes the plan that decodes a batch of payloads.
///
/// # Errors
/// Fails if the device cannot run it, or blocks are longer than 16 MiB.
pub fn plan(limits: &Limits, shape: Shape) -> Result<Plan, PlanError> {
    match Lanes::of(limits) {
        Some(lanes) => plan_with(limits, shape, lanes),
        None => declined("too little workgroup memory for the tables of the BWT"),
    }
}

/// Like [`plan`], with the given `lanes`.
pub(crate) fn plan_with(limits: &Limits, shape: Shape, lanes: Lanes) -> Result<Plan, PlanError> {
    if shape.slot > MAX_SLOT {
        return declined("the BWT in blocks longer than 16 MiB");
    }
    if !lanes.fit(limits) || limits.max_workgroup < 256 {
        return declined("workgroups too small for the BWT");
    }
    let team_threads = if limits.teams == Teams::Local { 32 } else { 256 };
    let mut builder = Builder { plan: Plan::new(shape), limit: Limit::of(limits), team_threads };
    builder.headers()?;
    builder.segments(lanes)?;
    builder.inverse()?;
    Ok(builder.plan)
}

fn declined<T>(what: &str) -> Result<T, PlanError> {
    Err(PlanError::Declined(what.into()))
}

/// A plan being made.
struct Builder {
    plan: Plan,
    limit: Limit,
    /// Work items per workgroup of teams.
    team_threads: u32,
}

impl Builder {
    fn blocks(&self) -> u64 {
        self.plan.shape.blocks.into()
    }

    /// Adds a run without arguments, with one workgroup of 32 work items per block.
    fn step(
        &mut self,
        stage: &'static str,
        kernel: &'static Kernel,
        entry: &'static str,
        buffers: &[&'static str],
    ) -> Result<Run, CostError> {
        let buffers =
            buffers.iter().map(|name| self.plan.buffer(kernel, name)).collect::<Result<_, _>>()?;
        let (defines, args, groups) = (Vec::new(), Vec::new(), self.plan.shape.blocks);
        Ok(Run { stage, kernel, entry, defines, buffers, args, groups, threads: 32 })
    }

    /// Adds a run with `groups` workgroups.
    fn groups(&mut self, groups: u64, run: Run) -> Result<(), PlanError> {
        let Ok(groups) = u32::try_from(groups) else {
            return declined("too many blocks for one dispatch");
        };
        self.plan.steps.push(Step::Run(Run { groups, ..run }));
        Ok(())
    }

    /// Adds a run with `teams` teams.
    fn teams(&mut self, teams: u64, run: Run) -> Result<(), PlanError> {
        let threads = self.team_threads;
        self.groups(teams.div_ceil((threads / 32).into()), Run { threads, ..run })
    }

    /// Adds the steps that read everything before the words, and build the tables.
    fn headers(&mut self) -> Result<(), PlanError> {
        let Shape { blocks, slot } = self.plan.shape;
        let segments = slot / MIN_SEGMENT + 1;
        let buffers = ["jobs", "payload", "results", "bwt_blocks", "bwt_state", "bwt_rows"];
        let run = self.step("header", &BWT_HEADER, "header", &buffers)?;
        self.groups(self.blocks(), Run { args: vec![slot, blocks], ..run })?;

        let buffers =
            ["jobs", "payload", "results", "bwt_blocks", "bwt_state", "bwt_tables", "bwt_segments"];
        let run = self.step("tables", &BWT_DESCRIBE, "describe", &buffers)?;
        let Limit { segments: max_segments, columns: max_columns, .. } = self.limit;
        let args = vec![slot, blocks, max_segments, max_columns];
        for _ in 0..segments.div_ceil(max_segments).max(COLUMNS.div_ceil(max_columns)) {
            self.groups(3 * self.blocks(), Run { args: args.clone(), ..run.clone() })?;
        }
        let buffers = ["results", "bwt_blocks", "bwt_segments"];
        let run = self.step("tables", &BWT_HEADER, "arrange", &buffers)?;
        self.groups(self.blocks(), Run { args: vec![slot, blocks], ..run })?;
        let buffers = ["results", "bwt_blocks", "bwt_tables"];
        let run = self.step("tables", &BWT_TABLES, "starts", &buffers)?;
        self.teams(self.blocks() * u64::from(TABLES), Run { args: vec![blocks], ..run })
    }

    /// Adds the steps from the words to the transform, which goes to `contents`.
    fn segments(&mut self, lanes: Lanes) -> Result<(), PlanError> {
        let Shape { blocks, slot } = self.plan.shape;
        // The last workgroup of each set of tables may be partly empty.
        let groups = (slot / MIN_SEGMENT + 1).div_ceil(lanes.count) + MAX_SETS;
        let args = vec![slot, blocks, groups];
        let buffers = [
            "payload",
            "results",
            "bwt_blocks",
            "bwt_segments",
            "bwt_tables",
            "bwt_histories",
            "bwt_lists",
            "bwt_links",
        ];
        let run = self.step("segments", &BWT_SEGMENTS, "segments", &buffers)?;
        let defines =
            vec![("NEAR", lanes.near), ("KEPT", lanes.kept), ("MAX_REGISTERS", LANE_REGISTERS)];
        let run = Run { args: args.clone(), threads: lanes.count, defines, ..run };
        self.groups(self.blocks() * u64::from(groups), run)?;

        let run =
            self.step("expand", &BWT_EXPAND, "lists", &["results", "bwt_blocks", "bwt_lists"])?;
        self.groups(self.blocks(), Run { args: args.clone(), threads: 64, ..run })?;
        let contents = self.plan.buffer(&BWT_EXPAND, "contents")?;
        self.plan.steps.push(Step::Clear(contents));
        let buffers =
            ["results", "bwt_blocks", "bwt_segments", "bwt_lists", "bwt_links", "contents"];
        let run = self.step("expand", &BWT_EXPAND, "expand", &buffers)?;
        self.teams(self.blocks() * u64::from(slot.div_ceil(TILE)), Run { args, ..run })
    }

    /// Adds the steps from the transform and the stored rows to the contents.
    fn inverse(&mut self) -> Result<(), PlanError> {
        let Shape { blocks, slot } = self.plan.shape;
        let args = |groups, done, most| vec![slot, blocks, groups, done, most];
        let chunks = self.blocks() * u64::from(slot.div_ceil(CHUNK));
        let with = |rest: &[&'static str]| [&["results", "bwt_blocks"], rest].concat();

        let buffers = with(&["contents", "bwt_counts"]);
        let run = self.step("link", &BWT_INVERSE, "histogram", &buffers)?;
        self.teams(chunks, Run { args: args(0, 0, 0), ..run })?;
        let run = self.step("link", &BWT_INVERSE, "rows", &with(&["bwt_counts"]))?;
        self.groups(self.blocks(), Run { args: args(0, 0, 0), threads: 256, ..run })?;
        let buffers = with(&["bwt_rows", "contents", "bwt_counts", "bwt_links"]);
        let run = self.step("link", &BWT_INVERSE, "link", &buffers)?;
        self.teams(chunks, Run { args: args(0, 0, 0), ..run })?;

        let groups = slot.div_ceil(4 * 256);
        let buffers = with(&["bwt_links", "bwt_steps_low", "bwt_steps_high"]);
        let run = self.step("compose", &BWT_INVERSE, "compose", &buffers)?;
        let count = self.blocks() * u64::from(groups);
        self.groups(count, Run { args: args(groups, 0, 0), threads: 256, ..run })?;

        let groups = slot.div_ceil(MIN_START * 64);
        let count = self.blocks() * u64::from(groups);
        let steps = ["bwt_rows", "bwt_walks", "bwt_links", "bwt_steps_low", "bwt_steps_high"];
        let buffers = with(&[&steps[..], &["contents"]].concat());
        let run = self.step("walk", &BWT_INVERSE, "walk", &buffers)?;
        let most = self.limit.walked;
        for pass in 0..slot.div_ceil(most) {
            let args = args(groups, pass * most, most);
            self.groups(count, Run { args, threads: 64, ..run.clone() })?;
        }
        Ok(())
    }
}
