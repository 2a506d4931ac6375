//! Which command lines are accepted, and what the help shows.

use super::*;
use clap::FromArgMatches;

fn parse(arguments: &str) -> Result<Cli, clap::Error> {
    let words = std::iter::once("pz").chain(arguments.split_whitespace());
    Cli::from_arg_matches(&command().try_get_matches_from(words)?)
}

#[test]
fn definition_is_sound() {
    command().debug_assert();
    complete_command().debug_assert();
}

#[test]
fn combinations() {
    for (arguments, accepted) in [
        ("-d -T2", true),
        ("-d -9", true),
        ("-dc a.pz", true),
        ("-d -t", false),
        ("-l --rm", false),
        ("--json", false),
        ("-l --json", true),
        ("--range 1..2", false),
        ("-d --range 1..2", true),
        ("compress -c --rm x", false),
        ("compress -c -o y x", false),
        ("compress --rm -k x", true),
        ("compress --sync --no-sync x", true),
        ("compress -q -v x", true),
        ("compress -T x", false),
        ("decompress --rm --range 1..2 x", false),
        ("bench -T 1,0 x", true),
        ("bench", false),
        ("bench --csv --json x", false),
        ("completions tcsh", false),
        ("compress -r --exclude *.o --exclude tmp d", true),
        ("compress --exclude *.o d", false),
        ("compress -r --exclude [ d", false),
        ("compress --output-dir d -c x", false),
        ("compress --output-dir d -o y x", false),
        ("compress --suffix .x x", true),
        ("compress --suffix a/b x", false),
        ("cat --range 1.. x y", true),
        ("types mime", true),
        ("types gnome", false),
    ] {
        assert_eq!(parse(arguments).is_ok(), accepted, "pz {arguments}");
    }
}

#[test]
fn help_fits_a_screen() {
    let help = command().render_help().to_string();
    assert!(help.lines().count() <= 27, "{} lines:\n{help}", help.lines().count());
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[test]
fn every_command_has_an_example() {
    let mut definition = command();
    definition.build();
    for command in definition.get_subcommands_mut() {
        let name = command.get_name().to_string();
        // What the list of commands says of it, although it has been built since.
        let listed = self::command().find_subcommand(&name).unwrap().get_about().cloned();
        assert_eq!(command.get_about(), listed.as_ref(), "pz {name}");
        let help = command.render_long_help().to_string();
        assert!(help.contains("Example: pz "), "pz {name} --help lacks an example");
    }
}
