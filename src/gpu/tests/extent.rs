//! How far kernels write in each buffer, against the formula that states its size.
//!
//! Plans run in buffers with room behind their end, which reveals kernels that write too far. A buffer's end is the
//! last byte that differs from its fill: no formula may be smaller, and some plan must come within 2% of each. Batches
//! of many tiny blocks show the constants of a formula, and blocks of megabytes the terms that grow with N.
//!
//! Formulas cover the most demanding device. So only the software device comes within 2% of each; on other devices no
//! formula may be too small.
//!
//! This needs a device whose kernels get the number of blocks as an argument. Kernels in WGSL derive it from the
//! lengths of buffers, and WebGPU drops writes beyond a buffer, so their results would be wrong.

use std::collections::BTreeMap;

use super::plan::moves_of_blocks;
use super::testing::{PATIENCE, each_device};
use crate::codec::bwt;
use crate::codec::lz77::{self, Params};
use crate::codec::{Codec, Recipe};
use crate::format::Pipeline;
use crate::gpu::device::run::{PlanMemory, submit};
use crate::gpu::device::{Api, Device, Kind, Limits, Queue};
use crate::gpu::model::cost::{CostError, Formula, KernelCost};
use crate::gpu::model::kernel::{ALL, Kernel};
use crate::gpu::model::plan::{Plan, Shape, Step};
use crate::gpu::stages::checksum;
use crate::gpu::stages::filter;
use crate::gpu::stages::job::{Job, Undo};
use crate::gpu::stages::lz77_decode::PayloadFeatures;
use crate::gpu::stages::moves::{self, Move};
use crate::gpu::stages::pipelines;
use crate::pipeline::Level;
use crate::sync::Mutex;
use crate::test_data::{mixture, noise};

/// The pattern that fills buffers before a plan runs: never 0, and unlikely to match a kernel's output.
const FILL: [u8; 251] = {
    let mut fill = [0; 251];
    let mut i = 0;
    while i < fill.len() {
        fill[i] = (i * 167 % 251) as u8 + 1;
        i += 1;
    }
    fill
};

/// The number of guard bytes behind a buffer of `bytes` bytes.
fn guard(bytes: u64) -> u64 {
    bytes + 4096
}

/// The index after the last byte that a plan wrote in a buffer.
#[derive(Debug, Clone)]
struct Extent {
    shape: Shape,
    end: u64,
    by: String,
}

