//! Standard input and output as plain files, and whether the program was given them at all.
//!
//! Rust's runtime opens `/dev/null` in place of a standard descriptor that is closed. Without a check, `pz -c FILE >&-`
//! would succeed with its output nowhere, and `pz <&-` would compress nothing. `/dev/null` that the user asked for looks
//! the same afterwards, so the descriptors are looked at before the runtime starts.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::failure::Failure;
use crate::output;

/// Standard input, without the buffer that the standard library puts before it.
pub fn input() -> Result<File, Failure> {
    #[cfg(unix)]
    use std::os::fd::AsFd;
    #[cfg(windows)]
    use std::os::windows::io::AsHandle;
    if was_closed(0) {
        return Err(Failure::environment("is closed"));
    }
    #[cfg(unix)]
    let owned = io::stdin().as_fd().try_clone_to_owned()?;
    #[cfg(windows)]
    let owned = io::stdin().as_handle().try_clone_to_owned()?;
    Ok(File::from(owned))
}

/// Standard output, without the line buffer that the standard library puts before it.
pub fn output() -> Result<File, Failure> {
    #[cfg(unix)]
    use std::os::fd::AsFd;
    #[cfg(windows)]
    use std::os::windows::io::AsHandle;
    check_output()?;
    #[cfg(unix)]
    let owned = io::stdout().as_fd().try_clone_to_owned()?;
    #[cfg(windows)]
    let owned = io::stdout().as_handle().try_clone_to_owned()?;
    Ok(File::from(owned))
}

/// Fails if standard output is closed.
pub fn check_output() -> Result<(), Failure> {
    match was_closed(1) {
        true => Err(Failure::environment("standard output is closed")),
        false => Ok(()),
    }
}

/// The number of the open file that a path leads to through `/dev/stdout`, `/dev/fd/3` or the like; `None` if it leads
/// elsewhere.
pub fn descriptor(path: &Path) -> Option<u32> {
    let ours = fs::canonicalize("/proc/self/fd").ok();
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let folder = fs::canonicalize(output::folder(&path)).ok()?;
        if Some(&folder) == ours.as_ref() || folder == Path::new("/dev/fd") {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = folder.join(fs::read_link(folder.join(path.file_name()?)).ok()?);
    }
    None
}

/// Links that the system follows one after another.
const MAX_LINKS: usize = 40;

/// Whether a path means standard output: `-`, or something like `/dev/stdout`.
pub fn is_output(path: &Path) -> bool {
    path.as_os_str() == "-" || descriptor(path) == Some(1)
}

/// Whether the program was started with this standard descriptor closed.
fn was_closed(descriptor: u8) -> bool {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    return at_start::was_closed(descriptor);
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    {
        let _ = descriptor;
        false
    }
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
mod at_start {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// One bit for each standard descriptor that was closed.
    static CLOSED: AtomicU8 = AtomicU8::new(0);

    pub fn was_closed(descriptor: u8) -> bool {
        CLOSED.load(Ordering::Relaxed) >> descriptor & 1 == 1
    }

    /// The system's loader calls what this section lists after it has set up the C library and before `main`, and Rust's
    /// runtime starts in `main`.
    // SAFETY: the section holds pointers to functions of this type, and `look` needs nothing of Rust's runtime.
    #[used]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
    #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        for descriptor in 0..3u8 {
            // SAFETY: the call reads the flags of a number's descriptor and changes nothing. It fails only if there is none.
            if unsafe { libc::fcntl(descriptor.into(), libc::F_GETFD) } == -1 {
                CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
            }
        }
    }
}
