//! Remembers, in the user's cache folder, how many devices there were when they were last listed.
//!
//! Listing devices initialises drivers, which takes longer than many jobs. A caller that only needs to know whether a
//! device probably exists can ask here instead. A note is valid until the system restarts, for processes with the same
//! driver settings.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::Api;
use crate::process::PerProcess;
use crate::user_cache::UserCache;

/// Prefixes of the environment variables that select and configure drivers and their loaders.
const SETTINGS: [&str; 16] = [
    "CUDA_",
    "DRI_",
    "HIP_",
    "LD_",
    "LIBGL_",
    "LP_",
    "MESA_",
    "NODEVICE_",
    "NVIDIA_",
    "OCL_",
    "OPENCL_",
    "POCL_",
    "ROCR_",
    "VK_",
    "WGPU_",
    "ZE_",
];

/// Longer files are not ours.
const MAX_LEN: u64 = 1 << 20;

/// A folder of notes.
pub(in crate::gpu) struct Seen {
    folder: UserCache,
    /// The system start and driver settings for which a note is valid; `None` if the start is unknown.
    key: Option<String>,
}

impl Seen {
    /// The notes of this process's user, for this process's settings. Call this before the first driver is loaded: some
    /// drivers change environment variables, and the next process would not see those changes.
    pub fn of_user() -> Self {
        static KEY: PerProcess<Option<String>> = PerProcess::new();
        let key = KEY.get_or_init(|| boot().map(|boot| key(&boot, std::env::vars_os())));
        Self { folder: UserCache::of_user(), key: key.clone() }
    }

    /// The number of devices of an interface; 0 if they were never listed.
    pub fn count(&self, api: Api) -> usize {
        let count = || {
            let note = String::from_utf8(self.folder.load(&file_name(api), MAX_LEN)?).ok()?;
            note.strip_prefix(self.key.as_deref()?)?.trim().parse().ok()
        };
        count().unwrap_or(0)
    }

    /// Notes the number of devices.
    pub fn note(&self, api: Api, count: usize) {
        if let Some(key) = &self.key
            && self.count(api) != count
        {
            self.folder.save(&file_name(api), format!("{key}{count}\n").as_bytes());
        }
    }
}

fn file_name(api: Api) -> String {
    format!("devices-{}", api.name())
}

/// The first lines of a note.
fn key(boot: &str, variables: impl Iterator<Item = (OsString, OsString)>) -> String {
    let is_setting = |name: &str| SETTINGS.iter().any(|setting| name.starts_with(setting));
    let variables = variables.map(|(name, value)| (format!("{name:?}"), format!("{value:?}")));
    let settings: BTreeMap<_, _> =
        variables.filter(|(name, _)| is_setting(name.trim_start_matches('"'))).collect();
    let settings: String =
        settings.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
    format!("pz devices 1\n{}\n{boot}\n{settings}", env!("CARGO_PKG_VERSION"))
}

/// Identifies the current start of the system.
fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_string()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_good_for_the_same_settings_and_start() {
        let folder = std::env::temp_dir().join(format!("pz-seen-{}", std::process::id()));
        let seen = |boot: Option<&str>, variables: &[(&str, &str)]| Seen {
            folder: UserCache::in_folder(Some(folder.clone())),
            key: boot.map(|boot| {
                key(boot, variables.iter().map(|&(name, value)| (name.into(), value.into())))
            }),
        };
        let one = seen(Some("1"), &[("VK_DRIVER_FILES", "a\nb"), ("HOME", "/root")]);
        assert_eq!(one.count(Api::OpenCl), 0);
        one.note(Api::OpenCl, 12);
        assert_eq!((one.count(Api::OpenCl), one.count(Api::WebGpu)), (12, 0));
        let same = seen(Some("1"), &[("HOME", "/"), ("VK_DRIVER_FILES", "a\nb")]);
        assert_eq!(same.count(Api::OpenCl), 12);
        for other in [
            seen(Some("2"), &[("VK_DRIVER_FILES", "a\nb")]),
            seen(Some("1"), &[("VK_DRIVER_FILES", "a")]),
            seen(Some("1"), &[]),
            seen(Some("1"), &[("VK_DRIVER_FILES", "a\nb"), ("OCL_ICD_VENDORS", "")]),
            seen(None, &[("VK_DRIVER_FILES", "a\nb")]),
        ] {
            assert_eq!(other.count(Api::OpenCl), 0, "{:?}", other.key);
        }
        seen(None, &[]).note(Api::OpenCl, 1);
        one.note(Api::OpenCl, 3);
        assert_eq!(one.count(Api::OpenCl), 3);
        std::fs::write(folder.join("devices-opencl"), one.key.clone().unwrap() + "many\n").unwrap();
        assert_eq!(one.count(Api::OpenCl), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