#[derive(Default)]
struct Extents(BTreeMap<&'static str, Vec<Extent>>);

/// `len` bytes of [`FILL`].
fn filling(len: usize) -> Vec<u8> {
    let mut filling = FILL.repeat(len.div_ceil(FILL.len()));
    filling.truncate(len);
    filling
}

/// The index after the last changed byte. Before, `bytes` were zeros up to `cleared`, followed by [`FILL`].
fn end_of(bytes: &[u8], cleared: usize) -> u64 {
    let mut before = filling(bytes.len());
    before[..cleared].fill(0);
    let pieces = bytes.chunks(4096).zip(before.chunks(4096)).enumerate();
    let last = pieces.rev().find(|(_, (now, before))| now != before);
    let end = last.map(|(piece, (now, before))| {
        let differs = now.iter().zip(before).rposition(|(now, before)| now != before);
        4096 * piece + differs.unwrap_or_default() + 1
    });
    end.unwrap_or_default() as u64
}

impl Extents {
    /// Runs `plan` on `inputs`.
    fn run(&mut self, device: &dyn Device, by: &str, plan: &Plan, inputs: &[(&str, &[u8])]) {
        let mut padded = plan.clone();
        padded.buffers.iter_mut().for_each(|buffer| buffer.bytes += guard(buffer.bytes));
        let memory = PlanMemory::allocate(device, &padded).unwrap();
        let mut queue = device.queue().unwrap();
        queue.set_deadline(PATIENCE);
        for buffer in &padded.buffers {
            let mut bytes = filling(buffer.bytes as usize);
            if let Some((_, input)) = inputs.iter().find(|(name, _)| *name == buffer.name) {
                bytes[..input.len()].copy_from_slice(input);
            }
            queue.write(memory.named(buffer.name), 0, &bytes).unwrap();
        }
        let without_steps = Plan { steps: Vec::new(), ..plan.clone() };
        let mut ends = vec![0; plan.buffers.len()];
        let mut cleared = vec![0; plan.buffers.len()];
        let mut look = |queue: &mut dyn Queue, at: usize, cleared: usize| {
            let buffer = &padded.buffers[at];
            let mut bytes = vec![0; buffer.bytes as usize];
            queue.read(memory.named(buffer.name), 0, &mut bytes).unwrap();
            ends[at] = end_of(&bytes, cleared).max(ends[at]);
        };
        // Kernels reset their counters, so check cleared buffers after each step.
        for step in &plan.steps {
            let one = Plan { steps: vec![step.clone()], ..without_steps.clone() };
            submit(&one, &memory, &mut *queue).unwrap();
            match step {
                Step::Clear(buffer) => {
                    cleared[buffer.0] = plan.buffers[buffer.0].bytes as usize;
                }
                Step::Run(run) => {
                    for buffer in run.buffers.iter().filter(|buffer| cleared[buffer.0] > 0) {
                        look(&mut *queue, buffer.0, cleared[buffer.0]);
                    }
                }
            }
        }
        for (at, cleared) in cleared.into_iter().enumerate() {
            look(&mut *queue, at, cleared);
        }
        for (buffer, end) in plan.buffers.iter().zip(ends) {
            let extent = Extent { shape: plan.shape, end, by: by.into() };
            self.0.entry(buffer.name).or_default().push(extent);
        }
    }

    /// Encodes `blocks` copies of `contents`.
    fn encode(
        &mut self,
        (device, limits): (&dyn Device, &Limits),
        name: &str,
        recipe: &Recipe,
        (contents, blocks): (&[u8], u32),
    ) {
        let len = contents.len() as u32;
        let shape = Shape::new(blocks, len);
        let plan = pipelines::encode(limits, recipe, shape).unwrap();
        let jobs = vec![Job { content_len: len, ..Job::default() }; blocks as usize];
        let contents = slots(contents, shape);
        let inputs = [("jobs", bytemuck::cast_slice(&jobs)), ("contents", &contents[..])];
        self.run(device, &format!("encode {name}"), &plan, &inputs);
    }

    /// Decodes `blocks` copies of the CPU's payload of `contents`, by a plan for its features and `more`.
    fn decode(
        &mut self,
        (device, limits): (&dyn Device, &Limits),
        name: &str,
        (recipe, more): (&Recipe, PayloadFeatures),
        (contents, blocks): (&[u8], u32),
    ) {
        let len = contents.len() as u32;
        let mut payload = Vec::new();
        match recipe.codec.first() {
            Codec::Lz77(params) => {
                lz77::Encoder::new().encode(&params, contents, &mut payload);
            }
            Codec::Bwt(params) => {
                bwt::Encoder::new().encode(&params, contents, &mut payload);
            }
            Codec::Store | Codec::Smallest(_) => unreachable!(),
        }
        let shape = Shape::new(blocks, len);
        assert!(payload.len() <= shape.slot as usize, "{name}: {} bytes", payload.len());
        let features = PayloadFeatures::of(&payload, contents.len()).and(more);
        let plan = pipelines::decode(limits, pipelines::decoding(recipe), shape, features).unwrap();
        let room = payload.len().next_multiple_of(16);
        let job = |b: u32| Job {
            content_len: len,
            payload_len: payload.len() as u32,
            payload_start: b * room as u32 / 16,
            ..Job::default()
        };
        let jobs: Vec<_> = (0..blocks).map(job).collect();
        let mut all = payload.clone();
        all.resize(room, 0);
        let all = all.repeat(blocks as usize);
        let inputs = [("jobs", bytemuck::cast_slice(&jobs)), ("payload", &all[..])];
        self.run(device, &format!("decode {name}"), &plan, &inputs);
    }

    /// Undoes the transposition of `blocks` blocks that fill their slots of `len` bytes.
    fn undo_filters(&mut self, device: &dyn Device, (len, blocks): (u32, u32)) {
        let shape = Shape::new(blocks, len);
        let mut plan = Plan::new(shape);
        let undoing = filter::Undoing::ALL;
        filter::append(&mut plan, undoing, &[], device.limits()).unwrap();
        let chain = "transpose4".parse().unwrap();
        let undo = Undo::of(&chain, &[]).unwrap();
        let jobs = vec![Job { content_len: len, undo, ..Job::default() }; blocks as usize];
        let contents = noise(7, (len * blocks) as usize, 256);
        let inputs = [("jobs", bytemuck::cast_slice(&jobs)), (undoing.source(), &contents[..])];
        self.run(device, "undo filters", &plan, &inputs);
    }

    /// Computes the checksums of contents alone.
    fn check_contents(&mut self, device: &dyn Device, (len, blocks): (u32, u32)) {
        let mut plan = Plan::new(Shape::new(blocks, len));
        checksum::add_checksums_by(&mut plan, checksum::Direction::Restore, 4).unwrap();
        let jobs = vec![Job { content_len: len, ..Job::default() }; blocks as usize];
        let contents = noise(11, (blocks * len) as usize, 256);
        let no_payload = vec![0; 4 * blocks as usize];
        let inputs = [
            ("jobs", bytemuck::cast_slice(&jobs)),
            ("contents", &contents[..]),
            ("no_payload", &no_payload),
        ];
        self.run(device, "check contents", &plan, &inputs);
    }

    /// Moves full blocks out of `contents`, by as many moves as fit.
    fn moves(&mut self, device: &dyn Device, (len, blocks): (u32, u32)) {
        let shape = Shape::new(blocks, len);
        let plan = moves_of_blocks(shape).unwrap();
        let mut all: Vec<_> = (0..blocks)
            .map(|b| Move::new(b * len, len, u64::from(b) * u64::from(len + 256)))
            .collect();
        all.resize(moves::max_moves(&plan), Move { reserved: [!0; 3], ..Move::default() });
        let contents = noise(9, (blocks * len) as usize, 256);
        let inputs = [("moves", bytemuck::cast_slice(&all)), ("contents", &contents[..])];
        self.run(device, "moves", &plan, &inputs);
    }

    /// The errors of the formulas of `costs`: plans must write no more than a formula gives, and at least the share
    /// `least` of it.
    fn complaints(&self, costs: &[(&str, KernelCost)], least: f64) -> Vec<String> {
        let mut formulas: BTreeMap<&str, (Vec<&str>, Vec<&Formula>)> = BTreeMap::new();
        for (stem, cost) in costs {
            for (name, formula) in &cost.buffers {
                let (stems, all) = formulas.entry(name).or_default();
                stems.push(stem);
                all.push(formula);
            }
        }
        let mut complaints = Vec::new();
        for (name, (stems, all)) in formulas {
            let stems = stems.join(", ");
            let mut say =
                |what: String| complaints.push(format!("buffer {name} of {stems}: {what}"));
            let formula = all[0];
            if all.iter().any(|other| *other != formula) {
                say("its formulas differ".into());
                continue;
            }
            let mut closest = None;
            for Extent { shape, end, by } in self.0.get(name).into_iter().flatten() {
                let stated = formula.eval(shape.slot.into()).unwrap() * u64::from(shape.blocks);
                let (blocks, slot) = (shape.blocks, shape.slot);
                let what = format!(
                    "{formula} gives {stated} bytes for {blocks} blocks of {slot}, and '{by}' touches {end}"
                );
                let part = *end as f64 / stated as f64;
                if closest.as_ref().is_none_or(|(most, _)| part > *most) {
                    closest = Some((part, what));
                }
            }
            match closest {
                None => say("no plan uses it".into()),
                Some((part, what)) if part > 1.0 => say(format!("too small: {what}")),
                Some((part, what)) if part < least => say(format!("too large: {what}")),
                Some(_) => {}
            }
        }
        complaints
    }
}

/// Copies of `contents`, each in its slot.
fn slots(contents: &[u8], shape: Shape) -> Vec<u8> {
    let mut slot = contents.to_vec();
    slot.resize(shape.slot as usize, 0);
    slot.repeat(shape.blocks as usize)
}

fn lz77(level: u32, change: impl Fn(Params) -> Params) -> Recipe {
    match Level::new(level).unwrap().codec(Pipeline::Lzf) {
        Codec::Lz77(params) => Codec::Lz77(change(params)).into(),
        _ => unreachable!("the pipeline is LZ77"),
    }
}

/// The extents of all plans, at the sizes that use most of each buffer.
fn measured(device: &dyn Device) -> Extents {
    let mut extents = Extents::default();
    let own = device.limits();
    let with = (device, own);
    let (tiny, mid, large) = (1024, 1 << 18, 1 << 22);
    let text = |len| {
        let mut text = mixture(len);
        text.resize(len, b'.');
        text
    };
    // The longest possible payload: it contains nearly all symbols.
    let dense = |len| noise(3, len, 240);
    // Many short matches.
    let short = |len| noise(5, len, 2);
    let none = PayloadFeatures::default();

    for level in 1..=7 {
        extents.encode(with, &format!("level {level}"), &lz77(level, |p| p), (&short(mid), 1));
    }
    let fine = |p: Params| Params { chunk_log: 16, window_log: 16, group_log: 0, ..p };
    let segments = lz77(3, |p| Params { segment_log: 8, ..fine(p) });
    extents.encode(with, "short segments", &segments, (&short(mid), 1));
    let greedy = lz77(1, fine);
    for (name, contents) in [("text", text(large)), ("noise", dense(large)), ("bits", short(large))]
    {
        extents.encode(with, &format!("chunks of {name}"), &greedy, (&contents, 1));
    }
    // Bounded dispatches, and so few compute units that chunks are decoded in order.
    let bounded =
        Limits { api: Api::WebGpu, kind: Kind::Software, compute_units: 0, ..own.clone() };
    let bounded = (device, &bounded);
    let optimal = lz77(8, |p| Params { segment_log: 12, ..fine(p) });
    extents.encode(bounded, "an optimal parse", &optimal, (&text(mid), 1));
    extents.decode(bounded, "chunks of text", (&greedy, none), (&text(large), 1));
    let fse = Level::DEFAULT.codec(Pipeline::Fse).into();
    extents.encode(with, "literals", &fse, (&text(large), 1));
    extents.encode(with, "dense literals", &fse, (&dense(large), 1));
    let long = PayloadFeatures::of_long_windows(true);
    extents.decode(with, "tiny blocks", (&greedy, long), (&short(tiny), 64));

    extents.undo_filters(device, (tiny as u32, 64));
    extents.undo_filters(device, (large as u32, 1));
    extents.check_contents(device, (tiny as u32, 64));
    extents.check_contents(device, (large as u32, 1));
    extents.moves(device, (tiny as u32, 64));
    extents.moves(device, (large as u32, 1));

    let recipe =
        |segment_log, start_log| Recipe::from(Codec::Bwt(bwt::Params { segment_log, start_log }));
    extents.encode(with, "tiny blocks by the BWT", &recipe(13, 8), (&text(tiny), 64));
    extents.encode(with, "the BWT", &recipe(13, 8), (&noise(3, 1 << 20, 256), 1));
    extents.decode(with, "tiny blocks of the BWT", (&recipe(10, 8), none), (&short(tiny), 64));
    extents.decode(bounded, "the BWT", (&recipe(10, 8), none), (&short(1 << 19), 1));
    // Walks that take several dispatches.
    extents.decode(bounded, "the BWT with few rows", (&recipe(13, 19), none), (&text(1 << 20), 1));
    extents
}

/// The text with the formula of `buffer` in its cost block changed.
fn planted(text: &str, buffer: &str, change: &str) -> String {
    let block = text.find("@pz_cost").unwrap();
    let begin =
        [" ", ","].iter().find_map(|before| text[block..].find(&format!("{before}{buffer}=")));
    let begin = block + begin.unwrap() + buffer.len() + 2;
    let mut depth = 0;
    let len = text[begin..].find(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == '\n' || c == ',' && depth == 0
    });
    let end = begin + len.unwrap();
    format!("{}({}){change}{}", &text[..begin], &text[begin..end], &text[end..])
}

