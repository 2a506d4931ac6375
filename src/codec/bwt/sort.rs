//! The forward transform, by suffix sorting.
//!
//! The rows of the transform are the suffixes of the block in order, with the empty suffix first (row 0), as if the
//! block ended in a byte smaller than all others. Row `r` of the suffix at position `p` has the byte before `p`; the
//! row of the whole block has none and is left out, so the transform is as long as the block.
//!
//! Sorting is libsais (Ilya Grebnov), induced sorting in linear time; its results do not depend on how it sorts.

use super::super::{OutOfMemory, reserve};
use libsais::BwtConstruction;
use libsais::bwt::AuxIndicesSamplingRate;

/// Extra entries of scratch that let libsais keep its buckets there.
const SCRATCH_EXTRA: usize = 6 * 256;

/// Length of the scratch that [`transform`] needs for a block.
pub fn scratch_len(block_len: usize) -> usize {
    block_len + SCRATCH_EXTRA
}

/// Writes the transform of a block (1 byte to 2 GiB) to `bwt`, and the rows of the suffixes at the multiples of
/// `1 << start_log` to `rows`.
///
/// # Errors
/// If the system refuses memory.
pub fn transform(
    block: &[u8],
    start_log: u32,
    bwt: &mut [u8],
    rows: &mut Vec<i32>,
    scratch: &mut [i32],
) -> Result<(), OutOfMemory> {
    let len = block.len();
    let row_count = ((len - 1) >> start_log) + 1;
    reserve(rows, row_count)?;
    rows.clear();
    rows.resize(row_count, 0);
    BwtConstruction::for_text(block)
        .in_borrowed_buffer(bwt)
        .with_borrowed_temporary_array_buffer(&mut scratch[..scratch_len(len)])
        .single_threaded()
        .with_aux_indices_in_buffer(AuxIndicesSamplingRate::from(1 << start_log), rows)
        .run()
        // With arguments in range, it fails only for want of memory. It does not say how much.
        .map(drop)
        .map_err(|_| OutOfMemory { bytes: len as u64 })
}
