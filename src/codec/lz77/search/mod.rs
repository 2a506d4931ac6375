//! Finds matches in contents: the candidates of each position, and the parses that choose among them.
//!
//! | module | |
//! |---|---|
//! | [`candidates`] | the candidates of a position, and the bytes that two positions have in common |
//! | [`tagged`], [`buckets`] | tables that find candidates |
//! | [`suffixes`] | candidates by the order of suffixes |
//! | [`candidate_lists`] | all matches worth considering at each position, for the optimal parse |
//! | [`probe`] | hashes and compares many positions at a time |
//! | [`segments`] | parses a chunk segment by segment |
//! | [`greedy`], [`lazy`], [`deep`], [`optimal`] | the parses |
//! | [`prices`] | prices of symbols, for the optimal parse |
//! | [`parse`] | the parse of each level |

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
pub(super) mod segments;
pub(super) mod suffixes;
pub(super) mod tagged;
