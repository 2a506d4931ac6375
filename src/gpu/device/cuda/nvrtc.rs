//! NVRTC, the compiler of CUDA C++.

use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::Library;

use super::api::{Raw, functions};
use super::library::{self, OWN};
use crate::gpu::device::DeviceError;
use crate::gpu::model::cuda_source;
use crate::gpu::model::kernel::{Kernel, max_registers};
use crate::gpu::model::limits::{Limits, Teams};
use crate::process::PerProcess;
use crate::sync::Mutex;

functions! {
    /// NVRTC's functions.
    Functions;
    fn nvrtcVersion(*mut c_int, *mut c_int);
    fn nvrtcGetNumSupportedArchs(*mut c_int);
    fn nvrtcGetSupportedArchs(*mut c_int);
    fn nvrtcCreateProgram(
        *mut Raw, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    );
    fn nvrtcDestroyProgram(*mut Raw);
    fn nvrtcCompileProgram(Raw, c_int, *const *const c_char);
    fn nvrtcGetProgramLogSize(Raw, *mut usize);
    fn nvrtcGetProgramLog(Raw, *mut c_char);
    fn nvrtcGetCUBINSize(Raw, *mut usize);
    fn nvrtcGetCUBIN(Raw, *mut c_char);
    fn nvrtcGetPTXSize(Raw, *mut usize);
    fn nvrtcGetPTX(Raw, *mut c_char);
}

const SUCCESS: c_int = 0;
const COMPILATION: c_int = 6;

/// The library.
#[derive(Debug)]
struct Nvrtc {
    functions: Functions,
    version: (i32, i32),
    /// Compute capabilities that it compiles for, times 10.
    architectures: Vec<i32>,
}

/// The oldest major version that compiles the kernels. Version 11 ends the process while it compiles some of them.
const OLDEST: i32 = 12;

/// What was found at a path: a library, or why it is of no use. `None` if there is none.
type Loaded = Option<Result<Nvrtc, String>>;

impl Nvrtc {
    /// The library at `path`, loaded once for the life of the process.
    fn at(path: &Path) -> &'static Loaded {
        static LOADED: PerProcess<Mutex<Vec<(PathBuf, &'static Loaded)>>> = PerProcess::new();
        let mut loaded = LOADED.get_or_init(Mutex::default).lock();
        if let Some((_, known)) = loaded.iter().find(|(known, _)| known == path) {
            return known;
        }
        let found: &'static Loaded = Box::leak(Box::new(Self::in_file(path).transpose()));
        loaded.push((path.to_path_buf(), found));
        found
    }

    /// Loads a library; `None` if there is none.
    fn in_file(path: &Path) -> Result<Option<Self>, String> {
        // An old version is not even loaded, if its name tells.
        if let Some(version) = library::version_in_name(path).filter(|version| *version < OLDEST) {
            return if path.exists() { Err(too_old(version)) } else { Ok(None) };
        }
        load_builtins(path);
        // SAFETY: loading NVIDIA's library runs its initialisers, which make no demands on the process.
        let Ok(library) = (unsafe { Library::new(path) }) else { return Ok(None) };
        // SAFETY: the types are those of `nvrtc.h`, which NVIDIA keeps stable.
        let functions = unsafe { Functions::in_library(library) };
        let functions = functions.map_err(|name| format!("lacks {name}"))?;
        let mut nvrtc = Self { functions, version: (0, 0), architectures: Vec::new() };
        let functions = &nvrtc.functions;
        let check = |code| if code == SUCCESS { Ok(()) } else { Err(format!("fails with {code}")) };
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: there is room for the results.
        unsafe {
            check((functions.nvrtcVersion)(&raw mut major, &raw mut minor))?;
            if major < OLDEST {
                return Err(too_old(major));
            }
            check((functions.nvrtcGetNumSupportedArchs)(&raw mut count))?;
            let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
            check((functions.nvrtcGetSupportedArchs)(architectures.as_mut_ptr()))?;
            nvrtc.architectures = architectures;
        }
        nvrtc.version = (major, minor);
        Ok(Some(nvrtc))
    }

    /// What it compiles for, so that the result runs on a GPU of compute capability `wanted` / 10 behind a driver for
    /// CUDA up to major version `newest`.
    ///
    /// # Errors
    /// Why it cannot.
    fn target(&self, newest: i32, wanted: i32) -> Result<i32, String> {
        let (major, minor) = self.version;
        if major > newest {
            return Err(format!(
                "is version {major}.{minor}, and the driver supports up to {newest}"
            ));
        }
        target(&self.architectures, wanted).ok_or_else(|| {
            let (of, part) = (wanted / 10, wanted % 10);
            format!("version {major}.{minor} does not compile for GPUs of compute capability {of}.{part}")
        })
    }
}

