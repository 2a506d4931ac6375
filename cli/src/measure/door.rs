//! Measures how fast a door answers, for `pz bench --door`. All timed contents are also checked.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pz::door::{AskError, Client, Door, DoorError, FileMode, Handle, OpenedFile, Status};
use pz::gpu::device::{Device, DeviceError, Kind, Limits};
use pz::internal::measure::{DOOR_MEASURE, Entry, Launch};
use pz::{DecodeOptions, SeekableReader};

/// The time after which the host gives up on a kernel.
const DEADLINE: Duration = Duration::from_secs(120);
/// Work items that read contents together.
const THREADS: u32 = 256;
/// The most handles of a workgroup.
const EACH: u32 = 16;

/// Times of requests that were made one after another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// From asking to seeing the answer, in microseconds: the mean. It includes looking at the contents where the
    /// device has no clock.
    pub mean: f64,
    /// The median, the 99th percentile and the longest; `None` where the device has no clock.
    pub median: Option<f64>,
    /// 99% of the requests took no longer.
    pub p99: Option<f64>,
    /// The longest.
    pub longest: Option<f64>,
}

/// The throughput of many requests at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Requests.
    pub requests: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Time from the launch to the end, in seconds.
    pub seconds: f64,
}

/// The error of a measurement with wrong results.
fn wrong(what: String) -> DoorError {
    DoorError::Device(DeviceError::Failed(what))
}

/// Whole pieces of `size` bytes in a file.
fn pieces(size: u32, len: u64) -> u32 {
    u32::try_from(len / u64::from(size)).unwrap_or(u32::MAX)
}

/// The offset of request `number`. Requests read whole pieces, in random order if they are scattered.
fn offset(number: u32, size: u32, len: u64, is_scattered: bool) -> u64 {
    let pieces = pieces(size, len);
    let at = if is_scattered {
        (u64::from(number.wrapping_mul(2_654_435_761)) * u64::from(pieces)) >> 32
    } else {
        number.min(pieces - 1).into()
    };
    at * u64::from(size)
}

/// The contribution of request `number`'s contents to the sum: every word counts by its place.
fn sum_of(contents: &[u8], number: u32) -> u32 {
    let words = contents.chunks_exact(4).map(|word| match word.try_into() {
        Ok(word) => u32::from_le_bytes(word),
        Err(_) => 0,
    });
    let terms = words.zip(0u32..).map(|(word, i)| {
        let weight = (2 * i).wrapping_add(2 * number).wrapping_add(1);
        word.wrapping_mul(weight)
    });
    terms.fold(0, u32::wrapping_add)
}

/// A file at a door.
pub struct Subject<'a> {
    pub door: &'a Door,
    /// The device of the door; `None` if threads play the kernel.
    pub device: Option<&'a Arc<dyn Device>>,
    pub file: OpenedFile,
    pub mode: FileMode,
    /// Where the host reads the file.
    pub path: &'a Path,
}

/// A reader of what kernels see of a file.
trait Contents: Read + Seek {}

impl<R: Read + Seek> Contents for R {}

