//! What plans launch and what compilers reserve, against `threads`, `passes` and `local_mem` of `@pz_cost`.
//!
//! All levels, pipelines and payloads count, on every kind of GPU, and the cost must equal the most demanding of them.

use std::collections::BTreeMap;

use super::plan::{KINDS, builders, limits};
use crate::gpu::device::Limits;
use crate::gpu::model::cost::KernelCost;
use crate::gpu::model::kernel::{ALL, Kernel};
use crate::gpu::model::plan::{Plan, PlanError, Shape};
#[cfg(all(feature = "opencl", feature = "webgpu"))]
use {
    super::plan::Builder,
    crate::codec::{Codec, lz77::MIN_CHUNK_LOG},
    crate::format::Pipeline,
    crate::gpu::device::{Api, Kind, Teams},
    crate::gpu::model::plan::Run,
    crate::gpu::stages::pipelines,
    crate::pipeline::Level,
};

/// Lengths of blocks at which costs are exact.
const LENS: [u32; 7] = [1 << 16, 1 << 17, 1 << 18, 1 << 20, 1 << 22, 1 << 23, 1 << 24];
/// Lengths of blocks at which costs are enough, but not exact.
const SHORT: [u32; 4] = [256, 1024, 4096, 1 << 15];

/// The greatest demands of any plan on a kernel file.
#[derive(Debug, Default)]
struct Most {
    /// By the length of a block.
    passes: BTreeMap<u32, u64>,
    threads: BTreeMap<u32, u64>,
}

type Launches = BTreeMap<&'static str, Most>;

fn take(all: &mut Launches, plan: &Plan) {
    let Shape { blocks, slot } = plan.shape;
    let mut passes: BTreeMap<&str, u64> = BTreeMap::new();
    for run in plan.runs() {
        *passes.entry(run.kernel.stem).or_default() += 1;
        let most = all.entry(run.kernel.stem).or_default().threads.entry(slot).or_default();
        let threads = u64::from(run.groups) * u64::from(run.threads);
        *most = threads.div_ceil(blocks.into()).max(*most);
    }
    for (stem, passes) in passes {
        let most = all.entry(stem).or_default().passes.entry(slot).or_default();
        *most = passes.max(*most);
    }
}

