//! The memory of this machine or container.

/// Its memory in bytes, and what sets it: the system or, if that is less, the control group.
pub fn total() -> (u64, &'static str) {
    let total = of_system();
    match of_group() {
        Some(limit) if limit > 0 && limit < total => (limit, "the control group's limit"),
        _ if total == 0 => (0, "the system does not tell"),
        _ => (total, "the system's physical memory"),
    }
}

/// The memory of the system in bytes; 0 if it does not tell.
///
/// `sysinfo` would read the times of all processors too, which takes long on a large machine.
#[cfg(target_os = "linux")]
fn of_system() -> u64 {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = table.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB"));
    total.and_then(|total| total.trim().parse().ok()).map_or(0, |kilobytes: u64| kilobytes << 10)
}

/// The limit of the control group in bytes, if it has one: version 2, or else version 1.
#[cfg(target_os = "linux")]
fn of_group() -> Option<u64> {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    files.iter().find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

#[cfg(not(target_os = "linux"))]
fn of_system() -> u64 {
    use sysinfo::{MemoryRefreshKind, RefreshKind, System};

    let ram = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    System::new_with_specifics(ram).total_memory()
}

/// Only Linux has control groups.
#[cfg(not(target_os = "linux"))]
fn of_group() -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use sysinfo::{MemoryRefreshKind, RefreshKind, System};

    #[test]
    fn the_system_tells_what_sysinfo_reads() {
        let ram = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(ram);
        let total = system.total_memory();
        let limit = system.cgroup_limits().map_or(total, |limits| limits.total_memory);
        assert!(total > 0);
        assert_eq!((super::of_system(), super::total().0), (total, limit));
    }
}
