//! Codecs on GPUs: kernels that state their costs, plans made of them, and the devices that run plans.
//!
//! | room | |
//! |---|---|
//! | `model` | the cost of a kernel, plans as data, and the number of blocks on a device at once |
//! | [`device`] | the seam: a device allocates and runs; its pool, its discovery, and the backends |
//! | `stages` | one plan builder for each stage, written once for every backend |
//! | `module` | modules as kernels |
//! | [`coder`] | whole batches, from contents to payloads and back |
//!
//! Imports point down this table. Nothing here knows of files. A plan knows nothing of a backend, and no backend
//! contains an algorithm: one more backend is one more implementation of [`device::Device`], perhaps one more set of
//! kernel sources, and nothing else.

pub mod coder;
pub mod device;
pub(crate) mod model;
#[cfg(feature = "modules")]
pub mod module;
pub(crate) mod stages;
#[cfg(test)]
pub(crate) mod tests;
