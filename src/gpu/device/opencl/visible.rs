//! Memory that running kernels and the host share.
//!
//! OpenCL 1.2 promises this for no memory. It works on processors all the same: a mapped buffer stays in place, and
//! kernels and the host share coherent caches. Running kernels on NVIDIA's GPUs do not see the host's writes; other
//! GPUs are untested.

use std::sync::Arc;

use super::driver::ClDriver;
use super::pinned::ClPinned;
use crate::gpu::device::in_order::{Mapped, Shared};
use crate::gpu::device::visible::VisibleMemory;
use crate::gpu::device::{DeviceError, Kind, Limits};

/// Allocates `bytes` bytes of host memory, shared with running kernels.
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
    // SAFETY: the memory is mapped and initialised, and belongs to the owner alone. Drivers align buffers for their
    // largest type, of 128 bytes.
    Ok(unsafe { VisibleMemory::new(at, bytes, owner.buffer(), Box::new(owner)) })
}
