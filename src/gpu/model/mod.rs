//! The cost of kernels, and the plans, budgets and predictions that follow from it.
//!
//! | module | |
//! |---|---|
//! | [`cost`] | the parsed `@pz_cost` block of a kernel file: bytes of device memory, threads, passes |
//! | [`kernel`] | the kernel files, in both languages, as a registry |
//! | [`cuda_source`] | kernel files in OpenCL C as CUDA C++ |
//! | [`limits`] | the properties and limits of a device |
//! | [`plan`] | the work for a device, as data: named buffers sized by costs, and dispatches over them |
//! | [`budget`] | how many blocks a device gets at once |
//! | [`predict`] | how long a plan takes, from its work items and its buffers |

pub(crate) mod budget;
pub(crate) mod cost;
pub(crate) mod cuda_source;
pub(crate) mod kernel;
pub(crate) mod limits;
pub(crate) mod plan;
pub(crate) mod predict;
