//! The extension module of the Python package `libpz`: the Rust library's calls, on Python's buffers and files.
//!
//! The package's Python files add parts that are easier to write in Python: exception classes, file objects, tensors,
//! codecs for Zarr. Every call that does more than look something up releases the interpreter's lock while it works.
//!
//! | module | what |
//! |---|---|
//! | `archive` | many ranges of a file at once |
//! | `arguments` | options, from keyword arguments |
//! | `buffer` | memory of Python objects as slices |
//! | `context` | `Compressor` and `Decompressor` |
//! | `device` | devices by name |
//! | `dlpack` | shared memory with the tensors of other packages |
//! | `error` | exceptions |
//! | `idle` | contexts that wait for their next use, and their handling after a fork |
//! | `inspect` | lists, recovery and predictions |
//! | `load` | decompression into memory of devices and of the host |
//! | `memory` | memory of devices and of tensors |
//! | `new_file` | files that get their names when they are complete |
//! | `oneshot` | one call for one buffer |
//! | `reader` | contents of files, in any order or as a stream |
//! | `source` | paths and Python's file objects as files |
//! | `traced` | references that Python's garbage collector sees |
//! | `writer` | compression to a file |

use pyo3::prelude::*;

mod archive;
mod arguments;
mod buffer;
mod context;
mod device;
mod dlpack;
mod error;
mod idle;
mod inspect;
mod load;
mod memory;
mod new_file;
mod oneshot;
mod reader;
mod source;
mod traced;
mod writer;

/// The part of libpz that is written in Rust.
#[pymodule]
mod _libpz {
    #[pymodule_export]
    use crate::archive::PyArchive;
    #[pymodule_export]
    use crate::context::{Compressor, Decompressor};
    #[pymodule_export]
    use crate::device::{devices, finish_opening};
    #[pymodule_export]
    use crate::inspect::{cost, frames, recover};
    #[pymodule_export]
    use crate::load::load;
    #[pymodule_export]
    use crate::memory::DeviceBuffer;
    #[pymodule_export]
    use crate::new_file::PyNewFile;
    #[pymodule_export]
    use crate::oneshot::{compress, compress_into, content_size, decompress, decompress_into};
    #[pymodule_export]
    use crate::reader::{Reader, StreamReader};
    #[pymodule_export]
    use crate::writer::Writer;

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name that Python's packages give it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
