//! The command line, defined once: parsing, help, completions and man pages all come from here.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use pz::Pipeline;

use crate::device::{Device, Several};
use crate::levels::Levels;
use crate::paper::{Completions, Help, Man, Types};
use crate::selection::Selection;
use crate::sizes::{self, ByteRange, Size};
use crate::verbosity::Verbosity;

/// Everything that can be said on the command line.
#[derive(Parser, Debug)]
#[command(
    name = "pz",
    version,
    about = "Compresses files, losslessly, in blocks that every processor of the machine works on at once",
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    disable_help_subcommand = true,
    override_usage = "pz [COMMAND] [OPTIONS] [FILE]...",
    help_template = "{about}\nUsage: {usage}\n\nCommands:\n{subcommands}\n\n\
                     Options without a command:\n{options}{after-help}",
    after_help = "Without a command, pz compresses standard input to standard output, `pz -d` decompresses it:\n\
                  Example: tar -I pz -cf DIR.tar.pz DIR. More options and examples: pz COMMAND --help"
)]
pub struct Cli {
    /// What to do; without it the program is a filter.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The filter's options.
    #[command(flatten)]
    pub filter: Filter,
}

/// The commands. The parser builds the definition of only the one that it meets. A doc comment on that command's struct, or
/// on a group of options in it, would then replace the description here: those are ordinary comments.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum Command {
    /// Compress each FILE to FILE.pz
    Compress(Compress),
    /// Restore each FILE from FILE.pz (also from .gz, .zst, .bz2, .xz, .lz4)
    Decompress(Decompress),
    /// Print what each FILE.pz holds
    Cat(Cat),
    /// Decode and check each FILE, write nothing
    Test(Test),
    /// Show blocks, sizes and ratio of each FILE
    List(List),
    /// Measure ratio and speed of the levels on FILEs
    Bench(Bench),
    /// List the processors that can be used
    Devices(Devices),
    /// Show what GPU kernels cost, and the batches that follow
    Cost(Cost),
    /// Save what a damaged FILE still holds
    Recover(Recover),
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the manual, or write all its pages
    Man(Man),
    /// Print what file(1) and desktops need to recognise .pz
    Types(Types),
    /// Print the help of a command
    #[command(hide = true)]
    Help(Help),
}

/// The program as a filter, or the short form of the four commands on files.
#[derive(Args, Debug)]
pub struct Filter {
    /// Decompress
    #[arg(short = 'd', long, conflicts_with_all = ["test", "list"])]
    pub decompress: bool,
    /// Test: decode and check, write nothing
    #[arg(short = 't', long, conflicts_with_all = ["list", "output", "rm", "range"])]
    pub test: bool,
    /// List what a file holds
    #[arg(short = 'l', long, conflicts_with_all = ["output", "stdout", "rm", "range"])]
    pub list: bool,
    /// How to compress.
    #[command(flatten)]
    pub encoding: Encoding,
    /// On what to run.
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
    /// Print the list as JSON; needs -l
    #[arg(long, requires = "list")]
    pub json: bool,
    /// How much to say.
    #[command(flatten)]
    pub verbosity: Verbosity,
    /// Files; none or '-' is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

// `pz compress`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz compress -8 --rm backup.tar\n  \
    writes backup.tar.pz and, once it is safely on disk and if backup.tar is as it was read, removes backup.tar")]
pub struct Compress {
    /// Files to compress; none or '-' is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to compress.
    #[command(flatten)]
    pub encoding: Encoding,
    /// Where the output goes.
    #[command(flatten)]
    pub placement: Placement,
    /// Decode each output again and check it before it gets its name
    #[arg(long)]
    pub verify: bool,
    /// On what to run.
    #[command(flatten)]
    pub machine: Machine,
    /// How much to say.
    #[command(flatten)]
    pub verbosity: Verbosity,
}

// `pz decompress`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz decompress --range 1G..2G -c backup.tar.pz\n  \
    prints the second GiB of backup.tar, decoding no more than the blocks that hold it")]
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
    /// On what to run.
    #[command(flatten)]
    pub machine: Machine,
    /// How much to say.
    #[command(flatten)]
    pub verbosity: Verbosity,
}

