//! The order of a block's suffixes.
//!
//! With the feature `fast-sort`, libsais (Ilya Grebnov, in C) sorts; without it, [`super::sais`] does. There is only
//! one order of the suffixes, so both give the same.

use super::OutOfMemory;

/// Bytes of memory that [`sort`] takes. libsais takes nearly none; the sorter in Rust takes the types and buckets of
/// the text and of its texts of names.
pub(crate) fn memory(block_len: usize) -> u64 {
    if cfg!(feature = "fast-sort") { 0 } else { 5 * block_len as u64 + (4 << 10) }
}

/// Writes the positions of the suffixes of `block` (at most 2 GiB) to `order`, which has the block's length, from the
/// least suffix to the greatest. A suffix is less than a longer one that begins with it.
///
/// # Errors
/// If the system refuses memory.
pub(crate) fn sort(block: &[u8], order: &mut [i32]) -> Result<(), OutOfMemory> {
    #[cfg(feature = "fast-sort")]
    libsais::SuffixArrayConstruction::for_text(block)
        .in_borrowed_buffer(order)
        .single_threaded()
        .run()
        // With valid arguments, libsais only fails for want of memory. It does not say how much it wanted.
        .map_err(|_| OutOfMemory { bytes: block.len() as u64 })?;
    #[cfg(not(feature = "fast-sort"))]
    super::sais::sort(block, order)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_come_in_order() {
        let mut noise = 7_u32;
        let noise = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        });
        let noise: Vec<u8> = noise.take(3000).collect();
        for block in [&b""[..], b"a", b"ab", b"aaaa", b"banana", &[9; 700], &noise] {
            let mut order = vec![0; block.len()];
            sort(block, &mut order).unwrap();
            let mut expected: Vec<i32> = (0..block.len() as i32).collect();
            expected.sort_by_key(|&position| &block[position as usize..]);
            assert_eq!(order, expected);
        }
    }
}
