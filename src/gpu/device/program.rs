//! Compilation, as far as the backends share it: a kernel file is compiled for a device with a set of constants.

#[cfg(any(feature = "cuda", feature = "opencl"))]
use std::collections::HashMap;
#[cfg(any(feature = "cuda", feature = "opencl"))]
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(any(feature = "cuda", feature = "opencl"))]
use std::sync::{Arc, OnceLock};
use std::thread;

use super::{DeviceError, Kind, Limits, background};
use crate::gpu::model::kernel::Kernel;
use crate::gpu::model::plan::{Plan, Run};
use crate::sync::Mutex;

/// How many programs are compiled at a time.
const COMPILERS: usize = 4;

/// The inputs of a program's compilation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::gpu) struct ProgramKey {
    stem: &'static str,
    threads: u32,
    defines: Vec<(&'static str, u32)>,
}

impl ProgramKey {
    pub fn new(kernel: &Kernel, threads: u32, defines: &[(&'static str, u32)]) -> Self {
        Self { stem: kernel.stem, threads, defines: defines.to_vec() }
    }

    pub fn of_run(run: &Run) -> Self {
        Self::new(run.kernel, run.threads, &run.defines)
    }
}

/// The compiled programs of a device, by the inputs of their compilation. A program that does not compile is kept as
/// its error, so it is not compiled again.
#[cfg(any(feature = "cuda", feature = "opencl"))]
#[derive(Debug)]
pub(in crate::gpu) struct Programs<K, P>(Mutex<HashMap<K, Program<P>>>);

#[cfg(any(feature = "cuda", feature = "opencl"))]
type Program<P> = Arc<OnceLock<Result<Arc<P>, DeviceError>>>;

#[cfg(any(feature = "cuda", feature = "opencl"))]
impl<K, P> Default for Programs<K, P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[cfg(any(feature = "cuda", feature = "opencl"))]
impl<K: Eq + Hash, P> Programs<K, P> {
    /// The program of `key`. Calls `build` the first time; other programs can be built at the same time.
    ///
    /// # Errors
    /// The error of `build`.
    pub fn get(
        &self,
        key: K,
        build: impl FnOnce() -> Result<P, DeviceError>,
    ) -> Result<Arc<P>, DeviceError> {
        let mut programs = self.0.lock();
        let program = Arc::clone(programs.entry(key).or_default());
        drop(programs);
        program.get_or_init(|| build().map(Arc::new)).clone()
    }

    /// Whether the program of `key` is compiled.
    #[cfg(feature = "cuda")]
    pub fn has(&self, key: &K) -> bool {
        let programs = self.0.lock();
        programs.get(key).and_then(|program| program.get()).is_some_and(Result::is_ok)
    }
}

/// Checks that `limits` permit workgroups of `threads` work items for `kernel`.
///
/// # Errors
/// Fails if they do not.
pub(in crate::gpu) fn check_workgroup(
    limits: &Limits,
    kernel: &Kernel,
    threads: u32,
) -> Result<(), DeviceError> {
    if threads <= limits.max_workgroup {
        return Ok(());
    }
    Err(DeviceError::Unsupported(format!(
        "kernel {} has workgroups of {threads} work items, and {} has at most {}",
        kernel.stem, limits.name, limits.max_workgroup,
    )))
}

/// Checks that `limits` permit the workgroup memory that an entry point `takes`, in bytes.
///
/// # Errors
/// Fails if they do not.
#[cfg(any(feature = "cuda", feature = "opencl"))]
pub(in crate::gpu) fn check_memory(
    limits: &Limits,
    (kernel, entry): (&Kernel, &str),
    takes: u64,
) -> Result<(), DeviceError> {
    if takes <= u64::from(limits.local_memory) {
        return Ok(());
    }
    Err(DeviceError::Unsupported(format!(
        "kernel {} ({entry}) takes {takes} bytes of workgroup memory, and {} has {}",
        kernel.stem, limits.name, limits.local_memory,
    )))
}

/// The error for an entry point that needs workgroups of `threads` work items, on a device that permits `most`.
#[cfg(any(feature = "cuda", feature = "opencl"))]
pub(in crate::gpu) fn too_large(
    limits: &Limits,
    (kernel, entry): (&Kernel, &str),
    threads: u32,
    most: u64,
) -> DeviceError {
    DeviceError::Unsupported(format!(
        "kernel {} ({entry}) has workgroups of {threads} work items, and {} can run at most {most} of them",
        kernel.stem, limits.name,
    ))
}

/// Calls `compile` for the runs of `plans`, several at a time, and once for all runs with the same `key`.
///
/// # Errors
/// One of the errors of `compile`. The other programs are compiled all the same, unless the process ends.
pub(in crate::gpu) fn prepare<K: PartialEq>(
    limits: &Limits,
    plans: &[Plan],
    key: impl Fn(&Run) -> K,
    compile: impl Fn(&Run) -> Result<(), DeviceError> + Sync,
) -> Result<(), DeviceError> {
    let (mut keys, mut runs) = (Vec::new(), Vec::new());
    for run in plans.iter().flat_map(Plan::runs) {
        let key = key(run);
        if !keys.contains(&key) {
            keys.push(key);
            runs.push(run);
        }
    }
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let work = || {
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed))
            && !background::is_ending()
        {
            if let Err(error) = compile(run) {
                *failure.lock() = Some(error);
            }
        }
    };
    // Compilers of software devices already use the whole processor, and not all of them can run side by side.
    let threads = if limits.kind == Kind::Software { 1 } else { COMPILERS };
    thread::scope(|scope| {
        for _ in 1..threads.min(runs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let failure = failure.into_inner();
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::model::plan::{Shape, Step};
    use crate::gpu::tests::testing::{counting, made_up};

    #[test]
    fn each_program_is_compiled_once_and_a_failure_is_told() {
        let mut plan = Plan::new(Shape::new(1, 1));
        plan.steps.extend((0..30).map(|i| Step::Run(counting(i % 10))));
        for kind in [Kind::Discrete, Kind::Software] {
            let limits = Limits { kind, ..made_up() };
            let compiled = Mutex::new(Vec::new());
            let compile = |run: &Run| {
                compiled.lock().push(run.threads);
                if run.threads == 3 { Err(DeviceError::Lost) } else { Ok(()) }
            };
            let plans = [plan.clone(), plan.clone()];
            let prepared = prepare(&limits, &plans, ProgramKey::of_run, compile);
            assert_eq!(prepared, Err(DeviceError::Lost));
            let mut compiled = compiled.into_inner();
            compiled.sort_unstable();
            assert_eq!(compiled, (0..10).collect::<Vec<_>>());
            assert_eq!(prepare(&limits, &plans, ProgramKey::of_run, |_| Ok(())), Ok(()));
        }
        assert_eq!(prepare(&made_up(), &[], ProgramKey::of_run, |_| panic!()), Ok(()));
    }
}