impl Subject<'_> {
    /// What kernels see of the file, as the host reads it.
    fn contents(&self) -> io::Result<Box<dyn Contents>> {
        let file = File::open(self.path)?;
        match self.mode {
            FileMode::Contents => {
                let reader = SeekableReader::new(file, &DecodeOptions::new());
                Ok(Box::new(reader.map_err(io::Error::from)?))
            }
            _ => Ok(Box::new(file)),
        }
    }

    /// The sum over all requests, computed from the host's reads.
    fn expected(&self, size: u32, (count, is_scattered): (u32, bool)) -> Result<u32, DoorError> {
        let failed = |error: io::Error| wrong(format!("the host cannot read: {error}"));
        let mut contents = self.contents().map_err(failed)?;
        let mut bytes = vec![0; size as usize];
        let mut sum = 0u32;
        for number in 0..count {
            let at = offset(number, size, self.file.len, is_scattered);
            contents.seek(SeekFrom::Start(at)).map_err(failed)?;
            contents.read_exact(&mut bytes).map_err(failed)?;
            sum = sum.wrapping_add(sum_of(&bytes, number));
        }
        Ok(sum)
    }

    /// A kernel asks `count` times, one after another, for `size` bytes of a file, in no order. Before each request it
    /// waits for `pause`, where the device has a clock.
    ///
    /// # Errors
    /// [`DoorError::Options`] for a size that is no multiple of 16, or longer than the file; [`DoorError::Device`] if
    /// the device fails, or if the kernel got too little or something else.
    pub fn latency(&self, size: u32, count: u32, pause: Duration) -> Result<Latency, DoorError> {
        check(self.file, size)?;
        let (found, latency) = match self.door.client() {
            Some(client) => one_by_one(&client, self.file, size, count, pause)?,
            None => self.launch_one_by_one(size, count, pause)?,
        };
        self.check_sum(found, size, (count, true))?;
        Ok(latency)
    }

    fn launch_one_by_one(
        &self,
        size: u32,
        count: u32,
        pause: Duration,
    ) -> Result<(u32, Latency), DoorError> {
        let launch = Launch::new(self.door, &DOOR_MEASURE, 4 * u64::from(count))?;
        let launch = launch.buffer("door_times", &[])?.buffer("door_results", &[])?;
        let pause = pause.as_nanos().min(u128::from(u32::MAX)) as u32;
        let pieces = pieces(size, self.file.len);
        let args = [self.file.number, pieces, size, count, launch.looks(), pause];
        let entry = Entry { name: "one_by_one", args: &args, groups: 1, threads: 32 };
        let begun = Instant::now();
        launch.run(&entry, DEADLINE, || ())?;
        let took = begun.elapsed();
        let results = launch.words(1, 8)?;
        let [sum, done, _, _, ticks_low, ticks_high, ns_low, ns_high] = results[..] else {
            return Err(wrong("the kernel has no results".into()));
        };
        if done != count {
            return Err(self.unanswered(done, count));
        }
        let long = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let ticks = long(ticks_low, ticks_high);
        let mean = took.as_secs_f64() * 1e6 / f64::from(count.max(1));
        if ticks == 0 {
            return Ok((sum, Latency { mean, median: None, p99: None, longest: None }));
        }
        let microseconds = long(ns_low, ns_high) as f64 / 1e3 / ticks as f64;
        let mut times = launch.words(0, count as usize)?;
        times.sort_unstable();
        let times: Vec<f64> = times.iter().map(|time| f64::from(*time) * microseconds).collect();
        Ok((sum, of_times(&times)))
    }

    /// Has kernels ask `count` times for `size` bytes of a file, with `handles` requests at once.
    ///
    /// # Errors
    /// As for [`Self::latency`].
    pub fn throughput(
        &self,
        size: u32,
        count: u32,
        handles: u32,
        is_scattered: bool,
    ) -> Result<Throughput, DoorError> {
        check(self.file, size)?;
        let (found, took) = match self.door.client() {
            Some(client) => many(&client, self.file, size, (count, is_scattered), handles)?,
            None => self.launch_many(size, (count, is_scattered), handles)?,
        };
        self.check_sum(found, size, (count, is_scattered))?;
        let bytes = u64::from(count) * u64::from(size);
        Ok(Throughput { requests: count.into(), bytes, seconds: took.as_secs_f64() })
    }

    fn launch_many(
        &self,
        size: u32,
        (count, is_scattered): (u32, bool),
        handles: u32,
    ) -> Result<(u32, Duration), DoorError> {
        let launch = Launch::new(self.door, &DOOR_MEASURE, 4 * u64::from(count))?;
        let launch = launch.buffer("door_times", &[])?.buffer("door_results", &[])?;
        let each = EACH.min(handles).max(1);
        let groups = (handles / each).clamp(1, count.div_ceil(each).max(1));
        let scattered = u32::from(is_scattered);
        let pieces = pieces(size, self.file.len);
        let args = [self.file.number, pieces, size, count, launch.looks(), each, scattered];
        let entry = Entry { name: "many", args: &args, groups, threads: THREADS };
        let begun = Instant::now();
        launch.run(&entry, DEADLINE, || ())?;
        let took = begun.elapsed();
        match launch.words(1, 3)?[..] {
            [sum, done, 0] if done == count => Ok((sum, took)),
            [_, done, ..] => Err(self.unanswered(done, count)),
            _ => Err(wrong("the kernel has no results".into())),
        }
    }

    /// The error for a kernel with fewer answers than requests, with the reason if it is known.
    fn unanswered(&self, done: u32, count: u32) -> DoorError {
        let limits = self.device.map(|device| device.limits());
        let why = match limits.is_some_and(Limits::ends_long_loops) {
            true => ": the driver ends a kernel's loops after 65,535 turns",
            false => "",
        };
        wrong(format!("the kernel got {done} of {count} answers{why}"))
    }

    fn check_sum(&self, found: u32, size: u32, requests: (u32, bool)) -> Result<(), DoorError> {
        let (count, _) = requests;
        if found == self.expected(size, requests)? {
            return Ok(());
        }
        Err(wrong(format!("the contents of {count} requests differ from what the host reads")))
    }

    /// The share of a core that this process takes for `time` while a kernel runs and asks for nothing; `None` if
    /// kernels run on the processor, or if the system does not tell.
    ///
    /// # Errors
    /// [`DoorError::Device`] if the device fails.
    pub fn idle(&self, time: Duration) -> Result<Option<f64>, DoorError> {
        /// After this time all threads are asleep.
        const SETTLED: Duration = Duration::from_millis(200);
        let mut share = None;
        let mut measure = || {
            thread::sleep(SETTLED);
            let (begun, used) = (Instant::now(), processor_time());
            thread::sleep(time);
            let (took, now) = (begun.elapsed(), processor_time());
            share = used.zip(now).map(|(used, now)| {
                now.saturating_sub(used).as_secs_f64() / took.as_secs_f64().max(1e-9)
            });
        };
        let Some(device) = self.device else {
            measure();
            return Ok(share);
        };
        if device.limits().kind == Kind::Software {
            return Ok(None);
        }
        let launch = Launch::new(self.door, &DOOR_MEASURE, 4)?;
        let launch = launch.buffer("door_times", &[])?.buffer("door_results", &[])?;
        let microseconds = (2 * SETTLED + time).as_micros().min(u128::from(u32::MAX)) as u32;
        let args = [0, 0, 0, 0, launch.looks(), microseconds];
        let entry = Entry { name: "idle", args: &args, groups: 1, threads: 32 };
        launch.run(&entry, DEADLINE, measure)?;
        Ok(share)
    }
}

