//! A file under a temporary name.
//!
//! A program that wants to remove unfinished files however it ends [keeps a list](keep_list) of them. The list holds
//! the name of every temporary file, from its creation until it is renamed or removed. Each of these steps holds the
//! list's lock, so whoever removes the files on the list never meets one half created or half renamed.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::NamedTempFile;

use super::stale;
use crate::process::Owner;
use crate::sync::Lock;

static ENTERED: Lock<Vec<PathBuf>> = Lock::new();

/// Whether there is a list. Without one no lock is taken: a process that forks must not find it locked for ever.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// Keeps a list of unfinished files from now on.
pub fn keep_list() {
    IS_KEPT.store(true, Ordering::Relaxed);
}

fn entered() -> Option<MutexGuard<'static, Vec<PathBuf>>> {
    let is_kept = IS_KEPT.load(Ordering::Relaxed);
    is_kept.then(|| ENTERED.lock())
}

/// A file under a temporary name. Dropping it removes it, unless a fork has made this process since.
pub struct Unfinished {
    /// `None` once it has been renamed.
    file: Option<NamedTempFile>,
    /// The process that made it.
    process: Owner,
}

impl Unfinished {
    /// Creates an empty file in `folder`. If it `is_private`, only its owner may read and write it; otherwise it has
    /// the mode of any new file.
    pub fn create_in(folder: &Path, is_private: bool) -> io::Result<Self> {
        stale::remove_from(folder);
        let prefix = stale::prefix();
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(stale::SUFFIX);
        #[cfg(unix)]
        if !is_private {
            use std::os::unix::fs::PermissionsExt;
            // The system takes the umask off, or applies the folder's access control list.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        #[cfg(not(unix))]
        let _ = is_private;
        let mut entered = entered();
        if let Some(entered) = &mut entered {
            // Once the file exists, adding it to the list must not fail.
            entered.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        let file = builder.tempfile_in(folder).map_err(without_name)?;
        if let Some(entered) = &mut entered {
            entered.push(file.path().to_path_buf());
        }
        Ok(Unfinished { file: Some(file), process: Owner::here() })
    }

    /// The open file. Not to be called after [`rename`](Self::rename).
    pub fn file(&self) -> &File {
        self.file.as_ref().expect("taken only when it is renamed").as_file()
    }

    /// Gives the file its final name. Replaces an existing file only if `overwrite`; writes into it if the system does
    /// not let us replace it.
    pub fn rename(&mut self, path: &Path, overwrite: bool) -> io::Result<()> {
        let mut entered = entered();
        let Some(file) = self.file.take() else { return Ok(()) };
        let name = file.path().to_path_buf();
        let renamed = if overwrite { file.persist(path) } else { file.persist_noclobber(path) };
        match renamed {
            Ok(_) => {
                leave(&mut entered, &name);
                Ok(())
            }
            Err(failed) => {
                self.file = Some(failed.file);
                drop(entered);
                match overwrite && cannot_be_replaced(&failed.error) {
                    true => self.write_into(path, failed.error),
                    false => Err(failed.error),
                }
            }
        }
    }

    /// Copies the contents into the file that has the name, and waits until they are on disk. If that file cannot be
    /// written either, `error` says why.
    fn write_into(&self, path: &Path, error: io::Error) -> io::Result<()> {
        let Ok(mut into) = open_in_place(path) else { return Err(error) };
        let mut from = self.file();
        from.rewind()?;
        into.set_len(0)?;
        io::copy(&mut from, &mut into)?;
        into.sync_all()
    }
}

/// The system's error, without the temporary name that tempfile puts beside it.
fn without_name(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|error| error.source());
    let number = cause.and_then(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    number.map_or(error, io::Error::from_raw_os_error)
}

/// Opens a file that cannot be replaced, to write into it. Does not follow a link: the path has been followed already,
/// if it should be.
pub fn open_in_place(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW);
    options.write(true).open(path)
}

/// Whether an error says that a file's name cannot be taken away from it, though its contents may be written: it is a
/// mount point, or another user's in a folder like `/tmp`.
pub fn cannot_be_replaced(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), ResourceBusy | PermissionDenied | ReadOnlyFilesystem)
}

fn leave(entered: &mut Option<MutexGuard<'static, Vec<PathBuf>>>, name: &Path) {
    if let Some(entered) = entered {
        entered.retain(|path| path != name);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // After a fork the file is the parent's.
        if !self.process.is_here() {
            return std::mem::forget(file);
        }
        let mut entered = entered();
        let name = file.path().to_path_buf();
        drop(file);
        leave(&mut entered, &name);
    }
}

/// Removes all unfinished files on the list just before the program ends. While the caller holds the returned guard,
/// no file can be renamed.
pub fn remove_all() -> impl Sized {
    let mut entered = entered();
    entered.iter_mut().for_each(|entered| remove(entered));
    entered
}

/// Removes all unfinished files on the list without blocking: does nothing if a thread, this one included, holds the
/// list's lock.
pub fn try_remove_all() {
    if let Some(mut entered) = ENTERED.try_lock() {
        remove(&mut entered);
    }
}

fn remove(entered: &mut Vec<PathBuf>) {
    for path in entered.drain(..) {
        // There is nothing more to do if this fails.
        let _ = fs::remove_file(path);
    }
}
