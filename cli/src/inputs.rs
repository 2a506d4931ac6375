//! Finds the files that a command works on, and names their outputs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use glob::Pattern;
use pz::access::Uri;
use walkdir::{DirEntry, WalkDir};

use crate::failure::{Failure, describe_io};
use crate::selection::Selection;
use crate::source::Input;

/// The suffix of our own format.
pub const SUFFIX: &str = "pz";

/// Suffixes that decompression removes, and what replaces each.
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

/// Which files of a directory a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// All except compressed files of this program.
    Uncompressed,
    /// Those with a suffix that decompression knows.
    Compressed,
    /// Those in our own format.
    Pz,
}

impl Select {
    /// `suffix` is the user's suffix instead of ours, if any.
    fn takes(self, path: &Path, suffix: Option<&str>) -> bool {
        let has_chosen = suffix.is_some_and(|suffix| without_ending(path, suffix).is_some());
        let known = known_suffix(path).map(|(suffix, _)| suffix);
        let is_pz = has_chosen || matches!(known, Some(SUFFIX | "tpz"));
        match self {
            Select::Uncompressed => !is_pz,
            Select::Compressed => has_chosen || known.is_some(),
            Select::Pz => is_pz,
        }
    }
}

fn known_suffix(path: &Path) -> Option<(&'static str, &'static str)> {
    let suffix = path.extension()?.to_str()?.to_ascii_lowercase();
    SUFFIXES.into_iter().find(|(known, _)| *known == suffix)
}

/// The path without the user's suffix. `None` if its name does not end with the suffix, or is only the suffix.
fn without_ending(path: &Path, ending: &str) -> Option<PathBuf> {
    let name = path.file_name()?.as_encoded_bytes();
    let rest = name.strip_suffix(ending.as_bytes()).filter(|rest| !rest.is_empty())?;
    // Cutting a valid suffix off a valid Unicode name leaves a valid one. Leave any other name alone.
    str::from_utf8(rest).ok().map(|rest| path.with_file_name(rest))
}

/// Every file that the command line names, in order. Without names it is standard input.
///
/// Directories are listed before the first file is processed, since outputs appear beside inputs.
pub fn expand(
    names: &[PathBuf],
    selection: &Selection,
    select: Select,
) -> Vec<Result<Input, (String, Failure)>> {
    if names.is_empty() {
        return vec![Ok(Input::Stdin)];
    }
    let mut inputs = Vec::with_capacity(names.len());
    for name in names {
        match Input::named(name) {
            Ok(Input::Path(path)) if selection.recursive && path.is_dir() => {
                walk(&path, selection, select, &mut inputs);
            }
            input => inputs.push(input),
        }
    }
    inputs
}

fn walk(
    folder: &Path,
    selection: &Selection,
    select: Select,
    inputs: &mut Vec<Result<Input, (String, Failure)>>,
) {
    let suffix = selection.suffix.as_deref();
    let entries = WalkDir::new(folder).sort_by_file_name().into_iter();
    for entry in entries.filter_entry(|entry| !is_excluded(folder, entry, &selection.exclude)) {
        match entry {
            // The user did not name the links, pipes and devices in a directory.
            Ok(entry) if entry.file_type().is_file() && select.takes(entry.path(), suffix) => {
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

/// Whether a glob matches the name of a file or directory, or its path below the `folder` that the user named.
fn is_excluded(folder: &Path, entry: &DirEntry, globs: &[Pattern]) -> bool {
    let place = entry.path().strip_prefix(folder).unwrap_or(entry.path()).to_string_lossy();
    let name = entry.file_name().to_string_lossy();
    entry.depth() > 0 && globs.iter().any(|glob| glob.matches(&name) || glob.matches(&place))
}

/// The name of a local copy of the file that `uri` names, in the current folder.
pub fn local_name(uri: &Uri) -> Result<PathBuf, Failure> {
    let name = uri.file_name().map(PathBuf::from);
    name.ok_or_else(|| Failure::environment("has no name for an output; -o names it"))
}

/// The name of a compressed file: the whole name, then our suffix or the user's.
pub fn compressed_name(path: &Path, suffix: Option<&str>) -> PathBuf {
    let mut name = OsString::from(path);
    match suffix {
        Some(suffix) => name.push(suffix),
        None => {
            name.push(".");
            name.push(SUFFIX);
        }
    }
    PathBuf::from(name)
}

/// The name of a restored file: the name without its suffix.
pub fn restored_name(path: &Path, suffix: Option<&str>) -> Result<PathBuf, Failure> {
    if let Some(path) = suffix.and_then(|suffix| without_ending(path, suffix)) {
        return Ok(path);
    }
    match known_suffix(path) {
        Some((_, replacement)) => Ok(path.with_extension(replacement)),
        None => Err(Failure::environment("has no known suffix; -o names the output")),
    }
}

/// Moves `output` from beside its input into `folder`, the folder for outputs. If the user named a directory above the
/// input, the output keeps that directory's name and the path below it.
pub fn in_folder(folder: &Path, output: &Path, names: &[PathBuf]) -> PathBuf {
    let above = |name: &&PathBuf| output.parent().is_some_and(|parent| parent.starts_with(name));
    let place = match names.iter().filter(above).find(|name| name.is_dir()) {
        Some(root) => {
            let inside = output.strip_prefix(root).unwrap_or(output);
            Path::new(root.file_name().unwrap_or_default()).join(inside)
        }
        None => PathBuf::from(output.file_name().unwrap_or_default()),
    };
    folder.join(place)
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
            let name = restored_name(Path::new(compressed), None).ok();
            assert_eq!(name, restored.map(PathBuf::from), "{compressed}");
        }
        let path = Path::new("d/a.txt");
        assert_eq!(compressed_name(path, None), Path::new("d/a.txt.pz"));
        assert_eq!(compressed_name(path, Some("-x")), Path::new("d/a.txt-x"));
        for (compressed, restored) in
            [("d/a-x", Some("d/a")), ("a.gz", Some("a")), ("-x", None), ("d-x/a", None)]
        {
            let name = restored_name(Path::new(compressed), Some("-x")).ok();
            assert_eq!(name, restored.map(PathBuf::from), "{compressed}");
        }
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
            assert_eq!(Select::Uncompressed.takes(path, None), uncompressed, "{name}");
            assert_eq!(Select::Compressed.takes(path, None), compressed, "{name}");
            assert_eq!(Select::Pz.takes(path, None), pz, "{name}");
        }
        let chosen = Path::new("a.x");
        assert!(!Select::Uncompressed.takes(chosen, Some(".x")));
        assert!(
            Select::Compressed.takes(chosen, Some(".x")) && Select::Pz.takes(chosen, Some(".x"))
        );
    }
}
