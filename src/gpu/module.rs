//! Runs modules on devices: see [`crate::module`].
//!
//! At run time, an entry of a module becomes a kernel in both languages, with a cost derived from the entry. From then
//! on it is like the kernels in `kernels/`: its cost gives the size of each buffer, and a plan names the buffers.

use std::collections::HashMap;
use std::fmt;

use sha2::{Digest as _, Sha256};

use super::device::run::{PlanMemory, submit};
use super::device::{Device, DeviceError};
use super::model::cost::CostError;
use super::model::kernel::Kernel;
use super::model::plan::{Plan, Run, Shape, Step};
use crate::module::limits::PARAMETERS;
use crate::module::program::Program;
use crate::module::translate::{self, OpenClC, Purpose, Reach, THREADS, Wgsl};
use crate::module::{Entry, Trap, Windows};
use crate::sync::Lock;

/// Why a run on a device gave no results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunError {
    /// The trap of the first lane that has one, and its number.
    Trapped(u32, Trap),
    /// The device cannot run it, though the CPU can. The text says what the device lacks.
    Declined(String),
    /// The device failed.
    Device(DeviceError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trapped(lane, trap) => write!(f, "lane {lane}: {trap}"),
            Self::Declined(what) => f.write_str(what),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl From<DeviceError> for RunError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<CostError> for RunError {
    fn from(error: CostError) -> Self {
        Self::Device(DeviceError::Failed(error.to_string()))
    }
}

/// The most bytes of kernels that a process makes. Programs compiled from them stay on their devices, so the kernels
/// stay too.
const MAX_TEXT: usize = 64 << 20;

/// The most lanes of a run: their results take 12 bytes each.
const MAX_LANES: u32 = 1 << 28;

/// The kernels made so far, by their inputs.
#[derive(Default)]
struct Made {
    kernels: HashMap<String, &'static Kernel>,
    bytes: usize,
}

/// The kernel that runs `program` on windows of these sizes, made once.
///
/// # Errors
/// Declines once the process has made [`MAX_TEXT`] bytes of kernels.
pub(crate) fn kernel(program: &Program, reach: Reach) -> Result<&'static Kernel, RunError> {
    made(program, Purpose::Run, translate::cost(program, reach))
}

/// The kernel that undoes the filter `program` in blocks, in lanes of 2^`lane_log` bytes, made once.
///
/// # Errors
/// Declines once the process has made [`MAX_TEXT`] bytes of kernels.
pub(crate) fn filter_kernel(program: &Program, lane_log: u8) -> Result<&'static Kernel, RunError> {
    made(program, Purpose::Filter, translate::filter_cost(program, lane_log))
}

fn made(program: &Program, purpose: Purpose, cost: String) -> Result<&'static Kernel, RunError> {
    static MADE: Lock<Made> = Lock::new();
    let opencl = cost.clone() + &translate::kernel::<OpenClC>(program, purpose);
    let wgsl = cost + &translate::kernel::<Wgsl>(program, purpose);
    let digest = Sha256::new().chain_update(&opencl).chain_update(&wgsl).finalize();
    let name = digest
        .iter()
        .take(16)
        .fold(String::from("module/"), |name, byte| name + &format!("{byte:02x}"));
    let mut made = MADE.lock();
    if let Some(kernel) = made.kernels.get(&name) {
        return Ok(kernel);
    }
    let bytes = opencl.len() + wgsl.len();
    if made.bytes + bytes > MAX_TEXT {
        return Err(RunError::Declined(
            "too many modules were made kernels of in this process".into(),
        ));
    }
    made.bytes += bytes;
    let kernel = Kernel::of_texts(name.clone().leak(), opencl.leak(), wgsl.leak());
    let kernel: &'static Kernel = Box::leak(Box::new(kernel));
    made.kernels.insert(name, kernel);
    Ok(kernel)
}

/// The plan that runs `kernel` for `lanes` lanes.
pub(crate) fn plan(
    kernel: &'static Kernel,
    lanes: u32,
    reach: Reach,
    windows: &Windows<'_>,
    fuel: u32,
) -> Result<Plan, CostError> {
    const BUFFERS: [&str; 6] = [
        "module_arguments",
        "module_input",
        "module_output",
        "module_state",
        "module_pixels",
        "module_results",
    ];
    let mut plan = Plan::new(Shape::new(1, lanes));
    let buffers = BUFFERS.map(|name| plan.buffer(kernel, name));
    let buffers = buffers.into_iter().collect::<Result<_, _>>()?;
    let words = [reach.state / 4, reach.pixels / 4];
    let args = vec![
        lanes,
        reach.input,
        reach.output,
        words[0],
        words[1],
        windows.width,
        windows.time,
        fuel,
    ];
    plan.steps.push(Step::Run(Run {
        stage: "module",
        kernel,
        entry: Purpose::Run.entry(),
        defines: Vec::new(),
        buffers,
        args,
        groups: plan.shape.slot / THREADS,
        threads: THREADS,
    }));
    Ok(plan)
}

