//! The files of one folder, and no others.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

/// The folder whose files are served.
pub struct Root(folder::Folder);

/// A file, open for an answer.
pub struct Served {
    pub file: File,
    pub len: u64,
    /// The entity tag, in quotes, which differs for each version of the file.
    pub tag: String,
}

impl Root {
    pub fn open(folder: &Path) -> io::Result<Self> {
        folder::Folder::open(folder).map(Root)
    }

    /// Opens the file that a request's target names, or returns the status to answer with.
    pub fn file(&self, target: &str) -> Result<Served, u16> {
        let names = names(target).ok_or(404_u16)?;
        let file = self.0.file(&names).map_err(|error| status(&error))?;
        let metadata = file.metadata().map_err(|error| status(&error))?;
        if !metadata.is_file() {
            return Err(404);
        }
        Ok(Served { len: metadata.len(), tag: tag(&metadata), file })
    }
}

/// A client may take a 404 for an array chunk of zeros, so only names that do not exist or are no files get a 404.
fn status(error: &io::Error) -> u16 {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput => 404,
        ErrorKind::PermissionDenied => 403,
        ErrorKind::OutOfMemory | ErrorKind::WouldBlock | ErrorKind::Interrupted => 503,
        _ => status_of_system(error),
    }
}

#[cfg(unix)]
fn status_of_system(error: &io::Error) -> u16 {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        // Links, sockets and devices.
        Some(Errno::LOOP | Errno::NXIO | Errno::NODEV) => 404,
        // Out of descriptors: other answers will free some.
        Some(Errno::MFILE | Errno::NFILE) => 503,
        _ => 500,
    }
}

#[cfg(not(unix))]
fn status_of_system(_: &io::Error) -> u16 {
    500
}

/// The names of the folders and the file on the way to a target; `None` if one could lead elsewhere.
fn names(target: &str) -> Option<Vec<Vec<u8>>> {
    let path = target.split('?').next()?.strip_prefix('/')?;
    path.split('/')
        .map(|name| {
            // Decode the name first: the check must see what the encoding stands for.
            let name = pz::internal::percent_decode(name)?;
            let is_special = name.is_empty() || name == b"." || name == b"..";
            let is_plain = !is_special && !name.iter().any(|byte| FORBIDDEN.contains(byte));
            is_plain.then_some(name)
        })
        .collect()
}

/// Bytes that separate or end names.
#[cfg(unix)]
const FORBIDDEN: &[u8] = b"/\0";
#[cfg(not(unix))]
const FORBIDDEN: &[u8] = b"/\\:\0";

/// A changed file gets another tag, since its length or its times differ.
fn tag(metadata: &Metadata) -> String {
    let since = |time: io::Result<std::time::SystemTime>| {
        let since = time.ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(since.as_nanos())
    };
    let modified = since(metadata.modified()).unwrap_or_default();
    #[cfg(unix)]
    let (file, changed) = {
        use std::os::unix::fs::MetadataExt;
        (metadata.ino(), (metadata.ctime() as u128) << 30 | metadata.ctime_nsec() as u128)
    };
    #[cfg(not(unix))]
    let (file, changed) = (0_u64, 0_u128);
    format!("\"{:x}-{modified:x}-{changed:x}-{file:x}\"", metadata.len())
}

#[cfg(unix)]
mod folder {
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::{Mode, OFlags, open, openat};

    /// An open folder. Each name of a path is opened inside the open folder before it, without following links, so the
    /// result stays inside even if folders are moved meanwhile.
    pub struct Folder(OwnedFd);

    impl Folder {
        pub fn open(path: &Path) -> io::Result<Self> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(Folder(open(path, flags, Mode::empty())?))
        }

        pub fn file(&self, names: &[Vec<u8>]) -> io::Result<File> {
            let (last, folders) = names.split_last().ok_or(io::ErrorKind::NotFound)?;
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut folder = self.0.try_clone()?;
            for name in folders {
                folder = openat(&folder, name, flags | OFlags::DIRECTORY, Mode::empty())?;
            }
            // Does not wait for the other end of a pipe.
            let file = openat(&folder, last, flags | OFlags::NONBLOCK, Mode::empty())?;
            Ok(File::from(file))
        }
    }
}

#[cfg(not(unix))]
mod folder {
    use std::fs::{self, File};
    use std::io;
    use std::path::{Path, PathBuf};

    /// A folder. Links in it are refused.
    pub struct Folder(PathBuf);

    impl Folder {
        pub fn open(path: &Path) -> io::Result<Self> {
            fs::read_dir(path)?;
            fs::canonicalize(path).map(Folder)
        }

        pub fn file(&self, names: &[Vec<u8>]) -> io::Result<File> {
            let mut path = self.0.clone();
            for name in names {
                path.push(str::from_utf8(name).map_err(|_| io::ErrorKind::NotFound)?);
                if fs::symlink_metadata(&path)?.is_symlink() {
                    return Err(io::ErrorKind::NotFound.into());
                }
            }
            if !fs::canonicalize(&path)?.starts_with(&self.0) {
                return Err(io::ErrorKind::NotFound.into());
            }
            File::open(path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn only_missing_files_are_not_found() {
        use rustix::io::Errno;
        for (errors, expected) in [
            (&[Errno::NOENT, Errno::NOTDIR, Errno::NAMETOOLONG, Errno::LOOP, Errno::NXIO][..], 404),
            (&[Errno::ACCESS, Errno::PERM], 403),
            (&[Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN], 503),
            (&[Errno::IO, Errno::STALE, Errno::OVERFLOW], 500),
        ] {
            for error in errors {
                assert_eq!(status(&io::Error::from(*error)), expected, "{error:?}");
            }
        }
    }

    #[test]
    fn targets() {
        for (target, expected) in [
            ("/a", Some(vec!["a"])),
            ("/a/b%20c?d", Some(vec!["a", "b c"])),
            ("/...", Some(vec!["..."])),
            ("/%252e%252e", Some(vec!["%2e%2e"])),
            ("/", None),
            ("a", None),
            ("", None),
            ("/../a", None),
            ("/a/..", None),
            ("/a/../../b", None),
            ("/%2e%2e/a", None),
            ("/.%2E/a", None),
            ("/./a", None),
            ("//etc/passwd", None),
            ("/..%2fa", None),
            ("/a%00b", None),
            ("/a%", None),
            ("http://h/a", None),
        ] {
            let expected: Option<Vec<Vec<u8>>> = expected
                .map(|names| names.into_iter().map(|name| name.as_bytes().to_vec()).collect());
            assert_eq!(names(target), expected, "{target}");
        }
    }
}
