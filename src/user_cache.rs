//! Small files in the user's cache folder, from one run to the next.
//!
//! It is a cache: a file that is missing is as good as none, and one that cannot be written is not written. Whether a
//! file is whole and its own is for those to say who keep it here.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, process};

/// A folder of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UserCache {
    /// `None`: nothing is kept.
    folder: Option<PathBuf>,
}

impl UserCache {
    /// The user's: `pz` in `$XDG_CACHE_HOME`, or where the system has such things.
    pub(crate) fn of_user() -> Self {
        Self { folder: user_folder().map(|folder| folder.join("pz")) }
    }

    /// A folder of the caller's choice, or none.
    pub(crate) fn in_folder(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// Whether anything is kept.
    #[cfg(any(feature = "opencl", feature = "webgpu"))]
    pub(crate) fn is_there(&self) -> bool {
        self.folder.is_some()
    }

    /// The file of that name, unless it has more than `most` bytes.
    pub(crate) fn load(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        let path = self.path(name)?;
        if fs::metadata(&path).ok()?.len() > most {
            return None;
        }
        fs::read(&path).ok()
    }

    /// Keeps a file, if that is possible. Whoever reads it at the same time reads the old one or the new one.
    pub(crate) fn save(&self, name: &str, bytes: &[u8]) {
        let Some(path) = self.path(name) else { return };
        let Some(folder) = path.parent() else { return };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}-{number}.tmp", process::id()));
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&temporary, bytes))
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
    }

    /// Where the file of that name is.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(name))
    }
}

#[cfg(any(feature = "opencl", feature = "webgpu"))]
fn user_folder() -> Option<PathBuf> {
    use etcetera::BaseStrategy;
    // Also on systems that have other customs, if the user has set it.
    let set =
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    set.or_else(|| Some(etcetera::choose_base_strategy().ok()?.cache_dir()))
}

/// Without devices nothing is kept.
#[cfg(not(any(feature = "opencl", feature = "webgpu")))]
fn user_folder() -> Option<PathBuf> {
    None
}
