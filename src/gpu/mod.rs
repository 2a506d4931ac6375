//! Codecs on GPUs: kernels that state what they cost, plans made of them, and the devices that run plans.
//!
//! | module | |
//! |---|---|
//! | [`cost`] | parses the cost that a kernel file states: device memory, threads, passes and workgroup memory for a block of N bytes |
//! | [`kernel`] | a registry of the kernel files, in both languages |
//! | [`plan`] | what to run, as data: named buffers sized by costs, and dispatches over them |
//! | [`lz77_find`] | plans that find LZ77 matches |
//! | `lz77_optimal` | plans for the optimal parse of LZ77 |
//! | [`job`] | the parameters and results of each block |
//! | [`budget`] | how many blocks a device works on at once |
//! | [`coder`] | whole batches, from contents to payloads and back |
//! | `pipelines` | plans of whole pipelines, chained from stages |
//! | [`lz77_decode`] | the plan that decodes LZ77 payloads |
//! | [`resident`] | measures how fast a device works on data in its own memory |
//! | [`lz77_code`] | plans that code LZ77 matches into payloads |
//! | [`run`] | runs a plan on a device |
//! | [`bwt_encode`] | plans that encode with the BWT codec |
//! | [`bwt_decode`] | plans that decode BWT payloads |
//! | [`checksum`] | plans that compute checksums and pack payloads |
//! | [`discovery`] | lists the devices, and explains why an expected one is missing |
//! | `deadline` | how long to wait for work on a device |
//! | [`device`] | the interface of a device: its properties, memory and queues |
//! | [`pool`] | a device that reuses its buffers and counts them |
//! | [`predict`] | predicts how long a plan takes, from its launches and buffer sizes |
//! | `program` | what the backends share for compiling kernels |
//! | `program_cache` | keeps compiled programs from one run to the next |
//! | `opencl` | devices through OpenCL |
//! | `webgpu` | devices through WebGPU |
//!
//! Nothing here knows about files. A plan knows no backend, and a backend contains no algorithm. A third backend
//! needs one more implementation of [`device::Device`] and one more set of kernel sources, and nothing else.

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