/// Every plan for one block and for many, of each kind of GPU.
fn launches() -> Launches {
    let mut all = Launches::new();
    for (_, build) in builders() {
        for (api, teams) in KINDS {
            for len in LENS.into_iter().chain(SHORT) {
                // A device of few compute units has chunks decoded in order, and several teams in a workgroup.
                for (blocks, compute_units) in [(1, 132), (1, 0), (200, 132)] {
                    let limits = Limits { compute_units, ..limits(api, teams) };
                    match build(&limits, Shape::new(blocks, len)) {
                        Ok(plan) => take(&mut all, &plan),
                        Err(PlanError::Declined(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
    }
    all
}

/// The errors of a cost.
fn complaints(stem: &str, cost: &KernelCost, seen: &Most) -> Vec<String> {
    let mut complaints = Vec::new();
    let formulas =
        [("passes", &cost.passes, &seen.passes), ("threads", &cost.threads, &seen.threads)];
    for (key, formula, most) in formulas {
        for (&slot, &most) in most {
            let stated = formula.eval(slot.into()).unwrap();
            // A cost may exceed the plans by 2%, for workgroups that are not full.
            let is_much = stated * 98 > most * 100 && LENS.contains(&slot);
            if stated < most || is_much {
                complaints.push(format!(
                    "{key} of {stem}: {formula} gives {stated} for a block of {slot} bytes, and plans take {most}"
                ));
            }
        }
        if most.is_empty() {
            complaints.push(format!("{key} of {stem}: no plan uses it"));
        }
    }
    complaints
}

#[test]
fn passes_and_threads_are_those_of_plans_and_planted_faults_are_found() {
    let launches = launches();
    if std::env::var_os("PZ_SHOW").is_some() {
        for (stem, most) in &launches {
            println!("{stem}\n  passes {:?}\n  threads {:?}", most.passes, most.threads);
        }
    }
    let nothing = Most::default();
    let seen = |kernel: &Kernel| launches.get(kernel.stem).unwrap_or(&nothing);
    let of = |kernel: &Kernel| complaints(kernel.stem, kernel.cost().unwrap(), seen(kernel));
    let all: Vec<_> = ALL.iter().flat_map(|kernel| of(kernel)).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
    let plants: [fn(&str) -> String; 4] = [
        |_| "99".into(),
        |_| "77".into(),
        |formula| format!("({formula})*2"),
        |formula| format!("({formula})/2"),
    ];
    let values =
        |cost: &KernelCost| LENS.map(|n| (cost.passes.eval(n.into()), cost.threads.eval(n.into())));
    for kernel in ALL {
        for key in ["passes", "threads"] {
            for plant in plants {
                let cost = with(kernel, key, plant);
                // Half of one pass, rounded up, is still one.
                let is_same = values(&cost) == values(kernel.cost().unwrap());
                let found = complaints(kernel.stem, &cost, seen(kernel));
                assert!(
                    is_same || found.iter().any(|what| what.starts_with(key)),
                    "{} {cost:?}",
                    kernel.stem
                );
            }
        }
    }
}

/// The cost of `kernel` with another value of `key` in both languages.
fn with(kernel: &Kernel, key: &str, plant: impl Fn(&str) -> String) -> KernelCost {
    let text = |api| {
        let change = |line: &str| match line.split_once(&format!("//   {key}: ")) {
            Some(("", value)) => format!("//   {key}: {}\n", plant(value)),
            _ => format!("{line}\n"),
        };
        kernel.text(api).lines().map(change).collect::<String>().into()
    };
    kernel.parse(text).unwrap()
}

/// Bytes of workgroup memory that an entry point uses.
#[cfg(all(feature = "opencl", feature = "webgpu"))]
fn of_wgsl(source: &str, entry: &str) -> u64 {
    use wgpu::naga::{AddressSpace, front::wgsl::parse_str, proc::Layouter, valid};
    let module =
        parse_str(source).unwrap_or_else(|error| panic!("{}", error.emit_to_string(source)));
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).unwrap();
    let flags = valid::ValidationFlags::all();
    let mut validator = valid::Validator::new(flags, valid::Capabilities::all());
    validator.subgroup_stages(valid::ShaderStages::COMPUTE);
    validator.subgroup_operations(valid::SubgroupOperationSet::all());
    let info = validator
        .validate(&module)
        .unwrap_or_else(|error| panic!("{}", error.emit_to_string(source)));
    let at = module.entry_points.iter().position(|point| point.name == entry).unwrap();
    let info = info.get_entry_point(at);
    let used = module.global_variables.iter().filter(|(handle, variable)| {
        variable.space == AddressSpace::WorkGroup && !info[*handle].is_empty()
    });
    used.map(|(_, variable)| u64::from(layouter[variable.ty].size)).sum()
}

/// Builders of encoders with windows as short as users may choose, which have short chunks.
#[cfg(all(feature = "opencl", feature = "webgpu"))]
fn short_windows() -> impl Iterator<Item = (String, Builder)> {
    Level::all().filter_map(|level| {
        let Codec::Lz77(params) = level.codec(Pipeline::Lzf) else { return None };
        let recipe = Codec::Lz77(params.with_window(MIN_CHUNK_LOG)).into();
        let encode = move |limits: &Limits, shape| pipelines::encode(limits, &recipe, shape);
        Some((format!("encoder of short windows, level {level}"), Box::new(encode) as Builder))
    })
}

/// Programs, each with a run of each of its entry points.
#[cfg(all(feature = "opencl", feature = "webgpu"))]
type Programs = BTreeMap<String, BTreeMap<&'static str, Run>>;

/// Programs of all plans as kinds of devices specialise them, each once, with a run of each of their entry points.
#[cfg(all(feature = "opencl", feature = "webgpu"))]
fn specialised(kind: &Limits) -> Programs {
    let mut all = Programs::new();
    for (_, build) in builders().into_iter().chain(short_windows()) {
        for len in [1 << 16, 1 << 20, 1 << 24] {
            // A device of few compute units has chunks decoded in order, and several teams in a workgroup.
            for (blocks, compute_units) in [(2, 132), (2, 0), (200, 132)] {
                let kind = Limits { compute_units, ..kind.clone() };
                let Ok(plan) = build(&kind, Shape::new(blocks, len)) else { continue };
                for run in plan.runs() {
                    let source = run.kernel.source(&kind, run.threads, &run.defines);
                    all.entry(source).or_default().entry(run.entry).or_insert_with(|| run.clone());
                }
            }
        }
    }
    all
}

/// `source` without its instructions for NVIDIA's GPUs, which no other compiler takes. An empty statement in their
/// place gives each result, so that code that uses a result, or memory, stays. Code for other kinds of teams is gone.
#[cfg(all(feature = "opencl", feature = "webgpu"))]
fn without_instructions(source: &str, teams: Teams) -> String {
    let scratch = "SHARED uint team_scratch_[TEAM_SCRATCH];";
    let source = match teams {
        Teams::Local => source.into(),
        _ => source.replace(scratch, "__local uint *team_scratch_ = 0;"),
    };
    let mut pieces = source.split("asm");
    let mut without = String::from(pieces.next().unwrap_or_default());
    for piece in pieces {
        // The keyword's name outside NVIDIA's compiler.
        without += "__asm__";
        let call = piece.trim_start_matches(" volatile").starts_with('(');
        let mut is_quoted = false;
        let template = piece.find(|c| {
            is_quoted ^= c == '"';
            c == ':' && !is_quoted
        });
        match (call, template) {
            (true, Some(end)) => {
                without += &piece[..=piece.find('(').unwrap()];
                without += "\"\" ";
                // A register for floating-point numbers has another letter in each compiler.
                without += &piece[end..].replace("\"=f\"", "\"=r\"").replace("\"f\"", "\"r\"");
            }
            _ => without += piece,
        }
    }
    without
}

/// The most workgroup memory of each kernel file, and the program that takes it; `None` if there is no software device
/// of OpenCL. Its compiler reports what the source declares; a GPU's may round that up.
#[cfg(all(feature = "opencl", feature = "webgpu"))]
fn workgroup_memory() -> Option<BTreeMap<&'static str, (u64, String)>> {
    let found = crate::gpu::device::opencl::devices().into_iter().flatten();
    let mut software = found.filter(|found| found.limits().kind == Kind::Software);
    let opencl = software.find_map(|found| found.open().ok())?;
    let mut all = BTreeMap::new();
    let mut take = |kind: &Limits, run: &Run, bytes| {
        let most: &mut (u64, String) = all.entry(run.kernel.stem).or_default();
        if std::env::var_os("PZ_SHOW").is_some() && bytes > 0 {
            println!(
                "{} {} {:?} {:?} {}: {bytes}",
                run.kernel.stem, run.entry, kind.api, kind.teams, run.threads
            );
        }
        if bytes >= most.0 {
            *most = (bytes, format!("{} on {} with {:?}", run.entry, kind.api, kind.teams));
        }
    };
    // CUDA compiles the same programs as OpenCL. The backend's tests check the reports of CUDA's compiler.
    for (api, teams) in KINDS.into_iter().filter(|(api, _)| *api != Api::Cuda) {
        let kind = limits(api, teams);
        for (source, runs) in specialised(&kind) {
            let entries: Vec<_> = runs.keys().copied().collect();
            let reported = match api {
                Api::WebGpu => entries.iter().map(|entry| of_wgsl(&source, entry)).collect(),
                Api::Cuda | Api::OpenCl => opencl
                    .workgroup_memory(&without_instructions(&source, teams), &entries)
                    .unwrap_or_else(|error| panic!("{entries:?}: {error}")),
            };
            runs.values().zip(reported).for_each(|(run, bytes)| take(&kind, run, bytes));
        }
    }
    Some(all)
}

#[cfg(all(feature = "opencl", feature = "webgpu"))]
#[test]
fn workgroup_memory_is_what_compilers_report_and_planted_faults_are_found() {
    let Some(seen) = workgroup_memory() else {
        let no_skip = std::env::var_os("PZ_TEST_NO_SKIP").is_some_and(|value| value == "1");
        assert!(!no_skip, "a test was to run on OpenCL, and cannot");
        eprintln!("\n*** SKIPPED on OpenCL: no software device ***\n");
        return;
    };
    let complaint = |kernel: &Kernel, cost: &KernelCost| {
        let Some((most, by)) = seen.get(kernel.stem) else {
            return Some(format!("local_mem of {}: no plan uses it", kernel.stem));
        };
        let stated = u64::from(cost.local_mem);
        (stated != *most)
            .then(|| format!("local_mem of {}: {stated}, and {by} takes {most}", kernel.stem))
    };
    let complaints = ALL.iter().filter_map(|kernel| complaint(kernel, kernel.cost().unwrap()));
    let all: Vec<_> = complaints.collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
    for kernel in ALL {
        let stated = kernel.cost().unwrap().local_mem;
        let plants = [0, 77, stated * 2, stated / 2, stated + 4];
        for plant in plants.into_iter().filter(|plant| *plant != stated) {
            let cost = with(kernel, "local_mem", |_| plant.to_string());
            assert!(complaint(kernel, &cost).is_some(), "{} {plant}", kernel.stem);
        }
    }
}
