//! Measured rates, kept in the user's cache folder from one run to the next.
//!
//! There is one file for each version of pz and each CPU, or device and driver. Each line has a number, a tab and a
//! name. It is only a cache: a file that is missing, damaged or has another title counts as empty, and a file that
//! cannot be written is skipped.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crc32c::crc32c;

use crate::user_cache::UserCache;

/// The first line of each file.
const HEAD: &str = "pz rates 3";

/// The last line.
const END: &str = "end";

/// The most bytes of a file of rates. Longer files are not read.
const MAX_LEN: u64 = 1 << 20;

/// Positive numbers by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rates(BTreeMap<String, f64>);

impl Rates {
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Sets a rate. Ignores one that is not a positive number.
    pub(crate) fn set(&mut self, name: impl Into<String>, rate: f64) {
        if rate.is_finite() && rate > 0.0 {
            self.0.insert(name.into(), rate);
        }
    }

    /// Moves a rate half of the way to `measured`: the load on the machine varies from run to run.
    pub(crate) fn learn(&mut self, name: &str, measured: f64) {
        let rate = self.get(name).map_or(measured, |known| (known + measured) / 2.0);
        self.set(name, rate);
    }

    /// Like [`Self::learn`], but falls to a smaller value at once. For times that shrink for good, such as that of
    /// compiling kernels, which later runs find in a cache.
    pub(crate) fn learn_falling(&mut self, name: &str, measured: f64) {
        if self.get(name).is_some_and(|known| known < measured) {
            self.learn(name, measured);
        } else {
            self.set(name, measured);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, rate)| (name.as_str(), *rate))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The folder with the files of rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Store(UserCache);

impl Store {
    /// The user's cache folder.
    pub(crate) fn of_user() -> Self {
        Self(UserCache::of_user())
    }

    /// A folder of the caller's choice; with `None`, rates are not kept.
    pub(crate) fn in_folder(folder: Option<PathBuf>) -> Self {
        Self(UserCache::in_folder(folder))
    }

    /// The rates of `subject`; none if there is no valid file.
    pub(crate) fn load(&self, subject: &str) -> Rates {
        let file = self.0.load(&file_name(subject), MAX_LEN);
        let text = file.and_then(|bytes| String::from_utf8(bytes).ok());
        text.and_then(|text| parse(&text, subject)).unwrap_or_default()
    }

    /// Keeps the rates of `subject`, if possible.
    pub(crate) fn save(&self, subject: &str, rates: &Rates) {
        let mut text = format!("{HEAD}\n{}\n", title(subject));
        for (name, rate) in rates.iter() {
            text += &format!("{rate:e}\t{name}\n");
        }
        text += END;
        text.push('\n');
        self.0.save(&file_name(subject), text.as_bytes());
    }
}

fn file_name(subject: &str) -> String {
    format!("rates-{:08x}", crc32c(title(subject).as_bytes()))
}

/// The second line of the file of `subject`.
fn title(subject: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("{version} {}", subject.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn parse(text: &str, subject: &str) -> Option<Rates> {
    let mut lines = text.lines();
    if lines.next()? != HEAD || lines.next()? != title(subject) {
        return None;
    }
    let mut rates = BTreeMap::new();
    for line in lines {
        if line == END {
            return Some(Rates(rates));
        }
        let (rate, name) = line.split_once('\t')?;
        let rate: f64 = rate.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0)?;
        rates.insert(name.to_string(), rate);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, process};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pz-rates-{}-{name}", process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn some() -> Rates {
        let mut rates = Rates::default();
        rates.set("encode lzh 3", 2.5e8);
        rates.set("upload", 1.25e10);
        rates
    }

    #[test]
    fn kept_rates_are_found_again() {
        let folder = folder("kept");
        let store = Store::in_folder(Some(folder.join("two/deep")));
        assert!(store.load("a device").is_empty());
        store.save("a device", &some());
        assert_eq!(store.load("a device"), some());
        assert!(store.load("another device").is_empty());
        let mut more = some();
        more.learn("upload", 0.75e10);
        more.learn("download", 3.0);
        more.set("nonsense", f64::NAN);
        more.set("nonsense", -1.0);
        store.save("a device", &more);
        let found = store.load("a device");
        assert_eq!((found.get("upload"), found.get("download")), (Some(1e10), Some(3.0)));
        assert_eq!(found.get("nonsense"), None);
        // The folder has only the one file.
        assert_eq!(fs::read_dir(folder.join("two/deep")).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_file_counts_as_empty() {
        let folder = folder("damaged");
        let store = Store::in_folder(Some(folder.clone()));
        store.save("a", &some());
        let path = store.0.path(&file_name("a")).unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x80;
            fs::write(&path, &damaged).unwrap();
            assert!(store.load("a").is_empty(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            let is_whole = at == whole.len() - 1;
            assert!(store.load("a") == if is_whole { some() } else { Rates::default() }, "{at}");
        }
        // The file of another subject under that name.
        store.save("b", &some());
        fs::copy(store.0.path(&file_name("b")).unwrap(), &path).unwrap();
        assert!(store.load("a").is_empty());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(store.load("a").is_empty());
        store.save("a", &some());
        assert!(store.load("a").is_empty());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_impossible_folder_is_no_error() {
        let file = folder("file");
        fs::write(&file, b"in the way").unwrap();
        for folder in [None, Some(file.join("below")), Some("/proc/none".into())] {
            let store = Store::in_folder(folder);
            store.save("a", &some());
            assert!(store.load("a").is_empty());
        }
        fs::remove_file(file).unwrap();
    }
}
