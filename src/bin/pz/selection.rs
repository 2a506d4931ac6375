//! Options that say which files a command takes.

use clap::Args;

// Which files of a directory a command takes, and how compressed files are called.
#[derive(Args, Debug, Clone, Default)]
pub struct Selection {
    /// Go through directories, and theirs
    #[arg(short, long)]
    pub recursive: bool,
    /// With -r: leave out files and directories with names like this, or paths in the directory; may be repeated
    #[arg(long, value_name = "GLOB", requires = "recursive")]
    pub exclude: Vec<glob::Pattern>,
    /// What compressed files' names end with, instead of .pz
    #[arg(long, value_name = ".SUF", value_parser = suffix)]
    pub suffix: Option<String>,
}

/// An ending of file names.
fn suffix(text: &str) -> Result<String, String> {
    match text {
        "" => Err("an ending of file names was expected, such as .pz".into()),
        _ if text.contains(std::path::is_separator) => {
            Err("an ending cannot contain a separator of folders".into())
        }
        _ => Ok(text.to_string()),
    }
}
