//! `-1` to `-9`: nine flags. Compression uses the last one given; `pz bench` and `pz cost` use all of them.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};
use pz::Level;

/// The levels in the order in which the user gave them.
#[derive(Debug, Clone, Default)]
pub struct Levels(pub Vec<Level>);

/// The flag of a level: its digit.
fn level_flag(level: Level) -> char {
    char::from(b'0' + level.get())
}

impl Args for Levels {
    fn augment_args(mut command: clap::Command) -> clap::Command {
        for level in Level::all() {
            let help = match level {
                Level::MIN => "Fastest level".to_string(),
                Level::MAX => format!(
                    "Smallest output; -1 is fastest [default: -{}] [env: PZ_LEVEL]",
                    Level::DEFAULT
                ),
                _ => format!("Level {level}"),
            };
            let arg = Arg::new(level_flag(level).to_string())
                .short(level_flag(level))
                .action(ArgAction::SetTrue)
                .hide(level != Level::MIN && level != Level::MAX)
                .help(help);
            command = command.arg(arg);
        }
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Levels {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given: Vec<(usize, Level)> = Level::all()
            .filter(|&level| matches.get_flag(&level_flag(level).to_string()))
            .filter_map(|level| {
                Some((matches.indices_of(&level_flag(level).to_string())?.max()?, level))
            })
            .collect();
        given.sort();
        Ok(Levels(given.into_iter().map(|(_, level)| level).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Refuses numbers that are not levels, such as `-12` and `-0`. The parser would read `-12` as `-1 -2`.
///
/// `takes_value` says whether a short option takes a value. If so, the rest of its word is that value, not a level.
pub fn check(words: &[OsString], takes_value: impl Fn(char) -> bool) -> Result<(), String> {
    for word in words.iter().skip(1).take_while(|word| *word != "--") {
        let word = word.to_string_lossy();
        let Some(flags) = word.strip_prefix('-').filter(|flags| !flags.starts_with('-')) else {
            continue;
        };
        let flags = flags.split(&takes_value).next().unwrap_or_default();
        for number in flags.split(|c: char| !c.is_ascii_digit()).filter(|text| !text.is_empty()) {
            match number.parse::<u64>() {
                Ok(1..=9) if number.len() == 1 => {}
                Ok(0) => {
                    return Err("there is no level 0: levels are 1 to 9, and -1 is the fastest; \
                                -p store only adds checksums"
                        .into());
                }
                _ => {
                    return Err(format!(
                        "there is no level {number}: levels are 1 to 9, and -8 and -9 make the \
                         smallest output; to measure several levels, write -1 -2"
                    ));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_levels() {
        for (arguments, wrong) in [
            ("-1 -3 -9", None),
            ("-kf9", None),
            ("-9k", None),
            ("-cd", None),
            ("-9T12", None),
            ("-T12 -b64K", None),
            ("-- -12", None),
            ("--block-size=12 12 -", None),
            ("-12", Some("12")),
            ("-19", Some("19")),
            ("-10", Some("10")),
            ("-k10f", Some("10")),
            ("-9 -99999999999999999999999", Some("99999999999999999999999")),
            ("-0", Some("0")),
            ("-k00", Some("0")),
            ("-05", Some("05")),
        ] {
            let words: Vec<OsString> =
                format!("pz {arguments}").split(' ').map(Into::into).collect();
            let outcome = check(&words, |c| "Tb".contains(c));
            let begin = wrong.map(|number| format!("there is no level {number}:"));
            match (&outcome, begin) {
                (Ok(()), None) => {}
                (Err(what), Some(begin)) => {
                    assert!(what.starts_with(&begin), "{arguments}: {what}")
                }
                _ => panic!("{arguments}: {outcome:?}"),
            }
        }
    }

    fn parse(arguments: &str) -> Result<Levels, clap::Error> {
        let command = Levels::augment_args(clap::Command::new("pz").args_override_self(true));
        let words = std::iter::once("pz").chain(arguments.split_whitespace());
        Levels::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn levels_keep_their_order() {
        for (arguments, levels) in [
            ("", vec![]),
            ("-9", vec![9]),
            ("-1 -9", vec![1, 9]),
            ("-9 -1", vec![9, 1]),
            ("-1 -9 -1", vec![9, 1]),
        ] {
            let given = parse(arguments).unwrap().0;
            let given: Vec<u8> = given.into_iter().map(Level::get).collect();
            assert_eq!(given, levels, "{arguments}");
        }
    }
}
