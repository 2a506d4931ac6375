//! The programs that are compared, and how each is told what to do.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program and the levels that are measured.
pub struct Program {
    /// As people call it.
    pub name: &'static str,
    /// As it calls itself.
    pub version: String,
    /// What is measured of it.
    pub levels: Vec<String>,
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pz,
    Zstd,
    Lz4,
    Xz,
    Bzip2,
    Bzip3,
}

/// Every program but pz: its name, and the levels that are measured unless others are chosen. Those of bzip3 are block
/// sizes in MiB.
const OTHERS: [(&str, Kind, &[&str]); 5] = [
    ("zstd", Kind::Zstd, &["1", "3", "6", "9", "12", "19"]),
    ("lz4", Kind::Lz4, &["1", "9"]),
    ("xz", Kind::Xz, &["1", "6"]),
    ("bzip2", Kind::Bzip2, &["9"]),
    ("bzip3", Kind::Bzip3, &["16", "64"]),
];

/// pz, and those of `others` that the machine has; the rest is named on standard error.
pub fn programs(pz: &Path, levels: &[String], others: &[String]) -> Result<Vec<Program>, String> {
    let version = version(pz).ok_or(format!("{} does not run", pz.display()))?;
    let mut programs = vec![Program {
        name: "pz",
        version,
        levels: levels.to_vec(),
        path: pz.into(),
        kind: Kind::Pz,
    }];
    for other in others.iter().filter(|other| !other.is_empty()) {
        let mut parts = other.split(':');
        let wanted = parts.next().unwrap_or_default();
        let Some(&(name, kind, usual)) = OTHERS.iter().find(|(name, ..)| *name == wanted) else {
            return Err(format!("'{wanted}' is not one of the programs that can be compared"));
        };
        let mut levels: Vec<String> = parts.map(String::from).collect();
        if levels.is_empty() {
            levels = usual.iter().map(|level| level.to_string()).collect();
        }
        let path = PathBuf::from(name);
        match self::version(&path) {
            Some(version) => programs.push(Program { name, version, levels, path, kind }),
            None => eprintln!("left out: {name}, which this machine does not have"),
        }
    }
    Ok(programs)
}

/// The first word with a digit, a dot and a digit in what the program says of itself.
fn version(path: &Path) -> Option<String> {
    let said = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?;
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let is_version = |word: &&str| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        word.split_once('.').is_some_and(|(major, rest)| {
            digits(major) && rest.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    let words = said.split_whitespace().map(|word| word.trim_matches(['v', ',', '*']));
    words.into_iter().find(is_version).map(|word| word.trim_end_matches(',').to_string())
}

impl Program {
    /// Whether it can work on several threads.
    pub fn is_parallel(&self) -> bool {
        !matches!(self.kind, Kind::Lz4 | Kind::Bzip2)
    }

    /// The options that people would type for a level.
    pub fn label(&self, level: &str) -> String {
        match (self.kind, level.parse::<u32>()) {
            (Kind::Bzip3, _) => format!("-b {level}"),
            (_, Ok(_)) => format!("-{level}"),
            _ => format!("-p {level}"),
        }
    }

    /// The command that compresses `file` to standard output.
    pub fn compress(&self, level: &str, threads: usize, file: &Path) -> Command {
        let mut command = self.command(threads);
        if self.kind == Kind::Bzip3 {
            command.arg("-e");
        }
        command.args(self.label(level).split(' ')).arg("-c").arg(file);
        command
    }

    /// The command that restores `file` to standard output.
    pub fn decompress(&self, threads: usize, file: &Path) -> Command {
        let mut command = self.command(threads);
        command.arg("-d").arg("-c").arg(file);
        command
    }

    fn command(&self, threads: usize) -> Command {
        let mut command = Command::new(&self.path);
        command.stdin(Stdio::null());
        match self.kind {
            Kind::Pz => command.arg(format!("-T{threads}")).arg("-q"),
            Kind::Zstd => command.arg(format!("-T{threads}")).args(["-q", "--no-progress"]),
            Kind::Xz => command.arg(format!("-T{threads}")).arg("-q"),
            Kind::Lz4 => command.arg("-q"),
            Kind::Bzip2 => &mut command,
            Kind::Bzip3 if threads > 1 => command.args(["-j", &threads.to_string()]),
            Kind::Bzip3 => &mut command,
        };
        command
    }
}
