//! Finds matches in contents: the candidates of each position, and the parses that choose among them.

pub(super) mod buckets;
pub(super) mod candidate_lists;
pub(super) mod candidates;
pub(super) mod deep;
pub(super) mod greedy;
pub(super) mod lazy;
pub(super) mod optimal;
pub(super) mod parse;
pub(super) mod prices;
pub(super) mod probe;
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
mod probe_avx2;
pub(super) mod rows;
pub(super) mod scalar_rows;
pub(super) mod segments;
pub(super) mod suffixes;
pub(super) mod tagged;
pub(super) mod vector_rows;
