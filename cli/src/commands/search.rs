//! `pz search`: finds a byte string in the files of a folder, with a kernel that asks for them while it runs.
//!
//! It is a command and no example, because it is how a user tries a door without a kernel of their own (`docs/gpu.md`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pz::door::{Door, DoorOptions, FileMode, OpenedFile};

use super::door::failure;
use crate::args::Search;
use crate::failure::{Failure, describe_io, show, without_number};
use crate::session::Session;
use crate::settings;
use crate::source::Input;
use crate::table;

/// Number of files to search at once.
const FILES: usize = 256;

/// Prints each place where the pattern occurs.
pub fn run(args: &Search, session: &mut Session) -> Result<(), Failure> {
    let gpu = args.device.open(settings::gpu_memory(args.gpu_memory)?)?;
    let device = gpu.as_ref().map(|gpu| gpu.device());
    let device = device.transpose().map_err(|error| Failure::environment(error.to_string()))?;
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(&args.folder).sort_by_file_name() {
        match entry {
            Ok(entry) if entry.file_type().is_file() => files.push(entry.into_path()),
            Ok(_) => {}
            Err(error) => {
                let path = error.path().unwrap_or(&args.folder).to_path_buf();
                // The error's own text would repeat the path.
                let why = error.io_error().map(describe_io);
                let failure = Failure::environment(why.unwrap_or_else(|| error.to_string()));
                session.fail(Input::Path(path), failure);
            }
        }
    }
    let options = DoorOptions::new().folder(&args.folder).files(FILES);
    for some in files.chunks(FILES) {
        let door = match device {
            Some(device) => Door::of_device(Arc::clone(device), &options),
            None => Door::on_host(&options),
        };
        search(&door.map_err(failure)?, some, args, session)?;
    }
    Ok(())
}

/// How to read a file: if its name ends in `.pz`, search its contents.
fn mode(path: &Path) -> FileMode {
    match path.extension().is_some_and(|extension| extension == "pz") {
        true => FileMode::Contents,
        false => FileMode::Plain,
    }
}

fn search(
    door: &Door,
    files: &[PathBuf],
    args: &Search,
    session: &mut Session,
) -> Result<(), Failure> {
    let mut opened: Vec<(&PathBuf, OpenedFile)> = Vec::new();
    for path in files {
        let below = path.strip_prefix(&args.folder).unwrap_or(path);
        match door.open_file(below, mode(path)) {
            Ok(file) => opened.push((path, file)),
            Err(error) => session.fail(Input::Path(path.clone()), failure(error)),
        }
    }
    let numbers: Vec<_> = opened.iter().map(|(_, file)| *file).collect();
    let found = door.search(&numbers, args.pattern.as_bytes()).map_err(failure)?;
    let mut text = String::new();
    for place in &found.places {
        if let Some((path, _)) = opened.get(place.file) {
            text += &format!("{}:{}\n", show(path), place.offset);
        }
    }
    table::print(&text)?;
    if let Some((file, error)) = found.first_error
        && let Some((path, _)) = opened.get(file)
    {
        let why = found.why.unwrap_or_else(|| error.to_string());
        let why = without_number(&why);
        let what = match found.failed {
            1 => format!("{why}; 1 part was not searched"),
            parts => format!("{why}; {parts} parts of this and other files were not searched"),
        };
        session.fail(Input::Path((*path).clone()), Failure::environment(what));
    }
    Ok(())
}
