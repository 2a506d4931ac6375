//! `-1` to `-9`: nine flags that are one choice, or several of them where several levels are measured.

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};
use pz::Level;

/// The levels given, in the order they were given in.
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

#[cfg(test)]
mod tests {
    use super::*;

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
            ("-19", vec![1, 9]),
            ("-9 -1", vec![9, 1]),
            ("-1 -9 -1", vec![9, 1]),
        ] {
            let given = parse(arguments).unwrap().0;
            let given: Vec<u8> = given.into_iter().map(Level::get).collect();
            assert_eq!(given, levels, "{arguments}");
        }
    }
}
