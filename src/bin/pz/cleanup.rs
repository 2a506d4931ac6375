//! Unfinished files disappear however the program ends, short of being killed outright; then the [next run](crate::stale)
//! removes them.
//!
//! Every temporary file is entered in a list before anybody else can see it and taken out in the same breath in which
//! it is renamed or removed. A signal removes what is still entered. The list is locked over each of those
//! steps, so that an interruption finds a file either entered or finished, never in between.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};

use tempfile::NamedTempFile;

use crate::stale;

static ENTERED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn entered() -> MutexGuard<'static, Vec<PathBuf>> {
    ENTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, signals remove unfinished files. Drivers may bring handlers of their own that end the program at once: so this
/// comes before they are loaded, for then theirs hand over to ours, and not the other way round.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(watch_signals);
}

/// A file under a temporary name. Dropped, it is removed.
pub struct Unfinished(Option<NamedTempFile>);

impl Unfinished {
    /// Makes an empty file in `folder` that only its owner may read and write.
    pub fn create_in(folder: &Path) -> io::Result<Self> {
        watch();
        stale::remove_from(folder);
        let prefix = stale::prefix();
        let mut entered = entered();
        // To enter the file must not fail once it is there.
        entered.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix(&prefix).suffix(stale::SUFFIX).tempfile_in(folder)?;
        entered.push(file.path().to_path_buf());
        Ok(Unfinished(Some(file)))
    }

    /// The file itself, until it is renamed.
    pub fn file(&self) -> &File {
        self.0.as_ref().expect("taken only when it is renamed").as_file()
    }

    /// Gives the file its final name, replacing what has that name only if `overwrite`. If that fails it is removed.
    pub fn rename(&mut self, path: &Path, overwrite: bool) -> io::Result<()> {
        let mut entered = entered();
        let Some(file) = self.0.take() else { return Ok(()) };
        let name = file.path().to_path_buf();
        let result = if overwrite { file.persist(path) } else { file.persist_noclobber(path) };
        // A failure drops the file, which removes it.
        let result = result.map(drop).map_err(|failed| failed.error);
        entered.retain(|path| *path != name);
        result
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            let mut entered = entered();
            let name = file.path().to_path_buf();
            drop(file);
            entered.retain(|path| *path != name);
        }
    }
}

/// Removes all unfinished files; for the last moments of the program. As long as what is returned is there, nothing can be
/// renamed any more.
pub fn remove_all() -> impl Sized {
    let mut entered = entered();
    remove(&mut entered);
    entered
}

/// Removes all unfinished files where nothing may be waited for: the list is left alone if another thread has it, or this one.
pub fn try_remove_all() {
    match ENTERED.try_lock() {
        Ok(mut entered) => remove(&mut entered),
        Err(TryLockError::Poisoned(entered)) => remove(&mut entered.into_inner()),
        Err(TryLockError::WouldBlock) => {}
    }
}

fn remove(entered: &mut Vec<PathBuf>) {
    for path in entered.drain(..) {
        // Nothing is left to be done, or to be told, if this fails.
        let _ = std::fs::remove_file(path);
    }
}

/// Removes the unfinished files when the program is asked to end, then ends as that signal ends any program.
#[cfg(unix)]
fn watch_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};

    // A signal that our parent made us ignore (nohup, a shell's background job) stays ignored.
    let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXFSZ];
    let ignored = ignored();
    let signals = signals.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    // Without the watch an interruption leaves a temporary file behind, and nothing worse.
    let Ok(mut signals) = signal_hook::iterator::Signals::new(signals) else { return };
    let watch = move || {
        // A file that grows past the user's limit is an error of writing, once the signal does not end the program.
        if let Some(signal) = signals.forever().find(|&signal| signal != SIGXFSZ) {
            let mut entered = entered();
            remove(&mut entered);
            // The lock is held to the end: nothing can be renamed any more.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).spawn(watch);
}

#[cfg(not(unix))]
fn watch_signals() {}

/// The signals that the program was started with as ignored: signal n is bit n - 1. Only Linux lets a program ask without
/// `unsafe`.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
