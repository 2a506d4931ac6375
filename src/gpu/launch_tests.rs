//! What plans launch and what compilers reserve, against `threads`, `passes` and `local_mem` of `@pz_cost`.
//!
//! All levels, pipelines and payloads count, on every kind of GPU, and the most demanding of them must be what the cost says.

use std::collections::BTreeMap;

use super::cost::KernelCost;
#[cfg(all(feature = "opencl", feature = "webgpu"))]
use super::device::Api;
use super::device::Limits;
use super::kernel::{ALL, Kernel};
#[cfg(all(feature = "opencl", feature = "webgpu"))]
use super::plan::Run;
use super::plan::{Plan, PlanError, Shape};
use super::plan_tests::{KINDS, builders, limits};

/// Lengths of blocks at which costs are exact.
const LENS: [u32; 7] = [1 << 16, 1 << 17, 1 << 18, 1 << 20, 1 << 22, 1 << 23, 1 << 24];
/// Lengths of blocks for which they are enough.
const SHORT: [u32; 4] = [256, 1024, 4096, 1 << 15];

/// The most that a plan takes of a kernel file.
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

/// What is wrong with a cost.
fn complaints(stem: &str, cost: &KernelCost, seen: &Most) -> Vec<String> {
    let mut complaints = Vec::new();
    let formulas =
        [("passes", &cost.passes, &seen.passes), ("threads", &cost.threads, &seen.threads)];
    for (key, formula, most) in formulas {
        for (&slot, &most) in most {
            let stated = formula.eval(slot.into()).unwrap();
            // Workgroups that are not full are no fault.
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
                // Half of one pass is one.
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

/// Different entry points of all plans as kinds of devices specialise them.
#[cfg(all(feature = "opencl", feature = "webgpu"))]
fn specialised(kind: &Limits, mut take: impl FnMut(&Run, String)) {
    let mut seen = std::collections::HashSet::new();
    for (_, build) in builders() {
        for len in [1 << 16, 1 << 20] {
            let Ok(plan) = build(kind, Shape::new(2, len)) else { continue };
            for run in plan.runs() {
                let source = run.kernel.source(kind, run.threads, &run.defines);
                if seen.insert((source.clone(), run.entry)) {
                    take(run, source);
                }
            }
        }
    }
}

/// The most workgroup memory of each kernel file, and of what.
#[cfg(all(feature = "opencl", feature = "webgpu"))]
fn workgroup_memory() -> BTreeMap<&'static str, (u64, String)> {
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
    let opencl = super::opencl::devices().into_iter().flatten().find_map(|found| found.open().ok());
    for (api, teams) in KINDS {
        let kind = limits(api, teams);
        specialised(&kind, |run, source| match (api, &opencl) {
            (Api::WebGpu, _) if source.contains("@compute") => {
                take(&kind, run, of_wgsl(&source, run.entry));
            }
            (Api::OpenCl, Some(device)) => {
                let bytes =
                    device.workgroup_memory(&source, run.entry).unwrap_or_else(|e| panic!("{e}"));
                take(&kind, run, bytes);
            }
            _ => {}
        });
    }
    all
}

#[cfg(all(feature = "opencl", feature = "webgpu"))]
#[test]
#[ignore = "needs an NVIDIA GPU: others do not compile what is written for its warps"]
fn workgroup_memory_is_what_compilers_report() {
    let seen = workgroup_memory();
    let complaint = |kernel: &Kernel, stated: u64| {
        let (most, by) = seen.get(kernel.stem)?;
        let is_wrong = stated < *most || stated * 98 > most * 100;
        is_wrong.then(|| format!("local_mem of {}: {stated}, and {by} takes {most}", kernel.stem))
    };
    let stated = |kernel: &Kernel| u64::from(kernel.cost().unwrap().local_mem);
    let all: Vec<_> = ALL.iter().filter_map(|kernel| complaint(kernel, stated(kernel))).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
    for kernel in ALL.iter().filter(|kernel| stated(kernel) > 0) {
        for plant in [0, stated(kernel) * 2, stated(kernel) / 2] {
            assert!(complaint(kernel, plant).is_some(), "{} {plant}", kernel.stem);
        }
    }
}
