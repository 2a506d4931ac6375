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
//! | [`shares`] | who gets how many blocks |
//! | [`memory`] | how many workers and blocks in flight a memory limit permits |
//! | [`buffer`] | memory that is used again instead of given back |
//! | [`statistics`] | what a run did |
//! | [`auto`] | the choice between the processor alone and a GPU beside it |
//! | [`registry`] | what there is to choose from |
//! | [`job`] | one job that the choice is made for |
//! | [`load`] | a kind of work, and how long it takes |
//! | [`rates`] | rates that were measured, kept in the user's cache folder |

pub(crate) mod auto;
pub(crate) mod buffer;
pub(crate) mod cpu;
pub(crate) mod engine;
pub(crate) mod gpu;
pub(crate) mod gpu_engine;
pub(crate) mod job;
pub(crate) mod level;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod options;
pub(crate) mod rates;
mod registry;
pub(crate) mod scheduler;
pub(crate) mod shares;
pub(crate) mod statistics;

#[cfg(test)]
mod device_tests;

pub use auto::{Auto, Prediction};
pub use gpu::Gpu;
pub use level::Level;
pub use load::ComputeRate;
pub use options::{DecodeOptions, Options};
pub use statistics::{DeviceStatistics, EngineStatistics, Statistics};
