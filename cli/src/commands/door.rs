//! `pz bench --door`: measures how fast the host answers kernels that ask for parts of files while they run.
//!
//! What kernels saw is compared with what the host reads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pz::door::{Door, DoorError, DoorOptions, FileMode};
use pz::gpu::device::{Api, Device};
use serde::Serialize;

use crate::args::Bench;
use crate::failure::{Failure, show, without_number};
use crate::measure::door::{self as measured, Throughput};
use crate::sizes::{Human, Size};
use crate::table::Table;

/// Bytes of a small request, and of a large one.
const SMALL: u32 = 4 << 10;
const LARGE: u32 = 1 << 20;
/// Numbers of small requests, one after another: without a pause, and with a pause in which the host falls asleep.
const BUSY: u32 = 10_000;
const FROM_IDLE: u32 = 300;
const PAUSE: Duration = Duration::from_millis(2);
/// Small requests with all handles at once.
const MANY: u32 = 200_000;
const ALL_HANDLES: u32 = 1024;
/// Large requests one after another, and ranges of archives.
const ALONE: u32 = 200;
/// Large requests at once, and ranges of archives: in the memory of a device, and of the host.
const ON_DEVICE: u32 = 512;
const ON_HOST: u32 = 32;
/// The most bytes of a measurement.
const MAX_BYTES: u64 = 2 << 30;
/// How long to measure the host while the kernel asks for nothing.
const IDLE: Duration = Duration::from_secs(3);

/// One measurement.
#[derive(Default, Serialize)]
pub struct Row {
    file: String,
    device: String,
    what: String,
    /// Bytes of each request.
    bytes: u64,
    requests: u64,
    /// 10^9 bytes per second, for many requests at once.
    gb_s: Option<f64>,
    requests_s: Option<f64>,
    /// Times of requests one after another. Only a device with a clock gives more than the mean.
    mean_us: Option<f64>,
    median_us: Option<f64>,
    p99_us: Option<f64>,
    longest_us: Option<f64>,
    /// Share of a core that the process used while a kernel ran without asking.
    core: Option<f64>,
}

/// A file that kernels ask for.
struct Subject<'a> {
    measured: measured::Subject<'a>,
    /// The values that all rows share.
    name: (String, String),
    /// Large requests at once.
    handles: u32,
}

/// Measures requests for the file at `path` on a device, or by threads, and adds the results to `rows`. A file whose
/// name ends in `.pz` is an archive.
pub fn measure(
    path: &Path,
    (name, device): (&str, Option<&Arc<dyn Device>>),
    args: &Bench,
    rows: &mut Vec<Row>,
) -> Result<String, Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let own = path.file_name().ok_or_else(|| Failure::environment("is no file"))?;
    let mut options = DoorOptions::new().folder(folder.unwrap_or(Path::new(".")));
    if let Some(Size(bytes)) = args.gpu_memory {
        options = options.device_pool(bytes);
    }
    if args.workers > 0 {
        options = options.workers(args.workers);
    }
    let door = match device {
        Some(device) => Door::of_device(Arc::clone(device), &options),
        None => Door::on_host(&options),
    };
    let door = door.map_err(failure)?;
    let is_archive = path.extension().is_some_and(|extension| extension == "pz");
    let mode = if is_archive { FileMode::Contents } else { FileMode::Plain };
    let file = door.open_file(own, mode).map_err(failure)?;
    let has_memory = device.is_some_and(|device| device.limits().api == Api::Cuda);
    let subject = Subject {
        measured: measured::Subject { door: &door, device, file, mode, path },
        name: (show(path), name.to_string()),
        handles: if has_memory { ON_DEVICE } else { ON_HOST },
    };
    let found = if is_archive {
        let size = args.range_size.map_or(256 << 10, |Size(bytes)| bytes);
        subject.archive(u32::try_from(size).unwrap_or(u32::MAX))?
    } else {
        subject.plain()?
    };
    let mut table = Table::new(&[
        "<  what",
        "bytes",
        "requests",
        "GB/s",
        "requests/s",
        "mean us",
        "median us",
        "99% us",
        "core",
    ]);
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".into(),
    };
    for row in &found {
        table.row(vec![
            format!("  {}", row.what),
            Human(row.bytes).to_string(),
            row.requests.to_string(),
            number(row.gb_s, 2),
            number(row.requests_s, 0),
            number(row.mean_us, 1),
            number(row.median_us, 1),
            number(row.p99_us, 1),
            row.core.map_or("-".into(), |core| format!("{:.3}%", 100.0 * core)),
        ]);
    }
    rows.extend(found);
    Ok(format!("{} on {name}: {} bytes\n{}", show(path), file.len, table.to_text()))
}

