//! Searches files with a kernel that stays on the device: an example of a door's use.
//!
//! The kernel asks for one unit of the files after another, and searches a unit while the host brings the next: a range
//! of a plain file, or of the contents of an archive, whose blocks are decoded meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytemuck::{Pod, Zeroable};

use super::launch::{Entry, Launch};
use super::options::RequestError;
use super::{Client, Door, DoorError, OpenedFile, Status};
use crate::gpu::device::{DeviceError, Kind, Limits};
use crate::gpu::model::kernel::DOOR_SEARCH;
use crate::sync::Mutex;

/// The longest pattern in bytes.
pub const MAX_PATTERN: usize = 256;

/// Bytes of a unit.
const UNIT: u64 = 256 << 10;
/// The most units that a workgroup searches if the driver ends long loops.
const UNITS_OF_LIMITED: u32 = 3;
/// The time after which the host gives up on a kernel.
const DEADLINE: Duration = Duration::from_secs(600);
/// Work items of a workgroup.
const THREADS: u32 = 256;
/// Words before the found places, and words of a place.
const HEAD: usize = 16;
const PLACE: usize = 4;

/// A file, as the kernel knows it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SearchFile {
    number: u32,
    len_low: u32,
    len_high: u32,
    first_unit: u32,
}

/// A place of the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    /// The index of the file.
    pub file: usize,
    /// Offset of the pattern's first byte.
    pub offset: u64,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Matches {
    /// All places, by file and offset. Places may overlap.
    pub places: Vec<Match>,
    /// Bytes that were searched.
    pub bytes: u64,
    /// Parts of files that could not be read, and were not searched.
    pub failed: u32,
    /// One of the files of those parts, and why, as a kernel is told.
    pub first_error: Option<(usize, RequestError)>,
    /// Why that file could not be read, in one line, if more is known.
    pub why: Option<String>,
}

impl Door {
    /// Finds all places of `pattern` in `files`, with a kernel of the door's device; with threads if there is none.
    ///
    /// # Errors
    /// [`DoorError::Options`] if the pattern is empty or too long, or if the files are too many; [`DoorError::Device`]
    /// if the device fails.
    pub fn search(&self, files: &[OpenedFile], pattern: &[u8]) -> Result<Matches, DoorError> {
        if pattern.is_empty() || pattern.len() > MAX_PATTERN {
            let what =
                format!("a pattern of {} bytes, and not of 1 to {MAX_PATTERN}", pattern.len());
            return Err(DoorError::Options(what));
        }
        let mut table = Vec::with_capacity(files.len());
        let mut units = 0u32;
        for OpenedFile { number, len } in files {
            let first_unit = units;
            let own = u32::try_from(len.div_ceil(UNIT)).ok();
            units = own
                .and_then(|own| units.checked_add(own))
                .ok_or_else(|| DoorError::Options("the files are too long".into()))?;
            let (len_low, len_high) = (*len as u32, (*len >> 32) as u32);
            table.push(SearchFile { number: *number, len_low, len_high, first_unit });
        }
        let mut matches = match self.client() {
            Some(client) => search_with_threads(&client, files, pattern),
            None => self.search_on_device(&table, units, pattern)?,
        };
        matches.bytes = files.iter().map(|file| file.len).sum();
        matches.places.sort_unstable();
        let of_failed = matches.first_error.and_then(|(file, _)| files.get(file));
        let file = of_failed.and_then(|file| self.server.files.get(file.number).ok());
        matches.why = file.and_then(|file| file.why().cloned());
        Ok(matches)
    }

