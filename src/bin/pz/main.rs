//! The `pz` program: arguments, progress and exit codes around the library's public interface.

mod args;
mod cleanup;
mod commands;
mod device;
mod failure;
mod formats;
mod inputs;
mod output;
mod panics;
mod progress;
mod session;
mod settings;
mod sizes;
mod source;
mod table;
mod transfer;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    panics::install();
    let outcome = usage::parse(std::env::args_os()).and_then(|cli| match cli {
        Some(cli) => commands::run(cli),
        None => Ok(failure::Exit::Done),
    });
    let exit = outcome.unwrap_or_else(|failure| {
        session::report(None, &failure);
        failure.exit
    });
    ExitCode::from(exit as u8)
}
