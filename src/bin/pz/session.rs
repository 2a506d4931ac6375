//! What one run of the program says, and the exit code that it ends with.

use std::fmt::{Arguments, Display};
use std::io::{self, IsTerminal, Write};

use crate::args::Talk;
use crate::cleanup;
use crate::failure::{Exit, Failure};
use crate::panics;

/// One run of the program: several files, one exit code.
pub struct Session {
    talk: Talk,
    worst: Exit,
}

impl Session {
    /// A run in which nothing has gone wrong yet.
    pub fn new(talk: Talk) -> Self {
        Session { talk, worst: Exit::Done }
    }

    /// Reports that a file could not be done; the run goes on.
    pub fn fail(&mut self, name: impl Display, failure: Failure) {
        self.worst = self.worst.max(failure.exit);
        report(Some(&name), &failure);
    }

    /// Tells the user, if asked to, what was done.
    pub fn say(&self, text: Arguments<'_>) {
        if self.talk.verbose {
            say(text);
        }
    }

    /// Whether the user wants to know what was done.
    pub fn is_verbose(&self) -> bool {
        self.talk.verbose
    }

    /// Whether progress may be shown: on a terminal, and nobody asked for silence.
    pub fn shows_progress(&self) -> bool {
        !self.talk.quiet && !self.talk.no_progress && io::stderr().is_terminal()
    }

    /// The exit code: that of the worst failure.
    pub fn finish(self) -> Exit {
        self.worst
    }
}

fn say(text: Arguments<'_>) {
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
