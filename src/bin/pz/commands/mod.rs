//! One file a command.

mod bench;
mod compress;
mod cost;
mod decompress;
mod devices;
mod generate;
mod list;
mod predict;
mod recover;
mod resident;
mod test;

use crate::args::{self, Cli, Command, Filter, Talk};
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::standard;

/// Does what the command line says. An error that concerns no single file ends the run.
pub fn run(cli: Cli) -> Result<Exit, Failure> {
    let command = cli.command.unwrap_or_else(|| cli.filter.into_command());
    if command.prints() {
        standard::check_output()?;
    }
    let mut session = Session::new(command.talk());
    match command {
        Command::Compress(args) => compress::run(&args, &mut session)?,
        Command::Decompress(args) => decompress::run(&args, &mut session)?,
        Command::Test(args) => test::run(&args, &mut session)?,
        Command::List(args) => list::run(&args, &mut session)?,
        Command::Bench(args) => bench::run(&args, &mut session)?,
        Command::Devices(args) => devices::run(&args)?,
        Command::Cost(args) => cost::run(&args)?,
        Command::Recover(args) => recover::run(&args, &mut session)?,
        Command::Completions(args) => generate::completions(&args)?,
        Command::Man(args) => generate::man(&args)?,
        Command::Help(args) => generate::help(&args)?,
    }
    Ok(session.finish())
}

impl Command {
    /// Whether standard output gets a report. Then it must be there before the work begins.
    fn prints(&self) -> bool {
        match self {
            Command::Compress(_) | Command::Decompress(_) | Command::Test(_) => false,
            Command::Man(args) => args.folder.is_none(),
            // The contents or the report.
            Command::Recover(_) => true,
            Command::List(_) | Command::Bench(_) | Command::Devices(_) | Command::Cost(_) => true,
            Command::Completions(_) | Command::Help(_) => true,
        }
    }

    fn talk(&self) -> Talk {
        match self {
            Command::Compress(args) => args.talk.clone(),
            Command::Decompress(args) => args.talk.clone(),
            Command::Test(args) => args.talk.clone(),
            Command::Recover(args) => args.talk.clone(),
            _ => Talk::default(),
        }
    }
}

impl Filter {
    /// The command that the filter's options are short for.
    fn into_command(self) -> Command {
        let Filter { files, encoding, machine, placement, verify, range, json, talk, .. } = self;
        if self.list {
            let (recursive, verbose) = (placement.recursive, talk.verbose);
            let memory = machine.memory;
            Command::List(args::List { files, recursive, memory, json, verbose })
        } else if self.test {
            let recursive = placement.recursive;
            Command::Test(args::Test { files, recursive, machine, talk })
        } else if self.decompress {
            Command::Decompress(args::Decompress { files, range, placement, machine, talk })
        } else {
            Command::Compress(args::Compress { files, encoding, placement, verify, machine, talk })
        }
    }
}
