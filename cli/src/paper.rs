//! Arguments of the commands that print manuals, completions, help and file types.

use std::path::PathBuf;

use clap::Args;

// `pz completions`
#[derive(Args, Debug)]
#[command(
    after_help = "Example: pz completions bash > ~/.local/share/bash-completion/completions/pz"
)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

// `pz man`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz man ~/.local/share/man/man1")]
pub struct Man {
    /// Folder to write the page of every command into
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

// `pz types`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz types magic > ~/.magic\n  \
    makes file(1) recognise .pz files\n\
    Example: pz types mime > pz.xml && xdg-mime install --novendor pz.xml\n  \
    makes the desktop's file manager recognise them")]
pub struct Types {
    /// magic for file(1), or mime for the desktop's shared-mime-info
    #[arg(value_name = "FOR")]
    pub kind: TypesFor,
}

/// The programs that recognise file types.
#[derive(clap::ValueEnum, Debug, Clone, Copy)]
pub enum TypesFor {
    // Magic for file(1).
    Magic,
    // A package of the desktop's shared-mime-info.
    Mime,
}

// `pz help`, for people who expect it. Our help mentions only `--help`.
#[derive(Args, Debug)]
#[command(after_help = "Example: pz help compress")]
pub struct Help {
    /// The command
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}
