//! Parses the command line. Like every error, a usage error is one line.

use std::ffi::OsString;
use std::mem::ManuallyDrop;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use crate::args::{self, Cli, Filter};
use crate::failure::{Failure, show};
use crate::levels;
use crate::table;

/// Parses the command line. `None` if it asked for help or the version, which this function has printed.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Option<Cli>, Failure> {
    let words: Vec<OsString> = words.collect();
    if let [_, only] = &words[..]
        && (only == "--version" || only == "-V")
    {
        // Answer early: scripts ask for the version often, and building the parser would take most of the time.
        return table::print(concat!("pz ", env!("CARGO_PKG_VERSION"), "\n")).map(|()| None);
    }
    // Never drop the definition: freeing its parts takes as long as compressing a small file.
    let mut definition = ManuallyDrop::new(args::command());
    let help = help_for(&words, &definition);
    let fail = |what: String| Failure::environment(format!("{what} (see {help})"));
    // `pz module` has no levels: there a negative number is an argument of the module's entry.
    if words.get(1).is_none_or(|word| word != "module") {
        levels::check(&words, |short| takes_value(&definition, short)).map_err(fail)?;
    }
    let parsed = definition.try_get_matches_from_mut(words);
    match parsed.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches)) {
        Ok(cli) if cli.command.is_some() => Ok(Some(cli)),
        Ok(cli) => match ambiguity(&cli.filter, &definition) {
            Some(what) => Err(fail(what)),
            None => Ok(Some(cli)),
        },
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                table::print(&error.to_string()).map(|()| None)
            }
            _ => Err(fail(shorten(&error.to_string()))),
        },
    }
}

/// The command that prints help for these words.
fn help_for(words: &[OsString], definition: &clap::Command) -> String {
    let command = words.get(1).and_then(|word| definition.find_subcommand(word));
    match command {
        Some(command) => format!("pz {} --help", command.get_name()),
        None => "pz --help".into(),
    }
}

/// Whether a short option takes a value. Every short option of the commands is also one of the filter and takes a
/// value in both or in neither.
fn takes_value(definition: &clap::Command, short: char) -> bool {
    let mut arguments = definition.get_arguments();
    arguments.any(|arg| arg.get_short() == Some(short) && arg.get_action().takes_values())
}

/// Says why a command line without a command is ambiguous; `None` if it is clear.
///
/// `-d`, `-t`, `-l`, a level or another option of compression makes clear what to do with the files. Without them, the
/// user may want to compress or to restore a file, or may have mistyped a command.
fn ambiguity(filter: &Filter, definition: &clap::Command) -> Option<String> {
    let first = filter.files.iter().find(|file| file.as_os_str() != "-")?;
    if filter.decompress || filter.test || filter.list {
        return None;
    }
    if !first.exists()
        && let Some(command) = first.to_str().and_then(|name| similar(name, definition))
    {
        return Some(match first.to_str() == Some(command) {
            true => format!("put the command before its options: pz {command} ..."),
            false => {
                format!("unknown command '{}'; did you mean 'pz {command}'?", show(first))
            }
        });
    }
    if filter.compresses() {
        return None;
    }
    let name = show(first);
    Some(match first.symlink_metadata() {
        Ok(_) => format!("{name}: say what to do: 'pz compress {name}' or 'pz decompress {name}'"),
        Err(_) => format!("'{name}' is neither a command nor a file"),
    })
}

/// The command that the user most likely meant by a word.
pub fn similar<'a>(word: &str, definition: &'a clap::Command) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let commands = definition.get_subcommands().filter(|command| !command.is_hide_set());
    let distances = commands.map(|command| {
        let name = command.get_name();
        (strsim::damerau_levenshtein(&word, name), name)
    });
    // At most one mistake in three letters: a short word is more likely a file's name.
    let close = distances.filter(|&(distance, name)| distance <= name.len().min(word.len()) / 3);
    close.min().map(|(_, name)| name)
}

/// Puts the parser's message on one line: the error, then tips, without usage and pointer to help.
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
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(words: &str) -> String {
        parse(words.split(' ').map(OsString::from)).unwrap_err().what
    }

    #[test]
    fn errors_are_one_line() {
        for (words, expected) in [
            ("pz --frob", "unexpected argument '--frob' found"),
            ("pz bench", "the following required arguments were not provided: <FILE>"),
            ("pz -T x", "invalid value 'x' for '--threads <N>': expected a number of threads"),
            ("pz -p zip", "invalid value 'zip' for '--pipeline <NAME>': there is no pipeline"),
            ("pz completions tcsh", "invalid value 'tcsh' for '<SHELL>'"),
            ("pz -d -t", "the argument '--decompress' cannot be used with '--test'"),
        ] {
            let what = fails(words);
            assert!(what.starts_with(expected), "{words}: {what}");
            assert!(!what.contains('\n'), "{what}");
        }
    }

    #[test]
    fn errors_point_to_the_help_of_their_command() {
        for (words, help) in [
            ("pz --frob", " (see pz --help)"),
            ("pz -12", " (see pz --help)"),
            ("pz compress --frob", " (see pz compress --help)"),
            ("pz bench -12 x", " (see pz bench --help)"),
            ("pz list --jsn", " (see pz list --help)"),
        ] {
            let what = fails(words);
            assert!(what.ends_with(help), "{words}: {what}");
        }
    }

    #[test]
    fn commands_agree_on_which_short_options_take_a_value() {
        let mut definition = args::command();
        definition.build();
        for command in definition.get_subcommands() {
            for argument in command.get_arguments() {
                let Some(short) = argument.get_short() else { continue };
                let takes = argument.get_action().takes_values();
                let name = command.get_name();
                assert_eq!(takes_value(&definition, short), takes, "-{short} of {name}");
            }
        }
    }

    #[test]
    fn typing_errors() {
        let definition = args::command();
        for (word, command) in [
            ("decompres", Some("decompress")),
            ("comperss", Some("compress")),
            ("Compress", Some("compress")),
            ("lst", Some("list")),
            ("tets", Some("test")),
            ("a", None),
            ("ma", None),
            ("frob", None),
            ("decompress.txt", None),
        ] {
            assert_eq!(similar(word, &definition), command, "{word}");
        }
    }
}
