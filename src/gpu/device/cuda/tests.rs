//! Tests without a device: all programs compile. [`crate::gpu::tests`] tests devices.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::api::version_text;
use super::nvrtc::{Compiler, source_of};
use crate::gpu::device::program_cache::Cache;
use crate::gpu::device::{
    Api, CudaDevice, Device, DeviceError, Dispatch, Limits, NativeBuffer, Teams,
};
use crate::gpu::model::kernel::{
    DOOR_MEASURE, DOOR_RING, DOOR_SEARCH, Kernel, TEST_DEVICE, TEST_DOOR, TEST_TEAM, TEST_TURNS,
};
use crate::gpu::model::plan::Shape;
use crate::gpu::tests::import::codes_between_callers_buffers;
use crate::gpu::tests::plan::{builders, limits};
use crate::gpu::tests::testing::{files_in, turns};
use crate::sync::Mutex;

/// A compiler for GPUs of this capability; `None`, with a message, if there is no compiler.
fn compiler(capability: (i32, i32)) -> Option<Compiler> {
    or_skip(Compiler::of(i32::MAX, capability))
}

fn or_skip(compiler: Result<Compiler, DeviceError>) -> Option<Compiler> {
    match compiler {
        Ok(compiler) => Some(compiler),
        Err(error) => {
            let no_skip = std::env::var_os("PZ_TEST_NO_SKIP").is_some_and(|value| value == "1");
            assert!(!no_skip, "a test was to compile with NVRTC, and cannot: {error}");
            eprintln!("\n*** SKIPPED with NVRTC: {error} ***\n");
            None
        }
    }
}

/// Further versions of NVRTC to test with.
fn other_versions() -> Vec<PathBuf> {
    let paths = std::env::var_os("PZ_TEST_NVRTC").unwrap_or_default();
    std::env::split_paths(&paths).filter(|path| path.is_absolute()).collect()
}

/// The compiler among [`other_versions`] with this version, such as "12.4" or "13", for GPUs of this capability.
fn of_version(version: &str, capability: (i32, i32)) -> Option<Compiler> {
    let of = |path| Compiler::among(&[path], i32::MAX, capability);
    let is_it = |compiler: &Result<Compiler, _>| {
        compiler
            .as_ref()
            .is_ok_and(|found| format!("{found}.").starts_with(&format!("NVRTC {version}.")))
    };
    let found = other_versions().into_iter().map(of).find(is_it);
    let none = || DeviceError::Absent(format!("PZ_TEST_NVRTC names no NVRTC {version}"));
    or_skip(found.unwrap_or_else(|| Err(none())))
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
    #[cfg(feature = "modules")]
    for (kernel, purpose) in crate::gpu::tests::module::kernels() {
        add(kernel, purpose.entry(), crate::module::translate::THREADS, &[]);
    }
    add(&TEST_DEVICE, "count_up", 1024, &[("ADD", 3)]);
    add(&TEST_TURNS, "turns", 32, &[]);
    add(&TEST_TEAM, "team_functions", threads, &[]);
    for (kernel, entries) in door_kernels() {
        entries.iter().for_each(|entry| add(kernel, entry, 64, &[]));
    }
    programs
}

