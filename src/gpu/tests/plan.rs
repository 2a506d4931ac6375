//! Checks of every plan: it takes exactly the memory that its kernels' costs predict, and its kernels are valid.

use std::collections::HashMap;

use super::testing::{each_device, made_up};
use crate::codec::filter::Filter;
use crate::codec::{Codec, Recipe};
use crate::format::Pipeline;
use crate::gpu::device::run::PlanMemory;
use crate::gpu::device::{Api, BufferId, Device, DeviceError, Limits, Queue, Teams};
use crate::gpu::model::kernel::MOVE_BYTES;
use crate::gpu::model::plan::{Plan, PlanError, Run, Shape, Step};
use crate::gpu::stages::lz77_decode::PayloadFeatures;
use crate::gpu::stages::moves::{self, Ends};
use crate::gpu::stages::{
    bwt_decode, bwt_encode, checksum, filter, forward_filter, lz77_code, lz77_decode, lz77_find,
    pipelines,
};
use crate::pipeline::level::Level;
use crate::sync::Mutex;

/// Makes a plan.
pub(in crate::gpu) type Builder = Box<dyn Fn(&Limits, Shape) -> Result<Plan, PlanError>>;

/// Makes a builder of single-stage plans from a function that appends the stage.
fn stage(append: impl Fn(&mut Plan, &Limits) -> Result<(), PlanError> + 'static) -> Builder {
    Box::new(move |limits, shape| {
        let mut plan = Plan::new(shape);
        append(&mut plan, limits).map(|()| plan)
    })
}

/// Every builder of plans, with a name.
pub(in crate::gpu) fn builders() -> Vec<(String, Builder)> {
    let mut all: Vec<(String, Builder)> = Vec::new();
    for direction in
        [checksum::Direction::Encode, checksum::Direction::Decode, checksum::Direction::Restore]
    {
        let add = move |plan: &mut Plan, limits: &Limits| {
            Ok(checksum::add_checksums(plan, limits, direction)?)
        };
        all.push((format!("checksums, {direction:?}"), stage(add)));
    }
    all.push(("packing".into(), stage(|plan, _| Ok(checksum::add_packing(plan)?))));
    let undo = |plan: &mut Plan, limits: &Limits| {
        Ok(filter::append(plan, filter::Undoing::ALL, &[], limits)?)
    };
    all.push(("filters to undo".into(), stage(undo)));
    let apply = |plan: &mut Plan, _: &Limits| Ok(forward_filter::prepend(plan, 3)?);
    all.push(("filters to apply".into(), stage(apply)));
    all.push((
        "suffix sorting".into(),
        Box::new(|limits, shape| Ok(bwt_encode::transform(limits, shape, 14)?)),
    ));
    all.push(("decoder of the BWT".into(), Box::new(bwt_decode::plan)));
    for fse in [false, true] {
        let decode = move |limits: &Limits, shape: Shape| {
            lz77_decode::plan(limits, shape, lz77_decode::PayloadFeatures::any(shape.slot, fse))
        };
        all.push((format!("decoder of LZ77, FSE {fse}"), Box::new(decode)));
        let decode = move |limits: &Limits, shape: Shape| {
            pipelines::decode(limits, Pipeline::Lzf, shape, PayloadFeatures::of_long_windows(fse))
        };
        all.push((format!("decoder of long windows, FSE {fse}"), Box::new(decode)));
    }
    let decode =
        |limits: &Limits, shape| lz77_decode::plan(limits, shape, PayloadFeatures::literals());
    all.push(("decoder of literals".into(), Box::new(decode)));
    let decode = |limits: &Limits, shape| lz77_decode::plan(limits, shape, Default::default());
    all.push(("decoder of LZ77 that needs little".into(), Box::new(decode)));
    for pipeline in Pipeline::ALL {
        for level in Level::all() {
            let codec = level.codec(pipeline);
            if let Codec::Lz77(params) = codec {
                let find = move |plan: &mut Plan, limits: &Limits| {
                    lz77_find::append(plan, limits, &params)
                };
                all.push((format!("matches of {pipeline:?}, level {level}"), stage(find)));
                let code = move |plan: &mut Plan, limits: &Limits| {
                    lz77_code::append(plan, limits, &params)
                };
                all.push((format!("coder of {pipeline:?}, level {level}"), stage(code)));
            }
            let recipe = Recipe::from(codec);
            let encode = move |limits: &Limits, shape| pipelines::encode(limits, &recipe, shape);
            all.push((format!("encoder of {pipeline:?}, level {level}"), Box::new(encode)));
            let recipe = Recipe { filter: Filter::Auto, ..recipe };
            let encode = move |limits: &Limits, shape| pipelines::encode(limits, &recipe, shape);
            all.push((
                format!("encoder of {pipeline:?} with filters, level {level}"),
                Box::new(encode),
            ));
        }
        let decode = move |limits: &Limits, shape| {
            pipelines::decode(
                limits,
                pipeline,
                shape,
                crate::gpu::stages::lz77_decode::PayloadFeatures::default(),
            )
        };
        all.push((format!("decoder of {pipeline:?}"), Box::new(decode)));
        let decode = move |limits: &Limits, shape| {
            pipelines::decode_and_move(limits, pipeline, shape, PayloadFeatures::default(), &[])
        };
        all.push((format!("decoder of {pipeline:?} with moves"), Box::new(decode)));
    }
    all.push(("moves".into(), Box::new(|_: &Limits, shape: Shape| moves_of_blocks(shape))));
    all
}