    fn search_on_device(
        &self,
        table: &[SearchFile],
        units: u32,
        pattern: &[u8],
    ) -> Result<Matches, DoorError> {
        if units == 0 {
            return Ok(Matches::default());
        }
        let limits = self.device.as_ref().map(|device| device.limits());
        let groups = match limits {
            // The other half of the compute units is for the kernels that decode what this one waits for: where it
            // runs, it may leave them too few registers.
            Some(limits) if limits.kind != Kind::Software => (limits.compute_units / 2).max(1),
            _ => limits.map_or(1, |limits| limits.compute_units),
        };
        let ends_long_loops = limits.is_some_and(Limits::ends_long_loops);
        let at_once = if ends_long_loops { UNITS_OF_LIMITED * groups } else { units };
        let mut n = size_of_val(table) as u64;
        loop {
            let launch = Launch::new(self, &DOOR_SEARCH, n)?;
            let launch = launch
                .buffer("search_files", bytemuck::cast_slice(table))?
                .buffer("search_pattern", pattern)?
                .buffer("search_found", &[])?;
            let room = 2 * n / (4 * PLACE as u64);
            let max_found = u32::try_from(room).unwrap_or(u32::MAX);
            for first in (0..units).step_by(at_once as usize) {
                let end = units.min(first.saturating_add(at_once));
                let args = [
                    table.len() as u32,
                    first,
                    end,
                    UNIT as u32,
                    pattern.len() as u32,
                    max_found,
                    launch.looks(),
                ];
                let groups = groups.min(end - first);
                let entry = Entry { name: "search", args: &args, groups, threads: THREADS };
                launch.run(&entry, DEADLINE, || ())?;
            }
            let head = launch.words(2, HEAD)?;
            let [count, done, failed, error, error_file, ..] = head[..] else {
                return Ok(Matches::default());
            };
            if done + failed != units {
                let what = format!("the kernel searched {done} of {units} parts");
                return Err(DoorError::Device(DeviceError::Failed(what)));
            }
            if count > max_found {
                // Search again, with room for all places.
                n = u64::from(count) * 4 * PLACE as u64;
                continue;
            }
            let words = launch.words(2, HEAD + PLACE * count as usize)?;
            let places = words.get(HEAD..).unwrap_or_default().chunks_exact(PLACE);
            let places = places.filter_map(|place| match *place {
                [file, low, high, _] => {
                    let offset = u64::from(high) << 32 | u64::from(low);
                    Some(Match { file: file as usize, offset })
                }
                _ => None,
            });
            let first_error = RequestError::of_code(error).filter(|_| failed > 0);
            return Ok(Matches {
                places: places.collect(),
                failed,
                first_error: first_error.map(|error| (error_file as usize, error)),
                ..Matches::default()
            });
        }
    }
}

/// The same with threads in place of a kernel.
fn search_with_threads(client: &Client, files: &[OpenedFile], pattern: &[u8]) -> Matches {
    let all = Mutex::new(Matches::default());
    let next = AtomicU64::new(0);
    let units = || {
        files.iter().enumerate().flat_map(|(number, file)| {
            (0..file.len.div_ceil(UNIT)).map(move |unit| (number, file, unit * UNIT))
        })
    };
    let lock = || all.lock();
    let work = || {
        let mut units = units().zip(0u64..);
        let mut mine = next.fetch_add(1, Ordering::Relaxed);
        while let Some((unit, _)) = units.find(|(_, at)| *at == mine) {
            let (number, file, offset) = unit;
            let len = (file.len - offset).min(UNIT + pattern.len() as u64 - 1);
            match read(client, file.number, offset, len as u32) {
                Ok(contents) => {
                    let mut places = lock();
                    let starts = contents.windows(pattern.len()).take(UNIT as usize).enumerate();
                    let found = starts.filter(|(_, window)| *window == pattern);
                    let place = |at: usize| Match { file: number, offset: offset + at as u64 };
                    places.places.extend(found.map(|(at, _)| place(at)));
                }
                Err(error) => {
                    let mut places = lock();
                    places.failed += 1;
                    places.first_error.get_or_insert((number, error));
                }
            }
            mine = next.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    all.into_inner()
}

fn read(client: &Client, file: u32, offset: u64, len: u32) -> Result<Vec<u8>, RequestError> {
    loop {
        let Ok(handle) = client.read(file, offset, len) else {
            thread::yield_now();
            continue;
        };
        let outcome = loop {
            match client.status(&handle) {
                Status::Loading => thread::sleep(Duration::from_micros(20)),
                Status::Ready => break Ok(client.contents(&handle)),
                Status::Error(error) => break Err(error),
            }
        };
        client.close(handle);
        // The other threads will give up room.
        if outcome != Err(RequestError::Full) {
            return outcome;
        }
    }
}
