//! Places where CUDA's libraries may be.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names of the driver's library.
pub(super) const DRIVER: &[&str] =
    if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// Major versions of NVRTC that may be there, the newest first. Those that cannot compile the kernels are looked for
/// too, so that a message can say why they are not used.
const VERSIONS: [i32; 3] = [13, 12, 11];

/// The name of the library of version 11, which tells that of its binary interface.
const ELEVEN: &str = if cfg!(windows) { "nvrtc64_112_0.dll" } else { "libnvrtc.so.11.2" };

/// The variable that names the compiler's library.
pub(super) const NVRTC: &str = "PZ_NVRTC";

/// The environment that the places depend on.
pub(super) struct Surroundings<'e> {
    /// Environment variables.
    pub variable: &'e dyn Fn(&str) -> Option<OsString>,
    /// The entries of a folder.
    pub entries: &'e dyn Fn(&Path) -> Vec<PathBuf>,
}

/// This process's own.
pub(super) const OWN: Surroundings<'static> = Surroundings {
    variable: &|name| std::env::var_os(name),
    entries: &|folder| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    },
};

/// Names of NVRTC's library, for any version up to the major version `newest`.
fn names(newest: i32) -> Vec<String> {
    let versions = VERSIONS.into_iter().filter(|version| *version <= newest);
    let name = |version| match version {
        11 => ELEVEN.into(),
        _ if cfg!(windows) => format!("nvrtc64_{version}0_0.dll"),
        _ => format!("libnvrtc.so.{version}"),
    };
    versions.map(name).collect()
}

/// The major version that the name of a library tells, or the name of what it is a link to; `None` if neither does.
pub(super) fn version_in_name(path: &Path) -> Option<i32> {
    let in_name = |path: &Path| -> Option<i32> {
        let name = path.file_name()?.to_str()?;
        let digits = match name.strip_prefix("libnvrtc.so.") {
            Some(version) => version.split('.').next()?,
            // Three digits at least: version 12.0 is 120, and 11.2 is 112.
            None => name.strip_prefix("nvrtc64_")?.get(..2)?,
        };
        digits.parse().ok()
    };
    in_name(path).or_else(|| in_name(&path.canonicalize().ok()?))
}

/// Where NVRTC may be, the best place first: where the system looks for libraries, then in CUDA toolkits, then in
/// Python's packages. A name without a folder is for the system to look for.
pub(super) fn nvrtc(newest: i32, around: &Surroundings<'_>) -> Vec<PathBuf> {
    if let Some(path) = (around.variable)(NVRTC).filter(|path| !path.is_empty()) {
        return vec![path.into()];
    }
    let names = names(newest);
    let mut candidates: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    for folder in toolkits(around).into_iter().chain(packages(around)) {
        let inside = (around.entries)(&folder);
        candidates
            .extend(names.iter().map(|name| folder.join(name)).filter(|p| inside.contains(p)));
    }
    candidates
}

/// Folders of libraries in CUDA toolkits.
fn toolkits(around: &Surroundings<'_>) -> Vec<PathBuf> {
    let variables = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CONDA_PREFIX"];
    let named = variables.iter().filter_map(|name| (around.variable)(name)).map(PathBuf::from);
    let usual = (around.entries)(Path::new("/usr/local")).into_iter().rev().filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cuda"))
    });
    let usual = usual.chain([PathBuf::from("/opt/cuda")]);
    let roots = named.filter(|root| root.is_absolute()).chain(usual);
    let parts = if cfg!(windows) { &["bin", "bin/x64"][..] } else { &["lib64", "lib"] };
    roots.flat_map(|root| parts.iter().map(move |part| root.join(part))).collect()
}

