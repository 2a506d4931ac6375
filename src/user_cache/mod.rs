//! Small files that the user's cache folder keeps from one run to the next.
//!
//! Losing one costs only time, so a missing file is no error, and neither is a failed write. Callers check that a file
//! is complete and theirs. This module checks that no other user can have written it, because devices run the compiled
//! kernels that are kept here.
//!
//! | module | what |
//! |---|---|
//! | `folder` | an open folder, where the system has owners and modes |
//! | `portable` | the same without them |

#[cfg(unix)]
mod folder;
#[cfg(not(unix))]
#[path = "portable.rs"]
mod folder;
#[cfg(all(test, unix))]
mod tests;

use folder::Folder;
use std::io;
use std::path::{Path, PathBuf};

use crate::sync::Lock;

/// A folder of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UserCache {
    /// `None`: no file is kept.
    folder: Option<PathBuf>,
}

/// Why a file was not read or written.
#[derive(Debug)]
enum Unusable {
    /// It is missing, or the system refuses. Not worth telling the user.
    Absent,
    /// Using it would be unsafe. The user is told why.
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no owners and modes to object to"))]
    Unsafe(String),
}

impl From<io::Error> for Unusable {
    fn from(_: io::Error) -> Self {
        Self::Absent
    }
}

/// The first reason in this process not to use a cache.
static REFUSAL: Lock<Option<String>> = Lock::new();

impl UserCache {
    /// The user's cache: `pz` in `$XDG_CACHE_HOME`, or in the system's usual place. Keeps nothing if that place belongs
    /// to another user.
    pub(crate) fn of_user() -> Self {
        let Some(base) = user_folder() else { return Self::default() };
        let folder = base.join("pz");
        match folder::check_base(&base) {
            Ok(()) => Self { folder: Some(folder) },
            Err(unusable) => {
                unusable.note(&folder);
                Self::default()
            }
        }
    }

    /// A cache in `folder`; with `None`, one that keeps nothing.
    pub(crate) fn in_folder(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// Whether files are kept at all.
    #[cfg(any(feature = "opencl", feature = "webgpu"))]
    pub(crate) fn is_there(&self) -> bool {
        self.folder.is_some()
    }

    /// The contents of the file called `name`, if it exists, is safe to use, and has at most `most` bytes.
    pub(crate) fn load(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        let path = self.folder.as_ref()?;
        let loaded = Folder::open(path).and_then(|folder| folder.load(name, most));
        loaded.map_err(|unusable| unusable.note(path)).ok()
    }

    /// Keeps a file if possible. A concurrent reader gets either the old contents or the new.
    pub(crate) fn save(&self, name: &str, bytes: &[u8]) {
        let Some(path) = &self.folder else { return };
        let saved = Folder::create(path).and_then(|folder| folder.save(name, bytes));
        if let Err(unusable) = saved {
            unusable.note(path);
        }
    }

    /// The path of the file called `name`.
    #[cfg(test)]
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(name))
    }
}

impl Unusable {
    #[cfg(unix)]
    fn because(why: impl std::fmt::Display) -> Self {
        Self::Unsafe(why.to_string())
    }

    /// Remembers the first reason that the user should know.
    fn note(self, folder: &Path) {
        let Self::Unsafe(why) = self else { return };
        REFUSAL.lock().get_or_insert_with(|| format!("{}: {why}", folder.display()));
    }
}

/// Why this process does not use the user's cache folder, or a file in it: another user could have written it. `None`
/// if no such thing has been seen so far. Whatever the file held is measured or compiled again.
pub fn refused_cache() -> Option<String> {
    REFUSAL.lock().clone()
}

#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
fn user_folder() -> Option<PathBuf> {
    use etcetera::BaseStrategy;
    // Honour the variable on every system, even where the custom is another folder.
    let set =
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    set.or_else(|| Some(etcetera::choose_base_strategy().ok()?.cache_dir()))
}

/// Without devices there is nothing to keep.
#[cfg(not(any(feature = "cuda", feature = "opencl", feature = "webgpu")))]
fn user_folder() -> Option<PathBuf> {
    None
}
