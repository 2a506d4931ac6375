//! Paths such as `/dev/stdout` and `/dev/fd/3`, which lead to files that are open already.
//!
//! Opening such a path is not the same as using the open file: a socket cannot be opened, a pipe of another user may
//! not be, and a regular file would be written from its beginning.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::folder;

/// The number of links that the system follows before it gives up.
const MAX_LINKS: usize = 40;

/// Follows the links of a path that need not lead to a file. `last` decides at each path whether to stop there.
fn follow<T>(
    path: &Path,
    mut last: impl FnMut(&Path, &Path) -> Option<T>,
) -> Option<Result<T, PathBuf>> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let folder = fs::canonicalize(folder::of(&path)).ok()?;
        let here = folder.join(path.file_name()?);
        if let Some(found) = last(&folder, &here) {
            return Some(Ok(found));
        }
        match fs::read_link(&here) {
            Ok(next) => path = folder.join(next),
            Err(_) => return Some(Err(here)),
        }
    }
    None
}

/// The name at the end of a path's links, whether or not a file has it; `None` if there is no such folder, or if the
/// links form a circle.
pub(super) fn end_of_links(path: &Path) -> Option<PathBuf> {
    follow(path, |_, _| None::<()>)?.err()
}

/// The number of this process's descriptor that a path leads to; `None` for any other path.
pub fn number(path: &Path) -> Option<u32> {
    let ours = fs::canonicalize("/proc/self/fd").ok();
    let number = follow(path, |folder, here| {
        let is_ours = Some(folder) == ours.as_deref() || folder == Path::new("/dev/fd");
        is_ours.then(|| here.file_name()?.to_str()?.parse().ok())
    });
    number?.ok()?
}

/// Whether a path leads to an open file, of this process or another.
pub(super) fn is_open_file(path: &Path) -> bool {
    let is_listed = |folder: &Path| {
        folder.starts_with("/proc") && folder.ends_with("fd") || folder == Path::new("/dev/fd")
    };
    follow(path, |folder, _| is_listed(folder).then_some(())).is_some_and(|found| found.is_ok())
}

/// The open file that a path leads to, to be written from where it stands.
pub(super) fn open(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    if let Some(number) = number(path) {
        return duplicate(number);
    }
    // Another process's: append, so that the file keeps what it holds.
    File::options().append(true).open(path)
}

#[cfg(unix)]
fn duplicate(number: u32) -> io::Result<File> {
    use std::os::fd::FromRawFd;

    let number = i32::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the call takes any number, and fails if it is no open descriptor's.
    let descriptor = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so that nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}
