//! What can go wrong with one file, and the exit code it leads to.

use std::fmt::Display;
use std::io;
use std::path::Path;

use pz::ErrorClass;
use pz::access::SourceError;

/// Exit codes of the program, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Everything was done.
    Done = 0,
    /// The environment is at fault: a missing file, a permission, no space, a wrong option.
    Environment = 1,
    /// The input is corrupt, or in a format that this program does not read.
    Input = 2,
    /// The program is at fault.
    Bug = 3,
}

/// Why one file failed: an exit code and one line for the user, without the file's name.
#[derive(Debug)]
pub struct Failure {
    /// The exit code it leads to.
    pub exit: Exit,
    /// What happened, and where; a single line.
    pub what: String,
    /// Whether the reader of our output has closed the pipe, and no message is wanted.
    pub broken_pipe: bool,
}

impl Failure {
    fn new(exit: Exit, what: impl Display) -> Self {
        Failure { exit, what: one_line(&what.to_string()), broken_pipe: false }
    }

    /// A failure of the environment or the command line.
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

    /// The input changed while we read it.
    pub fn changed() -> Self {
        Failure::environment("changed while it was being read")
    }

    /// Puts `place` before the message, for a failure of a file other than the current one.
    pub fn at(mut self, place: &Path) -> Self {
        self.what = format!("{}: {}", show(place), self.what);
        self
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // The library's readers and writers return an `io::Error` that wraps the library's own.
        Failure::from(pz::Error::from(error))
    }
}

impl From<pz::Error> for Failure {
    fn from(error: pz::Error) -> Self {
        Failure::from(&error)
    }
}

impl From<&pz::Error> for Failure {
    fn from(error: &pz::Error) -> Self {
        let exit = match error.class() {
            ErrorClass::Environment => Exit::Environment,
            ErrorClass::Input => Exit::Input,
            // A class that this program does not know is a bug.
            _ => Exit::Bug,
        };
        match error {
            pz::Error::Io(error) => {
                if let Some(error) = SourceError::in_io(error) {
                    // The URI is the input's name, which comes before the message.
                    return Failure::environment(error.what());
                }
                let broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
                Failure { broken_pipe, ..Failure::environment(describe_io(error)) }
            }
            pz::Error::Changed { .. } => Failure::changed(),
            pz::Error::UntrustedModule { sha256, .. } => {
                let hash = hex(sha256);
                let remedy = format!("pz module trust {hash} trusts it, --allow-modules all");
                Failure::new(exit, format!("{error}; {remedy}"))
            }
            pz::Error::LimitMemory { .. } => Failure::new(exit, format!("{error}; -M raises it")),
            error => Failure::new(exit, error),
        }
    }
}

/// Bytes in hexadecimal digits, as people write a hash.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The system's message for an error, without the "(os error 28)" that Rust adds.
pub fn describe_io(error: &io::Error) -> String {
    without_number(&error.to_string()).to_string()
}

/// A message without the "(os error 28)" at its end.
pub fn without_number(text: &str) -> &str {
    text.find(" (os error ").map_or(text, |end| &text[..end])
}

/// A file's name for printing: on one line, whatever bytes it holds.
pub fn show(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Escapes control characters, so that a message stays on one line and cannot control the terminal.
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
