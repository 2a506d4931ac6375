//! Compiles kernels, once per device.

use std::ffi::CString;

use opencl3::kernel::{
    CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_WORK_GROUP_SIZE,
    create_kernel, get_kernel_work_group_info, release_kernel,
};
use opencl3::program::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BUILD_LOG, build_program, create_program_with_binary,
    create_program_with_source, get_program_build_info, get_program_info, release_program,
};

use super::driver::ClDriver;
use super::handle::Handle;
use super::{failure, failure_for};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::in_order::Driver;
use crate::gpu::device::program::{
    ProgramKey, Programs, check_memory, check_workgroup, prepare, too_large,
};
use crate::gpu::device::{DEADLINE, DeviceError, Dispatch, Teams, program_cache};
use crate::gpu::model::kernel::{Kernel, max_registers};
use crate::gpu::model::plan::{Plan, Run};

/// The programs of a device.
#[derive(Debug, Default)]
pub(super) struct ClPrograms(Programs<ProgramKey, Handle>);

impl ClPrograms {
    /// Makes a kernel object, owned by the caller, for the program and entry point that `work` names.
    pub fn kernel(&self, driver: &ClDriver, work: &Dispatch<'_>) -> Result<Handle, DeviceError> {
        let limits = &driver.limits;
        let stem = work.kernel.stem;
        check_workgroup(limits, work.kernel, work.threads)?;
        let key = ProgramKey::new(work.kernel, work.threads, work.defines);
        let program = self.0.get(key, || build(driver, work.kernel, work.threads, work.defines))?;
        let Ok(entry) = CString::new(work.entry) else {
            return Err(DeviceError::Failed(format!("{:?} is no entry point", work.entry)));
        };
        let kernel = create_kernel(program.raw(), &entry).map_err(|code| {
            failure_for(&format!("clCreateKernel({stem}, {})", work.entry), code, 0)
        })?;
        // SAFETY: the kernel has just been made.
        let kernel = unsafe { Handle::owning(kernel, release_kernel) };
        let device = driver.device.id();
        let info = |what| {
            get_kernel_work_group_info(kernel.raw(), device, what)
                .map_err(|code| failure("clGetKernelWorkGroupInfo", code))
        };
        let takes = info(CL_KERNEL_LOCAL_MEM_SIZE)?.to_ulong();
        check_memory(limits, (work.kernel, work.entry), takes)?;
        // Registers and workgroup memory may lower the limit for this kernel.
        let reported = info(CL_KERNEL_WORK_GROUP_SIZE)?.to_size();
        let compiled = info(CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?.to_vec_size();
        if !runs(work.threads as usize, reported, &compiled) {
            let entry = (work.kernel, work.entry);
            return Err(too_large(limits, entry, work.threads, reported as u64));
        }
        Ok(kernel)
    }
}

/// Whether a kernel runs in workgroups of `threads` work items. `reported` is the driver's limit, and `compiled` the
/// workgroup size that the kernel was compiled for, by dimension. NVIDIA's driver reports 256 for every kernel, yet
/// runs kernels compiled for more.
fn runs(threads: usize, reported: usize, compiled: &[usize]) -> bool {
    threads <= reported || compiled == [threads, 1, 1]
}

impl ClPrograms {
    /// Compiles the programs of `plans` that are not compiled yet, several at a time.
    ///
    /// # Errors
    /// One of the errors, if some programs do not compile.
    pub fn prepare(&self, driver: &ClDriver, plans: &[Plan]) -> Result<(), DeviceError> {
        prepare(&driver.limits, plans, ProgramKey::of_run, |run: &Run| {
            let build = || build(driver, run.kernel, run.threads, &run.defines);
            self.0.get(ProgramKey::of_run(run), build).map(|_| ())
        })
    }
}

fn build(
    driver: &ClDriver,
    kernel: &'static Kernel,
    threads: u32,
    defines: &[(&'static str, u32)],
) -> Result<Handle, DeviceError> {
    let source = kernel.source(&driver.limits, threads, defines);
    let mut options = String::from("-cl-std=CL1.2");
    if let (Some(most), Teams::Ptx) = (max_registers(defines), driver.limits.teams) {
        options += &format!(" -cl-nv-maxrregcount={most}");
    }
    let key = program_cache::Key::new(&driver.limits, &source, &options);
    let options = CString::new(options).unwrap_or_default();
    let device = driver.device.id();
    if let Some(program) =
        driver.cache.load(key).and_then(|binary| loaded(driver, &binary, &options))
    {
        return Ok(program);
    }
    let program = create_program_with_source(driver.context.raw(), &[&source])
        .map_err(|code| failure("clCreateProgramWithSource", code))?;
    // SAFETY: the program has just been made.
    let program = unsafe { Handle::owning(program, release_program) };
    match build_program(program.raw(), &[device], &options, None, std::ptr::null_mut()) {
        Ok(()) => {
            if driver.cache.is_there()
                && let Some(binary) = compiled(driver, &program)
            {
                driver.cache.save(key, &binary);
            }
            Ok(program)
        }
        Err(code) => {
            let log = get_program_build_info(program.raw(), device, CL_PROGRAM_BUILD_LOG);
            let log = log.map(String::from).unwrap_or_default();
            let reason = failure("clBuildProgram", code);
            Err(DeviceError::Build {
                kernel: kernel.stem,
                log: format!("{reason}\n{}", log.trim_matches(['\0', '\n', ' '])),
            })
        }
    }
}

/// The binary of a program; `None` if the driver does not tell.
fn compiled(driver: &ClDriver, program: &Handle) -> Option<Vec<u8>> {
    let _turn = driver.turn(Deadline::after(DEADLINE, &driver.limits)).ok()?;
    let binaries = get_program_info(program.raw(), CL_PROGRAM_BINARIES).ok()?;
    let [binary] = <[Vec<u8>; 1]>::try_from(Vec::<Vec<u8>>::from(binaries)).ok()?;
    Some(binary)
}

/// Loads a program from its binary; `None` if the driver rejects it.
fn loaded(driver: &ClDriver, binary: &[u8], options: &CString) -> Option<Handle> {
    let device = driver.device.id();
    // SAFETY: the context is valid, and the device belongs to it. The call treats the list of slices as a list of
    // pointers and reads one per device; a slice begins with its pointer. The driver trusts the binary. It is one
    // that the same device and driver gave to an earlier run by this user: the cache reads only files that this user
    // alone can have written, their names contain a hash of device and driver, and a checksum detects damage.
    let program =
        unsafe { create_program_with_binary(driver.context.raw(), &[device], &[binary]) }.ok()?;
    // SAFETY: the program has just been made.
    let program = unsafe { Handle::owning(program, release_program) };
    build_program(program.raw(), &[device], options, None, std::ptr::null_mut()).ok()?;
    Some(program)
}

/// Bytes of workgroup memory that the driver's compiler reserves for each of these entry points of `source`.
#[cfg(all(test, feature = "webgpu"))]
pub(super) fn workgroup_memory(
    driver: &ClDriver,
    source: &str,
    entries: &[&str],
) -> Result<Vec<u64>, DeviceError> {
    let program = create_program_with_source(driver.context.raw(), &[source])
        .map_err(|code| failure("clCreateProgramWithSource", code))?;
    // SAFETY: the program has just been made.
    let program = unsafe { Handle::owning(program, release_program) };
    let device = driver.device.id();
    // Without optimisation it compiles faster, and everything that the source declares counts.
    let options = CString::new("-cl-std=CL1.2 -cl-opt-disable").unwrap_or_default();
    build_program(program.raw(), &[device], &options, None, std::ptr::null_mut())
        .map_err(|code| failure("clBuildProgram", code))?;
    let of_entry = |entry: &&str| {
        let kernel = create_kernel(program.raw(), &CString::new(*entry).unwrap_or_default())
            .map_err(|code| failure("clCreateKernel", code))?;
        // SAFETY: it has just been made.
        let kernel = unsafe { Handle::owning(kernel, release_kernel) };
        get_kernel_work_group_info(kernel.raw(), device, CL_KERNEL_LOCAL_MEM_SIZE)
            .map(|bytes| bytes.to_ulong())
            .map_err(|code| failure("clGetKernelWorkGroupInfo", code))
    };
    entries.iter().map(of_entry).collect()
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn what_a_kernel_is_compiled_for_runs() {
        assert!(runs(1024, 256, &[1024, 1, 1]));
        assert!(runs(256, 256, &[0, 0, 0]) && runs(64, 256, &[64, 1, 1]) && runs(32, 1024, &[]));
        assert!(!runs(512, 256, &[0, 0, 0]) && !runs(512, 256, &[1024, 1, 1]));
        assert!(!runs(512, 256, &[32, 16, 1]) && !runs(1, 0, &[]));
    }
}