/// The kernels that send requests through a door, and their entry points.
fn door_kernels() -> [(&'static Kernel, &'static [&'static str]); 4] {
    [
        (&TEST_DOOR, &["open_and_read", "stream", "write", "die"]),
        (&DOOR_MEASURE, &["one_by_one", "many", "idle"]),
        (&DOOR_SEARCH, &["search"]),
        (&DOOR_RING, &["ring"]),
    ]
}

/// The text that callers put before their own kernels compiles by itself in CUDA C++.
#[test]
fn the_kernels_side_of_a_door_needs_no_other_text() {
    let Some(compiler) = compiler((9, 0)) else { return };
    let kernel = "extern \"C\" __global__ void ask(unsigned char *a, unsigned char *b, unsigned char *c, unsigned char \
        *d, unsigned *r) {\n\
        Door door = door_of(a, b, c, d);\n\
        unsigned handle = door_read(door, 0, 0, 4096);\n\
        if (door_is_handle(handle)) { r[0] = door_status(door, handle); door_close(door, handle); }\n}\n";
    let source = format!("{}{kernel}", crate::door::KERNEL_SOURCE);
    let compiled = compiler.compile("door", &source, &["--gpu-architecture=sm_90".into()]);
    assert!(compiled.is_ok(), "{compiled:?}");
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

/// The most workgroup memory that CUDA reserves for itself, in bytes. It counts toward no limit.
const RESERVED: u64 = 1024;

/// Every program whose number is `wanted` compiles, and takes the workgroup memory that its cost states at most.
fn all_compile(compiler: Option<Compiler>, teams: Teams, wanted: impl Fn(usize) -> bool) {
    let Some(compiler) = compiler else { return };
    let limits = limits(Api::Cuda, teams);
    let programs = programs(&compiler, &limits);
    assert!(programs.len() > 80, "{} programs", programs.len());
    let programs: Vec<_> = (0..)
        .zip(programs)
        .filter_map(|(number, program)| wanted(number).then_some(program))
        .collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Program { kernel, entry, source, options } = program;
            let complaint = match compiler.compile(kernel.stem, source, options) {
                Ok(compiled) => {
                    let takes = workgroup_memory(&compiled, entry);
                    let most = kernel.cost().unwrap().local_mem;
                    let is_too_much = takes > u64::from(most) + RESERVED;
                    is_too_much.then(|| format!("takes {takes} bytes, and states {most}"))
                }
                Err(error) => Some(error.to_string()),
            };
            let complaint = complaint.map(|text| format!("{} of {}: {text}", entry, kernel.stem));
            wrong.lock().extend(complaint);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} programs compiled by {compiler}", programs.len());
}

// Each version of the compiler for one kind of GPU. The other kinds between share the programs: what one of them cannot
// compile, it would hardly be alone with.

#[test]
fn every_program_compiles_for_older_gpus() {
    all_compile(compiler((7, 5)), Teams::Local, |_| true);
}

#[test]
fn every_program_compiles_for_hopper_with_an_old_compiler() {
    all_compile(of_version("12.4", (9, 0)), Teams::Ptx, |_| true);
}

#[test]
fn every_program_compiles_for_blackwell_with_a_new_compiler() {
    all_compile(of_version("13", (10, 0)), Teams::Ptx, |_| true);
}

#[test]
fn every_program_compiles_for_some_ampere_or_ada() {
    for (third, capability) in [(8, 0), (8, 6), (8, 9)].into_iter().enumerate() {
        all_compile(compiler(capability), Teams::Ptx, |number| number % 3 == third);
    }
}

/// The first that compiles for the GPU is taken, wherever it stands among the others.
#[test]
fn the_compiler_is_chosen_for_the_gpu() {
    let [Some(old), Some(new)] = ["12.4", "13"].map(|version| of_version(version, (9, 0))) else {
        return;
    };
    let (old, new) = (old.to_string(), new.to_string());
    let paths = other_versions();
    let version_of = |path: &PathBuf| {
        Compiler::among(std::slice::from_ref(path), i32::MAX, (9, 0)).unwrap().to_string()
    };
    let path_of =
        |version: &str| paths.iter().find(|path| version_of(path) == version).unwrap().clone();
    let (old_path, new_path) = (path_of(&old), path_of(&new));
    let folder = std::env::temp_dir().join(format!("pz-test-nvrtc-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // Not even a library.
    let eleven = folder.join("libnvrtc.so.11.2");
    std::fs::write(&eleven, "").unwrap();
    let nowhere = folder.join("libnvrtc.so.12");
    let among = |paths: &[&PathBuf], newest: i32, capability| {
        let paths: Vec<_> = paths.iter().map(|path| (*path).clone()).collect();
        Compiler::among(&paths, newest * 1000 + 80, capability)
    };
    let all = [&nowhere, &eleven, &new_path, &old_path];
    for (paths, newest, capability, expected) in [
        (&all[..], 13, (9, 0), &new),
        // Version 13 dropped V100, the driver of CUDA 12 loads nothing of it, and version 12.4 does not know Blackwell.
        (&all, 13, (7, 0), &old),
        (&all, 12, (9, 0), &old),
        (&[&old_path, &new_path], 13, (10, 0), &new),
        (&[&old_path, &new_path], 13, (9, 0), &old),
        // PTX of the newest kind of GPU that it knows.
        (&[&old_path], 12, (10, 0), &old),
    ] {
        let found = among(paths, newest, capability).unwrap();
        assert_eq!(&found.to_string(), expected, "{paths:?} for {capability:?}");
    }
    for (paths, capability, expected) in [
        (
            &[&eleven][..],
            (9, 0),
            "libnvrtc.so.11.2: is version 11, and the kernels need version 12 or later",
        ),
        (&[&nowhere, &new_path], (7, 0), "does not compile for GPUs of compute capability 7.0"),
    ] {
        let error = among(paths, 13, capability).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn opened() -> Vec<CudaDevice> {
    match super::devices() {
        Ok(found) => found.iter().map(|found| found.open().unwrap()).collect(),
        Err((error, _)) => {
            eprintln!("\n*** SKIPPED on CUDA: {error} ***\n");
            Vec::new()
        }
    }
}

/// One turn of the kernel's loop, from 0.
const TURNED: u32 = 1_013_904_223;

#[test]
fn what_the_caller_has_made_is_used_in_place() {
    for theirs in opened() {
        let ours = CudaDevice::with_ordinal(0).unwrap();
        codes_between_callers_buffers(&theirs, ours, |buffer| NativeBuffer::Cuda {
            address: theirs.exported(buffer).unwrap(),
            bytes: theirs.buffer_bytes(buffer).unwrap(),
        });
    }
}

#[test]
fn buffers_that_are_unfit_are_refused() {
    for device in opened() {
        let buffer = device.allocate(256).unwrap();
        let at = device.exported(buffer).unwrap();
        let on_host = [0u128; 4];
        for (address, bytes) in
            [(at + 8, 128), (at, 0), (at, 6), (0, 128), (on_host.as_ptr() as u64, 64)]
        {
            // SAFETY: nothing uses the buffer.
            let imported = unsafe { device.import(NativeBuffer::Cuda { address, bytes }) };
            assert!(matches!(imported, Err(DeviceError::Unsupported(_))), "{imported:?}");
        }
        // SAFETY: as above.
        let imported = unsafe { device.import(NativeBuffer::OpenCl(std::ptr::null_mut())) };
        assert!(matches!(imported, Err(DeviceError::Unsupported(_))), "{imported:?}");
        // Part of a buffer is a buffer.
        // SAFETY: only one of the two buffers is used at a time.
        let part = unsafe { device.import(NativeBuffer::Cuda { address: at + 128, bytes: 128 }) };
        let part = part.unwrap();
        let mut queue = device.queue().unwrap();
        queue.clear(buffer, 0, 256).unwrap();
        turns(&mut *queue, part, [1, 32]).unwrap();
        let mut back = [1u32; 64];
        queue.read(buffer, 0, bytemuck::cast_slice_mut(&mut back)).unwrap();
        assert!(back[..32] == [0; 32] && back[32..] == [TURNED; 32], "{back:?}");
        assert!(queue.read(part, 128, &mut [0; 4]).is_err());
        drop(queue);
        device.free(part);
        assert_eq!((device.exported(part), device.buffer_bytes(part)), (None, None));
        assert_eq!(device.exported(buffer), Some(at));
        device.free(buffer);
    }
}

/// Two queues in the same stream run their commands in the order of the calls.
#[test]
fn queues_work_in_the_callers_stream() {
    for device in opened() {
        let buffer = device.allocate(128).unwrap();
        // SAFETY: null is the default stream of the context.
        let in_stream = unsafe { device.on_stream(std::ptr::null_mut()) };
        let (mut one, mut other) = (in_stream.queue().unwrap(), in_stream.queue().unwrap());
        one.clear(buffer, 0, 128).unwrap();
        turns(&mut *other, buffer, [5, 32]).unwrap();
        one.clear(buffer, 0, 128).unwrap();
        turns(&mut *other, buffer, [1, 32]).unwrap();
        let mut back = [0u32; 32];
        one.read(buffer, 0, bytemuck::cast_slice_mut(&mut back)).unwrap();
        assert_eq!(back, [TURNED; 32]);
        other.finish().unwrap();
        drop((one, other));
        drop(in_stream);
        device.free(buffer);
    }
}

/// Without the check, the driver would read past the parameters.
#[test]
fn a_dispatch_with_other_parameters_is_refused() {
    for device in opened() {
        let buffer = device.allocate(128).unwrap();
        let mut queue = device.queue().unwrap();
        let work = Dispatch {
            kernel: &TEST_TURNS,
            entry: "turns",
            defines: &[],
            buffers: &[buffer],
            args: &[1],
            groups: 1,
            threads: 32,
        };
        let refused = queue.dispatch(&work);
        // Older drivers do not report a kernel's parameters; they must not run this.
        if let Ok(()) = refused {
            panic!("a kernel ran without its last parameter");
        }
        turns(&mut *queue, buffer, [1, 32]).unwrap();
        queue.finish().unwrap();
        drop(queue);
        device.free(buffer);
    }
}

#[test]
fn programs_are_kept() {
    let folder = std::env::temp_dir().join(format!("pz-test-cuda-{}", std::process::id()));
    let files = || files_in(&folder);
    let Ok(found) = super::devices() else { return };
    for found in &found {
        let run = || {
            let cache = Cache::in_folder(folder.clone());
            let device = CudaDevice::open_with(found, cache).unwrap();
            let buffer = device.allocate(128).unwrap();
            let mut queue = device.queue().unwrap();
            queue.clear(buffer, 0, 128).unwrap();
            turns(&mut *queue, buffer, [1, 32]).unwrap();
            let mut back = [0u32; 32];
            queue.read(buffer, 0, bytemuck::cast_slice_mut(&mut back)).unwrap();
            assert_eq!(back, [TURNED; 32]);
        };
        run();
        let [file] = &files()[..] else { panic!("{:?}", files()) };
        let kept = std::fs::read(file).unwrap();
        run();
        assert_eq!(std::fs::read(file).unwrap(), kept);
        // If the driver refuses a cached program, it is compiled anew.
        let nonsense = b"no program, and long enough for a driver to look for a header in it, which it does not find";
        let crc = crc32c::crc32c(nonsense).to_le_bytes();
        std::fs::write(file, [&kept[..32], &crc, nonsense].concat()).unwrap();
        run();
        assert_eq!(std::fs::read(file).unwrap(), kept);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn limits_make_sense() {
    assert_eq!((version_text(12_080), version_text(13_000)), ("12.8".into(), "13.0".into()));
    for device in opened() {
        let limits = device.limits();
        assert!(limits.memory > limits.max_buffer && limits.max_buffer > 1 << 20, "{limits:?}");
        assert!(limits.max_workgroup >= 1024 && limits.local_memory >= 48 << 10, "{limits:?}");
        assert!(limits.memory_source.is_free() && limits.compute_units > 0, "{limits:?}");
        let free = device.free_memory().unwrap();
        let buffer = device.allocate(256 << 20).unwrap();
        // Other programs may free memory meanwhile.
        println!("{free} bytes are free, and then {:?}", device.free_memory());
        device.free(buffer);
    }
}