/// The failure to open a door, or a file through it. The caller adds the file's name.
pub fn failure(error: DoorError) -> Failure {
    match error {
        DoorError::File { why, .. } => Failure::environment(without_number(&why)),
        error => Failure::environment(error),
    }
}

impl Subject<'_> {
    fn row(&self, what: &str, bytes: u32, requests: u64) -> Row {
        let (file, device) = self.name.clone();
        Row { file, device, what: what.into(), bytes: bytes.into(), requests, ..Row::default() }
    }

    fn plain(&self) -> Result<Vec<Row>, Failure> {
        // Warm up: the first requests find nothing ready.
        self.measured.latency(SMALL, BUSY / 10, Duration::ZERO).map_err(failure)?;
        let mut rows = vec![
            self.latency("one at a time", SMALL, BUSY, Duration::ZERO)?,
            self.latency("one at a time, from idle", SMALL, FROM_IDLE, PAUSE)?,
            self.throughput(SMALL, MANY, ALL_HANDLES, true)?,
        ];
        if self.measured.file.len >= u64::from(LARGE) {
            rows.push(self.latency("one at a time", LARGE, ALONE, Duration::ZERO)?);
            rows.push(self.throughput(LARGE, self.count(LARGE), self.handles, false)?);
        }
        let core = self.measured.idle(IDLE).map_err(failure)?;
        rows.push(Row { core, ..self.row("nothing asked", 0, 0) });
        Ok(rows)
    }

    fn archive(&self, size: u32) -> Result<Vec<Row>, Failure> {
        let size = size.min(u32::try_from(self.measured.file.len).unwrap_or(u32::MAX)) / 16 * 16;
        Ok(vec![
            self.latency("one at a time", size, ALONE, Duration::ZERO)?,
            self.throughput(size, self.count(size), self.handles, false)?,
        ])
    }

    /// The number of requests of this size that the file holds, and the number in one measurement.
    fn count(&self, size: u32) -> u32 {
        (self.measured.file.len.min(MAX_BYTES) / u64::from(size.max(1))) as u32
    }

    fn latency(&self, what: &str, size: u32, count: u32, pause: Duration) -> Result<Row, Failure> {
        let found = self.measured.latency(size, count, pause).map_err(failure)?;
        // Without a clock on the device the mean includes the pauses, or there are none.
        let mean_us = (pause.is_zero() || found.median.is_some()).then_some(found.mean);
        Ok(Row {
            mean_us,
            median_us: found.median,
            p99_us: found.p99,
            longest_us: found.longest,
            ..self.row(what, size, count.into())
        })
    }

    /// The better of two runs with this many handles, or with as many as there is room for.
    fn throughput(
        &self,
        size: u32,
        count: u32,
        handles: u32,
        is_scattered: bool,
    ) -> Result<Row, Failure> {
        let room = self.measured.door.free_bytes() / 2 / u64::from(size.max(1));
        let handles = handles.min(count).min(u32::try_from(room).unwrap_or(u32::MAX)).max(1);
        let run = || {
            let found = self.measured.throughput(size, count, handles, is_scattered);
            found.map_err(failure)
        };
        let (first, second) = (run()?, run()?);
        let Throughput { requests, bytes, seconds, .. } =
            if first.seconds < second.seconds { first } else { second };
        let seconds = seconds.max(1e-9);
        Ok(Row {
            gb_s: Some(bytes as f64 / seconds / 1e9),
            requests_s: Some(requests as f64 / seconds),
            ..self.row(&format!("{handles} handles"), size, requests)
        })
    }
}