/// A plan that moves as much as fits into a block, for each block.
pub(in crate::gpu) fn moves_of_blocks(shape: Shape) -> Result<Plan, PlanError> {
    let mut plan = pipelines::moves_alone(shape)?;
    let names = ["contents", "moves", "payload"];
    let buffers = names.map(|name| plan.buffer(&MOVE_BYTES, name).unwrap());
    let [source, _, destination] = buffers.map(|buffer| plan.buffers[buffer.0].bytes);
    let (ends, buffers) = (Ends { source: source as u32, destination }, buffers.to_vec());
    let run = moves::run(0..shape.blocks, shape.slot - 15, ends);
    plan.steps.push(Step::Run(Run { buffers, ..run }));
    Ok(plan)
}

/// The limits of a kind of device.
pub(in crate::gpu) fn limits(api: Api, teams: Teams) -> Limits {
    Limits {
        api,
        memory: 80 << 30,
        max_buffer: 40 << 30,
        teams,
        compute_units: 132,
        timing: true,
        ..made_up()
    }
}

/// Every kind of device that has plans.
pub(in crate::gpu) const KINDS: [(Api, Teams); 6] = [
    (Api::Cuda, Teams::Ptx),
    (Api::Cuda, Teams::Local),
    (Api::OpenCl, Teams::Ptx),
    (Api::OpenCl, Teams::Local),
    (Api::WebGpu, Teams::Subgroup),
    (Api::WebGpu, Teams::Local),
];

/// Checks a plan, and returns the first fault.
fn check(plan: &Plan) -> Result<(), String> {
    let kernels = plan.kernels();
    let predicted = plan.shape.memory(&kernels).map_err(|error| error.to_string())?;
    if plan.memory() != predicted {
        return Err(format!("takes {} bytes, and {predicted} are predicted", plan.memory()));
    }
    for buffer in &plan.buffers {
        if buffer.bytes == 0 || buffer.bytes % 4 != 0 {
            return Err(format!("{} has {} bytes", buffer.name, buffer.bytes));
        }
    }
    for run in plan.runs() {
        let mut own = run.buffers.clone();
        own.sort_by_key(|buffer| buffer.0);
        own.dedup();
        if own.len() != run.buffers.len() || own.len() > 8 || run.args.len() > 16 {
            return Err(format!("{} of {} is given {run:?}", run.entry, run.kernel.stem));
        }
    }
    Ok(())
}

#[test]
fn plans_take_what_costs_predict() {
    let lens = [1, 255, 256, 257, 1000, 4096, 65_535, 65_536, 100_000, 1 << 20, (1 << 22) + 1];
    let mut made = 0;
    for (name, build) in builders() {
        for (api, teams) in KINDS {
            for len in lens.into_iter().chain([1 << 24]) {
                for blocks in [1, 2, 3, 7, 64, 255, 1000] {
                    match build(&limits(api, teams), Shape::new(blocks, len)) {
                        Ok(plan) => {
                            let checked = check(&plan);
                            assert_eq!(checked, Ok(()), "{name}, {blocks} blocks of {len} bytes");
                            made += 1;
                        }
                        Err(PlanError::Declined(_)) => (),
                        Err(PlanError::Cost(error)) => panic!("{name}: {error}"),
                    }
                }
            }
        }
    }
    assert!(made > 1000, "{made}");
}

