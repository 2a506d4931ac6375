//! Codecs on GPUs: kernels that state what they cost, plans made of them, and the devices that run plans.
//!
//! | module | |
//! |---|---|
//! | [`cost`] | what a kernel file says of itself, parsed: bytes of device memory for a block of N bytes, threads, passes, workgroup memory |
//! | [`kernel`] | the kernel files, in both languages, as a registry |
//! | [`plan`] | what to run, as data: named buffers sized by costs, and dispatches over them |
//! | [`lz77_find`] | plans that find the matches of LZ77 |
//! | `lz77_optimal` | those of the optimal parse |
//! | [`job`] | what kernels are told of each block, and tell of it |
//! | [`budget`] | how many blocks a device is given at once |
//! | [`coder`] | whole batches, from contents to payloads and back |
//! | `pipelines` | the plans of whole pipelines: stages chained |
//! | [`lz77_decode`] | the plan that decodes LZ77 payloads |
//! | [`resident`] | how fast a device works on what lies in its memory |
//! | [`lz77_code`] | LZ77: from matches to payloads |
//! | [`run`] | runs a plan on a device |
//! | [`bwt_encode`] | plans that encode with the BWT codec |
//! | [`bwt_decode`] | plans that decode BWT payloads |
//! | [`checksum`] | plans for checksums, and for payloads packed |
//! | [`discovery`] | which devices there are, and why others are not there |
//! | `deadline` | until when work on a device is waited for |
//! | [`device`] | the seam: what a device is, allocates, runs |
//! | [`pool`] | a device whose buffers are used again, and counted |
//! | [`predict`] | how long a plan takes, from what it launches and what it moves |
//! | `program` | what the backends share of programs |
//! | `program_cache` | compiled programs, kept from one run to the next |
//! | `opencl` | devices through OpenCL |
//! | `webgpu` | devices through WebGPU |
//!
//! Nothing here knows of files. A plan knows nothing of a backend, and a backend contains no algorithm: a third backend
//! is one more implementation of [`device::Device`], one more set of kernel sources, and nothing else.

pub mod budget;
pub mod bwt_decode;
#[cfg(test)]
mod bwt_decode_bench;
#[cfg(test)]
mod bwt_decode_tests;
pub mod bwt_encode;
pub mod checksum;
#[cfg(test)]
mod checksum_bench;
pub mod coder;
#[cfg(test)]
mod coder_tests;
#[cfg(test)]
mod conformance;
pub mod cost;
#[cfg(test)]
mod cost_tests;
#[cfg(any(feature = "opencl", feature = "webgpu", test))]
mod deadline;
pub mod device;
pub mod discovery;
#[cfg(test)]
mod extent_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
pub(crate) mod faulty;
#[cfg(test)]
mod host_bench;
pub mod job;
pub mod kernel;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod launch_tests;
pub mod lz77_code;
#[cfg(test)]
mod lz77_code_bench;
#[cfg(test)]
mod lz77_code_tests;
pub mod lz77_decode;
#[cfg(test)]
mod lz77_decode_bench;
#[cfg(test)]
mod lz77_decode_tests;
pub mod lz77_find;
#[cfg(test)]
mod lz77_find_tests;
mod lz77_optimal;
#[cfg(feature = "opencl")]
pub mod opencl;
pub(crate) mod pipelines;
pub mod plan;
#[cfg(test)]
mod plan_tests;
pub mod pool;
#[cfg(test)]
pub(crate) mod pool_tests;
pub mod predict;
#[cfg(any(feature = "opencl", feature = "webgpu"))]
mod program;
#[cfg(any(feature = "opencl", feature = "webgpu"))]
mod program_cache;
pub mod resident;
pub mod run;
mod seen;
#[cfg(test)]
mod team_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(feature = "webgpu")]
pub mod webgpu;
