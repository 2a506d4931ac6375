//! Plans that decode BWT payloads: `payload` to `contents`, with a status for each block.
//!
//! | stage | |
//! |---|---|
//! | `header` | fixed fields, list, rows and directory: a few KB a block, one lane each |
//! | `tables` | the descriptions of tables, two lanes a block, and the tables |
//! | `segments` | the second stage, a lane for each segment: runs of labels, positions in the list at its start |
//! | `expand` | the lists, one after another, and with them the transform |
//! | `link` | where each place of the transform leads to, by counting bytes |
//! | `walk` | the contents, a walker for each stored row |

use super::device::{Api, Limits, Teams};
use super::kernel::{BWT_HEADER, BWT_INVERSE, BWT_SEGMENTS, BWT_TABLES, Kernel};
use super::plan::{Plan, PlanError, Run, Shape, Step};

/// The longest block: a link is 32 bits, eight of them a byte.
const MAX_SLOT: u32 = 1 << 24;
/// Bytes of the transform that a team counts and links.
const CHUNK: u32 = 8192;
/// Bytes of the transform that a team writes out.
const TILE: u32 = 4096;
const MAX_SETS: u32 = 8;
const TABLES: u32 = MAX_SETS * 384;

/// How segments are decoded: tables, and the parts of lists that are needed most, are in workgroup memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Lanes of a workgroup, which share a set of tables.
    pub count: u32,
    /// Units of 16 bytes of each lane's list that are in workgroup memory; 15 is all but what is in registers.
    pub near: u32,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { count: 96, near: 15 }
    }
}

impl Lanes {
    fn memory(self) -> u32 {
        384 * 64 + self.count * self.near * 16 + 8
    }
}

/// How much of a serial task one dispatch does.
struct Limit {
    segments: u32,
    columns: u32,
    walked: u32,
}

impl Limit {
    fn of(limits: &Limits) -> Self {
        match limits.api {
            Api::OpenCl => Self { segments: 1 << 16, columns: 1 << 16, walked: MAX_SLOT },
            // No more than 60,000 iterations, whatever the payload says.
            Api::WebGpu => Self { segments: 256, columns: 4, walked: 1 << 18 },
        }
    }
}

/// A plan being made.
struct Builder {
    plan: Plan,
    team_threads: u32,
}

