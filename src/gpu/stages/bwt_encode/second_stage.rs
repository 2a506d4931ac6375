//! The second stage of BWT encoding: from the transform to the payload.

use super::Builder;
use crate::codec::bwt::Params;
use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::{
    BWT_ENCODE_CHOOSE, BWT_ENCODE_CODE, BWT_ENCODE_CONTEXTS, BWT_ENCODE_DESCRIBE, BWT_ENCODE_RANKS,
    BWT_ENCODE_RUNS, BWT_ENCODE_WRITE,
};
use crate::gpu::model::plan::Step;

/// Bytes in a tile of the kernels that find runs.
const TILE: u32 = 1024;
/// Runs that are ranked together, and chunks in a group: `CHUNK` and `SUPER` in the kernels.
const CHUNK: u32 = 1024;
const SUPER: u32 = 128;
/// Table sets, contexts, cells of a set, and context columns of a set.
const SETS: u32 = 8;
const CONTEXTS: u32 = 384;
const CELLS: u32 = CONTEXTS * 32;
const COLUMNS: u32 = 12;
/// Rounds of clustering: `ROUNDS` in the codec.
const ROUNDS: u32 = 5;

// Names of buffers.
const RUN_BEGINS: &str = "sort_high_a";
const RUN_INFOS: &str = "sort_low_a";
const CHUNK_TABLES: &str = "sort_low_b";
const TILE_COUNTS: &str = "sort_counts";
const WORDS: &str = "sort_position_a";
const STATE: &str = "encode_state";
const SEGMENTS: &str = "encode_segments";
const LISTS: &str = "encode_lists";
const COUNTS: &str = "encode_counts";
const SUMS: &str = "encode_sums";
const TABLES: &str = "encode_tables";
const STARTS: &str = "encode_starts";
const FRESH: &str = "encode_fresh";
const DESCRIBED: &str = "encode_described";

