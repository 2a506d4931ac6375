//! Lines on standard error, and the ends of the program that do not return to `main`.

use std::fmt::{Arguments, Display};
use std::io::{self, Write};

use crate::cleanup;
use crate::failure::{Exit, Failure};
use crate::panics;

/// Prints a line about the run.
pub fn say(text: Arguments<'_>) {
    // One write a line, so that the lines of several processes do not mix. If even that fails, nobody listens.
    let _ = io::stderr().write_all(format!("pz: {text}\n").as_bytes());
}

/// Prints a failure on one line. If the reader of our output has gone, ends the program as that ends any program.
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

/// `head` has seen enough. Programs die of SIGPIPE then, without a word, and tar and shells know what that means.
fn end_by_broken_pipe() -> ! {
    cleanup::remove_all();
    #[cfg(unix)]
    let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
    std::process::exit(Exit::Environment as i32)
}

/// Ends the program without running what drivers have registered to be run at its end: they are not prepared for a device
/// that is still being opened, and the system takes everything back faster than they do.
pub fn end_at_once(exit: u8) -> ! {
    let _ = io::stdout().flush();
    #[cfg(unix)]
    signal_hook::low_level::exit(exit.into());
    #[cfg(not(unix))]
    std::process::exit(exit.into());
}