fn check(file: OpenedFile, size: u32) -> Result<(), DoorError> {
    if size == 0 || !size.is_multiple_of(16) || u64::from(size) > file.len {
        let what = format!("requests of {size} bytes for a file of {} bytes", file.len);
        return Err(DoorError::Options(what));
    }
    Ok(())
}

/// Summary of sorted times.
fn of_times(times: &[f64]) -> Latency {
    let at = |at: usize| times.get(at.min(times.len().saturating_sub(1))).copied();
    Latency {
        mean: times.iter().sum::<f64>() / times.len().max(1) as f64,
        median: at(times.len() / 2),
        p99: at(times.len() * 99 / 100),
        longest: times.last().copied(),
    }
}

/// Processor time that this process has taken.
#[cfg(unix)]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(not(unix))]
fn processor_time() -> Option<Duration> {
    None
}

// ---- Threads that play the kernel
// ------------------------------------------------------------------------------------

/// Waits for an answer, takes the contents, and closes the handle.
fn finish(client: &Client, handle: Handle) -> Result<Vec<u8>, DoorError> {
    let until = Instant::now() + DEADLINE;
    let outcome = loop {
        match client.status(&handle) {
            Status::Loading if Instant::now() < until => std::hint::spin_loop(),
            Status::Loading => break Err(wrong("no answer came".into())),
            Status::Ready => break Ok(client.contents(&handle)),
            Status::Error(error) => break Err(wrong(error.to_string())),
        }
    };
    client.close(handle);
    outcome
}

fn one_by_one(
    client: &Client,
    file: OpenedFile,
    size: u32,
    count: u32,
    pause: Duration,
) -> Result<(u32, Latency), DoorError> {
    let mut times = Vec::new();
    let mut sum = 0u32;
    for number in 0..count {
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        let at = offset(number, size, file.len, true);
        let begun = Instant::now();
        let handle = client.read(file.number, at, size).map_err(full)?;
        let contents = finish(client, handle)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        sum = sum.wrapping_add(sum_of(&contents, number));
    }
    times.sort_by(f64::total_cmp);
    Ok((sum, of_times(&times)))
}

