//! `pz devices`

use pz::gpu::device::discovery;
use pz::gpu::device::{Api, Limits, MemorySource, Teams};
use serde::Serialize;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use crate::args::Devices;
use crate::device::Device;
use crate::failure::Failure;
use crate::memory;
use crate::settings;
use crate::sizes::Human;
use crate::table;

/// Lists the processors, and the backends that are missing.
pub fn run(args: &Devices) -> Result<(), Failure> {
    let list = match args.device.unwrap_or_default() {
        Device::Auto => all(),
        Device::Cpu => DeviceList { devices: vec![Processor::Cpu(cpu())], absent: Vec::new() },
        one => DeviceList { devices: vec![Processor::Gpu(gpu(&one.find()?))], absent: Vec::new() },
    };
    if args.json { table::print_json(&list) } else { table::print(&to_text(&list)) }
}

fn all() -> DeviceList {
    let mut list = DeviceList { devices: vec![Processor::Cpu(cpu())], absent: Vec::new() };
    for api in Api::ALL {
        match discovery::devices(api) {
            Ok(found) => list.devices.extend(found.iter().map(|found| Processor::Gpu(gpu(found)))),
            Err(absence) => list.absent.push(Absent {
                backend: api.name(),
                why: absence.why,
                remedy: absence.remedy,
            }),
        }
    }
    list
}

#[derive(Serialize)]
struct DeviceList {
    devices: Vec<Processor>,
    absent: Vec<Absent>,
}

/// A processor that can be used.
#[derive(Serialize)]
#[serde(untagged)]
enum Processor {
    Cpu(Cpu),
    Gpu(Gpu),
}

/// The processor.
#[derive(Serialize)]
struct Cpu {
    /// What `--device` calls it.
    device: &'static str,
    backend: &'static str,
    name: String,
    cores: usize,
    /// Bytes of memory that the program can use; 0 if the system does not tell.
    memory: u64,
    /// Where that figure comes from.
    memory_source: &'static str,
    /// Vector instructions that the codecs use; "portable" if none.
    simd: &'static str,
}

/// A GPU or a software device.
#[derive(Serialize)]
struct Gpu {
    /// What `--device` calls it.
    device: String,
    backend: String,
    name: String,
    driver: String,
    /// "discrete", "integrated", "software" or "other".
    kind: &'static str,
    /// Bytes of memory.
    memory: u64,
    /// Where that figure comes from.
    memory_source: &'static str,
    /// Bytes of the largest buffer.
    max_buffer: u64,
    /// Bytes of workgroup memory.
    local_memory: u32,
    /// Work items of the largest workgroup.
    max_workgroup: u32,
    compute_units: u32,
    /// How 32 work items exchange values.
    teams: &'static str,
    /// Whether the device measures how long kernels take.
    timing: bool,
}

/// A backend that is missing.
#[derive(Serialize)]
struct Absent {
    backend: &'static str,
    why: String,
    remedy: &'static str,
}

fn gpu(found: &discovery::DeviceEntry) -> Gpu {
    let limits: &Limits = found.limits();
    Gpu {
        device: format!("{}:{}", found.api().name(), found.number()),
        backend: limits.api.to_string(),
        name: limits.name.clone(),
        driver: limits.driver.clone(),
        kind: limits.kind.name(),
        memory: limits.memory,
        memory_source: match limits.memory_source {
            MemorySource::Free => "free now, according to the driver",
            MemorySource::Nvml => "free now, according to NVML",
            MemorySource::VulkanBudget => "free now, according to Vulkan's memory budget",
            MemorySource::Total => "total, according to the driver",
            MemorySource::Assumed => {
                "assumed to be half of the largest buffer: the driver does not tell"
            }
        },
        max_buffer: limits.max_buffer,
        local_memory: limits.local_memory,
        max_workgroup: limits.max_workgroup,
        compute_units: limits.compute_units,
        teams: match limits.teams {
            Teams::Ptx => "warps (PTX)",
            Teams::Subgroup => "subgroups of 32",
            Teams::Local => "workgroup memory",
        },
        timing: limits.timing,
    }
}

fn cpu() -> Cpu {
    let what = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    // If the system tells nothing about itself, list the CPU anyway.
    let system = System::new_with_specifics(what);
    let name = system.cpus().first();
    let name = name.map(|cpu| cpu.brand().trim().to_string()).filter(|name| !name.is_empty());
    let (memory, memory_source) = match memory::limits().first() {
        Some(least) => (least.limit, least.source),
        None => (0, "the system does not tell"),
    };
    Cpu {
        device: "cpu",
        backend: "CPU",
        name: name.unwrap_or_else(|| "unnamed processor".into()),
        cores: settings::all_cores(),
        memory,
        memory_source,
        simd: pz::internal::vector_instructions(),
    }
}

fn to_text(list: &DeviceList) -> String {
    let mut text = String::new();
    for found in &list.devices {
        text += &match found {
            Processor::Cpu(cpu) => cpu.to_text(),
            Processor::Gpu(gpu) => gpu.to_text(),
        };
    }
    for absent in &list.absent {
        text += &format!("{}: {}\n  {}\n", absent.backend, absent.why, absent.remedy);
    }
    text
}

impl Cpu {
    fn to_text(&self) -> String {
        format!(
            "{}: {}\n  backend  {}\n  cores    {}\n  memory   {} ({})\n  SIMD     {}\n",
            self.device,
            self.name,
            self.backend,
            self.cores,
            Human(self.memory),
            self.memory_source,
            self.simd,
        )
    }
}

impl Gpu {
    fn to_text(&self) -> String {
        let kind = match self.kind {
            "software" => "software on the CPU, used only if named",
            kind => kind,
        };
        format!(
            "{}: {}\n  backend  {}, {}\n  kind     {kind}\n  memory   {} ({}), largest buffer {}\n  \
             compute  {} units, workgroups of {} with {}\n  teams    {}\n",
            self.device,
            self.name,
            self.backend,
            self.driver,
            Human(self.memory),
            self.memory_source,
            Human(self.max_buffer),
            self.compute_units,
            self.max_workgroup,
            Human(self.local_memory.into()),
            self.teams,
        )
    }
}
