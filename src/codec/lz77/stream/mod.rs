//! From matches to payloads, and back.

pub(super) mod decode;
pub(crate) mod directory;
pub(super) mod encode;
pub(super) mod execute;
pub(super) mod models;
pub(super) mod sequences;
pub(crate) mod spec;