fn too_old(version: i32) -> String {
    format!("is version {version}, and the kernels need version {OLDEST} or later")
}

/// Loads the library of built-in functions that lies beside NVRTC. NVRTC asks for it by name, and version 13 does not
/// look in its own folder; the system then finds the one that is loaded.
#[cfg(unix)]
fn load_builtins(nvrtc: &Path) {
    use libloading::os::unix::Library;
    let Some(folder) = nvrtc.parent().filter(|folder| folder.is_absolute()) else { return };
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libnvrtc-builtins.so")
    };
    for path in (OWN.entries)(folder).into_iter().filter(is_wanted) {
        // SAFETY: loading NVIDIA's library runs its initialisers, which make no demands on the process.
        if let Ok(library) = unsafe { Library::new(path) } {
            // Stays loaded as long as NVRTC, for the life of the process.
            let _ = library.into_raw();
        }
    }
}

/// Windows looks for a library's dependencies in the library's own folder.
#[cfg(not(unix))]
fn load_builtins(_: &Path) {}

/// A program that is being compiled, destroyed when dropped.
struct Program<'n>(Raw, &'n Functions);

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is valid, and nobody uses it any more.
        unsafe { (self.1.nvrtcDestroyProgram)(&raw mut self.0) };
    }
}

/// Compiles kernels for one kind of GPU.
#[derive(Debug, Clone)]
pub(super) struct Compiler {
    nvrtc: &'static Nvrtc,
    /// The compute capability to compile for, times 10.
    architecture: i32,
    /// Whether the result is machine code; otherwise it is PTX, which the driver compiles for GPUs newer than NVRTC.
    is_machine_code: bool,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.nvrtc.version;
        write!(f, "NVRTC {major}.{minor}")
    }
}

impl Compiler {
    /// A compiler for GPUs of this compute capability, behind a driver that supports CUDA up to `version`.
    ///
    /// # Errors
    /// [`DeviceError::Absent`] if there is none.
    pub fn of(version: i32, capability: (i32, i32)) -> Result<Self, DeviceError> {
        Self::among(&library::nvrtc(version / 1000, &OWN), version, capability)
    }

    /// The same, of the libraries at these paths: the first that compiles to machine code for such GPUs, or else the
    /// first whose PTX the driver compiles for them.
    ///
    /// # Errors
    /// [`DeviceError::Absent`] if there is none.
    pub fn among(
        candidates: &[PathBuf],
        version: i32,
        capability: (i32, i32),
    ) -> Result<Self, DeviceError> {
        let (newest, wanted) = (version / 1000, capability.0 * 10 + capability.1);
        let (mut second_best, mut refused) = (None, Vec::new());
        for path in candidates {
            let found = match Nvrtc::at(path) {
                None => continue,
                Some(Err(why)) => Err(why.clone()),
                Some(Ok(nvrtc)) => nvrtc.target(newest, wanted).map(|target| (nvrtc, target)),
            };
            match found {
                Ok((nvrtc, architecture)) if architecture == wanted => {
                    return Ok(Self { nvrtc, architecture, is_machine_code: true });
                }
                Ok((nvrtc, architecture)) => {
                    let compiler = Self { nvrtc, architecture, is_machine_code: false };
                    second_best.get_or_insert(compiler);
                }
                Err(why) => refused.push(format!("{}: {why}", path.display())),
            }
        }
        second_best.ok_or_else(|| DeviceError::Absent(absence(newest, &refused)))
    }