impl Builder {
    #[expect(clippy::too_many_arguments, reason = "one for each field of a run")]
    fn run(
        &mut self,
        stage: &'static str,
        kernel: &'static Kernel,
        entry: &'static str,
        buffers: &[&'static str],
        args: &[u32],
        groups: u64,
        threads: u32,
        defines: &[(&'static str, u32)],
    ) -> Result<(), PlanError> {
        let groups = u32::try_from(groups)
            .map_err(|_| PlanError::Declined("too many blocks for one dispatch".into()))?;
        let buffers =
            buffers.iter().map(|name| self.plan.buffer(kernel, name)).collect::<Result<_, _>>()?;
        let (args, defines) = (args.to_vec(), defines.to_vec());
        let run = Run { stage, kernel, entry, defines, buffers, args, groups, threads };
        self.plan.steps.push(Step::Run(run));
        Ok(())
    }

    /// Runs `teams` teams.
    fn teams(
        &mut self,
        stage: &'static str,
        kernel: &'static Kernel,
        entry: &'static str,
        buffers: &[&'static str],
        args: &[u32],
        teams: u64,
    ) -> Result<(), PlanError> {
        let threads = self.team_threads;
        let groups = teams.div_ceil(u64::from(threads / 32));
        self.run(stage, kernel, entry, buffers, args, groups, threads, &[])
    }
}

/// Decodes the payloads of a batch.
///
/// # Errors
/// If the device has not got what it takes, or blocks are longer than 16 MiB.
pub fn plan(limits: &Limits, shape: Shape) -> Result<Plan, PlanError> {
    plan_with(limits, shape, Lanes::default())
}

/// As [`plan`], with lanes of one's choice.
pub(crate) fn plan_with(limits: &Limits, shape: Shape, lanes: Lanes) -> Result<Plan, PlanError> {
    let declined = |what: &str| Err(PlanError::Declined(what.into()));
    if limits.api == Api::WebGpu {
        return declined("no kernel decodes the BWT yet");
    }
    if shape.slot > MAX_SLOT {
        return declined("the BWT in blocks longer than 16 MiB");
    }
    if limits.local_memory < lanes.memory() || limits.max_workgroup < 256 {
        return declined("too little workgroup memory for the BWT's tables");
    }
    let team_threads = if limits.teams == Teams::Local { 32 } else { 256 };
    let mut b = Builder { plan: Plan::new(shape), team_threads };
    second_stage(&mut b, limits, lanes)?;
    inverse(&mut b, limits)?;
    Ok(b.plan)
}

/// From `payload` to the transform, in `contents`, and `bwt_rows`.
fn second_stage(b: &mut Builder, limits: &Limits, lanes: Lanes) -> Result<(), PlanError> {
    let Shape { blocks, slot } = b.plan.shape;
    let most = Limit::of(limits);
    let each = u64::from(blocks);
    let segments = slot / 1024 + 1;

    let all = ["jobs", "payload", "results", "bwt_blocks", "bwt_state"];
    let [jobs, payload, results, info, state] = all;
    b.run(
        "header",
        &BWT_HEADER,
        "header",
        &[jobs, payload, results, info, state, "bwt_rows"],
        &[slot],
        each,
        32,
        &[],
    )?;
    for _ in 0..segments.div_ceil(most.segments) {
        let buffers = [jobs, payload, results, info, state, "bwt_segments"];
        let args = [slot, most.segments];
        b.run("header", &BWT_HEADER, "directory", &buffers, &args, each, 32, &[])?;
    }
    let buffers = [results, info, "bwt_segments"];
    b.run("header", &BWT_HEADER, "arrange", &buffers, &[slot], each, 32, &[])?;

    for _ in 0..(MAX_SETS * 8).div_ceil(most.columns) {
        let buffers = [jobs, payload, results, info, state, "bwt_tables"];
        b.run("tables", &BWT_TABLES, "describe", &buffers, &[most.columns], 2 * each, 32, &[])?;
    }
    let buffers = [results, info, "bwt_tables"];
    b.teams("tables", &BWT_TABLES, "starts", &buffers, &[blocks], each * u64::from(TABLES))?;

    // Of each set of tables the last workgroup may not be full.
    let groups = segments.div_ceil(lanes.count) + MAX_SETS;
    let buffers = [
        payload,
        results,
        info,
        "bwt_segments",
        "bwt_tables",
        "bwt_histories",
        "bwt_lists",
        "bwt_links",
    ];
    let (args, count) = ([slot, groups], each * u64::from(groups));
    let defines = [("DECODE", 1), ("NEAR", lanes.near)];
    b.run("segments", &BWT_SEGMENTS, "segments", &buffers, &args, count, lanes.count, &defines)?;

    let buffers = [results, info, "bwt_lists"];
    b.run("expand", &BWT_SEGMENTS, "lists", &buffers, &[slot], each, 64, &[])?;
    let contents = b.plan.buffer(&BWT_SEGMENTS, "contents")?;
    b.plan.steps.push(Step::Clear(contents));
    let buffers = [results, info, "bwt_segments", "bwt_lists", "bwt_links", "contents"];
    let teams = each * u64::from(slot.div_ceil(TILE));
    b.teams("expand", &BWT_SEGMENTS, "expand", &buffers, &[slot, blocks], teams)
}

/// From the transform and `bwt_rows` to `contents`.
fn inverse(b: &mut Builder, limits: &Limits) -> Result<(), PlanError> {
    let Shape { blocks, slot } = b.plan.shape;
    let most = Limit::of(limits);
    let each = u64::from(blocks);
    let chunks = each * u64::from(slot.div_ceil(CHUNK));
    let [results, info, links] = ["results", "bwt_blocks", "bwt_links"];

    let buffers = [results, info, "contents", "bwt_counts"];
    b.teams("link", &BWT_INVERSE, "histogram", &buffers, &[slot, blocks], chunks)?;
    let buffers = [results, info, "bwt_counts"];
    b.run("link", &BWT_INVERSE, "rows", &buffers, &[slot], each, 256, &[])?;
    let buffers = [results, info, "bwt_rows", "contents", "bwt_counts", links];
    b.teams("link", &BWT_INVERSE, "link", &buffers, &[slot, blocks], chunks)?;

    let groups = slot.div_ceil(4 * 256);
    let buffers = [results, info, links, "bwt_steps"];
    let count = each * u64::from(groups);
    b.run("compose", &BWT_INVERSE, "compose", &buffers, &[slot, groups], count, 256, &[])?;

    let groups = slot.div_ceil(256 * 64);
    for pass in 0..slot.div_ceil(most.walked) {
        let buffers = [results, info, "bwt_rows", "bwt_walks", links, "bwt_steps", "contents"];
        let args = [slot, groups, pass * most.walked, most.walked];
        let count = each * u64::from(groups);
        b.run("walk", &BWT_INVERSE, "walk", &buffers, &args, count, 64, &[("COMPOSED", 1)])?;
    }
    Ok(())
}
