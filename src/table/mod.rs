//! Tables: columns packed so that processors and kernels compute on them as they are.

pub mod codes;
