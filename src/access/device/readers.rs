//! Reads the payloads of a batch, in pieces.
//!
//! A file is read from the operating system's cache about as fast as all cores copy memory. So no worker may stand by
//! while others read: one that waits for the device [helps](help) them.

use std::ops::Range;

use rayon::prelude::*;

use super::flight::{self, LaneBlock};
use super::payload::Seen;
use crate::access::sources::SourceError;
use crate::format::BlockHeader;

/// A worker reads so many bytes at a time, so that none waits long for another.
const PIECE: usize = 256 << 10;

/// What the host sees of a payload; `None` if it is damaged.
type Read = Result<Option<Seen>, SourceError>;

/// Reads the payloads of those of `blocks` whose numbers are `some` to `memory`, each from the next multiple of 16
/// bytes on. What lies between them is zeroed.
pub(super) fn read(memory: &mut [u8], blocks: &[LaneBlock<'_>], some: &[usize]) -> Vec<Read> {
    let mut pieces = Vec::new();
    let mut payloads = Vec::with_capacity(some.len());
    let mut rest = &mut *memory;
    let mut start = 0;
    for (number, &at) in some.iter().enumerate() {
        let LaneBlock { header, read, .. } = &blocks[at];
        let len = header.payload_len as usize;
        let (own, others) = rest.split_at_mut(len.next_multiple_of(16));
        let (payload, padding) = own.split_at_mut(len);
        padding.fill(0);
        for (piece, into) in payload.chunks_mut(PIECE).enumerate() {
            pieces.push((number, read.as_ref(), piece * PIECE, into));
        }
        payloads.push((header, start..start + len));
        start += len.next_multiple_of(16);
        rest = others;
    }
    let read = |(number, read, from, into): (usize, &flight::Read<'_>, usize, &mut [u8])| {
        read(from, into).err().map(|error| (number, error))
    };
    let failed: Vec<_> = pieces.into_par_iter().filter_map(read).collect();
    let memory = &*memory;
    let see = |(number, (header, range)): (usize, (&BlockHeader, Range<usize>))| {
        let failed = failed.iter().find(|(failed, _)| *failed == number);
        match failed {
            Some((_, error)) => Err(error.clone()),
            None => Ok(Seen::of(header, &memory[range])),
        }
    };
    payloads.into_par_iter().enumerate().map(see).collect()
}

/// Does something for another worker, if there is something to do.
pub(super) fn help() -> bool {
    matches!(rayon::yield_now(), Some(rayon::Yield::Executed))
}
