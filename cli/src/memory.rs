//! The memory of this machine or container.

use pz::DEFAULT_MEMORY;

/// A limit on the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The most bytes that all processes under the limit may take.
    pub limit: u64,
    /// How many of these bytes are free, or hold files that the system can drop.
    free: u64,
    /// The source of the limit.
    pub source: &'static str,
}

/// The limits on this process's memory, with the least first: those of its control groups, and the system's physical
/// memory. Empty if the system does not tell.
pub fn limits() -> Vec<Memory> {
    let mut limits = Vec::from_iter(of_system());
    let physical = limits.first().map_or(u64::MAX, |system| system.limit);
    limits.extend(of_groups().into_iter().filter(|group| (1..physical).contains(&group.limit)));
    limits.sort_by_key(|memory| memory.limit);
    limits
}

/// The default memory limit of a run, in bytes. It is an eighth of the memory, but at least the library's default
/// (which keeps only six of 16 threads busy at level 9). It is at most half of each limit, and three quarters of what
/// is free under it, because the system kills a process that exceeds its group's limit.
pub fn default_share() -> u64 {
    share_of(&limits())
}

fn share_of(limits: &[Memory]) -> u64 {
    let most = limits.iter().map(|memory| (memory.limit / 2).min(memory.free / 4 * 3));
    let wanted = limits.first().map_or(0, |least| least.limit / 8).max(DEFAULT_MEMORY);
    most.fold(wanted, u64::min)
}

/// The physical memory of the system. A system that is short of memory can move some of it to disk, so a part always
/// counts as free.
#[cfg(target_os = "linux")]
fn of_system() -> Option<Memory> {
    // `sysinfo` would also read the times of all processors, which is slow on a large machine.
    system_of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

#[cfg(target_os = "linux")]
fn system_of(table: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let kilobytes = table.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix("kB"));
        kilobytes.and_then(|kilobytes| kilobytes.trim().parse::<u64>().ok()).map(|n| n << 10)
    };
    Some(system(bytes("MemTotal:")?, bytes("MemAvailable:")))
}

#[cfg(not(target_os = "linux"))]
fn of_system() -> Option<Memory> {
    use sysinfo::{MemoryRefreshKind, RefreshKind, System};

    let ram = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let read = System::new_with_specifics(ram);
    (read.total_memory() > 0).then(|| system(read.total_memory(), Some(read.available_memory())))
}

fn system(limit: u64, available: Option<u64>) -> Memory {
    let free = available.unwrap_or(limit).max(limit / 8);
    Memory { limit, free, source: "the system's physical memory" }
}

/// Only Linux has control groups.
#[cfg(not(target_os = "linux"))]
fn of_groups() -> Vec<Memory> {
    Vec::new()
}

/// The limits of the control groups that this process is in, from its own up to the topmost.
#[cfg(target_os = "linux")]
fn of_groups() -> Vec<Memory> {
    let groups = std::fs::read_to_string("/proc/self/cgroup");
    groups_of(&groups.unwrap_or_default(), std::path::Path::new("/sys/fs/cgroup"))
}

/// The limits of control groups. `groups` lists their names in the format of `/proc/self/cgroup`; their files lie below
/// `root`. The names are those of the host, so in a container the files of the outer groups, or of all but one, are
/// missing.
#[cfg(target_os = "linux")]
fn groups_of(groups: &str, root: &std::path::Path) -> Vec<Memory> {
    use std::path::{Component, Path};

    let mut found = Vec::new();
    // Some systems hide the list. The topmost groups are known all the same.
    for line in groups.lines().chain(["0::/", "0:memory:/"]) {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(name)) = (fields.next(), fields.next()) else { continue };
        let version = match controllers {
            "" => &VERSION_2,
            _ if controllers.split(',').any(|controller| controller == "memory") => &VERSION_1,
            _ => continue,
        };
        let is_plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
        let name = Path::new(name.strip_prefix('/').unwrap_or(name));
        // A group outside of the container's own is named `/..`.
        let name = if name.components().all(|part| is_plain(&part)) { name } else { Path::new("") };
        for group in name.ancestors() {
            let folder = root.join(version.folder).join(group);
            found.extend(version.read(&folder));
        }
    }
    found
}

