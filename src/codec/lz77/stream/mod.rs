//! Encodes matches and literals into payloads, and decodes payloads.

pub(super) mod decode;
pub(crate) mod directory;
pub(super) mod encode;
pub(super) mod execute;
pub(super) mod models;
pub(super) mod sequence_coder;
mod sequences;
pub(crate) mod spec;
