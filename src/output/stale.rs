//! Names unfinished files, and removes those that a killed program left behind.
//!
//! A name tells which process made the file. It holds a hash of the machine's boot and of the process's namespaces,
//! then the process's number and start time, then something random. Only a process of the same boot and namespaces
//! can tell whether that process still runs: seen from another host or container, every process looks dead.

use std::path::Path;

/// The beginning and the end of each name.
const PREFIX: &str = ".pz-";
pub const SUFFIX: &str = ".tmp";

/// The prefix of this process's unfinished files.
pub fn prefix() -> String {
    #[cfg(target_os = "linux")]
    if let Some(maker) = linux::Maker::this() {
        return format!("{PREFIX}{maker}-");
    }
    PREFIX.into()
}

/// Removes unfinished files in `folder` whose process is dead. Each thread lists a folder only once.
pub fn remove_from(folder: &Path) {
    #[cfg(target_os = "linux")]
    linux::remove_from(folder);
    #[cfg(not(target_os = "linux"))]
    let _ = folder;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::{Cell, RefCell};
    use std::collections::HashSet;
    use std::fmt;
    use std::fs;
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::path::{Path, PathBuf};
    use std::process;

    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};

    use super::{PREFIX, SUFFIX};

    // Each thread has its own, since a lock could be held for ever in a process that a fork made.
    thread_local! {
        static LISTED: RefCell<HashSet<PathBuf>> = RefCell::default();
        static THIS: Cell<Option<Maker>> = const { Cell::new(None) };
    }

    /// The process that made a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Maker {
        /// A hash of the machine's boot and of the process and time namespaces.
        place: u64,
        process: u32,
        /// In clock ticks since boot.
        start: u64,
    }

    impl fmt::Display for Maker {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:016x}-{}-{}", self.place, self.process, self.start)
        }
    }

    impl Maker {
        /// This process; `None` if the system does not tell enough about it.
        pub fn this() -> Option<Maker> {
            // A fork makes another process of the same memory.
            let known = THIS.get().filter(|maker| maker.process == process::id());
            let this = known.or_else(Self::look);
            THIS.set(this);
            this
        }

        fn look() -> Option<Maker> {
            let process = process::id();
            // `/proc` may belong to another namespace, where our number means another process.
            if fs::read_link("/proc/self").ok()?.to_str()? != process.to_string() {
                return None;
            }
            let mut hasher = DefaultHasher::new();
            fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.hash(&mut hasher);
            fs::read_link("/proc/self/ns/pid").ok()?.hash(&mut hasher);
            // Start times differ between time namespaces. Old kernels have none.
            fs::read_link("/proc/self/ns/time").ok().hash(&mut hasher);
            Some(Maker { place: hasher.finish(), process, start: start_of(process)? })
        }

        /// The process that a file's name tells.
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
                // Another process may have the number by now. A process that hides its start time counts as alive.
                _ => start_of(self.process).is_some_and(|start| start != self.start),
            }
        }
    }

    /// The start time of a process: field 22 of its `stat`. Skip the first two together, since the second, its
    /// name, may contain anything.
    fn start_of(process: u32) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (_, fields) = status.rsplit_once(')')?;
        fields.split_whitespace().nth(19)?.parse().ok()
    }

    pub fn remove_from(folder: &Path) {
        let Some(this) = Maker::this() else { return };
        if !LISTED.with_borrow_mut(|listed| listed.insert(folder.to_path_buf())) {
            return;
        }
        // If the folder cannot be listed, its files stay.
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
                // A number that now belongs to another process.
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