/// Library folders in Python's packages: of the active environment, of installations on the search path, of the user,
/// and of the system.
fn packages(around: &Surroundings<'_>) -> Vec<PathBuf> {
    let path = |name: &str| (around.variable)(name).map(PathBuf::from);
    let mut roots: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(path).collect();
    let search = (around.variable)("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&search) {
        let is_python = |path: &PathBuf| {
            path.file_stem().is_some_and(|stem| stem == "python" || stem == "python3")
        };
        if folder.is_absolute() && (around.entries)(&folder).iter().any(is_python) {
            roots.extend(folder.parent().map(Path::to_path_buf));
        }
    }
    let home = if cfg!(windows) {
        path("APPDATA").map(|p| p.join("Python"))
    } else {
        path("HOME").map(|p| p.join(".local"))
    };
    roots.extend(home);
    roots.extend(["/usr", "/usr/local"].map(PathBuf::from));
    roots.retain(|root| root.is_absolute());
    let mut seen = Vec::new();
    for root in roots {
        if seen.contains(&root) {
            continue;
        }
        seen.push(root);
    }
    let mut folders = Vec::new();
    for library in seen.iter().flat_map(|root| [root.join("lib"), root.join("Lib")]) {
        let pythons = (around.entries)(&library).into_iter().rev().filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
        });
        for python in pythons.chain([library.clone()]) {
            for packages in ["site-packages", "dist-packages"].map(|name| python.join(name)) {
                let parts = [
                    "nvidia/cu13/lib",
                    "nvidia/cuda_nvrtc/lib",
                    "nvidia/cuda_nvrtc/bin",
                    "torch/lib",
                ];
                folders.extend(parts.map(|part| packages.join(part)));
            }
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The candidates with these variables and files.
    fn found(newest: i32, variables: &[(&str, &str)], files: &[&str]) -> Vec<String> {
        let variable = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| OsString::from(value))
        };
        let entries = |folder: &Path| {
            let below =
                |file: &&str| Some(Path::new(file).strip_prefix(folder).ok()?.to_path_buf());
            let first = |rest: PathBuf| Some(folder.join(rest.components().next()?));
            let entries: BTreeSet<_> = files.iter().filter_map(below).filter_map(first).collect();
            entries.into_iter().collect()
        };
        let around = Surroundings { variable: &variable, entries: &entries };
        nvrtc(newest, &around).iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn names_tell_versions() {
        for (name, version) in [
            ("/usr/local/cuda/lib64/libnvrtc.so.11.8.89", Some(11)),
            ("libnvrtc.so.11.2", Some(11)),
            ("libnvrtc.so.13", Some(13)),
            ("nvrtc64_112_0.dll", Some(11)),
            ("nvrtc64_120_0.dll", Some(12)),
            ("libnvrtc.so", None),
            ("/x/other.so.11", None),
        ] {
            assert_eq!(version_in_name(Path::new(name)), version, "{name}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn the_compiler_is_looked_for_where_it_may_be() {
        let system = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];
        assert_eq!(found(14, &[], &[]), system);
        // The driver may refuse programs of a compiler that is newer than itself.
        assert_eq!(found(12, &[], &[]), system[1..]);
        assert_eq!(found(12, &[("PZ_NVRTC", "/x/libnvrtc.so")], &[]), ["/x/libnvrtc.so"]);
        let files = [
            "/usr/local/cuda-12.4/lib64/libnvrtc.so.12",
            "/usr/local/cuda-13.0/lib64/libnvrtc.so.13",
            "/opt/toolkit/lib/libnvrtc.so.12",
            "/venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            "/conda/bin/python3",
            "/conda/lib/python3.13/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "/home/u/.local/lib/python3.9/site-packages/torch/lib/libnvrtc.so.12",
            "/usr/lib/python3/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        ];
        let variables = [
            ("CUDA_HOME", "/opt/toolkit"),
            ("VIRTUAL_ENV", "/venv"),
            ("PATH", "relative:/bin:/conda/bin"),
            ("HOME", "/home/u"),
        ];
        let in_order = [files[2], files[1], files[0], files[3], files[5], files[6], files[7]];
        assert_eq!(found(13, &variables, &files)[3..], in_order);
        let older: Vec<_> = in_order.into_iter().filter(|file| file.ends_with("12")).collect();
        assert_eq!(found(12, &variables, &files)[2..], older);
        // Nothing is loaded from a folder that depends on where the process runs.
        assert_eq!(
            found(12, &[("CUDA_HOME", "toolkit"), ("VIRTUAL_ENV", ".")], &files)[2..],
            [files[0], files[7]]
        );
    }
}
