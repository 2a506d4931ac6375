//! pz: lossless compression whose blocks decode alone, in any order, on CPUs and GPUs alike.

pub mod codec;