    /// The options to compile with, besides the source.
    pub fn options(&self, limits: &Limits, defines: &[(&'static str, u32)]) -> Vec<String> {
        let kind = if self.is_machine_code { "sm" } else { "compute" };
        let mut options = vec![
            format!("--gpu-architecture={kind}_{}", self.architecture),
            "--device-as-default-execution-space".into(),
            "--std=c++17".into(),
            // Every program leaves some shared code unused.
            "--disable-warnings".into(),
        ];
        if let (Some(most), Teams::Ptx) = (max_registers(defines), limits.teams) {
            options.push(format!("--maxrregcount={most}"));
        }
        options
    }

    /// Compiles the source of one entry point.
    ///
    /// # Errors
    /// [`DeviceError::Build`] with the compiler's messages, or another failure of the compiler.
    pub fn compile(
        &self,
        stem: &'static str,
        source: &str,
        options: &[String],
    ) -> Result<Vec<u8>, DeviceError> {
        let functions = &self.nvrtc.functions;
        let nul = |_| DeviceError::Failed(format!("kernel {stem} contains a 0"));
        let source = CString::new(source).map_err(nul)?;
        let name = CString::new(format!("{stem}.cl")).map_err(nul)?;
        let options: Vec<_> = options
            .iter()
            .map(|o| CString::new(o.as_str()))
            .collect::<Result<_, _>>()
            .map_err(nul)?;
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let check = |call: &str, code| match code {
            SUCCESS => Ok(()),
            _ => Err(DeviceError::Failed(format!("{call} of kernel {stem} failed with {code}"))),
        };
        let mut program = Raw::NULL;
        let none = std::ptr::null();
        // SAFETY: the texts end with a 0 and live as long as the call; there are no headers.
        let code = unsafe {
            let (source, name) = (source.as_ptr(), name.as_ptr());
            (functions.nvrtcCreateProgram)(&raw mut program, source, name, 0, none, none)
        };
        check("nvrtcCreateProgram", code)?;
        let program = Program(program, functions);
        // SAFETY: the program is valid, and each of the `options.len()` texts ends with a 0.
        let code = unsafe {
            (functions.nvrtcCompileProgram)(program.0, options.len() as c_int, options.as_ptr())
        };
        if code == COMPILATION {
            let get = (functions.nvrtcGetProgramLogSize, functions.nvrtcGetProgramLog);
            let log = self.bytes(&program, get).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let log = log.trim_matches(['\0', '\n', ' ']);
            let log = format!("{self} (PZ_NVRTC can name another compiler): {log}");
            return Err(DeviceError::Build { kernel: stem, log });
        }
        check("nvrtcCompileProgram", code)?;
        let get = match self.is_machine_code {
            true => (functions.nvrtcGetCUBINSize, functions.nvrtcGetCUBIN),
            false => (functions.nvrtcGetPTXSize, functions.nvrtcGetPTX),
        };
        self.bytes(&program, get)
            .ok_or_else(|| DeviceError::Failed(format!("NVRTC gave no program for kernel {stem}")))
    }

    /// The result of a pair of functions: one returns the size, the other the bytes.
    fn bytes(&self, program: &Program<'_>, (size_of, get): (SizeOf, Get)) -> Option<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is valid, and there is room for the result.
        let code = unsafe { size_of(program.0, &raw mut size) };
        if code != SUCCESS || size == 0 {
            return None;
        }
        let mut bytes = vec![0u8; size];
        // SAFETY: the program is valid, and there is room for `size` bytes.
        let code = unsafe { get(program.0, bytes.as_mut_ptr().cast()) };
        (code == SUCCESS).then_some(bytes)
    }
}

type SizeOf = unsafe extern "C" fn(Raw, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Raw, *mut c_char) -> c_int;

/// Why there is no compiler, if those that were found are `refused`.
fn absence(newest: i32, refused: &[String]) -> String {
    if !refused.is_empty() {
        return format!("no NVRTC can be used: {}", refused.join("; "));
    }
    match std::env::var_os(library::NVRTC).filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            format!("{}, which {} names, is not there", path.display(), library::NVRTC)
        }
        None => format!(
            "NVRTC, the compiler of CUDA's kernels, is not there (in a version from {OLDEST} to {newest})"
        ),
    }
}

/// What to compile for to run on `wanted`: that itself, or the newest that is older, whose PTX the driver compiles.
fn target(architectures: &[i32], wanted: i32) -> Option<i32> {
    architectures.iter().copied().filter(|architecture| *architecture <= wanted).max()
}

/// The source of the program that runs `entry` of `kernel`.
///
/// # Errors
/// Fails if the kernel has no such entry point.
pub(super) fn source_of(
    kernel: &Kernel,
    entry: &str,
    limits: &Limits,
    threads: u32,
    defines: &[(&'static str, u32)],
) -> Result<String, DeviceError> {
    let source = kernel.source(limits, threads, defines);
    cuda_source::with_entry(&source, entry).ok_or_else(|| {
        DeviceError::Failed(format!("kernel {} has no entry point {entry}", kernel.stem))
    })
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn a_gpu_newer_than_the_compiler_runs_an_older_ones_programs() {
        let architectures = [75, 80, 86, 87, 89, 90, 100];
        assert_eq!(target(&architectures, 90), Some(90));
        assert_eq!(target(&architectures, 120), Some(100));
        assert_eq!(target(&architectures, 88), Some(87));
        assert_eq!(target(&architectures, 61), None);
    }
}
