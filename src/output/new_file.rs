//! Where an output goes, and how it gets there.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::attributes::{self, RefusedAttributes};
use super::unfinished::{Unfinished, cannot_be_replaced, open_in_place};
use super::{descriptor, folder};

/// What may happen to a file that has the output's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing: the output is refused.
    Stays,
    /// It is replaced. So is a link, since the user did not choose the name.
    IsReplaced,
    /// The file that the name leads to is replaced, and a link to it stays.
    IsFollowedAndReplaced,
}

/// Why a file is not created.
#[derive(Debug)]
pub enum Refusal {
    /// A file has the name, and must stay.
    Exists,
    /// It is a block device, such as a disk, and [`Existing::Stays`].
    IsBlockDevice,
    /// The system refuses.
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AlreadyExists => Refusal::Exists,
            _ => Refusal::Io(error),
        }
    }
}

/// A file that is being written. Dropping it before it is [finished](Self::finish) removes what has been written,
/// unless that was written in place.
pub struct NewFile {
    place: Place,
    /// Owner, mode and times that it gets.
    like: Option<Like>,
}

enum Place {
    /// Under a temporary name, until it becomes `path`.
    Unfinished { file: Unfinished, path: PathBuf, overwrite: bool },
    /// A regular file that cannot be replaced, opened for writing. It keeps its contents until `is_begun`.
    Irreplaceable { file: File, path: PathBuf, is_begun: bool },
    /// A device, a pipe or an open file.
    Special(File),
}

/// Whose attributes a file gets.
enum Like {
    /// Owner, mode and times of its source.
    Source(Metadata),
    /// Owner and mode of the file that it replaces.
    Replaced(Metadata),
}

impl NewFile {
    /// Creates a file to become `path`; does nothing yet to a file that has this name. The new file will get owner,
    /// mode and times of its `source`. Without one it gets owner and mode of the file that it replaces, or else the
    /// mode of any new file. Until then only its owner may read it.
    ///
    /// # Errors
    /// If there is a file that must stay, or if none can be written.
    pub fn create(
        path: &Path,
        existing: Existing,
        source: Option<&Metadata>,
    ) -> Result<Self, Refusal> {
        let overwrite = existing != Existing::Stays;
        let found = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // With a link that leads nowhere the user may not follow, for example.
            Err(_) if !overwrite && fs::symlink_metadata(path).is_ok() => {
                return Err(Refusal::Exists);
            }
            Err(_) if existing == Existing::IsReplaced => None,
            Err(error) => return Err(Refusal::Io(error)),
        };
        if let Some(found) = &found {
            if found.is_dir() {
                return Err(Refusal::Io(io::ErrorKind::IsADirectory.into()));
            } else if is_block_device(found) && !overwrite {
                return Err(Refusal::IsBlockDevice);
            } else if descriptor::is_open_file(path) {
                // Renaming would replace the link to the open file.
                return Ok(Self::special(descriptor::open(path)?));
            } else if !found.is_file() {
                return Ok(Self::special(File::options().write(true).open(path)?));
            }
        }
        // A link that leads nowhere counts as a file, too.
        let is_there = found.is_some() || fs::symlink_metadata(path).is_ok();
        if is_there && !overwrite {
            return Err(Refusal::Exists);
        }
        let is_followed = existing == Existing::IsFollowedAndReplaced;
        let end = if is_followed { descriptor::end_of_links(path) } else { None };
        let path = end.unwrap_or_else(|| path.to_path_buf());
        let like = match (source, found) {
            (Some(source), _) => Some(Like::Source(source.clone())),
            (None, found) => found.map(Like::Replaced),
        };
        match Unfinished::create_in(folder::of(&path), true) {
            Ok(file) => Ok(Self { place: Place::Unfinished { file, path, overwrite }, like }),
            Err(error) if is_there && cannot_be_replaced(&error) => {
                let Ok(file) = open_in_place(&path) else { return Err(error.into()) };
                Ok(Self { place: Place::Irreplaceable { file, path, is_begun: false }, like: None })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn special(file: File) -> Self {
        Self { place: Place::Special(file), like: None }
    }

    /// The file, to be written from its beginning; [`begin`](Self::begin) first.
    pub fn file(&self) -> &File {
        match &self.place {
            Place::Unfinished { file, .. } => file.file(),
            Place::Irreplaceable { file, .. } | Place::Special(file) => file,
        }
    }

    /// Prepares the file for its first bytes: empties one that is written in place. Further calls do nothing.
    ///
    /// # Errors
    /// Those of emptying it.
    pub fn begin(&mut self) -> io::Result<()> {
        if let Place::Irreplaceable { file, is_begun, .. } = &mut self.place
            && !*is_begun
        {
            file.set_len(0)?;
            *is_begun = true;
        }
        Ok(())
    }

    /// Whether it has no name yet, so that no other program knows it.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.place, Place::Unfinished { .. })
    }

    /// Whether it is or becomes a regular file under its own name.
    pub fn is_regular(&self) -> bool {
        !matches!(self.place, Place::Special(_))
    }

    /// Whether a file that was there has been changed, and is incomplete until [`finish`](Self::finish).
    pub fn is_begun_in_place(&self) -> bool {
        matches!(self.place, Place::Irreplaceable { is_begun: true, .. })
    }

    /// Opens what has been written, from its beginning. Works only for a [regular](Self::is_regular) file.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn reopen(&self) -> io::Result<File> {
        match &self.place {
            Place::Unfinished { file, .. } => {
                let mut file = file.file().try_clone()?;
                io::Seek::rewind(&mut file)?;
                Ok(file)
            }
            Place::Irreplaceable { path, .. } => File::open(path),
            Place::Special(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sets owner, mode and times; a file that is written in place keeps its own.
    pub fn set_attributes(&self) -> RefusedAttributes {
        match (&self.place, &self.like) {
            (_, Some(Like::Source(source))) => attributes::imitate(self.file(), source),
            (_, Some(Like::Replaced(old))) => attributes::imitate_owner_and_mode(self.file(), old),
            (Place::Unfinished { file, path, .. }, None) => {
                // Only the system knows: the mode depends on the umask, and on the folder's access control list.
                let usual = Unfinished::create_in(folder::of(path), false);
                match usual.and_then(|usual| usual.file().metadata()) {
                    Ok(usual) => attributes::imitate_owner_and_mode(file.file(), &usual),
                    Err(error) => RefusedAttributes::of_mode(error),
                }
            }
            (_, None) => RefusedAttributes::default(),
        }
    }

    /// Gives the file its name, if it has none.
    ///
    /// # Errors
    /// If a file has got the name meanwhile and must stay, or those of renaming or of writing in place.
    pub fn finish(&mut self) -> Result<(), Refusal> {
        self.begin()?;
        if let Place::Unfinished { file, path, overwrite } = &mut self.place {
            file.rename(path, *overwrite)?;
        }
        Ok(())
    }
}

#[cfg(unix)]
fn is_block_device(metadata: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type())
}

#[cfg(not(unix))]
fn is_block_device(_: &Metadata) -> bool {
    false
}