fn full(error: AskError) -> DoorError {
    wrong(error.to_string())
}

fn many(
    client: &Client,
    file: OpenedFile,
    size: u32,
    (count, is_scattered): (u32, bool),
    handles: u32,
) -> Result<(u32, Duration), DoorError> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(handles as usize);
    let each = (handles / threads as u32).max(1);
    let begun = Instant::now();
    let one = |first: u32| -> Result<u32, DoorError> {
        let mut sum = 0u32;
        let mut at = first * each;
        while at < count {
            let numbers = at..(at + each).min(count);
            let ask = |number| {
                let offset = offset(number, size, file.len, is_scattered);
                Ok((number, client.read(file.number, offset, size).map_err(full)?))
            };
            let asked: Vec<_> = numbers.map(ask).collect::<Result<_, DoorError>>()?;
            for (number, handle) in asked {
                sum = sum.wrapping_add(sum_of(&finish(client, handle)?, number));
            }
            at += each * threads as u32;
        }
        Ok(sum)
    };
    let sums: Vec<_> = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> =
            (0..threads as u32).map(|first| scope.spawn(move || one(first))).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let took = begun.elapsed();
    let mut sum = 0u32;
    for outcome in sums {
        sum = sum.wrapping_add(outcome.map_err(|_| wrong("a thread panicked".into()))??);
    }
    Ok((sum, took))
}

#[cfg(test)]
mod tests {
    use pz::door::DoorOptions;
    use pz::gpu::device::{Api, discovery};

    use super::*;

    /// A door for each device that can have one, and for threads.
    fn each_door(options: &DoorOptions, test: impl Fn(&Door, Option<&Arc<dyn Device>>)) {
        test(&Door::on_host(options).unwrap(), None);
        let must_exist = std::env::var_os("PZ_TEST_NO_SKIP").is_some();
        let only = std::env::var("PZ_TEST_DEVICE").unwrap_or_default();
        for api in [Api::Cuda, Api::OpenCl, Api::WebGpu] {
            let entries = match discovery::devices(api) {
                Ok(entries) => entries,
                Err(absence) => {
                    assert!(!must_exist || api == Api::Cuda, "{absence}");
                    continue;
                }
            };
            for entry in entries {
                let name = format!("{api} {}", entry.limits().name);
                if !name.to_lowercase().contains(&only.to_lowercase()) {
                    continue;
                }
                let device = entry.open().unwrap();
                match Door::of_device(Arc::clone(&device), options) {
                    Ok(door) => test(&door, Some(&device)),
                    // CUDA needs an environment variable, and Vulkan memory that the host sees.
                    Err(DoorError::Device(DeviceError::Unsupported(why))) => println!("{why}"),
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        }
    }

    #[test]
    fn measurements_are_of_right_contents() {
        let folder = tempfile::tempdir().unwrap();
        let contents: Vec<u8> = (0..250_000u32).flat_map(|i| (i / 3 * 7).to_le_bytes()).collect();
        let options = pz::Options::new().block_size(1 << 16);
        std::fs::write(folder.path().join("plain"), &contents).unwrap();
        let packed = pz::compress(&contents, &options).unwrap();
        std::fs::write(folder.path().join("packed"), packed).unwrap();
        let options = DoorOptions::new().folder(folder.path()).device_pool(64 << 20);
        each_door(&options, |door, device| {
            for (name, mode) in [("plain", FileMode::Plain), ("packed", FileMode::Contents)] {
                let file = door.open_file(name, mode).unwrap();
                let path = &folder.path().join(name);
                let subject = Subject { door, device, file, mode, path };
                let latency = subject.latency(4096, 50, Duration::ZERO).unwrap();
                assert!(latency.mean > 0.0);
                for (size, handles) in [(4096, 64), (65_536, 20), (16, 1)] {
                    let found = subject.throughput(size, 150, handles, true).unwrap();
                    assert_eq!((found.requests, found.bytes), (150, 150 * u64::from(size)));
                }
                assert!(subject.latency(10, 1, Duration::ZERO).is_err());
                if device.is_none() {
                    assert!(subject.idle(Duration::from_millis(10)).is_ok());
                }
            }
        });
    }
}
