//! The folder that a file lies in.

use std::fs::File;
use std::io;
use std::path::Path;

/// The folder of a path.
pub fn of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Syncs a folder, so that new names in it survive a crash.
pub fn sync(folder: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        // Other systems cannot open a folder as a file.
        return Ok(());
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some network file systems cannot sync folders, and a folder may be writable but not readable. The file is
        // complete anyway.
        Err(error) if UNSYNCABLE.contains(&error.kind()) => Ok(()),
        other => other,
    }
}

/// Errors which mean that a file cannot be synced at all, rather than that syncing failed.
pub const UNSYNCABLE: [io::ErrorKind; 3] =
    [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders() {
        for (path, parent) in [("a", "."), ("./a", "."), ("d/a", "d"), ("/a", "/"), ("../a", "..")]
        {
            assert_eq!(of(Path::new(path)), Path::new(parent), "{path}");
        }
    }
}
