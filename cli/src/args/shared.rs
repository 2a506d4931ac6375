//! Arguments that several commands have.

use std::path::PathBuf;

use clap::Args;
use pz::Pipeline;

use crate::device::Device;
use crate::levels::Levels;
use crate::selection::Selection;
use crate::sizes::{self, Size};
use crate::trust::Trust;
use crate::verbosity::Verbosity;

// How to compress.
#[derive(Args, Debug, Clone)]
pub struct Encoding {
    /// `-1` to `-9`.
    #[command(flatten)]
    pub levels: Levels,
    /// Pipeline to use instead of the level's: lzh, lzf, bwt, fse or store
    #[arg(short, long, value_name = "NAME")]
    pub pipeline: Option<Pipeline>,
    /// Block size instead of the level's, a power of two from 64K to 16M (bwt: 64M)
    #[arg(short, long, value_name = "SIZE")]
    pub block_size: Option<Size>,
    /// How far back matches reach instead of the level's, a power of two from 64K to 16M; a GPU decodes small windows
    /// faster
    #[arg(short, long, value_name = "SIZE")]
    pub window: Option<Size>,
    /// Also look for repetitions in earlier blocks, up to SIZE back [default: 512M]; takes about as much more memory.
    /// -9 without a filter always does so, up to 64M back and also in the same block; 0 turns it off
    #[arg(
        long,
        value_name = "SIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "512M"
    )]
    pub long: Option<Size>,
    /// Let the contents decide where frames end: after a small change, most of the output stays the same, for rsync and
    /// backups; it gets a few percent larger
    #[arg(long)]
    pub rsyncable: bool,
    /// Skip the check that decodes what a GPU has encoded; the output is the same
    #[arg(long)]
    pub no_verify: bool,
}

// Where to run.
#[derive(Args, Debug, Clone)]
pub struct Machine {
    /// Worker threads; 0 is one per core [default: 0] [env: PZ_THREADS]
    #[arg(short = 'T', long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Most memory to take [default: 2G or, if more, an eighth of the machine's or container's; at most half of that]
    #[arg(short = 'M', long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub memory: Option<Size>,
    /// Most memory to take on each GPU [env: PZ_GPU_MEMORY]
    #[arg(long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub gpu_memory: Option<Size>,
    /// auto, cpu, cuda[:N], opencl[:N] or webgpu[:N] [default: auto] [env: PZ_DEVICE]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
}

// How to decode.
#[derive(Args, Debug)]
pub struct Decoding {
    /// Which modules may run.
    #[command(flatten)]
    pub trust: Trust,
    /// Where to run.
    #[command(flatten)]
    pub machine: Machine,
    /// How much to print.
    #[command(flatten)]
    pub verbosity: Verbosity,
}

// Where the output goes, and whether the input stays.
#[derive(Args, Debug, Clone, Default)]
pub struct Placement {
    /// Output file, for a single input; '-' is standard output
    #[arg(short, long, value_name = "FILE", conflicts_with = "stdout")]
    pub output: Option<PathBuf>,
    /// Write to standard output
    #[arg(short = 'c', long)]
    pub stdout: bool,
    /// Keep the input (this is the default)
    #[arg(short, long, overrides_with = "rm")]
    pub keep: bool,
    /// Remove the input once the output is safely on disk
    #[arg(long, overrides_with = "keep", conflicts_with = "stdout")]
    pub rm: bool,
    /// Wait until the output is on disk [default: only with --rm]
    #[arg(long, overrides_with = "no_sync")]
    pub sync: bool,
    /// Do not wait for the disk, even with --rm: a system crash may then lose the contents
    #[arg(long, overrides_with = "sync")]
    pub no_sync: bool,
    /// Overwrite outputs, follow symbolic links, write to terminals and block devices, compress files that are
    /// compressed already, remove one of several hard links
    #[arg(short, long)]
    pub force: bool,
    /// When restoring, write long runs of zeros, which otherwise become holes in a regular file
    #[arg(long)]
    pub no_sparse: bool,
    /// Folder for the outputs instead of the inputs' folders; with -r, it gets the same subfolders
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "stdout"])]
    pub output_dir: Option<PathBuf>,
    /// Which files.
    #[command(flatten)]
    pub selection: Selection,
}

impl Placement {
    /// Whether the output must be on disk before the run ends, or before the input is removed.
    pub fn syncs(&self) -> bool {
        self.sync || (self.rm && !self.no_sync)
    }
}

/// Parses a number of threads; 0 is one per core.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(threads) if threads <= MAX_THREADS => Ok(threads),
        Ok(_) => Err(format!("at most {MAX_THREADS} threads")),
        Err(_) => Err("expected a number of threads".into()),
    }
}

/// More threads than any machine has cores. A typing error beyond it would exhaust the machine.
const MAX_THREADS: usize = 4096;
