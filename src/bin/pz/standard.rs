//! Standard input and output as plain files, and whether the program was given them at all.
//!
//! Rust's runtime opens `/dev/null` in place of a standard descriptor that is closed. Without a check, `pz -c FILE >&-`
//! would succeed with its output nowhere, and `pz <&-` would compress nothing. `/dev/null` that the user asked for looks
//! the same afterwards, so the descriptors are looked at before the runtime starts.

use std::fs::File;
use std::io;

use crate::failure::Failure;

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