/// The files in which a version of control groups reports memory.
#[cfg(target_os = "linux")]
struct Version {
    folder: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Memory that holds files.
    files: [&'static str; 2],
}

#[cfg(target_os = "linux")]
const VERSION_1: Version = Version {
    folder: "memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    files: ["total_inactive_file ", "total_active_file "],
};

#[cfg(target_os = "linux")]
const VERSION_2: Version = Version {
    folder: "",
    limit: "memory.max",
    usage: "memory.current",
    files: ["inactive_file ", "active_file "],
};

#[cfg(target_os = "linux")]
impl Version {
    /// The limit of a group, if it has one.
    fn read(&self, folder: &std::path::Path) -> Option<Memory> {
        let text = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        let number = |text: &str| text.trim().parse::<u64>().ok();
        // No limit is the word `max`, or in version 1 the largest number of whole pages.
        let limit = number(&text(self.limit)?).filter(|&limit| limit < 1 << 62)?;
        let usage = text(self.usage).and_then(|text| number(&text)).unwrap_or(0);
        let table = text("memory.stat").unwrap_or_default();
        let lines = |name| table.lines().filter_map(move |line| line.strip_prefix(name));
        let files: u64 = self.files.into_iter().flat_map(lines).filter_map(number).sum();
        let free = limit.saturating_sub(usage.saturating_sub(files));
        Some(Memory { limit, free, source: "the control group's limit" })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use sysinfo::{MemoryRefreshKind, RefreshKind, System};

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_system_tells_what_sysinfo_reads() {
        let ram = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
        let total = System::new_with_specifics(ram).total_memory();
        assert!(total > 0);
        assert_eq!(of_system().map(|system| system.limit), Some(total));
    }

    #[test]
    fn the_lowest_limit_of_all_groups_counts() {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("memory.max", "max\n"),
            ("slurm/memory.max", "268435456\n"),
            ("slurm/memory.current", "209715200\n"),
            ("slurm/memory.stat", "anon 1\nfile 9\ninactive_file 83886080\nactive_file 20971520\n"),
            ("slurm/job/memory.max", "536870912\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/docker/memory.limit_in_bytes", "134217728\n"),
            ("memory/docker/memory.usage_in_bytes", "67108864\n"),
            ("memory/docker/memory.stat", "inactive_file 5\ntotal_inactive_file 1048576\n"),
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let slurm = (256 * MIB, 156 * MIB);
        let docker = (128 * MIB, 65 * MIB);
        for (groups, expected) in [
            ("", vec![]),
            ("0::/\n", vec![]),
            ("0::/slurm/job\n", vec![(512 * MIB, 512 * MIB), slurm]),
            ("0::/slurm/job/step_0/missing\n", vec![(512 * MIB, 512 * MIB), slurm]),
            ("0::/../slurm\n", vec![]),
            ("4:cpu,memory:/docker/id\n3:cpu:/slurm\n", vec![docker]),
            ("1:name=systemd:/slurm\n0::/slurm/a:b\n", vec![slurm]),
        ] {
            let found = groups_of(groups, folder.path());
            let found: Vec<_> = found.iter().map(|memory| (memory.limit, memory.free)).collect();
            assert_eq!(found, expected, "{groups:?}");
        }
    }

    #[test]
    fn the_default_is_a_share_of_memory() {
        let gib = |n: u64| n << 30;
        let group = |limit, free| Memory { limit, free, source: "" };
        for (limits, expected) in [
            (vec![], gib(2)),
            (vec![system(gib(64), Some(gib(60)))], gib(8)),
            (vec![system(gib(8), Some(gib(7)))], gib(2)),
            (vec![system(gib(3), Some(gib(3)))], gib(3) / 2),
            (vec![system(gib(16), Some(gib(2)))], gib(3) / 2),
            // Almost nothing is free, but the system can make room.
            (vec![system(gib(16), Some(MIB))], gib(3) / 2),
            (vec![group(256 * MIB, 250 * MIB), system(gib(64), Some(gib(60)))], 128 * MIB),
            (vec![group(256 * MIB, 40 * MIB), system(gib(64), Some(gib(60)))], 30 * MIB),
            (vec![group(gib(4), gib(4)), group(gib(8), gib(1))], gib(1) / 4 * 3),
            (vec![group(gib(40), gib(40)), system(gib(64), Some(gib(60)))], gib(5)),
        ] {
            assert_eq!(share_of(&limits), expected, "{limits:?}");
        }
    }
}
