//! Where frames end if the contents decide, so that a change leaves most of the output as it was.
//!
//! A frame ends where the hash of the last 64 bytes begins with zeros. It is a gear hash (Xia et al., FastCDC, 2016).
//! After bytes are inserted, deleted or changed, the boundaries that follow stay the same, and so do the frames between
//! them.

use std::io::{self, Read, Write};

use super::Encoder;
use crate::error::Error;

/// The fewest bytes between two boundaries: shorter frames would compress badly.
pub(in crate::stream) const MIN_BOUNDARY_DISTANCE: usize = 1 << 19;
/// The hash depends on this many bytes.
const REACH: usize = u64::BITS as usize;
/// A hash below this, one in 2^20, marks a boundary.
const BELOW: u64 = 1 << (u64::BITS - 20);

/// A random number for each byte.
const GEAR: [u64; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    // The first numbers of SplitMix64.
    let mut state = 0_u64;
    while i < 256 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[i] = z ^ (z >> 31);
        i += 1;
    }
    table
};

/// Finds boundaries in contents that come piece by piece.
#[derive(Debug, Default)]
pub(super) struct Boundaries {
    hash: u64,
    /// Bytes since the last boundary.
    since: usize,
}

impl Boundaries {
    /// Goes through `bytes` up to the next boundary, and returns how many bytes lie before it; `None` if they have
    /// none.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        // Skip bytes that do not influence the first hash that may mark a boundary.
        let passed = (MIN_BOUNDARY_DISTANCE - REACH).saturating_sub(self.since).min(bytes.len());
        let mut hash = self.hash;
        for (i, byte) in bytes.iter().enumerate().skip(passed) {
            hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
            if hash < BELOW && self.since + i + 1 >= MIN_BOUNDARY_DISTANCE {
                *self = Self::default();
                return Some(i + 1);
            }
        }
        self.hash = hash;
        self.since += bytes.len();
        None
    }
}

impl<W: Write> Encoder<W> {
    /// Writes what `read` reads until it does not fill its buffer. Returns the number of bytes.
    pub(super) fn write_from(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<u64, Error> {
        let mut buffer = vec![0; 1 << 17];
        let mut total = 0;
        loop {
            // After an error of reading, `finish` must not take the part read so far for the whole input.
            let n = read(&mut buffer).inspect_err(|_| self.failed = true)?;
            self.write_all(&buffer[..n])?;
            total += n as u64;
            if n < buffer.len() {
                return Ok(total);
            }
        }
    }
}

/// Reads until `buffer` is full or the input ends. Returns the number of bytes read.
pub(super) fn fill(reader: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::noise;

    /// Lengths of the parts between boundaries, found in pieces of this length.
    fn parts(mut contents: &[u8], piece: usize) -> Vec<usize> {
        let (mut boundaries, mut lens, mut len) = (Boundaries::default(), Vec::new(), 0);
        while !contents.is_empty() {
            let bytes = &contents[..piece.min(contents.len())];
            let found = boundaries.find(bytes);
            let passed = found.unwrap_or(bytes.len());
            len += passed;
            if found.is_some() {
                lens.push(std::mem::take(&mut len));
            }
            contents = &contents[passed..];
        }
        lens
    }

    #[test]
    fn boundaries_depend_on_the_contents_before_them() {
        let contents = noise(1, 12 << 20, 256);
        let whole = parts(&contents, usize::MAX);
        assert!((8..30).contains(&whole.len()), "{whole:?}");
        assert!(whole.iter().all(|&len| len >= MIN_BOUNDARY_DISTANCE));
        for piece in [1, 63, 64, 1000, 65_536] {
            assert_eq!(parts(&contents, piece), whole, "{piece}");
        }
        // One byte more or less at the front, and a changed one in the middle.
        let ends = |lens: &[usize]| -> Vec<usize> {
            lens.iter()
                .scan(0, |at, len| {
                    *at += len;
                    Some(*at)
                })
                .collect()
        };
        let mut changed = contents.clone();
        changed[6 << 20] ^= 1;
        let longer = [&b"x"[..], &contents].concat();
        for (other, shift) in [(&longer[..], 1), (&contents[1..], -1), (&changed, 0)] {
            let moved: Vec<usize> = ends(&parts(other, 4096))
                .iter()
                .map(|end| end.checked_add_signed(-shift).unwrap())
                .collect();
            let same = ends(&whole).iter().filter(|end| moved.contains(end)).count();
            assert!(same + 4 >= whole.len(), "{same} of {}", whole.len());
        }
        // Repeated bytes have the same hash everywhere.
        assert!(parts(&vec![0; 3 << 20], 1000).len() <= 12);
    }
}
