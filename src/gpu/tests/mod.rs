//! Tests of kernels, plans and devices, and the devices that only tests have.

mod bwt_decode;
mod coder;
mod conformance;
mod cost;
mod extent;
mod fault;
pub(crate) mod faulty;
mod filter;
#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
pub(crate) mod import;
mod kernel;
mod launch;
mod lz77_code;
mod lz77_decode;
pub(crate) mod lz77_find;
#[cfg(feature = "modules")]
pub(crate) mod module;
pub(crate) mod plan;
pub(crate) mod pool;
mod range_decoder;
mod team;
pub(crate) mod testing;
