//! Options that say which files a command takes.

use clap::Args;

// Which files of a directory a command takes, and the suffix of compressed files.
#[derive(Args, Debug, Clone, Default)]
pub struct Selection {
    /// Descend into directories
    #[arg(short, long)]
    pub recursive: bool,
    /// With -r: skip files and directories whose name, or path below the named directory, matches; may be repeated
    #[arg(long, value_name = "GLOB", requires = "recursive")]
    pub exclude: Vec<glob::Pattern>,
    /// Suffix of compressed files, instead of .pz
    #[arg(long, value_name = ".SUF", value_parser = suffix)]
    pub suffix: Option<String>,
}

/// Parses `--suffix`.
fn suffix(text: &str) -> Result<String, String> {
    match text {
        "" => Err("expected a suffix such as .pz".into()),
        _ if text.contains(std::path::is_separator) => {
            Err("a suffix cannot contain a path separator".into())
        }
        _ => Ok(text.to_string()),
    }
}
