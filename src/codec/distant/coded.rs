//! The stored form of a list of distant matches: LZ77 codes the list like a block if that makes it shorter. A row of
//! matches often repeats an earlier row of matches, at the same distances.

use std::borrow::Cow;

use super::{Malformed, OutOfMemory};
use crate::codec::lz77::{self, Effort, Search};
use crate::codec::reserve;

/// The first bytes of a coded list. No other list begins so, because its first number would not be in its shortest
/// form.
const CODED: [u8; 2] = [0x80, 0];

/// Bytes before the payload: [`CODED`], and the length of the list.
const HEAD: usize = 6;

/// Shorter lists are not coded: their tables would take as much as coding saves.
const MIN_CODED: usize = 1 << 10;

const PARAMS: lz77::Params = lz77::Params {
    chunk_log: 18,
    window_log: 24,
    group_log: 0,
    segment_log: 14,
    search: Search::Optimal(Effort::LEVEL_8),
    fse: true,
};

/// Bytes of memory that coding the list of a block of `block_size` bytes takes.
pub(super) fn memory(block_size: usize) -> u64 {
    // A match takes about ten bytes in a list, and hundreds in a block.
    lz77::Encoder::memory(&PARAMS, block_size / 16)
}

/// Replaces `list` by its coded form if that is shorter.
///
/// # Errors
/// If the system has too little memory.
pub(crate) fn code(list: &mut Vec<u8>) -> Result<(), OutOfMemory> {
    if !(MIN_CODED..=lz77::MAX_BLOCK).contains(&list.len()) {
        return Ok(());
    }
    let mut coded = Vec::new();
    reserve(&mut coded, list.len() + list.len() / 8 + 1024)?;
    coded.extend_from_slice(&CODED);
    coded.extend_from_slice(&(list.len() as u32).to_le_bytes());
    let mut encoder = lz77::Encoder::default();
    encoder.reserve(&PARAMS, list.len())?;
    if encoder.encode_below(&PARAMS, list, &mut coded, list.len() - HEAD)?
        && coded.len() < list.len()
    {
        *list = coded;
    }
    Ok(())
}

/// Decodes the stored form `bytes` of a list of distant matches. The block has `content_len` bytes of contents.
///
/// # Errors
/// If the list is coded and its coding breaks a rule, or if the system has too little memory.
pub(crate) fn decode<E: From<Malformed> + From<OutOfMemory>>(
    bytes: &[u8],
    content_len: u32,
) -> Result<Cow<'_, [u8]>, E> {
    let Some(rest) = bytes.strip_prefix(&CODED) else { return Ok(Cow::Borrowed(bytes)) };
    let (len, payload) =
        rest.split_first_chunk().ok_or(Malformed("the list of distant matches is cut short"))?;
    let len = u32::from_le_bytes(*len) as usize;
    // A match takes fewer bytes in a list than in the contents.
    let most = (content_len as usize).min(lz77::MAX_BLOCK);
    if len > most || bytes.len() >= len {
        return Err(Malformed("the length of a list of distant matches is out of range").into());
    }
    let mut list = Vec::new();
    reserve(&mut list, len)?;
    list.resize(len, 0);
    let mut decoder = lz77::Decoder::default();
    decoder.reserve(len)?;
    decoder.decode(payload, &mut list)?;
    Ok(Cow::Owned(list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Fault;

    #[test]
    fn lists_are_coded_where_that_pays() {
        for len in [0, 1, MIN_CODED - 1, MIN_CODED, 5000, 70_000] {
            let list: Vec<u8> = (0..len).map(|i| 1 + (i % 7) as u8 * (i % 11) as u8).collect();
            let mut stored = list.clone();
            code(&mut stored).unwrap();
            assert_eq!(stored.len() < len, len >= MIN_CODED);
            assert!(decode::<Fault>(&stored, 1 << 20).unwrap() == list);
            if len < MIN_CODED {
                continue;
            }
            // The list cut short, with a block too short for it, and with every bit changed: an error, or another list.
            assert!(decode::<Fault>(&stored, len as u32 - 1).is_err());
            for cut in 2..stored.len() {
                assert!(decode::<Fault>(&stored[..cut], 1 << 20).is_err(), "{cut} of {len}");
            }
            for at in 16..8 * stored.len().min(300) {
                let mut other = stored.clone();
                other[at / 8] ^= 1 << (at % 8);
                let _ = decode::<Fault>(&other, 1 << 20);
            }
        }
    }
}
