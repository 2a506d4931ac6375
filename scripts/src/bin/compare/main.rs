//! Compares pz with other programs of the machine on real files; `scripts/bench.sh` calls it.
//!
//! It first restores each output and compares it with the source. Then it times whole programs, from start to exit,
//! which read a file in the page cache and write to the null device. Programs take turns, so that other load on the
//! machine slows all of them; the fastest run of each counts.

mod measure;
mod plot;
mod report;
mod tools;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::Parser;

/// Compares pz, on the CPU and on GPUs, with zstd, lz4, xz, bzip2, bzip3 and bsc: sizes, ratios, and speed each way
#[derive(Parser)]
#[command(name = "scripts/bench.sh")]
struct Arguments {
    /// Files to compress
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Levels and pipelines of pz
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5,6,7,8,9,fse")]
    levels: Vec<String>,
    /// Other programs, each alone or with levels of its own, as in zstd:1:3:9,bzip3
    #[arg(long, value_delimiter = ',', default_value = "zstd,lz4,xz,bzip2,bzip3,bsc")]
    tools: Vec<String>,
    /// Most runs of each; slow ones run less often
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Devices to measure pz on, each together with the CPU: opencl, webgpu, opencl:1, …; or all: every GPU that
    /// `pz devices` lists
    #[arg(long, value_delimiter = ',')]
    device: Vec<String>,
    /// Numbers of threads; 0 is one per core
    #[arg(long, value_delimiter = ',', default_value = "1,0")]
    threads: Vec<usize>,
    /// The pz to measure
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/pz")]
    pz: PathBuf,
    /// Folder for the results
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let cores = std::thread::available_parallelism()?.get();
    let mut threads: Vec<usize> =
        arguments.threads.iter().map(|&n| if n == 0 { cores } else { n }).collect();
    threads.sort_unstable();
    threads.dedup();
    let devices = tools::devices(&arguments.pz, &arguments.device)?;
    let programs = tools::programs(&arguments.pz, &arguments.levels, &devices, &arguments.tools)?;
    fs::create_dir_all(&arguments.out)?;
    let mut report = report::Report::new(&programs, &devices, arguments.runs)?;
    for file in &arguments.files {
        let rows = measure::measure(file, &programs, &threads, arguments.runs, &arguments.out)?;
        let name = file.file_name().ok_or("not a file")?.to_string_lossy().into_owned();
        let plot = arguments.out.join(format!("{name}.svg"));
        plot::draw(&plot, &name, &rows)?;
        report.add(&name, &rows);
    }
    fs::write(arguments.out.join("results.md"), &report.markdown)?;
    fs::write(arguments.out.join("results.csv"), &report.csv)?;
    println!("{}", report.markdown);
    println!(
        "Written to {}: results.md, results.csv, and a plot for each file",
        arguments.out.display()
    );
    Ok(())
}
