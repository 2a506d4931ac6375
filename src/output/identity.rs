//! Tells whether two paths lead to the same file, however they are spelled.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

use super::folder;

/// What a file is to its system, under whichever name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u64, u64);

impl FileId {
    /// The file that a path leads to, through links.
    ///
    /// # Errors
    /// The errors of looking it up.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        return fs::metadata(path).map(|metadata| Self::of(&metadata));
        #[cfg(not(unix))]
        same_file::Handle::from_path(path).map(|handle| Self::of(&handle))
    }

    /// The regular file that a path leads to, through links; `None` if it leads to none.
    pub fn of_regular_file(path: &Path) -> Option<Self> {
        // A pipe must not be opened to be looked at.
        let is_regular = fs::metadata(path).is_ok_and(|found| found.is_file());
        if is_regular { Self::of_path(path).ok() } else { None }
    }

    /// An open file.
    ///
    /// # Errors
    /// The errors of looking it up.
    pub fn of_file(file: &File) -> io::Result<Self> {
        #[cfg(unix)]
        return file.metadata().map(|metadata| Self::of(&metadata));
        #[cfg(not(unix))]
        same_file::Handle::from_file(file.try_clone()?).map(|handle| Self::of(&handle))
    }

    /// The file that `metadata` describes.
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(metadata.dev(), metadata.ino())
    }

    /// Its hash stands for the handle, since a handle keeps the file open.
    #[cfg(not(unix))]
    fn of(handle: &same_file::Handle) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        handle.hash(&mut hasher);
        Self(0, hasher.finish())
    }
}

/// A name in a folder, whether or not a file has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    folder: FileId,
    name: OsString,
}

impl Name {
    /// The name that a path ends with. If the last part of the path is a link, the name is the link's.
    ///
    /// # Errors
    /// Those of looking up the folder, and [`io::ErrorKind::InvalidInput`] for a path that ends with no name.
    pub fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_os_string();
        Ok(Self { folder: FileId::of_path(folder::of(path))?, name })
    }
}
