//! The forward transform, by suffix sorting.
//!
//! The rows of the transform are the suffixes of the block in order. The empty suffix comes first (row 0), as if the
//! block ended in a byte less than all others. The row of the suffix at position `p` holds the byte before `p`. The row
//! of the whole block has none and is left out, so the transform is as long as the block.
//!
//! With the feature `fast-sort`, libsais (Ilya Grebnov, in C) sorts; without it, the sorter in Rust does. The suffixes
//! have only one order, so both give the same transform.

use super::super::{OutOfMemory, reserve, suffix_order};

/// Extra entries of scratch, in which libsais keeps its buckets.
const SCRATCH_EXTRA: usize = 6 * 256;

/// Length of the scratch that [`transform`] needs.
pub fn scratch_len(block_len: usize) -> usize {
    block_len + SCRATCH_EXTRA
}

/// Bytes of memory that [`transform`] takes besides its scratch.
pub fn extra_memory(block_len: usize) -> u64 {
    suffix_order::memory(block_len)
}

/// Writes the transform of a block (1 byte to 2 GiB) to `bwt`, and to `rows` the rows of the suffixes at multiples of
/// `1 << start_log`.
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
    #[cfg(feature = "fast-sort")]
    libsais::BwtConstruction::for_text(block)
        .in_borrowed_buffer(bwt)
        .with_borrowed_temporary_array_buffer(&mut scratch[..scratch_len(len)])
        .single_threaded()
        .with_aux_indices_in_buffer(
            libsais::bwt::AuxIndicesSamplingRate::from(1 << start_log),
            rows,
        )
        .run()
        // With valid arguments, it only fails if it gets no memory. It does not say how much it wanted.
        .map_err(|_| OutOfMemory { bytes: len as u64 })?;
    #[cfg(not(feature = "fast-sort"))]
    transform_portably(block, start_log, bwt, rows, &mut scratch[..len])?;
    Ok(())
}

/// Does the same in plain Rust. `rows` already has its final length.
#[cfg(any(test, not(feature = "fast-sort")))]
fn transform_portably(
    block: &[u8],
    start_log: u32,
    bwt: &mut [u8],
    rows: &mut [i32],
    order: &mut [i32],
) -> Result<(), OutOfMemory> {
    super::super::sais::sort(block, order)?;
    // Row 0 is the empty suffix.
    bwt[0] = block[block.len() - 1];
    let mut filled = 1;
    for (row, &at) in (1..).zip(&*order) {
        let at = at as usize;
        if at.is_multiple_of(1 << start_log) {
            rows[at >> start_log] = row;
        }
        if at > 0 {
            bwt[filled] = block[at - 1];
            filled += 1;
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "fast-sort"))]
mod tests {
    use super::*;

    #[test]
    fn both_sorters_give_the_same_transform() {
        let mut noise = 7_u32;
        let noise = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        });
        let noise: Vec<u8> = noise.take(30_000).collect();
        let text = b"she sells sea shells by the sea shore; ".repeat(800);
        for block in [&b"a"[..], b"ab", b"aaaa", b"banana", &[9; 70_000], &text, &noise] {
            for start_log in [8, 14] {
                let len = block.len();
                let mut scratch = vec![0; scratch_len(len)];
                let (mut bwt, mut rows) = (vec![0; len], Vec::new());
                transform(block, start_log, &mut bwt, &mut rows, &mut scratch).unwrap();
                let (mut other, mut other_rows) = (vec![0; len], vec![0; rows.len()]);
                let order = &mut scratch[..len];
                transform_portably(block, start_log, &mut other, &mut other_rows, order).unwrap();
                assert!(bwt == other && rows == other_rows, "{len} bytes");
            }
        }
    }
}
