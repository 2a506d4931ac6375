//! An open folder that only its owner can write to.
//!
//! Every operation is relative to the open folder and checks open files, so renames above the folder, by anyone, do not
//! matter.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, renameat, unlinkat};
use rustix::process::geteuid;

use super::Unusable;

/// An open folder.
pub(super) struct Folder(OwnedFd);

/// Refuses another user's base folder when we are root, as `sudo` can leave it in the environment: its owner could not
/// remove the files that root writes there.
pub(super) fn check_base(base: &Path) -> Result<(), Unusable> {
    let user = geteuid();
    if !user.is_root() {
        return Ok(());
    }
    let nearest = base.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?)));
    match nearest {
        Some((path, metadata)) if metadata.uid() != user.as_raw() => {
            Err(Unusable::because(format_args!("{} belongs to another user", path.display())))
        }
        _ => Ok(()),
    }
}

impl Folder {
    /// Opens an existing folder.
    pub(super) fn open(path: &Path) -> Result<Self, Unusable> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let folder = opened.map_err(|error| {
            let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
            if is_link {
                Unusable::because("is a symbolic link")
            } else {
                Unusable::from(io::Error::from(error))
            }
        })?;
        check(&fstat(&folder).map_err(io::Error::from)?)?;
        Ok(Self(folder))
    }

    /// Opens a folder, after creating it if it is missing.
    pub(super) fn create(path: &Path) -> Result<Self, Unusable> {
        if fs::symlink_metadata(path).is_err() {
            // The attempt to open it shows whether this failed.
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        }
        Self::open(path)
    }

    /// Reads a file of at most `most` bytes.
    pub(super) fn load(&self, name: &str, most: u64) -> Result<Vec<u8>, Unusable> {
        // Do not wait for the other end of a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&self.0, name, flags, Mode::empty());
        let file = opened.map_err(|error| match error {
            rustix::io::Errno::LOOP => Unusable::because(format_args!("{name} is a symbolic link")),
            error => Unusable::from(io::Error::from(error)),
        })?;
        let stat = fstat(&file).map_err(io::Error::from)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            return Err(Unusable::Absent);
        }
        if kind != FileType::RegularFile {
            return Err(Unusable::because(format_args!("{name} is not a regular file")));
        }
        check(&stat).map_err(|unusable| match unusable {
            Unusable::Unsafe(why) => Unusable::because(format_args!("{name} {why}")),
            Unusable::Absent => Unusable::Absent,
        })?;
        let mut bytes = Vec::new();
        File::from(file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most { Err(Unusable::Absent) } else { Ok(bytes) }
    }

    /// Writes a temporary file, then renames it to `name`.
    pub(super) fn save(&self, name: &str, bytes: &[u8]) -> Result<(), Unusable> {
        let random = RandomState::new().hash_one(name);
        let temporary = format!("{name}.{random:016x}.tmp");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.0, &*temporary, flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(io::Error::from)?;
        let written = File::from(file)
            .write_all(bytes)
            .and_then(|()| Ok(renameat(&self.0, &*temporary, &self.0, name)?));
        if written.is_err() {
            let _ = unlinkat(&self.0, &*temporary, AtFlags::empty());
        }
        Ok(written?)
    }
}

/// Refuses a file or folder that another user owns or may write to.
fn check(stat: &Stat) -> Result<(), Unusable> {
    if stat.st_uid != geteuid().as_raw() {
        return Err(Unusable::because("belongs to another user"));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(Unusable::because("may be written by others"));
    }
    Ok(())
}