// `pz cat`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz cat log.1.pz log.2.gz | grep error\n  \
    prints the contents of both, one after the other")]
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
    /// On what to run.
    #[command(flatten)]
    pub machine: Machine,
    /// How much to say.
    #[command(flatten)]
    pub verbosity: Verbosity,
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
    /// On what to run.
    #[command(flatten)]
    pub machine: Machine,
    /// How much to say.
    #[command(flatten)]
    pub verbosity: Verbosity,
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
    /// Most memory to take [default: 1G]
    #[arg(short = 'M', long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub memory: Option<Size>,
    /// Print JSON: an array with an object a file
    #[arg(long)]
    pub json: bool,
    /// One line a block
    #[arg(short, long)]
    pub verbose: bool,
}

// `pz bench`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz bench -1 -3 -9 -T 1,0 silesia.tar\n  \
    measures three levels, on one thread and on all; in memory; each output is checked first")]
pub struct Bench {
    /// Files to measure with
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Which levels; all of them unless some are chosen.
    #[command(flatten)]
    pub encoding: Encoding,
    /// Threads to measure with, one or several numbers: 0 is all cores
    #[arg(short = 'T', long, value_name = "N,…", value_delimiter = ',', value_parser = threads, default_value = "1")]
    pub threads: Vec<usize>,
    /// Most memory to take for each run
    #[arg(short = 'M', long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub memory: Option<Size>,
    /// Most memory to take on each GPU [env: PZ_GPU_MEMORY]
    #[arg(long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub gpu_memory: Option<Size>,
    /// cpu, opencl[:N] or webgpu[:N], several with commas between them, or all: the CPU and every GPU [env: PZ_DEVICE]
    #[arg(long, value_name = "DEVICE,…")]
    pub device: Option<Several>,
    /// Measure the device alone, stage by stage, on blocks that lie in its memory; needs --device
    #[arg(long, requires = "device", conflicts_with = "threads")]
    pub resident: bool,
    /// With --resident: bytes to have on the device, the file again and again [default: the file once]
    #[arg(long, value_name = "SIZE", requires = "resident", value_parser = sizes::nonzero)]
    pub total: Option<Size>,
    /// Print JSON: an array with an object a measurement
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values
    #[arg(long)]
    pub csv: bool,
}

// `pz devices`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz devices --json | jq '.devices[].name'")]
pub struct Devices {
    /// List this one only: cpu, opencl[:N] or webgpu[:N]; if it is not there, that is an error
    #[arg(value_name = "DEVICE")]
    pub device: Option<Device>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `pz cost`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz cost --device opencl backup.tar\n  \
    predicts how long it takes to compress on the CPU and on the device, from blocks of the file and from earlier runs\n\
    Example: pz cost -b 1M --device opencl:0 --kernels\n  \
    shows how many blocks of 1 MiB the device is given at once, and what each kernel takes for one")]
pub struct Cost {
    /// Predict how long this file takes, to compress or if it is a .pz file to decompress, and on what
    #[arg(value_name = "FILE", conflicts_with = "size")]
    pub file: Option<PathBuf>,
    /// Predict it for a file of so many bytes
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
    /// Show the batches for this device: auto, cpu, opencl[:N] or webgpu[:N]; auto is every GPU [env: PZ_DEVICE]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
    /// Most memory to take on each GPU [env: PZ_GPU_MEMORY]
    #[arg(long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub gpu_memory: Option<Size>,
    /// List what each kernel costs, too
    #[arg(long)]
    pub kernels: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `pz recover`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz recover --fill -o saved.tar damaged.tar.pz\n  \
    writes every undamaged block, zeros for the others, and names the ranges that are lost")]
pub struct Recover {
    /// The damaged file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write zeros for lost contents, so that the rest keeps its place; in files they take no space
    #[arg(long)]
    pub fill: bool,
    /// Most bytes to write [default: no limit; with --fill, what a file of this length could hold]
    #[arg(long, value_name = "SIZE")]
    pub max_output: Option<Size>,
    /// Output file; '-' is standard output
    #[arg(short, long, value_name = "FILE", conflicts_with = "stdout")]
    pub output: Option<PathBuf>,
    /// Write to standard output; the report goes to standard error
    #[arg(short = 'c', long)]
    pub stdout: bool,
    /// Overwrite an output that exists
    #[arg(short, long)]
    pub force: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// On what to run.
    #[command(flatten)]
    pub machine: Machine,
    /// How much to say.
    #[command(flatten)]
    pub verbosity: Verbosity,
}

// How to compress.
#[derive(Args, Debug, Clone)]
pub struct Encoding {
    /// `-1` to `-9`.
    #[command(flatten)]
    pub levels: Levels,
    /// Stages to use instead of the level's: lzh, lzf, bwt, fse or store
    #[arg(short, long, value_name = "NAME")]
    pub pipeline: Option<Pipeline>,
    /// Block size instead of the level's, a power of two from 64K to 16M (bwt: 64M)
    #[arg(short, long, value_name = "SIZE")]
    pub block_size: Option<Size>,
    /// How far back matches reach instead of the level's, a power of two from 64K to 16M: less is faster on a GPU
    #[arg(short, long, value_name = "SIZE")]
    pub window: Option<Size>,
    /// Take what a GPU encodes without having it decoded again; the output is the same
    #[arg(long)]
    pub no_verify: bool,
}

// On what to run.
#[derive(Args, Debug, Clone)]
pub struct Machine {
    /// Worker threads; 0 is one a core [default: 0] [env: PZ_THREADS]
    #[arg(short = 'T', long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Most memory to take [default: 2G to compress or with a GPU that is named, else 1G]
    #[arg(short = 'M', long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub memory: Option<Size>,
    /// Most memory to take on each GPU [env: PZ_GPU_MEMORY]
    #[arg(long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub gpu_memory: Option<Size>,
    /// auto, cpu, opencl[:N] or webgpu[:N] [default: auto] [env: PZ_DEVICE]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
}

// Where the output goes, and what becomes of the input.
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
    /// Do not wait for the disk, even with --rm: a crash of the system may then lose the contents
    #[arg(long, overrides_with = "sync")]
    pub no_sync: bool,
    /// Overwrite outputs, follow symbolic links, write to terminals and block devices, compress what is compressed, remove
    /// one of several hard links
    #[arg(short, long)]
    pub force: bool,
    /// Folder for the outputs instead of the inputs' own; files of a directory keep their place in it
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

/// A number of worker threads; 0 is one a core.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(threads) if threads <= MAX_THREADS => Ok(threads),
        Ok(_) => Err(format!("at most {MAX_THREADS} threads")),
        Err(_) => Err("a number of threads was expected".into()),
    }
}

