//! Tests of `pz::access`, from the outside.

mod archive;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "remote")]
#[path = "../common/http_server.rs"]
mod http_server;
mod local;
#[cfg(feature = "remote")]
mod servers;

use std::sync::Arc;

use pz::access::{Source, SourceError, SourceOptions, Uri, open};

fn open_at(uri: &str, options: &SourceOptions) -> Result<Arc<dyn Source>, SourceError> {
    open(&Uri::parse(uri)?, options)
}

/// Reads `len` bytes from `offset` on.
fn read_at(source: &dyn Source, offset: u64, len: usize) -> Result<Vec<u8>, SourceError> {
    let mut bytes = vec![0; len];
    let read = source.read_exact_at(&mut bytes, offset);
    read.map_err(|error| SourceError::in_io(&error).unwrap().clone())?;
    Ok(bytes)
}
