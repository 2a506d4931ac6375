//! Options that say how much the program tells its user.

use clap::Args;

// How much to say.
#[derive(Args, Debug, Clone, Default)]
pub struct Verbosity {
    /// Say nothing but errors
    #[arg(short, long, overrides_with = "verbose")]
    pub quiet: bool,
    /// Say what was done
    #[arg(short, long, overrides_with = "quiet")]
    pub verbose: bool,
    /// Show no progress, even on a terminal
    #[arg(long)]
    pub no_progress: bool,
}
