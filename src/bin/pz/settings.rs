//! Options and environment variables, checked and turned into what the library takes.

use std::thread;

use pz::gpu::device::Limits;
use pz::{Auto, DecodeOptions, Gpu, Level, Options, Pipeline, Statistics};

use crate::args::{self, Encoding, Machine};
use crate::device::{Device, Several};
use crate::failure::Failure;
use crate::session::Session;
use crate::sizes::{self, Size};

/// The value of an environment variable, held to the rule of the option that it stands for. Empty means unset.
fn from_environment<T, E: std::fmt::Display>(
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, Failure> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let Some(text) = value.to_str() else {
        return Err(Failure::environment(format!("{name}: is not valid Unicode")));
    };
    match parse(text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Failure::environment(format!("{name}: invalid value '{text}': {error}"))),
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    let level = text.parse().map_err(|_| "a level is a number from 1 to 9".to_string())?;
    Level::new(level).map_err(|error| error.to_string())
}

/// The level to use when the command line names none.
fn default_level() -> Result<Level, Failure> {
    Ok(from_environment("PZ_LEVEL", parse_level)?.unwrap_or_default())
}

/// The processor that is asked for.
pub fn device(device: Option<Device>) -> Result<Device, Failure> {
    match device {
        Some(device) => Ok(device),
        None => Ok(from_environment("PZ_DEVICE", str::parse)?.unwrap_or_default()),
    }
}

/// The processors that are to be compared.
pub fn devices(devices: Option<&Several>) -> Result<Several, Failure> {
    match devices {
        Some(devices) => Ok(devices.clone()),
        None => Ok(Several::These(vec![device(None)?])),
    }
}

/// Most bytes to take on each GPU. It limits nothing while no GPU is used, yet a limit that makes no sense is still an
/// error.
pub fn gpu_memory(gpu_memory: Option<Size>) -> Result<Option<u64>, Failure> {
    let memory = match gpu_memory {
        Some(memory) => Some(memory),
        None => from_environment("PZ_GPU_MEMORY", sizes::nonzero)?,
    };
    Ok(memory.map(|Size(bytes)| bytes))
}

/// The choice of a GPU for each file.
pub fn auto(memory: Option<u64>) -> Auto {
    memory.map_or_else(Auto::new, |bytes| Auto::new().memory(bytes))
}

/// Refuses what a device that the user named cannot do: another is never used in its place.
pub fn check_gpu(device: Device, gpu: &Gpu, options: &Options) -> Result<(), Failure> {
    let limits = gpu.found();
    let limits = limits.map_err(|why| Failure::environment(format!("device {device}: {why}")))?;
    check_limits(device, limits, options)
}

/// The same, of a device with such limits.
fn check_limits(device: Device, limits: &Limits, options: &Options) -> Result<(), Failure> {
    match pz::gpu::coder::Encoder::memory_for(limits, options, 1) {
        Ok(_) => Ok(()),
        Err(why) => Err(Failure::environment(format!("device {device}: {why}"))),
    }
}

/// The number of threads that is asked for. How many cores there are is found out here, once: it takes half as long as
/// compressing a small file.
fn threads(machine: &Machine) -> Result<usize, Failure> {
    let threads = match machine.threads {
        Some(threads) => Some(threads),
        None => from_environment("PZ_THREADS", args::threads)?,
    };
    Ok(threads.filter(|&threads| threads > 0).unwrap_or_else(all_cores))
}

/// Number of threads that `0` stands for.
pub fn all_cores() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// The GPU that is asked for, which is looked for while the work begins; `check` may refuse it.
fn gpu(
    machine: &Machine,
    device: Device,
    session: &mut Session,
    check: impl FnOnce(&Limits) -> Result<(), Failure> + Send + 'static,
) -> Result<Option<Gpu>, Failure> {
    let threads = match threads(machine)? {
        0 => all_cores(),
        threads => threads,
    };
    let gpu = device.open_in_background(gpu_memory(machine.gpu_memory)?, check);
    session.use_device(device, gpu.as_ref(), threads);
    Ok(gpu)
}

