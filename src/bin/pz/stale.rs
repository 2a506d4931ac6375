//! Names of unfinished files, and the removal of those whose program was killed.
//!
//! A name says who made the file: the machine since it was started, as one name space of processes sees it; the process
//! by its number and start time; then something random. Only a process of the same machine and name space can tell
//! whether that process still runs: seen from another host or container, every process looks dead.

use std::path::Path;

/// How each name begins and ends.
const PREFIX: &str = ".pz-";
pub const SUFFIX: &str = ".tmp";

/// How this process begins the names of its unfinished files.
pub fn prefix() -> String {
    #[cfg(target_os = "linux")]
    if let Some(maker) = linux::Maker::this() {
        return format!("{PREFIX}{maker}-");
    }
    PREFIX.into()
}

/// Removes unfinished files in `folder` if the process that made them is dead. It lists each folder only once.
pub fn remove_from(folder: &Path) {
    #[cfg(target_os = "linux")]
    linux::remove_from(folder);
    #[cfg(not(target_os = "linux"))]
    let _ = folder;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashSet;
    use std::fmt;
    use std::fs;
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::path::{Path, PathBuf};
    use std::process;
    use std::sync::{Mutex, OnceLock, PoisonError};

    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};

    use super::{PREFIX, SUFFIX};

    static LISTED: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);

    /// The process that made a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Maker {
        /// Stands for the machine since it was started, and for the name spaces of processes and time.
        place: u64,
        process: u32,
        /// In clock ticks since the machine was started.
        start: u64,
    }

    impl fmt::Display for Maker {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:016x}-{}-{}", self.place, self.process, self.start)
        }
    }

    impl Maker {
        /// This process; `None` if the system does not say enough about it.
        pub fn this() -> Option<Maker> {
            static THIS: OnceLock<Option<Maker>> = OnceLock::new();
            *THIS.get_or_init(Self::look)
        }

        fn look() -> Option<Maker> {
            let process = process::id();
            // `/proc` may be that of another name space, where our number means another process.
            if fs::read_link("/proc/self").ok()?.to_str()? != process.to_string() {
                return None;
            }
            let mut hasher = DefaultHasher::new();
            fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.hash(&mut hasher);
            fs::read_link("/proc/self/ns/pid").ok()?.hash(&mut hasher);
            // Start times are told differently in different name spaces of time. Old kernels have none.
            fs::read_link("/proc/self/ns/time").ok().hash(&mut hasher);
            Some(Maker { place: hasher.finish(), process, start: start_of(process)? })
        }

        /// The process that a name tells of.
        fn named(name: &str) -> Option<Maker> {
            let name = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
            let mut parts = name.split('-');
            let place = u64::from_str_radix(parts.next()?, 16).ok()?;
            let process = parts.next()?.parse().ok()?;
            let start = parts.next()?.parse().ok()?;
            Some(Maker { place, process, start })
        }

        /// Whether the process has certainly ended.
        fn is_dead(self, this: Maker) -> bool {
            if self.place != this.place {
                return false;
            }
            let Some(process) = i32::try_from(self.process).ok().and_then(Pid::from_raw) else {
                return false;
            };
            match test_kill_process(process) {
                Err(Errno::SRCH) => true,
                // The number may be another process's by now. A process that hides its start time counts as alive.
                _ => start_of(self.process).is_some_and(|start| start != self.start),
            }
        }
    }

    /// When a process started: the 22nd field of its status, of which the second, its name, may hold anything.
    fn start_of(process: u32) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (_, fields) = status.rsplit_once(')')?;
        fields.split_whitespace().nth(19)?.parse().ok()
    }

    pub fn remove_from(folder: &Path) {
        let Some(this) = Maker::this() else { return };
        let mut listed = LISTED.lock().unwrap_or_else(PoisonError::into_inner);
        if !listed.get_or_insert_default().insert(folder.to_path_buf()) {
            return;
        }
        // A folder that may be written and not read, for example, keeps what it has.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let maker = entry.file_name().to_str().and_then(Maker::named);
            if maker.is_some_and(|maker| maker.is_dead(this))
                && entry.file_type().is_ok_and(|kind| kind.is_file())
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::process::Command;

        use super::*;

        #[test]
        fn only_the_dead_of_this_place_are_judged() {
            let this = Maker::this().unwrap();
            let mut child = Command::new("true").spawn().unwrap();
            let dead = Maker { process: child.id(), ..this };
            assert!(child.wait().unwrap().success());
            for (maker, is_dead) in [
                (this, false),
                (dead, true),
                (Maker { place: !this.place, ..dead }, false),
                // A number that has been given to another process since.
                (Maker { start: this.start + 1, ..this }, true),
                (Maker { process: 0, ..this }, false),
                (Maker { process: u32::MAX, ..this }, false),
            ] {
                assert_eq!(maker.is_dead(this), is_dead, "{maker}");
                assert_eq!(Maker::named(&format!("{PREFIX}{maker}-aB3x9z{SUFFIX}")), Some(maker));
            }
            for name in [".pz-aB3x9z.tmp", ".pz-.tmp", ".pz-12-x-3-a.tmp", "12-1-1-a", ""] {
                assert_eq!(Maker::named(name), None, "{name}");
            }
        }
    }
}
