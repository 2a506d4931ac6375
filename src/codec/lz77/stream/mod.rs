//! Encodes matches and literals into payloads, and decodes payloads.
//!
//! | module | |
//! |---|---|
//! | [`spec`] | codes on which encoder, decoder and kernels agree |
//! | [`sequences`] | the matches of a parse as sequences |
//! | [`sequence_coder`] | sequences as coded symbols |
//! | [`models`] | how each stream of a group of chunks codes its symbols |
//! | [`rows`] | a chunk's symbols as rows of a lane stream |
//! | [`directory`] | the head of a payload: where each chunk's record is |
//! | [`encode`] | a block into its payload |
//! | [`decode`] | a payload into its block |
//! | [`execute`] | copies literals and matches |

pub(super) mod decode;
pub(crate) mod directory;
pub(super) mod encode;
pub(super) mod execute;
pub(super) mod models;
mod rows;
pub(super) mod sequence_coder;
mod sequences;
pub(crate) mod spec;