/// The costs of all kernels; those that have `buffer` with `change`, in both languages.
fn costs(
    is_changed: impl Fn(&Kernel) -> bool,
    buffer: &str,
    change: &str,
) -> Result<Vec<(&'static str, KernelCost)>, CostError> {
    let cost = |kernel: &&'static Kernel| {
        let text = |api| match is_changed(kernel) {
            true => planted(&kernel.text(api), buffer, change).into(),
            false => kernel.text(api),
        };
        Ok((kernel.stem, kernel.parse(text)?))
    };
    ALL.iter().map(cost).collect()
}

#[test]
fn formulas_are_what_kernels_write_and_planted_faults_are_found() {
    let has = |kernel: &Kernel, name: &str| kernel.cost().unwrap().buffer(name).is_ok();
    let tested = Mutex::new(0);
    each_device(|device| {
        if device.limits().api != Api::OpenCl {
            return;
        }
        let extents = measured(device);
        let needs_most = device.limits().kind == Kind::Software;
        let least = if needs_most { 0.98 } else { 0.0 };
        let complaints = extents.complaints(&costs(|_| false, "", "").unwrap(), least);
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        if !needs_most {
            return;
        }
        // Plant the change in all kernels that have the buffer, and in one of them.
        for kernel in ALL {
            let buffers = &kernel.cost().unwrap().buffers;
            for (name, _) in buffers {
                for change in ["*2", "/2", "*103/100"] {
                    for alone in [false, true] {
                        let is_changed = |other: &Kernel| {
                            has(other, name) && (!alone || other.stem == kernel.stem)
                        };
                        let complaints =
                            extents.complaints(&costs(is_changed, name, change).unwrap(), least);
                        let wanted = format!("buffer {name} of ");
                        assert!(
                            complaints.len() == 1 && complaints[0].starts_with(&wanted),
                            "{name}{change} in {}: {complaints:?}",
                            kernel.stem
                        );
                        *tested.lock() += 1;
                    }
                }
            }
        }
    });
    println!("{} planted faults", tested.into_inner());
}
