//! A folder on a system that by itself keeps other users out of a user's folders.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::Unusable;

/// A folder.
pub(super) struct Folder(PathBuf);

pub(super) fn check_base(_base: &Path) -> Result<(), Unusable> {
    Ok(())
}

impl Folder {
    /// Opens an existing folder.
    pub(super) fn open(path: &Path) -> Result<Self, Unusable> {
        Ok(Self(path.to_path_buf()))
    }

    /// Opens a folder, after creating it if it is missing.
    pub(super) fn create(path: &Path) -> Result<Self, Unusable> {
        fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// Reads a file of at most `most` bytes.
    pub(super) fn load(&self, name: &str, most: u64) -> Result<Vec<u8>, Unusable> {
        let path = self.0.join(name);
        if !fs::symlink_metadata(&path)?.is_file() {
            return Err(Unusable::Absent);
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most { Err(Unusable::Absent) } else { Ok(bytes) }
    }

    /// Writes a temporary file, then renames it to `name`.
    pub(super) fn save(&self, name: &str, bytes: &[u8]) -> Result<(), Unusable> {
        let random = RandomState::new().hash_one(name);
        let temporary = self.0.join(format!("{name}.{random:016x}.tmp"));
        let written = File::create_new(&temporary)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&temporary, self.0.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        Ok(written?)
    }
}
