//! Keeps compiled programs in the user's cache folder from one run to the next.
//!
//! There is a file for each program, device, driver and version of pz, written as soon as the program is compiled.
//! Drivers trust the program they get back. So [`UserCache`] reads only files that this user alone can have written,
//! the hash in the name and the file identifies the source and the device, and the checksum detects damage. Neither
//! hash nor checksum would stop a forger.

use std::hash::{DefaultHasher, Hash, Hasher};
#[cfg(test)]
use std::path::PathBuf;

use crc32c::crc32c;

use super::{Api, Kind, Limits};
use crate::user_cache::UserCache;

/// The first bytes of each file.
const HEAD: &[u8; 16] = b"pz program 1\n\0\0\0";

/// Larger files are not ours.
const MAX_LEN: u64 = 64 << 20;

/// Identifies a program: its source, its options and its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gpu) struct Key {
    api: Api,
    hash: [u8; 16],
}

impl Key {
    /// `options` stands for everything else that affects compilation.
    pub fn new(limits: &Limits, source: &str, options: &str) -> Self {
        let parts = (env!("CARGO_PKG_VERSION"), &limits.name, &limits.driver, source, options);
        let half = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            (seed, parts).hash(&mut hasher);
            hasher.finish()
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&half(1).to_le_bytes());
        bytes[8..].copy_from_slice(&half(2).to_le_bytes());
        Self { api: limits.api, hash: bytes }
    }

    fn file_name(self) -> String {
        format!("{}-{:032x}", self.api.name(), u128::from_le_bytes(self.hash))
    }
}

/// A folder of compiled programs.
#[derive(Debug, Clone, Default)]
pub(in crate::gpu) struct Cache(UserCache);

impl Cache {
    /// The user's cache folder. Software devices have caches of their own, so nothing is kept for them.
    pub fn of_user(limits: &Limits) -> Self {
        if limits.kind == Kind::Software { Self::default() } else { Self(UserCache::of_user()) }
    }

    /// A folder that the caller chooses.
    #[cfg(test)]
    pub fn in_folder(folder: PathBuf) -> Self {
        Self(UserCache::in_folder(Some(folder)))
    }

    /// Whether the cache keeps anything.
    #[cfg(any(feature = "opencl", feature = "webgpu"))]
    pub fn is_there(&self) -> bool {
        self.0.is_there()
    }

    /// Loads the program of `key`, if it is there.
    pub fn load(&self, key: Key) -> Option<Vec<u8>> {
        let file = self.0.load(&key.file_name(), MAX_LEN)?;
        let rest = file.strip_prefix(HEAD)?.strip_prefix(&key.hash)?;
        let (crc, program) = rest.split_first_chunk()?;
        (u32::from_le_bytes(*crc) == crc32c(program)).then(|| program.to_vec())
    }

    /// Saves a program, if possible.
    pub fn save(&self, key: Key, program: &[u8]) {
        let crc = crc32c(program).to_le_bytes();
        self.0.save(&key.file_name(), &[&HEAD[..], &key.hash, &crc, program].concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs, process};

    #[test]
    fn what_is_kept_comes_back_or_nothing_does() {
        let folder = env::temp_dir().join(format!("pz-test-programs-{}", process::id()));
        let cache = Cache::in_folder(folder.clone());
        let key = Key { api: Api::OpenCl, hash: [7; 16] };
        assert_eq!(cache.load(key), None);
        let program: Vec<u8> = (0..999u32).map(|i| (i * i) as u8).collect();
        cache.save(key, &program);
        assert_eq!(cache.load(key).as_ref(), Some(&program));
        assert_eq!(cache.load(Key { hash: [8; 16], ..key }), None);
        assert_eq!(cache.load(Key { api: Api::WebGpu, ..key }), None);
        let path = cache.0.path(&key.file_name()).unwrap();
        let file = fs::read(&path).unwrap();
        for at in (0..file.len()).step_by(13) {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.load(key), None, "byte {at}");
            fs::write(&path, &file[..at]).unwrap();
            assert_eq!(cache.load(key), None, "{at} bytes");
        }
        // Saving again overwrites the file.
        cache.save(key, &program);
        assert_eq!(cache.load(key), Some(program));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
        // A failed write is ignored.
        let nowhere = Cache::in_folder(PathBuf::from("/dev/null/pz"));
        nowhere.save(key, &[1]);
        assert_eq!(nowhere.load(key), None);
        Cache::default().save(key, &[1]);
        assert_eq!(Cache::default().load(key), None);
    }
}
