//! Levels and options, the engines that code blocks, and the flow of blocks through them.
//!
//! | module | |
//! |---|---|
//! | [`level`] | levels: each names a pipeline, a block size and the codec's parameters |
//! | [`options`] | the options of compression and decompression |
//! | [`engine`] | the seam: an engine codes batches of blocks |
//! | [`cpu`] | the engine that runs the codecs on CPU cores |
//! | `cpu_blocks` | blocks that it has encoded, to measure devices on |
//! | [`gpu`] | a device that runs blocks |
//! | [`gpu_engine`] | the engine that runs batches on a device |
//! | [`scheduler`] | runs blocks on workers and a device, in order and within bounds |
//! | [`flow`] | the blocks of one job: in flight through a scheduler, and idle |
//! | [`host_memory`] | limits workers and blocks to the host's memory while a device comes and goes |
//! | [`batch_sizing`] | sizes a device's batches |
//! | [`throughput`] | the model of the time that work takes on the CPU, and with a device |
//! | [`knowledge`] | the rates of earlier runs |
//! | [`prediction`] | the predictions that `pz cost` shows |
//! | [`sample`] | sample blocks of a file |
//! | [`modules`] | modules of frames: permission to run them, and their execution |
//! | [`memory`] | the workers and blocks in flight that a memory limit permits |
//! | [`buffer`] | reusable memory |
//! | `slab` | long pieces of fresh memory that share a mapping |
//! | [`statistics`] | counts and times of a run |
//! | [`auto`] | chooses between the CPU alone and a GPU beside it |
//! | [`registry`] | the devices to choose from |
//! | [`auto_session`] | one job: chooses its device, and learns from it |
//! | [`workload`] | a kind of work, its rates on devices, and measurements with it |
//! | [`rate_cache`] | measured rates, kept in the user's cache folder |

pub(crate) mod auto;
pub(crate) mod auto_session;
pub(crate) mod batch_sizing;
pub(crate) mod buffer;
pub(crate) mod cpu;
pub(crate) mod cpu_blocks;
pub(crate) mod engine;
pub(crate) mod flow;
pub(crate) mod gpu;
pub(crate) mod gpu_engine;
mod host_memory;
mod knowledge;
pub(crate) mod level;
pub(crate) mod memory;
pub(crate) mod modules;
pub(crate) mod options;
mod prediction;
pub(crate) mod rate_cache;
mod registry;
pub(crate) mod sample;
pub(crate) mod scheduler;
#[cfg(target_os = "linux")]
mod slab;
pub(crate) mod statistics;
pub(crate) mod throughput;
pub(crate) mod workload;

#[cfg(test)]
mod tests;

pub use auto::Auto;
pub use gpu::Gpu;
pub use level::Level;
#[cfg(feature = "modules")]
pub use modules::FilterModule;
pub use modules::Modules;
pub use options::{DEFAULT_MEMORY, DecodeOptions, Options};
pub use prediction::{FrameKind, Prediction};
pub use sample::Sample;
pub use statistics::{DeviceStatistics, EngineStatistics, Statistics};
pub use workload::ComputeRate;
