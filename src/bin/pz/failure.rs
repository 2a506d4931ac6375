//! What can go wrong with one file, sorted by the exit code it leads to.

use std::fmt::Display;
use std::io;
use std::path::Path;

use pz::ErrorClass;

/// Exit codes of the program, in order of gravity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// All was done.
    Done = 0,
    /// The surroundings are at fault: a missing file, a permission, no space, a wrong option.
    Environment = 1,
    /// The input is corrupt, or of a kind that this program does not read.
    Input = 2,
    /// The program is at fault.
    Bug = 3,
}

/// Why one file could not be done: an exit code and one line for the user, without the file's name.
#[derive(Debug)]
pub struct Failure {
    /// The exit code that this failure asks for.
    pub exit: Exit,
    /// What happened, and where; a single line.
    pub what: String,
    /// The reader of our output has gone: nobody is there to be told.
    pub broken_pipe: bool,
}

impl Failure {
    fn new(exit: Exit, what: impl Display) -> Self {
        Failure { exit, what: one_line(&what.to_string()), broken_pipe: false }
    }

    /// The surroundings or the command line are at fault.
    pub fn environment(what: impl Display) -> Self {
        Failure::new(Exit::Environment, what)
    }

    /// The input is at fault.
    pub fn input(what: impl Display) -> Self {
        Failure::new(Exit::Input, what)
    }

    /// The program is at fault.
    pub fn bug(what: impl Display) -> Self {
        Failure::new(Exit::Bug, what)
    }

    /// The input did not stay as it was while it was read.
    pub fn changed() -> Self {
        Failure::environment("changed while it was being read")
    }

    /// Puts the place where it happened (another file than the one being worked on) before the reason.
    pub fn at(mut self, place: &Path) -> Self {
        self.what = format!("{}: {}", show(place), self.what);
        self
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // The library's readers and writers speak `io::Error` and carry their own error inside.
        Failure::from(pz::Error::from(error))
    }
}

impl From<pz::Error> for Failure {
    fn from(error: pz::Error) -> Self {
        let exit = match error.class() {
            ErrorClass::Environment => Exit::Environment,
            ErrorClass::Input => Exit::Input,
            // A class that this program does not know is its own fault.
            _ => Exit::Bug,
        };
        match error {
            pz::Error::Io(error) => {
                let broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
                Failure { broken_pipe, ..Failure::environment(describe_io(&error)) }
            }
            pz::Error::Changed { .. } => Failure::changed(),
            pz::Error::LimitMemory { .. } => Failure::new(exit, format!("{error}; -M raises it")),
            error => Failure::new(exit, error),
        }
    }
}

/// The system's words for an error, without the "(os error 28)" that Rust adds.
pub fn describe_io(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

/// A file's name as it may be printed: on one line, whatever bytes it holds.
pub fn show(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Makes control characters visible, so that one message is one line and cannot drive the terminal.
pub fn one_line(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_string();
    }
    let mut line = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_made_visible() {
        for (text, shown) in [
            ("plain", "plain"),
            ("größer ünd", "größer ünd"),
            ("two\nlines", "two\\nlines"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
        ] {
            assert_eq!(one_line(text), shown);
        }
    }

    #[test]
    fn system_errors_lose_their_number() {
        let failure = Failure::from(io::Error::from_raw_os_error(28));
        assert_eq!((failure.exit, failure.broken_pipe), (Exit::Environment, false));
        assert!(!failure.what.contains("os error"), "{}", failure.what);
        assert!(Failure::from(io::Error::from_raw_os_error(32)).broken_pipe);
    }
}
