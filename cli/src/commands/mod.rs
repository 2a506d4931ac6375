//! The commands, each in its own file.

mod bench;
mod compress;
mod cost;
mod decompress;
mod devices;
mod door;
mod generate;
mod list;
mod load;
mod module;
mod predict;
mod recover;
mod resident;
mod search;
mod serve;
mod test;

use crate::args::{self, Cli, Command, Decoding, Encoding, Filter};
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::standard;
use crate::trust::Trust;
use crate::verbosity::Verbosity;

/// Runs the command. An error that concerns no single file ends the run.
pub fn run(cli: Cli) -> Result<Exit, Failure> {
    let command = cli.command.unwrap_or_else(|| cli.filter.into_command());
    if command.prints() {
        standard::check_output()?;
    }
    let mut session = Session::new(command.verbosity());
    match command {
        Command::Compress(args) => compress::run(&args, &mut session)?,
        Command::Decompress(args) => decompress::run(&args, &mut session)?,
        Command::Cat(args) => decompress::run(&args.into_decompress(), &mut session)?,
        Command::Test(args) => test::run(&args, &mut session)?,
        Command::List(args) => list::run(&args, &mut session)?,
        Command::Bench(args) => bench::run(&args, &mut session)?,
        Command::Devices(args) => devices::run(&args)?,
        Command::Cost(args) => cost::run(&args)?,
        Command::Module(args) => module::run(&args, &mut session)?,
        Command::Recover(args) => recover::run(&args, &mut session)?,
        Command::Search(args) => search::run(&args, &mut session)?,
        Command::Serve(args) => serve::run(&args)?,
        Command::Completions(args) => generate::completions(&args)?,
        Command::Man(args) => generate::man(&args)?,
        Command::Types(args) => generate::types(&args)?,
        Command::Help(args) => generate::help(&args)?,
    }
    Ok(session.finish())
}

impl Command {
    /// Whether the command writes to standard output. If so, that must be open before the work begins.
    fn prints(&self) -> bool {
        match self {
            Command::Compress(_) | Command::Decompress(_) | Command::Test(_) => false,
            Command::Man(args) => args.folder.is_none(),
            // The contents or the report.
            Command::Recover(_) | Command::Cat(_) => true,
            Command::List(_) | Command::Bench(_) | Command::Devices(_) | Command::Cost(_) => true,
            Command::Completions(_) | Command::Types(_) | Command::Help(_) => true,
            Command::Module(_) | Command::Search(_) | Command::Serve(_) => true,
        }
    }

    fn verbosity(&self) -> Verbosity {
        match self {
            Command::Compress(args) => args.verbosity.clone(),
            Command::Decompress(args) => args.decoding.verbosity.clone(),
            Command::Cat(args) => args.decoding.verbosity.clone(),
            Command::Test(args) => args.decoding.verbosity.clone(),
            Command::Recover(args) => args.decoding.verbosity.clone(),
            _ => Verbosity::default(),
        }
    }
}

impl args::Cat {
    /// The decompression to standard output that `pz cat` stands for.
    fn into_decompress(self) -> args::Decompress {
        let args::Cat { files, range, selection, decoding } = self;
        let placement = args::Placement { stdout: true, selection, ..args::Placement::default() };
        args::Decompress { files, range, placement, decoding }
    }
}

impl Filter {
    /// Whether an option makes sense only for compression.
    pub fn compresses(&self) -> bool {
        let Encoding { levels, pipeline, block_size, window, long, rsyncable, no_verify } =
            &self.encoding;
        let is_shaped = pipeline.is_some() || block_size.is_some() || window.is_some();
        long.is_some()
            || !levels.0.is_empty()
            || is_shaped
            || self.filtering.is_set()
            || *rsyncable
            || *no_verify
            || self.verify
    }

    /// The command that the filter's options stand for.
    fn into_command(self) -> Command {
        let Filter { files, encoding, filtering, machine, placement, range, verbosity, .. } = self;
        let (verify, json) = (self.verify, self.json);
        if self.list {
            let (selection, verbose) = (placement.selection, verbosity.verbose);
            let memory = machine.memory;
            Command::List(args::List { files, selection, memory, json, verbose })
        } else if self.test || self.decompress {
            let trust = Trust { allow_modules: self.allow_modules };
            let decoding = Decoding { trust, machine, verbosity };
            match self.test {
                true => {
                    let selection = placement.selection;
                    Command::Test(args::Test { files, selection, decoding })
                }
                false => {
                    Command::Decompress(args::Decompress { files, range, placement, decoding })
                }
            }
        } else {
            Command::Compress(args::Compress {
                files,
                encoding,
                filtering,
                placement,
                verify,
                machine,
                verbosity,
            })
        }
    }
}
