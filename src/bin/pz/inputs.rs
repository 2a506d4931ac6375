//! Which files a command works on, and what their outputs are called.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::failure::{Failure, describe_io};
use crate::source::Input;

/// The suffix of our own format.
pub const SUFFIX: &str = "pz";

/// Suffixes that decompression takes away, and what it puts in their place.
const SUFFIXES: [(&str, &str); 12] = [
    (SUFFIX, ""),
    ("tpz", "tar"),
    ("gz", ""),
    ("tgz", "tar"),
    ("zst", ""),
    ("tzst", "tar"),
    ("bz2", ""),
    ("tbz2", "tar"),
    ("tbz", "tar"),
    ("xz", ""),
    ("txz", "tar"),
    ("lz4", ""),
];

/// Which files of a directory are meant when it is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// Those that are not compressed by this program already.
    Uncompressed,
    /// Those that decompression knows a name for.
    Compressed,
    /// Those of our own format.
    Pz,
}

impl Select {
    fn takes(self, path: &Path) -> bool {
        let suffix = known_suffix(path).map(|(suffix, _)| suffix);
        match self {
            Select::Uncompressed => !matches!(suffix, Some(SUFFIX | "tpz")),
            Select::Compressed => suffix.is_some(),
            Select::Pz => matches!(suffix, Some(SUFFIX | "tpz")),
        }
    }
}

fn known_suffix(path: &Path) -> Option<(&'static str, &'static str)> {
    let suffix = path.extension()?.to_str()?.to_ascii_lowercase();
    SUFFIXES.into_iter().find(|(known, _)| *known == suffix)
}

/// Every file that the command line stands for, in order. No name at all stands for standard input.
///
/// Directories are read completely before the first file is worked on, since outputs appear beside inputs.
pub fn expand(
    names: &[PathBuf],
    recursive: bool,
    select: Select,
) -> Vec<Result<Input, (String, Failure)>> {
    if names.is_empty() {
        return vec![Ok(Input::Stdin)];
    }
    let mut inputs = Vec::with_capacity(names.len());
    for name in names {
        let input = Input::named(name.clone());
        match &input {
            Input::Path(path) if recursive && path.is_dir() => {
                walk(path, select, &mut inputs);
            }
            _ => inputs.push(Ok(input)),
        }
    }
    inputs
}

fn walk(folder: &Path, select: Select, inputs: &mut Vec<Result<Input, (String, Failure)>>) {
    for entry in WalkDir::new(folder).sort_by_file_name() {
        match entry {
            // Links, pipes and devices inside a directory are not what the user named.
            Ok(entry) if entry.file_type().is_file() && select.takes(entry.path()) => {
                inputs.push(Ok(Input::Path(entry.into_path())));
            }
            Ok(_) => {}
            Err(error) => {
                let place = Input::Path(error.path().unwrap_or(folder).to_path_buf()).to_string();
                let what = error.io_error().map_or_else(|| error.to_string(), describe_io);
                inputs.push(Err((place, Failure::environment(what))));
            }
        }
    }
}

/// The name of a compressed file: the whole name with our suffix.
pub fn compressed_name(path: &Path) -> Result<PathBuf, Failure> {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(SUFFIX);
    Ok(PathBuf::from(name))
}

/// The name of what a compressed file holds: the name without its suffix.
pub fn restored_name(path: &Path) -> Result<PathBuf, Failure> {
    match known_suffix(path) {
        Some((_, replacement)) => Ok(path.with_extension(replacement)),
        None => Err(Failure::environment("has no known suffix; -o names the output")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (compressed, restored) in [
            ("a.tar.pz", Some("a.tar")),
            ("d/a.PZ", Some("d/a")),
            ("a.tpz", Some("a.tar")),
            ("a.gz", Some("a")),
            ("a.tgz", Some("a.tar")),
            ("a.b.zst", Some("a.b")),
            ("a.tbz2", Some("a.tar")),
            ("a.lz4", Some("a")),
            ("a", None),
            ("a.txt", None),
            (".pz", None),
            ("d.pz/a", None),
        ] {
            let name = restored_name(Path::new(compressed)).ok();
            assert_eq!(name, restored.map(PathBuf::from), "{compressed}");
        }
        assert_eq!(compressed_name(Path::new("d/a.txt")).unwrap(), Path::new("d/a.txt.pz"));
    }

    #[test]
    fn selection() {
        for (name, uncompressed, compressed, pz) in [
            ("a.txt", true, false, false),
            ("a.gz", true, true, false),
            ("a.pz", false, true, true),
            ("pz", true, false, false),
        ] {
            let path = Path::new(name);
            assert_eq!(Select::Uncompressed.takes(path), uncompressed, "{name}");
            assert_eq!(Select::Compressed.takes(path), compressed, "{name}");
            assert_eq!(Select::Pz.takes(path), pz, "{name}");
        }
    }
}
