//! The command line, defined once: parsing, help, completions and man pages all come from here.

mod shared;

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::device::{Device, Several};
use crate::filtering::{Filtering, Lanes};
use crate::filters::Filters;
use crate::levels::Levels;
use crate::modules::Modules;
use crate::paper::{Completions, Help, Man, Types};
use crate::selection::Selection;
use crate::sizes::{self, ByteRange, Size};
use crate::verbosity::Verbosity;

pub use shared::{Decoding, Encoding, Machine, Placement, threads};

/// The whole command line.
#[derive(Parser, Debug)]
#[command(
    name = "pz",
    version,
    about = "Compresses files, losslessly, in blocks that every processor of the machine works on at once",
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    disable_help_subcommand = true,
    override_usage = "pz [COMMAND] [OPTIONS] [FILE]...",
    help_template = "{about}\nUsage: {usage}\nCommands:\n{subcommands}\n\n\
                     Options without a command:\n{options}{after-help}",
    after_help = "Without a command, pz is a filter: tar -I pz -cf DIR.tar.pz DIR. Examples: pz COMMAND --help"
)]
pub struct Cli {
    /// The command. Without one, the program is a filter.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The filter's options.
    #[command(flatten)]
    pub filter: Filter,
}

/// The commands. The parser builds only the definition of the command that it meets. Use no doc comment on a
/// command's struct or on a group of its options: it would replace the description here.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum Command {
    /// Compress each FILE to FILE.pz
    Compress(Compress),
    /// Restore each FILE from FILE.pz (also from .gz, .zst, .bz2, .xz, .lz4)
    Decompress(Decompress),
    /// Print the contents of each FILE.pz
    Cat(Cat),
    /// Decode and check each FILE, write nothing
    Test(Test),
    /// Show blocks, sizes and ratio of each FILE
    List(List),
    /// Measure ratio and speed of the levels on FILEs
    Bench(Bench),
    /// List the processors that can be used
    Devices(Devices),
    /// Show the costs of GPU kernels and the sizes of batches, or predict times
    Cost(Cost),
    /// Check or run a WebAssembly module
    Module(Modules),
    /// Save the undamaged blocks of a FILE
    Recover(Recover),
    /// Find a byte string in the files of a folder, with a kernel that reads them itself
    #[command(hide = true)]
    Search(Search),
    /// Serve the files of a folder over HTTP, for reading
    Serve(Serve),
    /// Print completions for a shell
    Completions(Completions),
    /// Print the manual, or write all its pages
    Man(Man),
    /// Print definitions that make file(1) and desktops recognise .pz
    Types(Types),
    /// Print the help of a command
    #[command(hide = true)]
    Help(Help),
}

