//! Reads the payloads of a batch in pieces, and inspects them before they go to a device.
//!
//! Reading a cached file is as fast as all cores together can copy memory. A worker that waits for the device therefore
//! [helps](help) those that read.

use std::ops::Range;

use crc32c::{crc32c, crc32c_append, crc32c_combine};
use rayon::prelude::*;

use super::slot_batch::{self, SlotBlock};
use crate::access::sources::SourceError;
use crate::format::{BlockHeader, Method, Pipeline};
use crate::gpu::coder::{PayloadFeatures, RangeTask};

/// The task that decodes a block; `None` if the device does not decode it.
pub(super) fn task_of(header: &BlockHeader) -> Option<RangeTask> {
    if header.own.is_some() {
        return None;
    }
    let fits = header.payload_len > 0 && header.payload_len <= header.content_len;
    match header.method {
        Method::Lz77 if fits => Some(RangeTask::Decode(Pipeline::Lzf)),
        Method::Bwt if fits => Some(RangeTask::Decode(Pipeline::Bwt)),
        Method::Store | Method::Fill if fits && header.filters.is_none() => Some(RangeTask::Move),
        _ => None,
    }
}

/// What the host learns from a payload before the upload.
#[derive(Clone, Copy)]
pub(super) struct SeenPayload {
    pub(super) features: PayloadFeatures,
    /// Its first byte.
    pub(super) first: u8,
}

impl SeenPayload {
    /// `None` if the payload is damaged. The host itself checks blocks that need no decoding, while they are in its
    /// cache.
    pub(super) fn of(header: &BlockHeader, payload: &[u8]) -> Option<Self> {
        let first = payload.first().copied().unwrap_or_default();
        let (features, is_right) = match header.method {
            Method::Lz77 | Method::Bwt => {
                (PayloadFeatures::of(payload, header.content_len as usize), true)
            }
            Method::Store => {
                let crcs = [header.payload_crc, header.content_crc];
                (PayloadFeatures::default(), crcs == [crc32c(payload); 2])
            }
            Method::Fill => {
                let is_right = crc32c(payload) == header.payload_crc
                    && crc_of_fill(first, header.content_len) == header.content_crc;
                (PayloadFeatures::default(), is_right)
            }
        };
        is_right.then_some(Self { features, first })
    }
}

/// CRC-32C of `len` times the same byte; `len` is not 0.
fn crc_of_fill(byte: u8, len: u32) -> u32 {
    // For each bit of the length after the first, doubles the bytes.
    let mut crc = crc32c(&[byte]);
    let mut so_far = 1;
    for bit in (0..len.checked_ilog2().unwrap_or(0)).rev() {
        crc = crc32c_combine(crc, crc, so_far);
        so_far *= 2;
        if len >> bit & 1 == 1 {
            crc = crc32c_append(crc, &[byte]);
            so_far += 1;
        }
    }
    crc
}

/// Bytes that a worker reads at a time: few, so that no worker waits long for another.
const PIECE: usize = 256 << 10;

/// What the host learns from a payload; `None` if it is damaged.
pub(super) type SeenResult = Result<Option<SeenPayload>, SourceError>;

/// Reads the payloads of blocks `some` to `memory`, each to the next multiple of 16 bytes. Zeroes the gaps.
pub(super) fn read(memory: &mut [u8], blocks: &[SlotBlock<'_>], some: &[usize]) -> Vec<SeenResult> {
    let mut pieces = Vec::new();
    let mut payloads = Vec::with_capacity(some.len());
    let mut rest = &mut *memory;
    let mut start = 0;
    for (number, &at) in some.iter().enumerate() {
        let SlotBlock { header, read, .. } = &blocks[at];
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
    let read =
        |(number, read, from, into): (usize, &slot_batch::ReadPayload<'_>, usize, &mut [u8])| {
            read(from, into).err().map(|error| (number, error))
        };
    let failed: Vec<_> = pieces.into_par_iter().filter_map(read).collect();
    let memory = &*memory;
    let see = |(number, (header, range)): (usize, (&BlockHeader, Range<usize>))| {
        let failed = failed.iter().find(|(failed, _)| *failed == number);
        match failed {
            Some((_, error)) => Err(error.clone()),
            None => Ok(SeenPayload::of(header, &memory[range])),
        }
    };
    payloads.into_par_iter().enumerate().map(see).collect()
}

/// Does a piece of another worker's reading, if there is one. Returns whether there was.
pub(super) fn help() -> bool {
    matches!(rayon::yield_now(), Some(rayon::Yield::Executed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_repeated_bytes() {
        for len in (1..100).chain([4095, 4096, 4097, 65_536, 1_000_003]) {
            assert_eq!(crc_of_fill(7, len), crc32c(&vec![7; len as usize]), "{len} bytes");
        }
    }
}
