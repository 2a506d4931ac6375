//! Which stages a block goes through, on what it runs, and how blocks flow through a machine.
//!
//! | module | |
//! |---|---|
//! | [`level`] | levels: a number that names a pipeline, a block size and the codec's parameters |
//! | [`options`] | what a caller may choose |
//! | [`engine`] | the seam: what takes a batch of blocks and gives back a batch of blocks |
//! | [`cpu`] | the engine that runs the codecs on processor cores |
//! | [`gpu`] | the engine that runs batches on a device |
//! | [`scheduler`] | blocks in, workers, blocks out in order, everything bounded |
//! | [`memory`] | how many workers and blocks in flight a memory limit permits |
//! | [`buffer`] | memory that is used again instead of given back |
//! | [`statistics`] | what a run did |

pub(crate) mod buffer;
pub(crate) mod cpu;
pub(crate) mod engine;
pub(crate) mod gpu;
pub(crate) mod level;
pub(crate) mod memory;
pub(crate) mod options;
pub(crate) mod scheduler;
pub(crate) mod statistics;

pub use gpu::Gpu;
pub use level::Level;
pub use options::{DecodeOptions, Options};
pub use statistics::{DeviceStatistics, EngineStatistics, Statistics};
