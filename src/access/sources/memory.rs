//! Bytes in memory that have a URI.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::error::{SourceError, SourceErrorKind};
use super::source::{Source, Traffic, check};
use super::uri::Uri;
use crate::process::PerProcess;
use crate::stream::{Part, ReadAt};
use crate::sync::RwLock;

type Published = RwLock<BTreeMap<String, Arc<[u8]>>>;

/// The bytes that this process has published, by name.
static PUBLISHED: PerProcess<Published> = PerProcess::new();

/// The bytes that this process and its ancestors have published. If another thread was changing the list during a fork,
/// the new process starts with an empty one.
fn published() -> &'static Published {
    PUBLISHED.get_or_inherit(|before| {
        let before = before.and_then(|published| published.try_read());
        RwLock::new(before.map(|published| published.clone()).unwrap_or_default())
    })
}

/// Makes `bytes` readable as `memio://name` in this process and in those that it forks. Replaces bytes published under
/// the same name; open sources keep the old ones.
pub fn publish(name: impl Into<String>, bytes: impl Into<Arc<[u8]>>) {
    published().write().insert(name.into(), bytes.into());
}

/// Removes the bytes that were published as `memio://name`. Open sources can still read them.
pub fn withdraw(name: &str) -> Option<Arc<[u8]>> {
    published().write().remove(name)
}

/// Opens the bytes that are published under `name`.
pub(super) fn open(uri: &Uri, name: &str) -> Result<Arc<dyn Source>, SourceError> {
    let bytes = published().read().get(name).cloned();
    let what = "nothing is published under this name";
    let bytes =
        bytes.ok_or_else(|| SourceError::new(uri.to_string(), SourceErrorKind::NotFound, what))?;
    Ok(Arc::new(MemorySource { uri: uri.to_string(), bytes, traffic: Traffic::default() }))
}

/// A source whose bytes are all in memory.
pub(super) struct MemorySource {
    pub(super) uri: String,
    pub(super) bytes: Arc<[u8]>,
    /// The requests and bytes that it took to fetch them.
    pub(super) traffic: Traffic,
}

impl ReadAt for MemorySource {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        check(&Part { offset, buffer }, self)?;
        self.bytes.read_exact_at(buffer, offset)
    }
}

impl Source for MemorySource {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn is_local(&self) -> bool {
        true
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}
