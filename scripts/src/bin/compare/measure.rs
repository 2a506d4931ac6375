//! Timing.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
#[cfg(target_os = "linux")]
use nix::unistd::Pid;

use crate::tools::Program;

/// After this much time, a program is not run again at that level.
const MAX_TIME: Duration = Duration::from_secs(20);

/// The measurements of a program at a level and a number of threads.
pub struct Row {
    /// Name of the program.
    pub program: &'static str,
    /// The device that it used besides the CPU.
    pub device: Option<String>,
    /// Its other options, as a user would type them.
    pub label: String,
    /// Threads that it was told to use.
    pub threads: usize,
    /// Whether it can use several threads.
    pub is_parallel: bool,
    /// Length of the source in bytes.
    pub bytes: u64,
    /// Length of the compressed file in bytes.
    pub compressed: u64,
    /// Each run.
    pub compress: Vec<Run>,
    /// Each run.
    pub decompress: Vec<Run>,
}

/// One run of a program.
#[derive(Clone, Copy)]
pub struct Run {
    /// From start to exit.
    pub wall: Duration,
    /// Processor time of all its threads, in user and in system mode.
    pub cpu: Duration,
    /// Whether a device took part.
    pub is_on_device: bool,
}

impl Row {
    /// All its options, as a user would type them.
    pub fn options(&self) -> String {
        self.with_device(&self.label)
    }

    /// The name of its line in a plot: one line per device.
    pub fn series(&self) -> String {
        self.with_device(self.program)
    }

    fn with_device(&self, what: &str) -> String {
        let device = self.device.as_ref().map(|device| format!(" --device {device}"));
        what.to_string() + &device.unwrap_or_default()
    }

    /// Source bytes divided by compressed bytes.
    pub fn ratio(&self) -> f64 {
        self.bytes as f64 / self.compressed.max(1) as f64
    }

    /// 10^6 source bytes a second in the fastest run.
    pub fn speed(&self, runs: &[Run]) -> f64 {
        self.bytes as f64 / fastest(runs).wall.as_secs_f64().max(1e-6) / 1e6
    }
}

/// The fastest of these runs.
pub fn fastest(runs: &[Run]) -> Run {
    *runs.iter().min_by_key(|run| run.wall).expect("at least one run")
}

/// Measures everything on one file. A program limited to one thread gets one core, because some start more threads for
/// input and output.
pub fn measure(
    file: &Path,
    programs: &[Program],
    threads: &[usize],
    runs: u32,
    out: &Path,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let bytes = fs::metadata(file)?.len();
    let folder = out.join("compressed");
    fs::create_dir_all(&folder)?;
    let mut jobs: Vec<(Row, &Program, &str, PathBuf)> = Vec::new();
    for program in programs {
        for level in &program.levels {
            for &threads in threads.iter().filter(|&&n| n == 1 || program.is_parallel()) {
                let label = program.label(level);
                let device = program.gpu().map(String::from);
                let packed = folder.join(jobs.len().to_string());
                let restored = folder.join("restored");
                let on = device.as_deref().unwrap_or("CPU");
                eprintln!("verifying {} {label} on {on}, {threads} thread(s)", program.name);
                let made = run(&mut program.compress(level, threads, file, Some(&packed))?);
                match made {
                    // Some devices cannot run some pipelines.
                    Err(why) if device.is_some() => {
                        eprintln!("left out: {why}");
                        continue;
                    }
                    made => made?,
                };
                verify(program.decompress(threads, &packed, Some(&restored))?, &restored, file)?;
                let row = Row {
                    program: program.name,
                    device,
                    label,
                    threads,
                    is_parallel: program.is_parallel(),
                    bytes,
                    compressed: fs::metadata(&packed)?.len(),
                    compress: Vec::new(),
                    decompress: Vec::new(),
                };
                jobs.push((row, program, level, packed));
            }
        }
    }
    for round in 1..=runs {
        eprintln!("{}: round {round} of {runs}", file.display());
        for (row, program, level, packed) in &mut jobs {
            let has_one_core = row.threads == 1 && row.device.is_none();
            let _core = has_one_core.then(OneCore::take).transpose()?;
            if spent(&row.compress) < MAX_TIME {
                let mut command = program.compress(level, row.threads, file, None)?;
                row.compress.push(run(&mut command)?);
            }
            if spent(&row.decompress) < MAX_TIME {
                let mut command = program.decompress(row.threads, packed, None)?;
                row.decompress.push(run(&mut command)?);
            }
        }
    }
    fs::remove_dir_all(folder)?;
    Ok(jobs.into_iter().map(|job| job.0).collect())
}

fn spent(runs: &[Run]) -> Duration {
    runs.iter().map(|run| run.wall).sum()
}

/// Runs a command to its end.
fn run(command: &mut Command) -> Result<Run, Box<dyn Error>> {
    let cpu_before = cpu()?;
    let begun = Instant::now();
    let ran = command.stderr(Stdio::piped()).output()?;
    let wall = begun.elapsed();
    let said = String::from_utf8_lossy(&ran.stderr);
    if !ran.status.success() {
        return Err(format!("{command:?}: {}: {}", ran.status, said.trim()).into());
    }
    let cpu = cpu()?.saturating_sub(cpu_before);
    Ok(Run { wall, cpu, is_on_device: !said.contains(" takes no part: ") })
}

/// Processor time of all child processes that have ended.
fn cpu() -> Result<Duration, Box<dyn Error>> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let times = [usage.user_time(), usage.system_time()];
    Ok(times.iter().map(|t| Duration::new(t.tv_sec() as u64, t.tv_usec() as u32 * 1000)).sum())
}

/// While it lives, this process and its children have one core.
#[cfg(target_os = "linux")]
struct OneCore {
    before: CpuSet,
}

#[cfg(target_os = "linux")]
impl OneCore {
    fn take() -> nix::Result<Self> {
        let before = sched_getaffinity(Pid::this())?;
        let mut one = CpuSet::new();
        // Interrupts mostly go to the first core.
        let last = (0..CpuSet::count()).rev().find(|&core| before.is_set(core) == Ok(true));
        one.set(last.unwrap_or(0))?;
        sched_setaffinity(Pid::this(), &one)?;
        Ok(Self { before })
    }
}

#[cfg(target_os = "linux")]
impl Drop for OneCore {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(Pid::this(), &self.before) {
            eprintln!("the other cores cannot be used again: {error}");
        }
    }
}

/// On other systems, programs that start more threads may use more cores.
#[cfg(not(target_os = "linux"))]
struct OneCore;

#[cfg(not(target_os = "linux"))]
impl OneCore {
    fn take() -> nix::Result<Self> {
        Ok(Self)
    }
}

/// Compares a command's output, at `restored`, with a file.
fn verify(mut command: Command, restored: &Path, file: &Path) -> Result<(), Box<dyn Error>> {
    run(&mut command)?;
    let same = same(&mut File::open(restored)?, &mut File::open(file)?)?;
    fs::remove_file(restored)?;
    match same {
        true => Ok(()),
        false => Err(format!("{command:?} does not restore {}", file.display()).into()),
    }
}

fn same(a: &mut impl Read, b: &mut impl Read) -> io::Result<bool> {
    let (mut part, mut other) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = a.read(&mut part)?;
        if n == 0 {
            return Ok(b.read(&mut other[..1])? == 0);
        }
        match b.read_exact(&mut other[..n]) {
            Ok(()) if part[..n] == other[..n] => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => return Ok(false),
        }
    }
}
