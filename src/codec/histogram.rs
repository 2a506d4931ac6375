//! How often bytes occur.

/// From this length on, four tables are faster than one: a byte need not wait for the count of an equal byte just
/// before it.
const MIN_FOR_FOUR: usize = 1 << 10;

/// Counts each byte value in `bytes`, which are fewer than 2^32.
pub(crate) fn histogram(bytes: &[u8]) -> [u32; 256] {
    let mut counts = [0; 256];
    if bytes.len() < MIN_FOR_FOUR {
        bytes.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        return counts;
    }
    let mut tables = [[0u32; 256]; 4];
    let (quads, rest) = bytes.as_chunks::<4>();
    for quad in quads {
        for (table, &byte) in tables.iter_mut().zip(quad) {
            table[usize::from(byte)] += 1;
        }
    }
    for &byte in rest {
        tables[0][usize::from(byte)] += 1;
    }
    for table in &tables {
        for (n, m) in counts.iter_mut().zip(table) {
            *n += m;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::noise;

    #[test]
    fn tables_count_what_one_counts() {
        for len in [0, 1, MIN_FOR_FOUR - 1, MIN_FOR_FOUR, MIN_FOR_FOUR + 3, 5000] {
            let bytes = noise(3, len, 200);
            let counts = histogram(&bytes);
            for (byte, count) in (0..=255).zip(counts) {
                let expected = bytes.iter().filter(|&&other| other == byte).count();
                assert_eq!(count as usize, expected, "{len} bytes");
            }
        }
    }
}
