//! pz as a library for C. The header, `pz.h`, is made from these files.
//!
//! | module | what |
//! |---|---|
//! | `device` | devices by name |
//! | `memory` | C's pointers as slices, objects and text |
//! | `oneshot` | one call for one buffer |
//! | `options` | options for compression and decompression |
//! | `reader` | any part of a compressed file |
//! | `status` | statuses and messages of failures |
//! | `stream` | compression and decompression of streams, through callbacks |
//!
//! No panic leaves a function: it becomes a status. Callers must do what each function's `# Safety` says.

#![allow(non_camel_case_types, reason = "the names are C's")]

mod device;
mod memory;
mod oneshot;
mod options;
mod reader;
mod status;
mod stream;