/// The program as a filter, or the short form of the four commands on files.
#[derive(Args, Debug)]
pub struct Filter {
    /// Decompress
    #[arg(short = 'd', long, group = "decoding", conflicts_with_all = ["test", "list"])]
    pub decompress: bool,
    /// Test: decode and check, write nothing
    #[arg(short = 't', long, group = "decoding", conflicts_with_all = ["list", "output", "rm", "range"])]
    pub test: bool,
    /// List what a file holds
    #[arg(short = 'l', long, conflicts_with_all = ["output", "stdout", "rm", "range"])]
    pub list: bool,
    /// How to compress.
    #[command(flatten)]
    pub encoding: Encoding,
    /// The filter.
    #[command(flatten)]
    pub filtering: Filtering,
    /// Where to run.
    #[command(flatten)]
    pub machine: Machine,
    /// Where the output goes.
    #[command(flatten)]
    pub placement: Placement,
    /// Decode each output again and check it before it gets its name
    #[arg(long, conflicts_with_all = ["decompress", "test", "list"])]
    pub verify: bool,
    /// Restore only bytes FROM to TO (not included); needs -d
    #[arg(long, value_name = "FROM..TO", requires = "decompress")]
    pub range: Option<ByteRange>,
    /// Run all modules in a file, even untrusted ones; needs -d or -t
    #[arg(long, requires = "decoding")]
    pub allow_modules: bool,
    /// Print the list as JSON; needs -l
    #[arg(long, requires = "list")]
    pub json: bool,
    /// How much to print.
    #[command(flatten)]
    pub verbosity: Verbosity,
    /// Files; none or '-' is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

// `pz compress`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz compress -8 --rm backup.tar\n  \
    writes backup.tar.pz and, once it is safely on disk, removes backup.tar unless it has changed")]
pub struct Compress {
    /// Files to compress; none or '-' is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to compress.
    #[command(flatten)]
    pub encoding: Encoding,
    /// The filter.
    #[command(flatten)]
    pub filtering: Filtering,
    /// Where the output goes.
    #[command(flatten)]
    pub placement: Placement,
    /// Decode each output again and check it before it gets its name
    #[arg(long)]
    pub verify: bool,
    /// Where to run.
    #[command(flatten)]
    pub machine: Machine,
    /// How much to print.
    #[command(flatten)]
    pub verbosity: Verbosity,
}

// `pz decompress`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz decompress --range 1G..2G -c backup.tar.pz\n  \
    prints the second GiB of backup.tar, decoding only the blocks that hold it")]
pub struct Decompress {
    /// Files to restore; none or '-' is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Restore only bytes FROM to TO (not included); either may be missing. Needs -o or -c
    #[arg(long, value_name = "FROM..TO", conflicts_with = "rm")]
    pub range: Option<ByteRange>,
    /// Where the output goes.
    #[command(flatten)]
    pub placement: Placement,
    /// How to decode.
    #[command(flatten)]
    pub decoding: Decoding,
}

// `pz cat`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz cat log.1.pz log.2.gz | grep error\n  \
    prints the contents of both, one after the other\n\
    Example: pz cat --range 1G..1025M https://example.org/backup.tar.pz\n  \
    fetches only the blocks that hold this MiB; all commands that restore, test or list take URIs: \
    http, https, s3, remoteio, file. PZ_TIMEOUT is the most seconds that a read may take [default: 60]")]
pub struct Cat {
    /// Files to print; none or '-' is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print only bytes FROM to TO (not included) of each file; either may be missing
    #[arg(long, value_name = "FROM..TO")]
    pub range: Option<ByteRange>,
    /// Which files.
    #[command(flatten)]
    pub selection: Selection,
    /// How to decode.
    #[command(flatten)]
    pub decoding: Decoding,
}

// `pz test`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz test -r /backups && echo all sound")]
pub struct Test {
    /// Files to test; none or '-' is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Which files.
    #[command(flatten)]
    pub selection: Selection,
    /// How to decode.
    #[command(flatten)]
    pub decoding: Decoding,
}

// `pz list`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz list --json backup.tar.pz | jq '.[0].ratio'")]
pub struct List {
    /// Files to list; none or '-' is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Which files.
    #[command(flatten)]
    pub selection: Selection,
    /// Most memory to take [default: 2G]
    #[arg(short = 'M', long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub memory: Option<Size>,
    /// Print JSON: an array with an object per file. If a name is not Unicode, its bytes are added in hexadecimal
    #[arg(long)]
    pub json: bool,
    /// Print one line per block
    #[arg(short, long)]
    pub verbose: bool,
}

// `pz bench`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz bench -1 -3 -9 -T 1,0 silesia.tar\n  \
    measures three levels in memory, on one thread and on all cores, and checks each output first\n\
    Example: pz bench -6 --filter all weights.safetensors\n  \
    compares the filters for typed data")]
pub struct Bench {
    /// Files to measure with
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Which levels; all unless the user chose some.
    #[command(flatten)]
    pub encoding: Encoding,
    /// Filter to measure, such as f32 or FILE.wasm; may be repeated. all means auto, every type and common chains. The
    /// level is then -3 unless others are given
    #[arg(long, value_name = "NAME")]
    pub filter: Vec<Filters>,
    /// How modules run.
    #[command(flatten)]
    pub lanes: Lanes,
    /// Numbers of threads to measure with, separated by commas; 0 is all cores
    #[arg(short = 'T', long, value_name = "N,…", value_delimiter = ',', value_parser = threads, default_value = "1")]
    pub threads: Vec<usize>,
    /// Most memory to take for each run [default: 2G or, if more, an eighth of the machine's or container's; at most
    /// half of that]
    #[arg(short = 'M', long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub memory: Option<Size>,
    /// Most memory to take on each GPU [env: PZ_GPU_MEMORY]
    #[arg(long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub gpu_memory: Option<Size>,
    /// cpu, cuda[:N], opencl[:N] or webgpu[:N], separated by commas; or all: the CPU and every GPU [env: PZ_DEVICE]
    #[arg(long, value_name = "DEVICE,…")]
    pub device: Option<Several>,
    /// Measure the device alone, stage by stage, on blocks in its memory; needs --device
    #[arg(long, requires = "device", conflicts_with_all = ["threads", "long"])]
    pub resident: bool,
    /// With --resident: bytes on the device, repeating the file to fill them [default: the file once]
    #[arg(long, value_name = "SIZE", requires = "resident", value_parser = sizes::nonzero)]
    pub total: Option<Size>,
    /// Measure how fast .pz files get into the memory of the device, whole and in random ranges; needs --device
    #[arg(long, requires = "device", conflicts_with_all = ["threads", "resident", "csv"], group = "parts")]
    pub load: bool,
    /// Measure how fast the host answers a running kernel that asks for parts of files, or of the contents of .pz
    /// files; needs --device. With cpu, a thread asks instead of a kernel
    #[arg(long, requires = "device", conflicts_with_all = ["threads", "resident", "csv"], group = "parts")]
    pub door: bool,
    /// With --load: bytes of a random range [default: 64K]; with --door: bytes of a request to a .pz file [default:
    /// 256K]
    #[arg(long, value_name = "SIZE", requires = "parts", value_parser = sizes::nonzero)]
    pub range_size: Option<Size>,
    /// With --load: random ranges at a time
    #[arg(long, value_name = "N", requires = "load", default_value = "512")]
    pub in_flight: usize,
    /// With --load: threads that send blocks to the device; 0 is one per core, at most 16, or 8 with OpenCL. With
    /// --door: threads that answer; 0 is one per core, at most 8
    #[arg(long, value_name = "N", requires = "parts", default_value = "0")]
    pub workers: usize,
    /// With --load: bytes of contents in a batch [default: 32M; through WebGPU 128M, unless blocks repeat others]
    #[arg(long, value_name = "SIZE", requires = "load", value_parser = sizes::nonzero)]
    pub batch: Option<Size>,
    /// With --load: read each file into memory first
    #[arg(long, requires = "load")]
    pub in_memory: bool,
    /// With --load: run all modules in a file, even untrusted ones; without this, only those that you trust (pz module
    /// trust)
    #[arg(long, requires = "load")]
    pub allow_modules: bool,
    /// Print JSON: an array with an object per measurement
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values
    #[arg(long)]
    pub csv: bool,
}

// `pz search`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz search --device cuda 'out of memory' logs/\n  \
    prints FILE:OFFSET for each place; files whose names end in .pz are searched for what was compressed")]
pub struct Search {
    /// What to look for, at most 256 bytes
    #[arg(value_name = "TEXT")]
    pub pattern: String,
    /// Folder to search, with all folders below it
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Where the kernel runs: cuda[:N], webgpu[:N] on Vulkan, or opencl[:N] on a CPU. With cpu, threads search instead
    /// of a kernel
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: Device,
    /// Most memory to take on the GPU [env: PZ_GPU_MEMORY]
    #[arg(long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub gpu_memory: Option<Size>,
}

// `pz devices`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz devices --json | jq '.devices[].name'")]
pub struct Devices {
    /// List only this one: cpu, cuda[:N], opencl[:N] or webgpu[:N]; an error if it is missing
    #[arg(value_name = "DEVICE")]
    pub device: Option<Device>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `pz cost`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz cost --device opencl backup.tar\n  \
    predicts how long it takes to compress on the CPU and on the device, from blocks of the file and from earlier \
    runs\n\
    Example: pz cost -b 1M --device opencl:0 --kernels\n  \
    shows how many blocks of 1 MiB go to the device at once, and what each kernel costs for one")]
pub struct Cost {
    /// Predict how long it takes to compress and decompress this file; a .pz file is only decompressed
    #[arg(value_name = "FILE", conflicts_with = "size")]
    pub file: Option<PathBuf>,
    /// Predict it for a file of this length
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    /// Levels to predict for [default: -3]
    #[command(flatten)]
    pub levels: Levels,
    /// Threads to predict for; 0 is all cores
    #[arg(short = 'T', long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Bytes of a block, a power of two [default: 1M, or for predictions the level's]
    #[arg(short, long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub block_size: Option<Size>,
    /// Show the batches for this device: auto, cpu, cuda[:N], opencl[:N] or webgpu[:N]; auto is every GPU [env:
    /// PZ_DEVICE]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
    /// Most memory to take on each GPU [env: PZ_GPU_MEMORY]
    #[arg(long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub gpu_memory: Option<Size>,
    /// Also list the cost of each kernel
    #[arg(long)]
    pub kernels: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `pz recover`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz recover --fill -o saved.tar damaged.tar.pz\n  \
    writes every undamaged block, zeros in place of the others, and lists the lost ranges")]
pub struct Recover {
    /// The damaged file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write zeros for lost contents, so that the rest keeps its offsets; in a file the zeros take no space
    #[arg(long)]
    pub fill: bool,
    /// Most bytes to write [default: no limit; with --fill, the most that a file of this length can hold]
    #[arg(long, value_name = "SIZE")]
    pub max_output: Option<Size>,
    /// Output file; '-' is standard output
    #[arg(short, long, value_name = "FILE", conflicts_with = "stdout")]
    pub output: Option<PathBuf>,
    /// Write to standard output; the report goes to standard error
    #[arg(short = 'c', long)]
    pub stdout: bool,
    /// Overwrite an existing output
    #[arg(short, long)]
    pub force: bool,
    /// Write long runs of zeros in what is saved, which otherwise become holes of a regular file
    #[arg(long)]
    pub no_sparse: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// How to decode.
    #[command(flatten)]
    pub decoding: Decoding,
}

// `pz serve`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz serve /backups\n  \
    lets programs of this machine read /backups/a.tar.pz as http://127.0.0.1:8000/a.tar.pz: pz list, cat, decompress \
    and test do")]
pub struct Serve {
    /// Folder to serve. The server follows no links in it and lists no folders
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Address and port to listen at; port 0 is any free one. 127.0.0.1 serves only this machine
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// Most connections at once
    #[arg(long, value_name = "N", default_value = "64")]
    pub connections: NonZeroU16,
    /// Print a line per request, with the time of day and the seconds that it took
    #[arg(short, long)]
    pub verbose: bool,
}

/// The options of the filter in the short help. The help of each command shows all its options.
const FILTER_HELP: [&str; 4] = ["decompress", "test", "list", "9"];

/// The definition for parsing, with a help that fits a screen.
pub fn command() -> clap::Command {
    complete_command().mut_args(|arg| {
        let hidden = !FILTER_HELP.contains(&arg.get_id().as_str());
        if hidden { arg.hide(true) } else { arg }
    })
}

/// The definition with every option shown, for man pages.
pub fn complete_command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests;
