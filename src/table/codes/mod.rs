//! Lightweight codes of columns: what a query computes on without unpacking it.
//!
//! A chunk holds what one column has in one batch of rows. Its code takes fewer bytes than the values, yet any 1,024
//! rows decode without those before them, in 32 lanes that a team of a GPU, or vector registers, do side by side.
//! `CODES.md` defines the bytes. Nothing here knows of files, threads, devices or schemas.
//!
//! ```
//! use pz::table::codes::{Chunk, Column, Physical, encode};
//! let values: Vec<u8> = (0..10_000_i64).flat_map(|row| (1990 + row % 7).to_le_bytes()).collect();
//! let column = Column::new(Physical::I64, 10_000, &values, None).unwrap();
//! let encoded = encode(&column, None);
//! assert!(encoded.bytes.len() < 4000);
//! let chunk = Chunk::open(Physical::I64, 10_000, &encoded.bytes)?;
//! assert_eq!(chunk.sum(1994..=1995).unwrap().rows, 2856);
//! let mut decoded = vec![0; values.len()];
//! chunk.decode(&mut decoded);
//! assert_eq!(decoded, values);
//! # Ok::<(), pz::table::codes::Malformed>(())
//! ```
//!
//! | module | |
//! |---|---|
//! | `spec` | types, limits, lengths |
//! | `value` | integers of 8 to 256 bits |
//! | `lanes` | packs and unpacks integers |
//! | `exceptions` | values that a node cannot express |
//! | `tree` | bytes to checked nodes |
//! | `decode` | nodes to values |
//! | `chunk` | a chunk as a whole |
//! | `scan` | sums with a filter |
//! | `zones` | zone maps |
//! | `encode` | chooses and writes codes |

mod chunk;
mod decode;
mod encode;
mod exceptions;
mod lanes;
#[cfg(test)]
mod oracle;
mod scan;
mod spec;
#[cfg(test)]
mod tests;
mod tree;
mod value;
mod zones;

pub use crate::codec::Malformed;
pub use chunk::Chunk;
pub use encode::{Column, Encoded, Plan, encode};
pub use scan::Sum;
pub use spec::{MAX_ROWS, Physical};
pub use zones::ZoneMap;
