//! Compiles kernels, once per device.

use std::sync::Arc;

use super::api::{FUNCTION_MAX_THREADS, FUNCTION_SHARED_MEMORY};
use super::driver::CudaDriver;
use super::handle::Function;
use super::nvrtc::source_of;
use crate::gpu::device::program::{
    ProgramKey, Programs, check_memory, check_workgroup, prepare, too_large,
};
use crate::gpu::device::{DeviceError, Dispatch, program_cache};
use crate::gpu::model::kernel::Kernel;
use crate::gpu::model::plan::{Plan, Run};

/// The programs of a device, each with one entry point.
#[derive(Default)]
pub(super) struct CudaPrograms(Programs<(ProgramKey, &'static str), Function>);

/// The inputs of a program's compilation.
struct Wanted<'d> {
    kernel: &'static Kernel,
    entry: &'static str,
    threads: u32,
    defines: &'d [(&'static str, u32)],
}

impl Wanted<'_> {
    fn key(&self) -> (ProgramKey, &'static str) {
        (ProgramKey::new(self.kernel, self.threads, self.defines), self.entry)
    }
}

impl CudaPrograms {
    /// The entry point that `work` names.
    pub fn function(
        &self,
        driver: &CudaDriver,
        work: &Dispatch<'_>,
    ) -> Result<Arc<Function>, DeviceError> {
        let Dispatch { kernel, entry, threads, defines, .. } = *work;
        let limits = &driver.limits;
        check_workgroup(limits, kernel, threads)?;
        let function = self.get(driver, &Wanted { kernel, entry, threads, defines })?;
        let takes = function.attribute(FUNCTION_SHARED_MEMORY)?;
        check_memory(limits, (kernel, entry), takes as u64)?;
        // Registers may lower the limit for this kernel.
        let most = function.attribute(FUNCTION_MAX_THREADS)?;
        if i64::from(threads) > i64::from(most) {
            return Err(too_large(limits, (kernel, entry), threads, most as u64));
        }
        // The driver reads as many parameters as the kernel has, however many we pass.
        let given = work.buffers.iter().map(|_| 8).chain(work.args.iter().map(|_| 4));
        match function.parameters() {
            Some(sizes) if !sizes.iter().copied().eq(given) => Err(DeviceError::Failed(format!(
                "kernel {} ({entry}) has parameters of {sizes:?} bytes, and is given {} buffers and {} numbers",
                kernel.stem,
                work.buffers.len(),
                work.args.len(),
            ))),
            _ => Ok(function),
        }
    }

    fn get(&self, driver: &CudaDriver, wanted: &Wanted<'_>) -> Result<Arc<Function>, DeviceError> {
        self.0.get(wanted.key(), || build(driver, wanted))
    }

    /// Whether the programs of `plan` are loaded.
    pub fn has(&self, plan: &Plan) -> bool {
        plan.runs().all(|run| self.0.has(&(ProgramKey::of_run(run), run.entry)))
    }

    /// Compiles and loads the programs of `plans`, several at a time.
    ///
    /// # Errors
    /// One of the errors, if some programs do not compile.
    pub fn prepare(&self, driver: &CudaDriver, plans: &[Plan]) -> Result<(), DeviceError> {
        let wanted = |run: &Run| (ProgramKey::of_run(run), run.entry);
        prepare(&driver.limits, plans, wanted, |run: &Run| {
            let Run { kernel, entry, threads, ref defines, .. } = *run;
            self.get(driver, &Wanted { kernel, entry, threads, defines }).map(|_| ())
        })
    }
}

fn build(driver: &CudaDriver, wanted: &Wanted<'_>) -> Result<Function, DeviceError> {
    let &Wanted { kernel, entry, threads, defines } = wanted;
    let source = source_of(kernel, entry, &driver.limits, threads, defines)?;
    let options = driver.compiler.options(&driver.limits, defines);
    let key = program_cache::Key::new(&driver.limits, &source, &options.join(" "));
    let load = |program: &[u8]| {
        // SAFETY: the compiler has made the program, now or for an earlier run by this user: the cache reads only files
        // that this user alone can have written, their names contain a hash of source, device and compiler, and a
        // checksum detects damage. The compiler ends PTX with a 0.
        unsafe { Function::load(&driver.context, program, entry) }
    };
    if let Some(function) = driver.cache.load(key).and_then(|program| load(&program).ok()) {
        return Ok(function);
    }
    let program = driver.compiler.compile(kernel.stem, &source, &options)?;
    let function = load(&program)?;
    driver.cache.save(key, &program);
    Ok(function)
}
