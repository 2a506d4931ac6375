//! `pz completions`, `pz man` and `pz help`, made from the definition of the command line, and `pz types`.

use std::fs;
use std::io;

use crate::args;
use crate::failure::Failure;
use crate::paper::{Completions, Help, Man, Types, TypesFor};
use crate::table;
use crate::usage;

/// Prints completions for a shell.
pub fn completions(args: &Completions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut args::complete_command(), "pz", &mut text);
    table::print(&String::from_utf8_lossy(&text))
}

/// Prints the manual's first page, or writes all of them.
pub fn man(args: &Man) -> Result<(), Failure> {
    let command = args::complete_command();
    match &args.folder {
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text)?;
            table::print(&String::from_utf8_lossy(&text))
        }
        Some(folder) => {
            let written =
                fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
            written.map_err(|error: io::Error| Failure::from(error).at(folder))
        }
    }
}

/// Prints the definitions by which other programs recognise our files.
pub fn types(args: &Types) -> Result<(), Failure> {
    table::print(match args.kind {
        TypesFor::Magic => include_str!("types.magic"),
        TypesFor::Mime => include_str!("types.xml"),
    })
}

/// Prints the help of the program or of a command.
pub fn help(args: &Help) -> Result<(), Failure> {
    let mut program = args::command();
    program.build();
    let command = match &args.command {
        None => Some(&mut program),
        Some(name) => program.find_subcommand_mut(name),
    };
    match (command, &args.command) {
        (Some(command), _) => table::print(&command.render_help().to_string()),
        (None, name) => {
            let name = name.as_deref().unwrap_or_default();
            let tip = usage::similar(name, &program);
            let tip = tip.map(|command| format!("; did you mean '{command}'?")).unwrap_or_default();
            Err(Failure::environment(format!("unknown command '{name}'{tip} (see pz --help)")))
        }
    }
}