/// No plan has workgroups larger than the device runs: it either adapts, or is declined with a reason.
#[test]
fn workgroups_are_no_larger_than_devices_run() {
    let largest = |plan: &Plan| plan.runs().map(|run| run.threads).max().unwrap_or(0);
    for (api, teams) in KINDS {
        for most in [32, 64, 96, 128, 256, 384, 512, 1024] {
            let limits = Limits { max_workgroup: most, ..limits(api, teams) };
            let mut declined = 0;
            for pipeline in [Pipeline::Lzh, Pipeline::Lzf, Pipeline::Bwt] {
                let shape = Shape::new(300, 1 << 22);
                let features = [PayloadFeatures::default(), PayloadFeatures::of_long_windows(true)];
                let decoders =
                    features.map(|features| pipelines::decode(&limits, pipeline, shape, features));
                let encoders = Level::all()
                    .map(|level| pipelines::encode(&limits, &level.codec(pipeline).into(), shape));
                for plan in decoders.into_iter().chain(encoders) {
                    match plan {
                        Ok(plan) => assert!(largest(&plan) <= most, "{limits:?} {plan:?}"),
                        Err(PlanError::Declined(why)) => {
                            declined += 1;
                            assert!(why.len() > 10, "{why}");
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            assert!(declined == 0 || most < 256, "{api} {teams:?} {most}: {declined}");
        }
    }
}

#[test]
fn a_plan_that_takes_more_or_less_is_found() {
    let mut plan = Plan::new(Shape::new(3, 1000));
    checksum::add_packing(&mut plan).unwrap();
    assert_eq!(check(&plan), Ok(()));
    plan.buffers[2].bytes += 4;
    assert!(check(&plan).is_err());
    plan.buffers.remove(2);
    assert!(check(&plan).is_err());
}

#[test]
fn devices_allocate_what_costs_predict() {
    each_device(|device| {
        let counting = Counting { device, live: Mutex::default(), most: Mutex::default() };
        for (name, build) in builders() {
            for (blocks, len) in [(1, 1), (3, 1000), (2, 70_000)] {
                let shape = Shape::new(blocks, len);
                let Ok(plan) = build(device.limits(), shape) else { continue };
                *counting.most.lock() = 0;
                let memory = PlanMemory::allocate(&counting, &plan).unwrap();
                let predicted = shape.memory(&plan.kernels()).unwrap();
                assert_eq!(memory.bytes(), predicted, "{name}");
                drop(memory);
                assert_eq!(*counting.most.lock(), predicted, "{name}");
                assert!(counting.live.lock().is_empty(), "{name}");
            }
        }
    });
}

/// Compiles kernels with the constants of plans, as far as possible without a device.
#[cfg(feature = "webgpu")]
#[test]
fn kernels_are_valid_for_every_kind_of_team() {
    use crate::gpu::device::webgpu::validate;
    let mut seen = std::collections::HashSet::new();
    let mut wrong = Vec::new();
    for (name, build) in builders() {
        for teams in [Teams::Subgroup, Teams::Local] {
            let limits = limits(Api::WebGpu, teams);
            for len in [1, 5000, 1 << 20] {
                let Ok(plan) = build(&limits, Shape::new(2, len)) else { continue };
                for run in plan.runs() {
                    let source = run.kernel.source(&limits, run.threads, &run.defines);
                    if !source.contains("@compute") {
                        println!("{}: there is no code in WGSL", run.kernel.stem);
                        continue;
                    }
                    if seen.insert((source.clone(), run.entry))
                        && let Err(log) = validate(&source, run.entry)
                    {
                        let (stem, entry) = (run.kernel.stem, run.entry);
                        wrong.push(format!("{name}: {entry} of {stem}, {teams:?}: {log}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen.len() > 5);
}

/// Counts the bytes allocated on a device.
struct Counting<'d> {
    device: &'d dyn Device,
    live: Mutex<HashMap<BufferId, u64>>,
    most: Mutex<u64>,
}

impl Device for Counting<'_> {
    fn limits(&self) -> &Limits {
        self.device.limits()
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        let id = self.device.allocate(bytes)?;
        let mut live = self.live.lock();
        live.insert(id, bytes);
        let mut most = self.most.lock();
        *most = live.values().sum::<u64>().max(*most);
        Ok(id)
    }

    fn free(&self, buffer: BufferId) {
        assert!(self.live.lock().remove(&buffer).is_some());
        self.device.free(buffer);
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        self.device.queue()
    }
}