/// The bytes of the windows.
pub(crate) fn reach_of(windows: &Windows<'_>) -> Result<Reach, RunError> {
    let bytes = |len: usize| {
        let len = u32::try_from(len).ok().filter(|len| *len <= u32::MAX - 3);
        len.ok_or_else(|| RunError::Declined("a window has 4 GiB or more".into()))
    };
    Ok(Reach {
        input: bytes(windows.input.len())?,
        output: bytes(windows.output.len())?,
        state: bytes(4 * windows.state.len())?,
        pixels: bytes(4 * windows.pixels.len())?,
    })
}

/// Runs lanes 0 to `lanes` - 1 of `entry` on a device, each with these arguments and this fuel, in any order. Returns
/// their results, 0 for each if it has none.
///
/// # Errors
/// The trap of the first lane that has one, or why the device did not run it. The windows may have changed then.
pub fn run(
    device: &dyn Device,
    entry: &Entry,
    windows: &mut Windows<'_>,
    lanes: u32,
    arguments: &[u64],
    fuel: u32,
) -> Result<Vec<u64>, RunError> {
    if lanes == 0 {
        return Ok(Vec::new());
    }
    if lanes > MAX_LANES {
        return Err(RunError::Declined(format!("a device runs at most {MAX_LANES} lanes at once")));
    }
    let program = entry.program();
    let reach = reach_of(windows)?;
    let given = device.limits().loop_fuel(program.turns(), fuel);
    let plan = plan(kernel(program, reach)?, lanes, reach, windows, given)?;
    let max_buffer = device.limits().max_buffer;
    if let Some(buffer) = plan.buffers.iter().find(|buffer| buffer.bytes > max_buffer) {
        let what =
            format!("{} takes {} bytes, and a buffer {max_buffer}", buffer.name, buffer.bytes);
        return Err(RunError::Declined(what));
    }
    let memory = PlanMemory::allocate_but(device, &plan, &[])?;
    let mut queue = device.queue()?;
    let mut words = [0u32; 2 * PARAMETERS];
    for (pair, argument) in words.as_chunks_mut::<2>().0.iter_mut().zip(arguments) {
        *pair = [*argument as u32, (*argument >> 32) as u32];
    }
    for (name, bytes) in [
        ("module_arguments", bytemuck::cast_slice(&words)),
        ("module_input", windows.input),
        ("module_output", &*windows.output),
        ("module_state", bytemuck::cast_slice(windows.state)),
        ("module_pixels", bytemuck::cast_slice(windows.pixels)),
    ] {
        let padding = [0u8; 4];
        let missing = bytes.len().next_multiple_of(4).max(4) - bytes.len();
        queue.write_parts(memory.named(name), 0, &[bytes, &padding[..missing]])?;
    }
    submit(&plan, &memory, &mut *queue)?;
    let mut results = vec![0u32; 3 * lanes as usize];
    queue.read(memory.named("module_results"), 0, bytemuck::cast_slice_mut(&mut results))?;
    let results = results.as_chunks::<3>().0;
    for (lane, [code, ..]) in (0..).zip(results) {
        match Trap::from_code(*code) {
            None => {}
            Some(Trap::Fuel) if given < fuel => {
                return Err(RunError::Declined(format!(
                    "{} ends loops after about 65,535 turns, and lane {lane} takes more",
                    device.limits().name,
                )));
            }
            Some(trap) => return Err(RunError::Trapped(lane, trap)),
        }
    }
    let mut read = |name, into: &mut [u8]| {
        let mut whole = vec![0; into.len().next_multiple_of(4)];
        queue.read(memory.named(name), 0, &mut whole)?;
        into.copy_from_slice(&whole[..into.len()]);
        Ok::<_, DeviceError>(())
    };
    read("module_output", windows.output)?;
    read("module_state", bytemuck::cast_slice_mut(windows.state))?;
    read("module_pixels", bytemuck::cast_slice_mut(windows.pixels))?;
    Ok(results.iter().map(|[_, low, high]| u64::from(*high) << 32 | u64::from(*low)).collect())
}
