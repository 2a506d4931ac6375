//! Options that set how much the program prints.

use clap::Args;

// How much to print.
#[derive(Args, Debug, Clone, Default)]
pub struct Verbosity {
    /// Print nothing but errors
    #[arg(short, long, overrides_with = "verbose")]
    pub quiet: bool,
    /// Print what was done to each file
    #[arg(short, long, overrides_with = "quiet")]
    pub verbose: bool,
    /// Show no progress, even on a terminal
    #[arg(long)]
    pub no_progress: bool,
}
