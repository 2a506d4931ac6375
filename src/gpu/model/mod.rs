//! What kernels cost, and what follows from it.
//!
//! | module | |
//! |---|---|
//! | [`cost`] | the `@pz_cost` block of a kernel file, parsed: bytes of device memory for a block of N bytes, threads, passes |
//! | [`kernel`] | the kernel files, in both languages, as a registry |
//! | [`cuda_source`] | kernel files in OpenCL C as CUDA C++ |
//! | [`limits`] | what a device is and what it has |
//! | [`plan`] | what to run, as data: named buffers sized by costs, and dispatches over them |
//! | [`budget`] | how many blocks a device gets at once |
//! | [`predict`] | how long a plan takes, from what it launches and what it moves |

pub(crate) mod budget;
pub(crate) mod cost;
pub(crate) mod cuda_source;
pub(crate) mod kernel;
pub(crate) mod limits;
pub(crate) mod plan;
pub(crate) mod predict;
