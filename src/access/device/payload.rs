//! What the host sees of payloads on their way to a device.

use crc32c::{crc32c, crc32c_append, crc32c_combine};

use crate::format::{BlockHeader, Method, Pipeline};
use crate::gpu::coder::{PayloadFeatures, RangeTask};

/// What is to be done with a block; `None` if the device does not do it.
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

/// What the host sees of a payload on its way.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) features: PayloadFeatures,
    /// Its first byte.
    pub(super) first: u8,
}

impl Seen {
    /// `None` if the payload is damaged. There is nothing to decode of stored blocks, so the host checks them, while
    /// they are in its cache.
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

/// CRC-32C of `len` times the same byte: of a block's contents, which are not empty.
fn crc_of_fill(byte: u8, len: u32) -> u32 {
    // Doubles the bytes for each bit of the length after the first.
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
