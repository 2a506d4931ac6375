//! The memory of this machine or container.

use sysinfo::System;

/// Its memory in bytes, and what sets it: the system or, if that is less, the control group. `system` has read its
/// memory.
pub fn total(system: &System) -> (u64, &'static str) {
    let total = system.total_memory();
    match system.cgroup_limits().map(|limits| limits.total_memory) {
        Some(limit) if limit > 0 && limit < total => (limit, "the control group's limit"),
        _ if total == 0 => (0, "the system does not tell"),
        _ => (total, "the system's physical memory"),
    }
}
