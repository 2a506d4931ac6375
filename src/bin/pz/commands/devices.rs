//! `pz devices`

use serde::Serialize;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::args::Devices;
use crate::device::NO_GPU_ENGINE;
use crate::failure::Failure;
use crate::settings;
use crate::sizes::Human;
use crate::table;

/// Lists what can be used, and what cannot.
pub fn run(args: &Devices) -> Result<(), Failure> {
    let list = DeviceList { devices: vec![cpu()], absent: absent() };
    if args.json { table::print_json(&list) } else { table::print(&to_text(&list)) }
}

#[derive(Serialize)]
struct DeviceList {
    devices: Vec<Found>,
    absent: Vec<Absent>,
}

/// A processor that can be used.
#[derive(Serialize)]
struct Found {
    /// What `--device` calls it.
    device: &'static str,
    backend: &'static str,
    name: String,
    cores: usize,
    /// Bytes of memory that it can work with; 0 if the system does not say.
    memory: u64,
    /// Where that figure comes from.
    memory_source: &'static str,
    /// Vector instructions that the codecs use; "portable" is none.
    simd: &'static str,
}

/// A backend that could be expected and is not there.
#[derive(Serialize)]
struct Absent {
    backend: &'static str,
    why: &'static str,
    remedy: &'static str,
}

fn cpu() -> Found {
    let what = RefreshKind::nothing()
        .with_cpu(CpuRefreshKind::nothing())
        .with_memory(MemoryRefreshKind::nothing().with_ram());
    // A system that says nothing of itself can still compress.
    let system = System::new_with_specifics(what).ok();
    let name = system.as_ref().and_then(|system| system.cpus().first());
    let name = name.map(|cpu| cpu.brand().trim().to_string()).filter(|name| !name.is_empty());
    let total = system.as_ref().map_or(0, System::total_memory);
    let limit = system.as_ref().and_then(System::cgroup_limits).map(|limits| limits.total_memory);
    let (memory, memory_source) = match limit {
        Some(limit) if limit > 0 && limit < total => (limit, "the control group's limit"),
        _ if total == 0 => (0, "the system does not say"),
        _ => (total, "the system's physical memory"),
    };
    Found {
        device: "cpu",
        backend: "CPU",
        name: name.unwrap_or_else(|| "unnamed processor".into()),
        cores: settings::all_cores(),
        memory,
        memory_source,
        simd: pz::codec::vector_instructions(),
    }
}

fn absent() -> Vec<Absent> {
    ["opencl", "webgpu"]
        .map(|backend| Absent {
            backend,
            why: NO_GPU_ENGINE,
            remedy: "nothing to install: a driver would not be used; the CPU does all work",
        })
        .into()
}

fn to_text(list: &DeviceList) -> String {
    let mut text = String::new();
    for found in &list.devices {
        text += &format!(
            "{}: {}\n  backend  {}\n  cores    {}\n  memory   {} ({})\n  SIMD     {}\n",
            found.device,
            found.name,
            found.backend,
            found.cores,
            Human(found.memory),
            found.memory_source,
            found.simd,
        );
    }
    for absent in &list.absent {
        text += &format!("{}: {}\n  {}\n", absent.backend, absent.why, absent.remedy);
    }
    text
}
