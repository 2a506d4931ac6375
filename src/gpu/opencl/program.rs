//! Compiled kernels, each compiled once for a device.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use opencl3::kernel::{
    CL_KERNEL_WORK_GROUP_SIZE, create_kernel, get_kernel_work_group_info, release_kernel,
};
use opencl3::program::{
    CL_PROGRAM_BUILD_LOG, build_program, create_program_with_source, get_program_build_info,
    release_program,
};

use super::super::device::{DeviceError, Dispatch, Teams};
use super::device::Shared;
use super::failure;
use super::handle::Handle;

/// The constant of a dispatch that limits the registers of a work item on NVIDIA's compiler.
const MAX_REGISTERS: &str = "MAX_REGISTERS";

/// What a program is compiled from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    stem: &'static str,
    threads: u32,
    defines: Vec<(&'static str, u32)>,
}

impl Key {
    pub fn of(work: &Dispatch<'_>) -> Self {
        Self { stem: work.kernel.stem, threads: work.threads, defines: work.defines.to_vec() }
    }
}

/// A program, or why there is none: what does not compile is not compiled again.
type Program = Arc<OnceLock<Result<Handle, DeviceError>>>;

/// The programs of a device.
#[derive(Debug, Default)]
pub(super) struct Programs(Mutex<HashMap<Key, Program>>);

impl Programs {
    /// A kernel object of the program and entry point that `work` names. It is the caller's alone.
    pub fn kernel(&self, shared: &Shared, work: &Dispatch<'_>) -> Result<Handle, DeviceError> {
        let limits = &shared.limits;
        let stem = work.kernel.stem;
        if work.threads > limits.max_workgroup {
            return Err(DeviceError::Unsupported(format!(
                "kernel {stem} has workgroups of {} work items, and {} has at most {}",
                work.threads, limits.name, limits.max_workgroup,
            )));
        }
        let cost = work.kernel.cost().map_err(|error| DeviceError::Failed(error.to_string()))?;
        if cost.local_mem > limits.local_memory {
            return Err(DeviceError::Unsupported(format!(
                "kernel {stem} takes {} bytes of workgroup memory, and {} has {}",
                cost.local_mem, limits.name, limits.local_memory,
            )));
        }
        let program = {
            let mut programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(programs.entry(Key::of(work)).or_default())
        };
        let program = program.get_or_init(|| build(shared, work)).as_ref().map_err(Clone::clone)?;
        let Ok(entry) = CString::new(work.entry) else {
            return Err(DeviceError::Failed(format!("{:?} is no entry point", work.entry)));
        };
        let kernel = create_kernel(program.raw(), &entry)
            .map_err(|code| failure(&format!("clCreateKernel({stem}, {})", work.entry), code))?;
        // SAFETY: it has just been made.
        let kernel = unsafe { Handle::owning(kernel, release_kernel) };
        // Registers and workgroup memory may allow less than the device does in general.
        let most =
            get_kernel_work_group_info(kernel.raw(), shared.device.id(), CL_KERNEL_WORK_GROUP_SIZE)
                .map_err(|code| failure("clGetKernelWorkGroupInfo", code))?
                .to_size();
        if work.threads as usize > most {
            return Err(DeviceError::Unsupported(format!(
                "kernel {stem} ({}) has workgroups of {} work items, and {} can run at most {most} of them",
                work.entry, work.threads, limits.name,
            )));
        }
        Ok(kernel)
    }
}

fn build(shared: &Shared, work: &Dispatch<'_>) -> Result<Handle, DeviceError> {
    let source = work.kernel.source(&shared.limits, work.threads, work.defines);
    let program = create_program_with_source(shared.context.raw(), &[&source])
        .map_err(|code| failure("clCreateProgramWithSource", code))?;
    // SAFETY: it has just been made.
    let program = unsafe { Handle::owning(program, release_program) };
    let mut options = String::from("-cl-std=CL1.2");
    let registers = work.defines.iter().find(|(name, _)| *name == MAX_REGISTERS);
    if let (Some((_, most)), Teams::Ptx) = (registers, shared.limits.teams) {
        options += &format!(" -cl-nv-maxrregcount={most}");
    }
    let options = CString::new(options).unwrap_or_default();
    let device = shared.device.id();
    match build_program(program.raw(), &[device], &options, None, std::ptr::null_mut()) {
        Ok(()) => Ok(program),
        Err(code) => {
            let log = get_program_build_info(program.raw(), device, CL_PROGRAM_BUILD_LOG);
            let log = log.map(String::from).unwrap_or_default();
            let reason = failure("clBuildProgram", code);
            Err(DeviceError::Build {
                kernel: work.kernel.stem,
                log: format!("{reason}\n{}", log.trim_matches(['\0', '\n', ' '])),
            })
        }
    }
}
