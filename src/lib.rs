//! pz: lossless compression whose blocks decode alone, in any order, on CPUs and GPUs alike.
//!
//! ```
//! let contents = b"what is said three times is true ".repeat(3000);
//! let compressed = pz::compress(&contents, &pz::Options::new())?;
//! assert!(compressed.len() < 1000);
//! assert_eq!(pz::decompress(&compressed, &pz::DecodeOptions::new())?, contents);
//! # Ok::<(), pz::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | compress or decompress a slice | [`compress`], [`decompress`] |
//! | compress or decompress many slices | [`Compressor`], [`Decompressor`] |
//! | use buffers of your own | [`compress_into`], [`compress_to`], [`decompress_into`], [`content_size`] |
//! | compress a stream, by writing or from a reader | [`Encoder`] |
//! | decompress a stream, or only check it | [`Decoder`] |
//! | read any part of a compressed file | [`SeekableReader`] |
//! | read a file on a server, in an object store or in memory | [`access`] |
//! | read many ranges from many threads, with caches | [`access::Archive`] |
//! | decompress into the memory of a GPU | [`access::DeviceMemory`] |
//! | let a running kernel ask for parts of files | [`door`] |
//! | see what a compressed file holds | [`list`]; frame by frame: [`Listing`] |
//! | save what a damaged file still holds | [`recover`], [`Recovery`] |
//! | use a GPU where that is faster | [`Auto`]; always a particular one: [`Gpu`] |
//! | filter with a program of your own, and say whose programs may run | `FilterModule`, [`Modules`] |
//! | know which engine did what, and where the time went | [`Statistics`] |
//!
//! [`Options`] choose a [`Level`] (1, fastest, to 9, smallest), or a [`Pipeline`] and a block size, and how many
//! threads and how much memory the work may take; [`DecodeOptions`] limit what a decoder may spend on an untrusted
//! file. The same input and options give the same bytes on any number of threads. A decoder may be given any bytes: it
//! ends with the right contents or with an [`Error`], in bounded time and memory.
//!
//! The format is described in [`format`](mod@format).
//!
//! # Stability
//! | part | until version 1.0 it changes |
//! |---|---|
//! | the root of this crate, and [`access`] | with the second number of the version; the change log says how |
//! | [`door`] | with any version |
//! | [`gpu::coder`], [`gpu::device`] and [`gpu::device::discovery`] | likewise |
//! | how much device memory a coder takes, and which work a device | with any version: they follow the kernels |
//! | declines | |
//! | `module`, `gpu::module` and `table` | with any version |
//! | `internal`, hidden, for this package's own program and tests | with any version |
//!
//! Files stay readable as [`format`](mod@format) says.
//!
//! # Features
//! - `simd` (default): vector instructions, chosen at run time. They do not change the output.
//! - `fast-sort` (default): a C library does the sorting of `bwt`. Without it the crate needs no C compiler
//!   and builds for `wasm32-unknown-unknown`; `bwt` takes longer to encode, to the same bytes.
//! - `remote`: sources on HTTP servers and in object stores, see [`access`]. Needs a C compiler.
//! - `cuda`, `opencl` (default), `webgpu`: devices, see [`gpu`]. Their system libraries are loaded at run time, so one
//!   program runs on every machine.
//! - `modules`: WebAssembly that users bring along, see `module`.
//! - `tables`: codes of columns, see `table`. Files do not hold them yet.
//! - `output`: what the program and the Python package write files with; hidden in `internal`.
//!
//! The program `pz`, package `pz-cli`, uses all of them.

pub mod access;
mod bits;
mod clock;
#[allow(
    rustdoc::private_intra_doc_links,
    reason = "`internal` shows parts of it to those who have the source"
)]
mod codec;
pub mod door;
mod error;
pub mod format;
pub mod gpu;
#[cfg(feature = "output")]
mod output;
mod pages;
mod pipeline;
mod process;
mod stream;
mod sync;
#[cfg(feature = "tables")]
pub mod table;
#[cfg(test)]
mod test_data;
mod user_cache;

pub use codec::filter::{Filter, FilterChain};
pub use error::{Error, ErrorClass, Place};
pub use format::{Method, Pipeline};
#[cfg(feature = "modules")]
pub use pipeline::FilterModule;
pub use pipeline::{
    Auto, ComputeRate, DEFAULT_MEMORY, DecodeOptions, DeviceStatistics, EngineStatistics,
    FrameKind, Gpu, Level, Modules, Options, Prediction, Sample, Statistics,
};
#[cfg(feature = "modules")]
#[doc(inline)]
pub use pz_module as module;
pub use stream::{
    AutoFinishEncoder, BlockInfo, Compressor, Decoder, Decompressor, Encoder, Extent, FrameInfo,
    Listing, ModuleInfo, Part, Piece, ReadAt, ReadAtCursor, Recovery, RecoveryReport,
    SeekableReader, WriteAt, compress, compress_into, compress_to, content_size, decompress,
    decompress_into, list, recover,
};
pub use user_cache::refused_cache;

/// Items that this package's own program, benchmarks, tests and fuzz targets, and its packages for Python and C, use
/// besides the public interface. It may change or go with any version.
#[doc(hidden)]
pub mod internal {
    #[cfg(target_os = "linux")]
    pub use crate::access::sources::file::is_in_memory;
    pub use crate::access::sources::uri::percent_decode;
    pub use crate::bits::{BitReader, BitWriter};
    pub use crate::clock::utc;
    pub use crate::codec::vector_instructions;
    pub use crate::gpu::model::budget::{batches, budget};
    pub use crate::gpu::model::cost::KernelCost;
    pub use crate::gpu::model::kernel::ALL as KERNELS;
    pub use crate::pages::advise_huge_pages;
    pub use crate::stream::{Bounded, Growing};

    #[cfg(feature = "output")]
    pub mod output {
        pub use crate::output::*;
    }

    pub mod bwt {
        pub use crate::codec::bwt::{Decoder, Encoder, Params};
    }

    pub mod filter {
        pub use crate::codec::filter::built_in::{apply, invert};
    }

    pub mod fse {
        pub use crate::codec::fse::{
            EncodeTable, MAX_TABLE_LOG, MIN_TABLE_LOG, build_decode_table, decode_entry, normalize,
            read_norm, write_norm,
        };
    }

    pub mod huffman {
        pub use crate::codec::huffman::{
            MAX_LEN, assign_codes, build_table, code_lengths, read_lengths, write_lengths,
        };
    }

    /// What the program measures devices with.
    pub mod measure {
        pub use crate::door::launch::{Entry, Launch};
        pub use crate::gpu::device::budget_now;
        pub use crate::gpu::model::kernel::DOOR_MEASURE;
        pub use crate::pipeline::cpu_blocks::{CpuBlock, CpuBlocks};
    }

    pub mod process {
        pub use crate::process::{OfProcess, Owner, PerProcess};
        pub use crate::sync::Lock;
    }

    pub mod lz77 {
        pub use crate::codec::lz77::{Decoder, Encoder, Params, Search};
    }
}

/// Documentation tests run the examples of the README and the guide.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/gpu.md")]
    struct Gpu;
    #[doc = include_str!("../docs/rust.md")]
    struct Rust;
}
