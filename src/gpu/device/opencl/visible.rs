//! Memory that running kernels and the host see at once.
//!
//! OpenCL 1.2 promises that for no memory. On a processor it is so all the same: a buffer that is mapped stays where it is,
//! and kernels and the host share coherent caches. Of GPUs, NVIDIA's do not show a running kernel anything, and others have
//! not been tried.

use std::sync::Arc;

use super::driver::ClDriver;
use super::pinned::ClPinned;
use crate::gpu::device::in_order::{Mapped, Shared};
use crate::gpu::device::visible::VisibleMemory;
use crate::gpu::device::{DeviceError, Kind, Limits};

/// Allocates `bytes` bytes of host memory that running kernels see.
pub(super) fn visible_memory(
    shared: &Arc<Shared<ClDriver>>,
    bytes: usize,
) -> Result<VisibleMemory, DeviceError> {
    let Limits { kind, name, .. } = &shared.driver.limits;
    if *kind != Kind::Software {
        return Err(DeviceError::Unsupported(format!(
            "a kernel that runs on {name} through OpenCL does not see what the host writes"
        )));
    }
    let pinned = ClPinned::new(&shared.driver, bytes.max(16))?;
    let at = pinned.at();
    let buffer = pinned.buffer()?;
    let owner = Mapped::new(shared, pinned, buffer, bytes as u64);
    // SAFETY: the memory is mapped and initialised, and the owner's alone. Drivers align buffers for their largest type, of
    // 128 bytes.
    Ok(unsafe { VisibleMemory::new(at, bytes, owner.buffer(), Box::new(owner)) })
}
