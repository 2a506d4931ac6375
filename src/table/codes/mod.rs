//! Lightweight codes of columns: what a query computes on without unpacking it.
//!
//! A chunk holds what one column has in one batch of rows. Its code takes fewer bytes than the values, yet any 1,024
//! rows decode without those before them, in 32 lanes that a team of a GPU, or vector registers, do side by side.
//! `CODES.md` defines the bytes. Nothing here knows of files, threads, devices or schemas.
//!
//! ```ignore
//! let column = Column::new(Physical::I64, rows, values, None)?;
//! let encoded = encode(&column, None);
//! let chunk = Chunk::open(Physical::I64, rows, &encoded.bytes)?;
//! chunk.decode(&mut contents);
//! let sum = chunk.sum(1994..=1995);
//! ```
//!
//! | module | |
//! |---|---|
//! | [`spec`] | types, limits, lengths |
//! | [`value`] | integers of 8 to 256 bits |
//! | [`lanes`] | packs and unpacks integers |
//! | [`exceptions`] | values that a node cannot express |
//! | [`tree`] | bytes to checked nodes |
//! | [`decode`] | nodes to values |
//! | [`chunk`] | a chunk as a whole |
//! | [`scan`] | sums with a filter |
//! | [`zones`] | zone maps |
//! | [`encode`] | chooses and writes codes |

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

pub use chunk::Chunk;
pub use encode::{Column, Encoded, Plan, encode};
pub use scan::Sum;
pub use spec::{MAX_ROWS, Physical};
pub use zones::ZoneMap;
