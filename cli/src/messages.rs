//! Prints lines on standard error, and ends the program without returning to `main`.

use std::fmt::{Arguments, Display};
use std::io::{self, Write};

use crate::failure::{Exit, Failure};
use crate::panics;

/// Prints a line about the run.
pub fn say(text: Arguments<'_>) {
    // One write per line, so that the lines of several processes do not mix. Nothing can be done if it fails.
    let _ = io::stderr().write_all(format!("pz: {text}\n").as_bytes());
}

/// Prints a failure on one line. If the reader of our output has closed the pipe, ends the program as SIGPIPE
/// would.
pub fn report(name: Option<&dyn Display>, failure: &Failure) {
    if failure.broken_pipe {
        end_by_broken_pipe();
    }
    let mut what = failure.what.clone();
    if let (Exit::Bug, Some(panic)) = (failure.exit, panics::take()) {
        what += ": ";
        what += &panic;
    }
    match name {
        Some(name) => say(format_args!("{name}: {what}")),
        None => say(format_args!("{what}")),
    }
}

/// The reader of our output, such as `head`, has closed the pipe. Programs then die of SIGPIPE without a message; tar
/// and shells expect that.
fn end_by_broken_pipe() -> ! {
    pz::internal::output::remove_all();
    #[cfg(unix)]
    let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
    std::process::exit(Exit::Environment as i32)
}

/// Ends the program without running the exit handlers of drivers. Those handlers break while a device is still
/// being opened, and the system frees everything faster than they do.
pub fn end_at_once(exit: u8) -> ! {
    let _ = io::stdout().flush();
    #[cfg(unix)]
    signal_hook::low_level::exit(exit.into());
    #[cfg(not(unix))]
    std::process::exit(exit.into());
}