impl Builder<'_> {
    /// Workgroups per block in a step with one team for each of up to `items` items.
    fn team_parts(&self, items: u32) -> u32 {
        let groups = items.div_ceil(self.threads / 32);
        self.max_parts.map_or(groups, |most| groups.min(most[0]))
    }

    /// Adds the steps from `transform` and `start_rows` to `payload` and `results`.
    pub(super) fn second_stage(&mut self, params: &Params) -> Result<(), CostError> {
        self.runs(params)?;
        self.ranks()?;
        self.contexts()?;
        self.choose()?;
        self.write(params)
    }

    /// The most segments in a block.
    fn segments(&self) -> u32 {
        self.shape.slot.div_ceil(8192) + 1
    }

    fn runs(&mut self, params: &Params) -> Result<(), CostError> {
        let (stage, kernel, slot) = ("runs", &BWT_ENCODE_RUNS, self.shape.slot);
        let state = self.plan.buffer(kernel, STATE)?;
        self.plan.steps.push(Step::Clear(state));
        let parts = self.parts(TILE, true);
        let buffers = ["jobs", "transform", TILE_COUNTS, STATE];
        self.run(stage, kernel, "count_runs", &[], &buffers, &[slot, parts], parts)?;
        let threads = core::mem::replace(&mut self.threads, 32);
        self.run(stage, kernel, "scan_runs", &[], &["jobs", TILE_COUNTS, STATE], &[slot], 1)?;
        self.threads = threads;
        let buffers = ["jobs", "transform", TILE_COUNTS, RUN_BEGINS, RUN_INFOS];
        self.run(stage, kernel, "write_runs", &[], &buffers, &[slot, parts], parts)?;
        self.threads = 32;
        let args = [slot, 1, params.segment_log.into()];
        self.run(stage, kernel, "cut", &[], &[RUN_BEGINS, STATE, SEGMENTS], &args, 1)?;
        self.threads = threads;
        Ok(())
    }

    fn ranks(&mut self) -> Result<(), CostError> {
        let (stage, kernel, slot) = ("ranks", &BWT_ENCODE_RANKS, self.shape.slot);
        let (chunks, groups) = (slot.div_ceil(CHUNK), slot.div_ceil(CHUNK * SUPER));
        let parts = self.team_parts(chunks);
        let buffers = [RUN_INFOS, CHUNK_TABLES, STATE];
        self.run(stage, kernel, "firsts", &[], &buffers, &[slot, parts], parts)?;
        let buffers = [CHUNK_TABLES, "encode_groups", STATE];
        self.run(stage, kernel, "group_firsts", &[], &buffers, &[slot, groups], groups)?;
        let args = [slot];
        self.run(stage, kernel, "group_next", &[], &["encode_groups", STATE], &args, 1)?;
        self.run(stage, kernel, "next", &[], &buffers, &[slot, groups], groups)?;
        let buffers = [RUN_INFOS, CHUNK_TABLES, STATE, SEGMENTS, LISTS];
        self.run(stage, kernel, "ranks", &[], &buffers, &[slot, parts], parts)
    }

    fn contexts(&mut self) -> Result<(), CostError> {
        let (stage, kernel, slot) = ("contexts", &BWT_ENCODE_CONTEXTS, self.shape.slot);
        let parts = self.team_parts(self.segments());
        let buffers = ["jobs", RUN_BEGINS, RUN_INFOS, STATE, SEGMENTS, LISTS];
        self.run(stage, kernel, "contexts", &[], &buffers, &[slot, parts], parts)?;
        let parts = self.segments();
        let buffers = ["jobs", RUN_BEGINS, RUN_INFOS, STATE, SEGMENTS, COUNTS];
        self.run(stage, kernel, "count", &[], &buffers, &[slot, parts], parts)
    }

    fn choose(&mut self) -> Result<(), CostError> {
        let (stage, kernel, slot) = ("tables", &BWT_ENCODE_CHOOSE, self.shape.slot);
        self.run(stage, kernel, "prepare", &[], &["jobs", STATE, SEGMENTS], &[slot], 1)?;
        let buffers = [STATE, SEGMENTS, COUNTS, SUMS];
        let parts = CELLS / 2 / self.threads;
        self.run(stage, kernel, "sums", &[], &buffers, &[slot], parts)?;
        for _ in 0..ROUNDS {
            let of_costs = SETS * CONTEXTS / self.threads;
            self.run(stage, kernel, "costs", &[], &[SUMS, TABLES, STATE], &[], of_costs)?;
            let segments = self.segments();
            let of_assign = [STATE, SEGMENTS, COUNTS, TABLES];
            self.run(stage, kernel, "assign", &[], &of_assign, &[slot, segments], segments)?;
            self.run(stage, kernel, "sums", &[], &buffers, &[slot], parts)?;
        }
        let threads = self.threads;
        self.threads = threads.min(128);
        let buffers = [SUMS, TABLES, STARTS, FRESH, STATE];
        let parts = SETS * COLUMNS / (self.threads / 32);
        self.run(stage, kernel, "share", &[], &buffers, &[slot], parts)?;
        self.threads = threads;
        Ok(())
    }

    fn write(&mut self, params: &Params) -> Result<(), CostError> {
        let slot = self.shape.slot;
        let (segment_log, start_log) = (params.segment_log.into(), params.start_log.into());
        let threads = core::mem::replace(&mut self.threads, 32);
        let parts = self.segments().div_ceil(32);
        let buffers = ["jobs", RUN_BEGINS, RUN_INFOS, STARTS, STATE, SEGMENTS, WORDS];
        self.run("code", &BWT_ENCODE_CODE, "code", &[], &buffers, &[slot, parts], parts)?;
        let (stage, kernel) = ("describe", &BWT_ENCODE_DESCRIBE);
        let buffers = ["jobs", STATE, SEGMENTS, TABLES, FRESH, DESCRIBED];
        self.run(stage, kernel, "describe", &[], &buffers, &[slot, segment_log], 3)?;
        let kernel = &BWT_ENCODE_WRITE;
        let buffers = ["jobs", STATE, SEGMENTS, "results"];
        let args = [slot, self.shape.blocks, start_log];
        self.run("assemble", kernel, "measure", &[], &buffers, &args, 1)?;
        self.threads = threads;
        let parts = self.segments();
        let buffers = ["jobs", STATE, SEGMENTS, LISTS, DESCRIBED, "start_rows", WORDS, "payload"];
        let args = [slot, parts, start_log, segment_log];
        self.run("assemble", kernel, "assemble", &[], &buffers, &args, parts)
    }
}
