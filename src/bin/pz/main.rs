//! The `pz` program: arguments, progress and exit codes around the library's public interface.

mod args;
mod cleanup;
mod commands;
mod device;
mod failure;
mod formats;
mod inputs;
mod levels;
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

use failure::Exit;

fn main() -> ExitCode {
    ExitCode::from(panics::guard(run) as u8)
}

fn run() -> Exit {
    let outcome = match usage::parse(std::env::args_os()) {
        Ok(Some(cli)) => commands::run(cli),
        Ok(None) => Ok(Exit::Done),
        Err(failure) => Err(failure),
    };
    outcome.unwrap_or_else(|failure| {
        session::report(None, &failure);
        failure.exit
    })
}
