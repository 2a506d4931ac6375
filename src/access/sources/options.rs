//! Limits on the time and the bytes that reading a source may take.

use std::time::Duration;

/// How long to wait for a server, and how often to try again. The setters chain.
///
/// ```
/// use std::time::Duration;
/// use pz::access::SourceOptions;
/// let options = SourceOptions::new().time_limit(Duration::from_secs(10)).retries(2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceOptions {
    pub(super) time_limit: Duration,
    pub(super) retries: u32,
    pub(super) max_whole: u64,
    pub(super) connections: usize,
}

impl SourceOptions {
    /// 60 seconds and 5 retries for each read, 8 connections, whole files of at most 64 MiB.
    pub fn new() -> Self {
        Self {
            time_limit: Duration::from_secs(60),
            retries: 5,
            max_whole: 64 << 20,
            connections: 8,
        }
    }

    /// Sets the most time that one read may take, with all retries. A read gets extra time for its bytes at 64 KiB a
    /// second, so long reads over slow lines are possible. A server that sends nothing for a third of the limit counts
    /// as failed, and the read tries again. Local sources have no limit.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Sets how often in a row a read tries again without receiving a byte.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the most bytes of a file that is read as a whole and kept in memory because its server cannot serve parts.
    /// Longer files of such servers are an error.
    pub fn max_whole(mut self, bytes: u64) -> Self {
        self.max_whole = bytes;
        self
    }

    /// Sets the most requests to a server that one read may have open at once; 0 counts as 1.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self::new()
    }
}
