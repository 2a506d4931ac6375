//! Which stages a block goes through, on what it runs, and how blocks flow through a machine.
//!
//! | module | |
//! |---|---|
//! | [`level`] | levels: a number that names a pipeline, a block size and the codec's parameters |
//! | [`options`] | what a caller may choose |
//! | [`engine`] | the seam: what takes a batch of blocks and gives back a batch of blocks |
//! | [`cpu`] | the engine that runs the codecs on processor cores |
//! | [`gpu`] | a device that blocks are to run on |
//! | [`gpu_engine`] | the engine that runs batches on it |
//! | [`scheduler`] | blocks in, workers, blocks out in order, everything bounded |
//! | [`host_memory`] | how many workers and blocks there is memory for while a device comes and goes |
//! | [`batch_sizing`] | how many blocks a device gets at once |
//! | [`throughput`] | the model: how long work takes on the CPU, and with a device |
//! | [`knowledge`] | what earlier runs have shown of both |
//! | [`prediction`] | what `pz cost` shows |
//! | [`sample`] | blocks of a file that stand for the others |
//! | [`memory`] | how many workers and blocks in flight a memory limit permits |
//! | [`buffer`] | memory that is used again instead of given back |
//! | [`statistics`] | what a run did |
//! | [`auto`] | the choice between the processor alone and a GPU beside it |
//! | [`registry`] | what there is to choose from |
//! | [`auto_session`] | one job that the choice is made for, and that teaches |
//! | [`workload`] | a kind of work, and how CPU and devices are measured with it |
//! | [`rate_cache`] | rates that were measured, kept in the user's cache folder |

pub(crate) mod auto;
pub(crate) mod auto_session;
pub(crate) mod batch_sizing;
pub(crate) mod buffer;
pub(crate) mod cpu;
pub(crate) mod engine;
pub(crate) mod gpu;
pub(crate) mod gpu_engine;
mod host_memory;
mod knowledge;
pub(crate) mod level;
pub(crate) mod memory;
pub(crate) mod options;
mod prediction;
pub(crate) mod rate_cache;
mod registry;
pub(crate) mod sample;
pub(crate) mod scheduler;
pub(crate) mod statistics;
pub(crate) mod throughput;
pub(crate) mod workload;

#[cfg(test)]
mod device_tests;

pub use auto::Auto;
pub use gpu::Gpu;
pub use level::Level;
pub use options::{DecodeOptions, Options};
pub use prediction::Prediction;
pub use sample::Sample;
pub use statistics::{DeviceStatistics, EngineStatistics, Statistics};
pub use workload::ComputeRate;
