//! Tables: Markdown for people, comma-separated values for programs.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

use sysinfo::{CpuRefreshKind, RefreshKind, System};

use crate::measure::{Row, Run, fastest};
use crate::tools::{Device, Program};

/// The final report.
pub struct Report {
    /// A table for each file and number of threads.
    pub markdown: String,
    /// A line for each measurement.
    pub csv: String,
}

impl Report {
    /// Begins with the machine, the programs and the method.
    pub fn new(
        programs: &[Program],
        devices: &[Device],
        runs: u32,
    ) -> Result<Self, Box<dyn Error>> {
        let refresh = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
        let system = System::new_with_specifics(refresh);
        let brand = system.cpus().first().map_or("unknown processor", |cpu| cpu.brand());
        let cores = std::thread::available_parallelism()?;
        let mut versions: Vec<String> =
            programs.iter().map(|p| format!("{} {}", p.name, p.version)).collect();
        versions.dedup();
        let devices: Vec<String> =
            devices.iter().map(|device| format!(" {}: {}.", device.id, device.name)).collect();
        let markdown = format!(
            "Processor: {}, {cores} core(s), {}.{} Programs: {}.\n\n\
             Whole programs, from start to exit: the source in the page cache, the output to the null device, best of \
             {runs} runs in turn (fewer of what takes more than 20 s). MB/s are 10^6 bytes of the source a second; \
             CPU is the processor time of all threads. Each output was restored and compared with its source before. \
             (CPU) is where pz left the device closed, because the CPU was sooner done than it could have been of use. \
             One thread is `-T1` or `--single-thread` where a program has such an option, and on Linux one core.\n",
            brand.trim(),
            std::env::consts::ARCH,
            devices.concat(),
            versions.join(", "),
        );
        let csv = "file,program,options,threads,bytes,compressed,ratio,compress_mb_s,decompress_mb_s,\
                   compress_median_s,decompress_median_s,compress_cpu_s,decompress_cpu_s,runs,\
                   compress_on,decompress_on\n";
        Ok(Self { markdown, csv: csv.into() })
    }

    /// Adds the measurements of a file.
    pub fn add(&mut self, file: &str, rows: &[Row]) {
        let bytes = rows.first().map_or(0, |row| row.bytes);
        let threads: BTreeSet<usize> = rows.iter().map(|row| row.threads).collect();
        for threads in threads {
            let _ = write!(
                self.markdown,
                "\n### {file}, {} bytes, {threads} thread{}\n\n\
                 | program | size | ratio | compress MB/s | decompress MB/s | compress CPU s | decompress CPU s |\n\
                 |:--|--:|--:|--:|--:|--:|--:|\n",
                grouped(bytes),
                if threads == 1 { "" } else { "s" },
            );
            for row in rows.iter().filter(|row| row.threads == threads) {
                let _ = writeln!(
                    self.markdown,
                    "| {} {} | {} | {:.3} | {} | {} | {:.2} | {:.2} |",
                    row.program,
                    row.options(),
                    grouped(row.compressed),
                    row.ratio(),
                    on(row, &row.compress),
                    on(row, &row.decompress),
                    fastest(&row.compress).cpu.as_secs_f64(),
                    fastest(&row.decompress).cpu.as_secs_f64(),
                );
            }
        }
        let _ = writeln!(self.markdown, "\n![Speed against ratio]({file}.svg)");
        for row in rows {
            let _ = writeln!(
                self.csv,
                "\"{}\",{},{},{},{},{},{:.4},{:.2},{:.2},{:.4},{:.4},{:.3},{:.3},{},{},{}",
                file.replace('"', "\"\""),
                row.program,
                row.options(),
                row.threads,
                row.bytes,
                row.compressed,
                row.ratio(),
                row.speed(&row.compress),
                row.speed(&row.decompress),
                median(&row.compress).as_secs_f64(),
                median(&row.decompress).as_secs_f64(),
                fastest(&row.compress).cpu.as_secs_f64(),
                fastest(&row.decompress).cpu.as_secs_f64(),
                row.compress.len().min(row.decompress.len()),
                device(row, &row.compress).unwrap_or("cpu"),
                device(row, &row.decompress).unwrap_or("cpu"),
            );
        }
    }
}

/// The device, if it took part in the fastest run.
fn device<'r>(row: &'r Row, runs: &[Run]) -> Option<&'r str> {
    row.device.as_deref().filter(|_| fastest(runs).is_on_device)
}

/// The speed of the fastest run, marked if a device could have taken part but did not.
fn on(row: &Row, runs: &[Run]) -> String {
    let is_left_out = row.device.is_some() && device(row, runs).is_none();
    speed(row.speed(runs)) + if is_left_out { " (CPU)" } else { "" }
}

/// At least three significant digits.
fn speed(mb_s: f64) -> String {
    if mb_s < 100.0 { format!("{mb_s:.1}") } else { format!("{mb_s:.0}") }
}

/// `12,345,678`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn median(runs: &[Run]) -> Duration {
    let mut times: Vec<Duration> = runs.iter().map(|run| run.wall).collect();
    times.sort_unstable();
    times[times.len() / 2]
}
