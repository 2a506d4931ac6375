//! The inverse transform: many walkers, each backward from a stored row, so that their memory reads overlap.

use super::Malformed;

/// Walkers that take turns on one core.
const WALKERS: usize = 16;

/// Reverses the transform of a block of `bwt.len()` bytes into `block`.
///
/// `rows[k]` is the row of the suffix at `k << start_log`, from 1 to `bwt.len()`; see [`super::sort`]. `links` is
/// scratch.
pub fn inverse(
    bwt: &[u8],
    rows: &[u32],
    start_log: u32,
    block: &mut [u8],
    links: &mut Vec<u64>,
) -> Result<(), Malformed> {
    let len = bwt.len();
    let primary = rows[0] as usize;
    let mut next = [0u32; 256];
    for &c in bwt {
        next[usize::from(c)] += 1;
    }
    let mut sum = 1;
    for n in &mut next {
        sum += core::mem::replace(n, sum);
    }
    links.clear();
    links.extend(bwt.iter().map(|&c| {
        let n = &mut next[usize::from(c)];
        let row = *n;
        *n += 1;
        u64::from(row - u32::from(row as usize > primary)) << 8 | u64::from(c)
    }));
    let stretch = 1 << start_log;
    let mut todo: Vec<usize> = (0..rows.len()).collect();
    let mut group = [0; WALKERS];
    while !todo.is_empty() {
        let n = todo.len().min(WALKERS);
        for (i, k) in todo.drain(todo.len() - n..).enumerate() {
            group[i] = k;
        }
        let mut at = [0usize; WALKERS];
        for i in 0..n {
            let row = if group[i] + 1 < rows.len() { rows[group[i] + 1] as usize } else { 0 };
            at[i] = row - usize::from(row > primary);
        }
        for step in 0..stretch {
            for i in 0..n {
                let end = ((group[i] + 1) * stretch).min(len);
                if step < end - group[i] * stretch {
                    let link = links[at[i].min(len - 1)];
                    block[end - 1 - step] = link as u8;
                    at[i] = (link >> 8) as usize;
                }
            }
        }
    }
    Ok(())
}