/// What chooses a GPU if none is named, and what learns from each run on whatever it ran.
fn learning(machine: &Machine, device: Device, session: &mut Session) -> Result<Auto, Failure> {
    let auto = auto(gpu_memory(machine.gpu_memory)?).timed_by_caller();
    let auto = if device == Device::Auto { auto } else { auto.only_learning() };
    session.learn_with(&auto);
    Ok(auto)
}

/// What the library needs to know to compress.
pub fn encode(
    encoding: &Encoding,
    machine: &Machine,
    session: &mut Session,
) -> Result<Options, Failure> {
    let device = device(machine.device)?;
    let level = match encoding.levels.0.last() {
        Some(&level) => level,
        None => default_level()?,
    };
    let threads = threads(machine)?;
    let mut options = encode_with(encoding, level, threads, machine.memory)?;
    let asked = options.clone();
    // What is only stored is nothing for a device; that it takes no part is said then.
    let is_stored = asked.chosen_pipeline() == Pipeline::Store;
    let check = move |limits: &Limits| match is_stored {
        true => Ok(()),
        false => check_limits(device, limits, &asked),
    };
    if let Some(gpu) = gpu(machine, device, session, check)? {
        options = options.gpu(gpu);
    }
    Ok(options.auto(&learning(machine, device, session)?))
}

/// What the library needs to know to compress at one level.
pub fn encode_with(
    encoding: &Encoding,
    level: Level,
    threads: usize,
    memory: Option<Size>,
) -> Result<Options, Failure> {
    let mut options = Options::new().level(level).threads(threads).verify(!encoding.no_verify);
    if let Some(pipeline) = encoding.pipeline {
        options = options.pipeline(pipeline);
    }
    if let Some(Size(bytes)) = encoding.block_size {
        options = options.block_size(bytes);
    }
    if let Some(Size(bytes)) = encoding.window {
        options = options.window(bytes);
    }
    if let Some(Size(bytes)) = memory {
        options = options.memory(bytes);
    }
    options.chosen_block_size()?;
    Ok(options)
}

/// What a decoder may spend.
#[derive(Clone)]
pub struct DecodeSettings {
    /// For our own format.
    pub options: DecodeOptions,
    /// For the others: most memory to take, in bytes.
    pub memory: u64,
}

impl DecodeSettings {
    /// The same for one input, with its length, if that is known, and with counts of what is done, if somebody wants them.
    pub fn of_input(&self, len: Option<u64>, statistics: Option<&Statistics>) -> Self {
        let mut settings = self.clone();
        if let Some(len) = len {
            settings.options = settings.options.input_size(len);
        }
        if let Some(statistics) = statistics {
            settings.options = settings.options.statistics(statistics);
        }
        settings
    }
}

/// Memory that decompression keeps under unless told otherwise; the library's own default.
const DECODE_MEMORY: u64 = 1 << 30;

/// The same with a GPU that is named: in half of that its batches are half as large, and it takes half as long again to undo a
/// Burrows-Wheeler transform.
const DECODE_MEMORY_WITH_GPU: u64 = 2 << 30;

/// What the library needs to know to decompress.
pub fn decode(machine: &Machine, session: &mut Session) -> Result<DecodeSettings, Failure> {
    let device = device(machine.device)?;
    let mut settings = decode_quietly(machine)?;
    if let Some(gpu) = gpu(machine, device, session, |_| Ok(()))? {
        settings.options = settings.options.gpu(gpu);
        if machine.memory.is_none() {
            settings.options = settings.options.max_memory(DECODE_MEMORY_WITH_GPU);
        }
    }
    settings.options = settings.options.auto(&learning(machine, device, session)?);
    Ok(settings)
}

/// The same, where the work on the device is part of other work.
pub fn decode_quietly(machine: &Machine) -> Result<DecodeSettings, Failure> {
    let threads = threads(machine)?;
    let memory = machine.memory.map_or(DECODE_MEMORY, |Size(bytes)| bytes);
    let options = DecodeOptions::new().threads(threads).max_memory(memory);
    Ok(DecodeSettings { options, memory })
}
