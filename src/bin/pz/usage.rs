//! From words to commands; what is wrong with them is told on one line, as everything is.

use std::ffi::OsString;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use crate::args::{self, Cli};
use crate::failure::Failure;
use crate::table;

/// Parses the command line. `None`: help or the version was asked for, and has been printed.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Option<Cli>, Failure> {
    let parsed = args::command().try_get_matches_from(words);
    match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok(Some(cli)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                table::print(&error.to_string()).map(|()| None)
            }
            _ => Err(Failure::environment(shorten(&error.to_string()))),
        },
    }
}

/// The parser explains itself over several lines: what is wrong, then tips, usage, and where help is.
fn shorten(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let mut lines = text.lines().map(str::trim);
    let mut line = lines.next().unwrap_or_default().to_string();
    for more in lines {
        if more.starts_with("Usage:") || more.starts_with("For more information") {
            break;
        }
        if !more.is_empty() {
            line += if line.ends_with(':') { " " } else { "; " };
            line += more;
        }
    }
    line + " (see pz --help)"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_line() {
        for (words, expected) in [
            ("pz --frob", "unexpected argument '--frob' found"),
            ("pz bench", "the following required arguments were not provided: <FILE>"),
            ("pz -T x", "invalid value 'x' for '--threads <N>': a number of threads"),
            ("pz -p zip", "invalid value 'zip' for '--pipeline <NAME>': no pipeline is called"),
            ("pz completions tcsh", "invalid value 'tcsh' for '<SHELL>'"),
            ("pz -d -t", "the argument '--decompress' cannot be used with '--test'"),
        ] {
            let failure = parse(words.split(' ').map(OsString::from)).unwrap_err();
            assert!(failure.what.starts_with(expected), "{words}: {}", failure.what);
            assert!(!failure.what.contains('\n'), "{}", failure.what);
        }
    }
}
