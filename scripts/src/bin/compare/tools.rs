//! The programs to compare, and their command lines.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program and the levels to measure.
pub struct Program {
    /// Its usual name.
    pub name: &'static str,
    /// Its version, as it prints it.
    pub version: String,
    /// The levels to measure.
    pub levels: Vec<String>,
    /// The device that works beside the CPU, as pz calls it.
    device: Option<String>,
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
    Bsc,
}

/// Every program but pz, and the levels to measure unless the user chooses others. The levels of bzip3 and bsc are
/// block sizes in MiB.
const OTHERS: [(&str, Kind, &[&str]); 6] = [
    ("zstd", Kind::Zstd, &["1", "3", "6", "9", "12", "19"]),
    ("lz4", Kind::Lz4, &["1", "9"]),
    ("xz", Kind::Xz, &["1", "6"]),
    ("bzip2", Kind::Bzip2, &["9"]),
    ("bzip3", Kind::Bzip3, &["16", "64"]),
    ("bsc", Kind::Bsc, &["25"]),
];

/// A device that pz can use.
pub struct Device {
    /// The id that pz gives it.
    pub id: String,
    /// The name that its driver gives it.
    pub name: String,
}

/// The devices that `wanted` names, with or without a number, among those that pz lists. "all" means all but software
/// devices.
pub fn devices(pz: &Path, wanted: &[String]) -> Result<Vec<Device>, String> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let said = Command::new(pz).arg("devices").stdin(Stdio::null()).output();
    let said = said.map_err(|error| format!("{}: {error}", pz.display()))?.stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    // Each device has a line with its id and name, then indented lines.
    let mut found: Vec<(Device, bool)> = Vec::new();
    for line in said.lines() {
        match (line.starts_with(' '), line.split_once(": "), found.last_mut()) {
            (false, Some((id, name)), _) => {
                found.push((Device { id: id.into(), name: name.into() }, false));
            }
            (true, _, Some((_, is_software))) => *is_software |= line.contains("software"),
            _ => {}
        }
    }
    found.retain(|(device, _)| device.id.contains(':'));
    let mut devices = Vec::new();
    for wanted in wanted {
        let before = devices.len();
        devices.extend(found.iter().filter_map(|(device, is_software)| {
            let is_it = match wanted.as_str() {
                "all" => !is_software,
                _ => device.id == *wanted || device.id == format!("{wanted}:0"),
            };
            is_it.then(|| Device { id: device.id.clone(), name: device.name.clone() })
        }));
        if devices.len() == before {
            return Err(format!("no such device '{wanted}'; 'pz devices' lists the devices"));
        }
    }
    Ok(devices)
}

/// pz on the CPU, pz with each of `devices`, and those of `others` that are installed. Names the missing ones on
/// standard error.
pub fn programs(
    pz: &Path,
    levels: &[String],
    devices: &[Device],
    others: &[String],
) -> Result<Vec<Program>, String> {
    let version = version(pz).ok_or(format!("{} does not run", pz.display()))?;
    let of_pz = |device| Program {
        name: "pz",
        version: version.clone(),
        levels: levels.to_vec(),
        device,
        path: pz.into(),
        kind: Kind::Pz,
    };
    let mut programs = vec![of_pz(Some("cpu".into()))];
    programs.extend(devices.iter().map(|device| of_pz(Some(device.id.clone()))));
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
            Some(version) => {
                programs.push(Program { name, version, levels, device: None, path, kind });
            }
            None => eprintln!("left out: {name} is not installed"),
        }
    }
    Ok(programs)
}

/// Sends standard output to a file, or discards it.
fn output(to: Option<&Path>) -> io::Result<Stdio> {
    match to {
        Some(path) => Ok(File::create(path)?.into()),
        None => Ok(Stdio::null()),
    }
}

/// The program's version: the first word of its output that looks like 1.2.
fn version(path: &Path) -> Option<String> {
    // bsc does not know this option, but prints its version anyway.
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

    /// The options of a level, as a user would type them.
    pub fn label(&self, level: &str) -> String {
        match (self.kind, level.parse::<u32>()) {
            (Kind::Bzip3, _) => format!("-b {level}"),
            (Kind::Bsc, _) => format!("-b{level}"),
            (_, Ok(_)) => format!("-{level}"),
            _ => format!("-p {level}"),
        }
    }

    /// The device that works beside the CPU, if one does.
    pub fn gpu(&self) -> Option<&str> {
        self.device.as_deref().filter(|device| *device != "cpu")
    }

    /// The command that compresses `file` to a file, or discards the output.
    pub fn compress(
        &self,
        level: &str,
        threads: usize,
        file: &Path,
        to: Option<&Path>,
    ) -> io::Result<Command> {
        let mut command = self.command(threads);
        if self.kind == Kind::Bsc {
            self.bsc(&mut command, "e", threads, file, to);
            command.arg(self.label(level));
            return Ok(command);
        }
        command.stdout(output(to)?);
        if self.kind == Kind::Bzip3 {
            command.arg("-e");
        }
        command.args(self.label(level).split(' ')).arg("-c").arg(file);
        Ok(command)
    }

    /// The command that restores `file` to a file, or discards the output.
    pub fn decompress(
        &self,
        threads: usize,
        file: &Path,
        to: Option<&Path>,
    ) -> io::Result<Command> {
        let mut command = self.command(threads);
        if self.kind == Kind::Bsc {
            self.bsc(&mut command, "d", threads, file, to);
            return Ok(command);
        }
        command.stdout(output(to)?);
        command.arg("-d").arg("-c").arg(file);
        Ok(command)
    }

    /// bsc prints messages on standard output, and takes its output's name as an argument.
    fn bsc(
        &self,
        command: &mut Command,
        what: &str,
        threads: usize,
        file: &Path,
        to: Option<&Path>,
    ) {
        command.arg(what).arg(file).arg(to.unwrap_or(Path::new("/dev/null")));
        if threads == 1 {
            command.args(["-t", "-T"]);
        }
        command.stdout(Stdio::null());
    }

    fn command(&self, threads: usize) -> Command {
        let mut command = Command::new(&self.path);
        command.stdin(Stdio::null());
        match self.kind {
            Kind::Pz => {
                if let Some(device) = &self.device {
                    command.args(["--device", device]);
                }
                // Do not pass "-q", which would hide the line that says that a device took no part.
                command.arg(format!("-T{threads}")).arg("--no-progress")
            }
            // With `-T1`, zstd starts a second thread for input and output.
            Kind::Zstd if threads == 1 => command.args(["--single-thread", "-q", "--no-progress"]),
            Kind::Zstd => command.arg(format!("-T{threads}")).args(["-q", "--no-progress"]),
            Kind::Xz => command.arg(format!("-T{threads}")).arg("-q"),
            Kind::Lz4 => command.arg("-q"),
            Kind::Bzip2 => &mut command,
            Kind::Bzip3 if threads > 1 => command.args(["-j", &threads.to_string()]),
            Kind::Bzip3 | Kind::Bsc => &mut command,
        };
        command
    }
}