/// More threads than any machine has cores; a typing error would otherwise exhaust it.
const MAX_THREADS: usize = 4096;

/// The options of the filter that the program's short help shows; the commands' help shows the others.
const FILTER_HELP: [&str; 4] = ["decompress", "test", "list", "9"];

/// The definition as the program parses it: its help fits a screen.
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
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn parse(arguments: &str) -> Result<Cli, clap::Error> {
        let words = std::iter::once("pz").chain(arguments.split_whitespace());
        Cli::from_arg_matches(&command().try_get_matches_from(words)?)
    }

    #[test]
    fn definition_is_sound() {
        command().debug_assert();
        complete_command().debug_assert();
    }

    #[test]
    fn combinations() {
        for (arguments, accepted) in [
            ("-d -T2", true),
            ("-d -9", true),
            ("-dc a.pz", true),
            ("-d -t", false),
            ("-l --rm", false),
            ("--json", false),
            ("-l --json", true),
            ("--range 1..2", false),
            ("-d --range 1..2", true),
            ("compress -c --rm x", false),
            ("compress -c -o y x", false),
            ("compress --rm -k x", true),
            ("compress --sync --no-sync x", true),
            ("compress -q -v x", true),
            ("compress -T x", false),
            ("decompress --rm --range 1..2 x", false),
            ("bench -T 1,0 x", true),
            ("bench", false),
            ("bench --csv --json x", false),
            ("completions tcsh", false),
            ("compress -r --exclude *.o --exclude tmp d", true),
            ("compress --exclude *.o d", false),
            ("compress -r --exclude [ d", false),
            ("compress --output-dir d -c x", false),
            ("compress --output-dir d -o y x", false),
            ("compress --suffix .x x", true),
            ("compress --suffix a/b x", false),
            ("cat --range 1.. x y", true),
            ("types mime", true),
            ("types gnome", false),
        ] {
            assert_eq!(parse(arguments).is_ok(), accepted, "pz {arguments}");
        }
    }

    #[test]
    fn help_fits_a_screen() {
        let help = command().render_help().to_string();
        assert!(help.lines().count() <= 27, "{} lines:\n{help}", help.lines().count());
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }

    #[test]
    fn every_command_has_an_example() {
        let mut definition = command();
        definition.build();
        for command in definition.get_subcommands_mut() {
            let name = command.get_name().to_string();
            // What the list of commands says of it, although it has been built since.
            let listed = self::command().find_subcommand(&name).unwrap().get_about().cloned();
            assert_eq!(command.get_about(), listed.as_ref(), "pz {name}");
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example: pz "), "pz {name} --help lacks an example");
        }
    }
}
