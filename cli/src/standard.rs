//! Returns standard input and output as plain files, and whether they were open when the program started.
//!
//! Rust's runtime replaces a closed standard descriptor with `/dev/null`. Without a check, `pz -c FILE >&-` would
//! succeed and discard its output, and `pz <&-` would compress nothing. Once the runtime has started, that `/dev/null`
//! cannot be told from one that the user asked for. So we check the descriptors before it starts.

use std::fs::File;
use std::io;
use std::path::Path;

use pz::internal::output::{FileId, descriptor};

use crate::failure::Failure;

/// Standard input, without the standard library's buffer.
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

/// Standard output, without the standard library's line buffer.
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

/// Fails if standard output was closed at the start.
pub fn check_output() -> Result<(), Failure> {
    match was_closed(1) {
        true => Err(Failure::environment("standard output is closed")),
        false => Ok(()),
    }
}

/// The regular file behind standard input, if it is one.
pub fn input_id() -> Option<FileId> {
    id(input().ok()?)
}

/// The regular file behind standard output, if it is one.
pub fn output_id() -> Option<FileId> {
    id(output().ok()?)
}

fn id(file: File) -> Option<FileId> {
    let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if is_regular { FileId::of_file(&file).ok() } else { None }
}

/// Whether a path means standard output: `-`, or something like `/dev/stdout`.
pub fn is_output(path: &Path) -> bool {
    path.as_os_str() == "-" || descriptor::number(path) == Some(1)
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

    /// The loader calls the functions in this section after it has set up the C library and before `main`, in which
    /// Rust's runtime starts.
    // SAFETY: the section holds pointers to functions of this type, and `look` does not need Rust's runtime.
    #[used]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
    #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        for descriptor in 0..3u8 {
            // SAFETY: the call only reads the flags of a descriptor. It fails only if the descriptor is closed.
            if unsafe { libc::fcntl(descriptor.into(), libc::F_GETFD) } == -1 {
                CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
            }
        }
    }
}
