//! Tests without a device: all programs compile. What devices must do is tested in [`crate::gpu::tests`].

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::api::version_text;
use super::nvrtc::{Compiler, source_of};
use crate::gpu::device::program_cache::Cache;
use crate::gpu::device::{
    Api, BufferId, CudaDevice, Device, DeviceError, Dispatch, Limits, NativeBuffer, Queue, Teams,
};
use crate::gpu::model::kernel::{
    Kernel, TEST_BROKEN, TEST_DEVICE, TEST_TEAM, TEST_TURNS,
};
use crate::gpu::model::plan::Shape;
use crate::gpu::tests::import::codes_between_callers_buffers;
use crate::gpu::tests::plan::{builders, limits};
use crate::gpu::tests::testing::files_in;

/// The compiler for GPUs of this capability, or for those that it knows at all.
fn compiler(capability: (i32, i32)) -> Option<Compiler> {
    match Compiler::of(i32::MAX, capability) {
        Ok(compiler) => Some(compiler),
        Err(error) => {
            let no_skip = std::env::var_os("PZ_TEST_NO_SKIP").is_some_and(|value| value == "1");
            assert!(!no_skip, "a test was to compile with NVRTC, and cannot: {error}");
            eprintln!("\n*** SKIPPED with NVRTC: {error} ***\n");
            None
        }
    }
}

/// One entry point of a kernel file with the constants of a plan.
struct Program {
    kernel: &'static Kernel,
    entry: &'static str,
    source: String,
    options: Vec<String>,
}

/// Every program of every plan, and of the tests, each once.
fn programs(compiler: &Compiler, limits: &Limits) -> Vec<Program> {
    let mut seen = HashSet::new();
    let mut programs = Vec::new();
    let mut add = |kernel: &'static Kernel, entry, threads, defines: &[(&'static str, u32)]| {
        let source = source_of(kernel, entry, limits, threads, defines).unwrap();
        if seen.insert(source.clone()) {
            let options = compiler.options(limits, defines);
            programs.push(Program { kernel, entry, source, options });
        }
    };
    for (_, build) in builders() {
        for len in [1, 5000, 1 << 20, 1 << 24] {
            // A device of few compute units has chunks decoded in order, and several teams in a workgroup.
            for (blocks, compute_units) in [(2, 132), (2, 0), (200, 132)] {
                let limits = Limits { compute_units, ..limits.clone() };
                let Ok(plan) = build(&limits, Shape::new(blocks, len)) else { continue };
                plan.runs().for_each(|run| add(run.kernel, run.entry, run.threads, &run.defines));
            }
        }
    }
    let threads = if limits.teams == Teams::Local { 32 } else { 128 };
    add(&TEST_DEVICE, "count_up", 1024, &[("ADD", 3)]);
    add(&TEST_TURNS, "turns", 32, &[]);
    add(&TEST_TEAM, "team_functions", threads, &[]);
    programs
}

/// Bytes of workgroup memory of an entry point, in a compiled program: the size of an ELF section.
fn workgroup_memory(program: &[u8], entry: &str) -> u64 {
    let number = |at: usize, bytes: usize| {
        let read = program[at..at + bytes].iter().rev();
        read.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    assert_eq!(&program[..4], b"\x7fELF");
    let (table, size) = (number(0x28, 8) as usize, number(0x3a, 2) as usize);
    let (count, names) = (number(0x3c, 2) as usize, number(0x3e, 2) as usize);
    let section = |i: usize| table + i * size;
    let names = number(section(names) + 0x18, 8) as usize;
    let wanted = format!(".nv.shared.{entry}\0");
    let is_wanted = |i: &usize| {
        let name = names + number(section(*i), 4) as usize;
        program[name..].starts_with(wanted.as_bytes())
    };
    (0..count).find(is_wanted).map_or(0, |i| number(section(i) + 0x20, 8))
}

/// Every program compiles, and takes the workgroup memory that its cost states at most.
fn all_compile(capability: (i32, i32), teams: Teams) {
    let Some(compiler) = compiler(capability) else { return };
    let limits = limits(Api::Cuda, teams);
    let programs = programs(&compiler, &limits);
    assert!(programs.len() > 80, "{} programs", programs.len());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Program { kernel, entry, source, options } = program;
            let complaint = match compiler.compile(kernel.stem, source, options) {
                Ok(compiled) => {
                    let takes = workgroup_memory(&compiled, entry);
                    let most = kernel.cost().unwrap().local_mem;
                    // An unused team has a word for the scratch memory of other kinds of team.
                    let is_too_much = takes > u64::from(most) + 4;
                    is_too_much.then(|| format!("takes {takes} bytes, and states {most}"))
                }
                Err(error) => Some(error.to_string()),
            };
            let complaint = complaint.map(|text| format!("{} of {}: {text}", entry, kernel.stem));
            wrong.lock().unwrap().extend(complaint);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} programs compiled by {compiler}", programs.len());
}

#[test]
fn every_program_compiles_for_teams_of_warps() {
    all_compile((9, 0), Teams::Ptx);
}

#[test]
fn every_program_compiles_for_older_gpus() {
    all_compile((7, 5), Teams::Local);
}
