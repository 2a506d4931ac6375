//! One plan builder for each stage, written once for every backend.
//!
//! | module | |
//! |---|---|
//! | [`job`] | the parameters and the result of each block |
//! | [`lz77_find`] | finds the matches of LZ77 |
//! | `lz77_optimal` | finds them by the optimal parse |
//! | [`lz77_code`] | codes matches into LZ77 payloads |
//! | [`lz77_decode`] | decodes LZ77 payloads |
//! | [`bwt_encode`] | encodes with the BWT codec |
//! | [`bwt_decode`] | decodes BWT payloads |
//! | [`filter`] | undoes filters |
//! | [`forward_filter`] | applies filters |
//! | [`checksum`] | computes checksums, and packs payloads |
//! | [`moves`] | copies payloads to decoders, and contents to the caller's buffers |
//! | `pipelines` | chains stages into whole pipelines |

pub(crate) mod bwt_decode;
pub(crate) mod bwt_encode;
pub(crate) mod checksum;
pub(crate) mod filter;
pub(crate) mod forward_filter;
pub(crate) mod job;
pub(crate) mod lz77_code;
pub(crate) mod lz77_decode;
pub(crate) mod lz77_find;
mod lz77_optimal;
pub(crate) mod moves;
pub(crate) mod pipelines;
