//! Removes unfinished files however the program ends. If it is killed outright, the [next run](crate::stale)
//! removes them.
//!
//! A list holds the name of every temporary file, from its creation until it is renamed or removed. A signal
//! removes the files on the list. Each of these steps holds the list's lock, so a signal never sees a file half
//! created or half renamed.

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

/// Makes signals remove unfinished files from now on. Drivers may install handlers that end the program at once, so
/// call this before a driver is loaded: its handlers then call ours.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(watch_signals);
}

/// A file under a temporary name. Dropping it removes it.
pub struct Unfinished(Option<NamedTempFile>);

impl Unfinished {
    /// Creates an empty file in `folder` that only its owner may read and write.
    pub fn create_in(folder: &Path) -> io::Result<Self> {
        watch();
        stale::remove_from(folder);
        let prefix = stale::prefix();
        let mut entered = entered();
        // Once the file exists, adding it to the list must not fail.
        entered.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix(&prefix).suffix(stale::SUFFIX).tempfile_in(folder)?;
        entered.push(file.path().to_path_buf());
        Ok(Unfinished(Some(file)))
    }

    /// The open file. Not to be called after [`rename`](Self::rename).
    pub fn file(&self) -> &File {
        self.0.as_ref().expect("taken only when it is renamed").as_file()
    }

    /// Gives the file its final name. Replaces an existing file only if `overwrite`. Removes the file on failure.
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

/// Removes all unfinished files just before the program ends. While the caller holds the returned guard, no file
/// can be renamed.
pub fn remove_all() -> impl Sized {
    let mut entered = entered();
    remove(&mut entered);
    entered
}

/// Removes all unfinished files without blocking: does nothing if a thread, this one included, holds the list's
/// lock.
pub fn try_remove_all() {
    match ENTERED.try_lock() {
        Ok(mut entered) => remove(&mut entered),
        Err(TryLockError::Poisoned(entered)) => remove(&mut entered.into_inner()),
        Err(TryLockError::WouldBlock) => {}
    }
}

fn remove(entered: &mut Vec<PathBuf>) {
    for path in entered.drain(..) {
        // There is nothing more to do if this fails.
        let _ = std::fs::remove_file(path);
    }
}

/// On a signal, removes the unfinished files and then ends as the signal would have ended the program.
#[cfg(unix)]
fn watch_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};

    // A signal that our parent made us ignore (nohup, a shell's background job) stays ignored.
    let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXFSZ];
    let ignored = ignored();
    let signals = signals.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    // Without these handlers a signal leaves a temporary file behind, and does no other harm.
    let Ok(mut signals) = signal_hook::iterator::Signals::new(signals) else { return };
    let watch = move || {
        // SIGXFSZ: with this handler, exceeding the file size limit is an ordinary write error.
        if let Some(signal) = signals.forever().find(|&signal| signal != SIGXFSZ) {
            let mut entered = entered();
            remove(&mut entered);
            // The lock is held to the end, so that nothing can be renamed any more.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).spawn(watch);
}

#[cfg(not(unix))]
fn watch_signals() {}

/// The signals that our parent had us ignore: bit n - 1 stands for signal n. Only Linux tells without `unsafe`.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
