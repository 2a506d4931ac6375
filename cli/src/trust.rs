//! The modules that the user trusts: a list of hashes in the user's folder of settings.
//!
//! The file is `pz/trusted-modules` in `$XDG_CONFIG_HOME` or, without that, where the system keeps settings. Each line
//! has the SHA-256 of a module in hexadecimal digits and, after a space, a name for people. The program skips empty
//! lines and lines that begin with `#`. Users may edit the file. An editor or a full disk may have cut a line: it then
//! trusts nothing, and the other lines still count.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::Args;
use etcetera::BaseStrategy as _;
use pz::Modules;

use crate::cleanup;
use crate::failure::Failure;

// Which modules may run.
#[derive(Args, Debug, Clone, Default)]
pub struct Trust {
    /// Run all modules in a file, even untrusted ones; without this, only those that you trust (pz module trust)
    #[arg(long)]
    pub allow_modules: bool,
}

impl Trust {
    /// The modules that a decoder may run. A list that cannot be used counts as empty; `pz module trusted` says why.
    pub fn modules(&self) -> Modules {
        if self.allow_modules {
            return Modules::Allow;
        }
        let listed = read().unwrap_or_default();
        Modules::Trusted(listed.trusted.into_iter().map(|(hash, _)| hash).collect())
    }
}

/// Whether the user has said that a module may run.
pub fn is_trusted(hash: &[u8; 32]) -> bool {
    // A file may have a module in each of many frames.
    static LISTED: OnceLock<List> = OnceLock::new();
    LISTED.get_or_init(|| read().unwrap_or_default()).has(hash)
}

/// What the list holds.
#[derive(Debug, Default)]
pub struct List {
    /// Hashes and names.
    pub trusted: Vec<([u8; 32], String)>,
    /// Numbers of the lines that are no hashes.
    pub wrong: Vec<usize>,
}

impl List {
    fn has(&self, hash: &[u8; 32]) -> bool {
        self.trusted.iter().any(|(known, _)| known == hash)
    }

    fn of(text: &str) -> Self {
        let mut list = Self::default();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (hash, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            match parse(hash) {
                Some(hash) => list.trusted.push((hash, name.trim().to_string())),
                None => list.wrong.push(number),
            }
        }
        list
    }
}

/// The most bytes of the list that are read.
const MAX_LEN: u64 = 1 << 20;

/// The file of the list.
pub fn path() -> Result<PathBuf, Failure> {
    let set = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = match set.filter(|path| path.is_absolute()) {
        Some(folder) => folder,
        None => {
            let strategy = etcetera::choose_base_strategy();
            strategy.map_err(Failure::environment)?.config_dir()
        }
    };
    Ok(folder.join("pz").join("trusted-modules"))
}

/// Reads the list.
///
/// # Errors
/// If the file cannot be read, or if others could have written it.
pub fn read() -> Result<List, Failure> {
    let path = path()?;
    let at = |failure: Failure| failure.at(&path);
    let metadata = match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(List::default()),
        metadata => metadata.map_err(|error| at(error.into()))?,
    };
    if !metadata.is_file() || metadata.len() > MAX_LEN {
        return Err(at(Failure::environment("is not a list of hashes")));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let user = rustix::process::geteuid().as_raw();
        if metadata.mode() & 0o022 != 0 || ![user, 0].contains(&metadata.uid()) {
            return Err(at(Failure::environment(
                "others may write to it, so nothing in it is trusted; chmod go-w",
            )));
        }
    }
    let bytes = fs::read(&path).map_err(|error| at(error.into()))?;
    // A name may be cut within a character.
    Ok(List::of(&String::from_utf8_lossy(&bytes)))
}

/// A hash of 64 hexadecimal digits.
pub fn parse(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != hash.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(*high)? * 16 + digit(*low)?) as u8;
    }
    Some(hash)
}

/// Adds a hash to the list. Returns whether it was new.
///
/// # Errors
/// If the list cannot be read or written. Then the list is unchanged.
pub fn add(hash: [u8; 32], name: &str) -> Result<bool, Failure> {
    if read()?.has(&hash) {
        return Ok(false);
    }
    // The handler of SIGXFSZ turns a limit on the length of files into an ordinary error.
    cleanup::watch();
    let path = path()?;
    let at = |error: std::io::Error| Failure::from(error).at(&path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(at)?;
    }
    let mut options = File::options();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    // A user's editor may have left the last line without an end.
    let text = fs::read(&path).unwrap_or_default();
    let end = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
    let line = format!("{end}{} {}\n", crate::failure::hex(&hash), name.escape_debug());
    let mut file = options.open(&path).map_err(at)?;
    let written = file.write_all(line.as_bytes());
    if written.is_err() {
        // A full disk may have taken only a part of the line.
        let _ = file.set_len(text.len() as u64);
    }
    written.map_err(at)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_line_affects_no_other() {
        let hashes: Vec<_> = ["0a", "1b", "2c"].map(|pair| pair.repeat(32)).into();
        let [one, two, three] = &hashes[..] else { unreachable!() };
        let whole = format!("# mine\n{one} first\n\n{two}\n{three} a name\n");
        let trusted = |list: &List| {
            list.trusted.iter().map(|(hash, _)| crate::failure::hex(hash)).collect::<Vec<_>>()
        };
        for cut in 0..=whole.len() {
            let list = List::of(&whole[..cut]);
            // Every prefix of the list that holds whole hashes.
            let count = hashes.iter().filter(|hash| whole[..cut].contains(*hash)).count();
            assert_eq!(trusted(&list), hashes[..count], "{cut} bytes");
            // A hash added later gets a line of its own.
            let list = List::of(&format!("{}\n{}\n", &whole[..cut], "3d".repeat(32)));
            assert_eq!((trusted(&list).len(), list.wrong.len() < 2), (count + 1, true));
        }
        let list = List::of(&format!("{one}\nno hash\n{two} \u{fffd}\n{three}0\n"));
        assert_eq!((trusted(&list), list.wrong), (hashes[..2].to_vec(), vec![2, 4]));
    }

    #[test]
    fn hashes() {
        let text = "00ff".repeat(16);
        let hash = parse(&text).unwrap();
        assert_eq!(&hash[..4], [0, 255, 0, 255]);
        assert_eq!(crate::failure::hex(&hash), text);
        assert_eq!(parse(&text.to_uppercase()), Some(hash));
        assert_eq!(parse(&text[1..]), None);
        assert_eq!(parse(&format!("{text}00")), None);
        assert_eq!(parse(&text.replace('f', "g")), None);
    }
}
