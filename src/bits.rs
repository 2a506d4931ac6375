//! Reads and writes bits, most significant first. The descriptions of entropy codes are written this way.
//!
//! The first bit of a stream is the top bit of its first byte, and a value's top bit comes first, so the next bits can
//! directly look up a canonical prefix code. Streams coded over many lanes have layouts of their own; this one is for
//! the few dozen bytes in front of them, which one lane reads. Every read is checked, so no input can make a reader run
//! forever.

/// Appends bits to a byte vector.
#[derive(Debug)]
pub struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// The low `held` bits, fewer than 32, are not yet in `out`.
    pending: u64,
    held: u32,
}

impl<'a> BitWriter<'a> {
    /// A writer that begins at a byte boundary, at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, pending: 0, held: 0 }
    }

    /// Writes the low `count` bits of `value`, top bit first. They reach `out` by [`Self::finish`] at the latest.
    /// `count` is at most 32, and the bits of `value` above it must be zero.
    #[inline]
    pub fn write(&mut self, value: u32, count: u32) {
        debug_assert!(count <= 32 && u64::from(value) >> count == 0);
        self.pending = (self.pending << count) | u64::from(value);
        self.held += count;
        if self.held >= 32 {
            self.held -= 32;
            let word = (self.pending >> self.held) as u32;
            self.out.extend_from_slice(&word.to_be_bytes());
        }
    }

    /// Fills the last byte with zero bits.
    pub fn finish(self) {
        let rest = (self.pending << (32 - self.held)) as u32;
        self.out.extend_from_slice(&rest.to_be_bytes()[..self.held.div_ceil(8) as usize]);
    }
}

/// Takes bits from a byte slice. `None` means that too few are left.
#[derive(Debug, Clone)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bits taken so far.
    position: usize,
}

impl<'a> BitReader<'a> {
    /// A reader that begins at the first bit of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The next `count` bits, at most 32, without taking them. Bits past the end read as zero.
    #[inline]
    pub fn peek(&self, count: u32) -> u32 {
        debug_assert!(count <= 32);
        let first = self.position / 8;
        let rest = self.bytes.get(first..).unwrap_or_default();
        let window = match rest.first_chunk() {
            Some(&window) => window,
            None => {
                let mut window = [0; 8];
                window[..rest.len()].copy_from_slice(rest);
                window
            }
        };
        let window = u64::from_be_bytes(window) << (self.position % 8);
        // Two shifts, because a single shift by 64 would overflow.
        ((window >> 1) >> (63 - count)) as u32
    }

    /// Skips `count` bits.
    #[inline]
    pub fn skip(&mut self, count: u32) -> Option<()> {
        let end = self.position.checked_add(count as usize)?;
        if end.div_ceil(8) > self.bytes.len() {
            return None;
        }
        self.position = end;
        Some(())
    }

    /// Takes the next `count` bits, at most 32.
    #[inline]
    pub fn read(&mut self, count: u32) -> Option<u32> {
        let value = self.peek(count);
        self.skip(count).map(|()| value)
    }

    /// Skips the zero bits that pad the last byte, and returns how many bytes have been read in all. `None` if a
    /// padding bit is set.
    pub fn finish(mut self) -> Option<usize> {
        let padding = (self.position as u32).wrapping_neg() % 8;
        (self.read(padding)? == 0).then_some(self.position / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn top_bit_first() {
        let mut out = vec![0xaa];
        let mut writer = BitWriter::new(&mut out);
        writer.write(1, 1);
        writer.write(0, 0);
        writer.write(0b0110, 4);
        writer.write(0xdead_beef, 32);
        writer.finish();
        assert_eq!(out, [0xaa, 0b1011_0110, 0xf5, 0x6d, 0xf7, 0b0111_1000]);
    }

    #[test]
    fn reads_are_checked() {
        let mut reader = BitReader::new(&[0b1010_0000]);
        assert_eq!(reader.peek(32), 0b1010_0000 << 24);
        assert_eq!(reader.read(9), None);
        assert_eq!(reader.read(3), Some(0b101));
        assert_eq!(reader.clone().finish(), Some(1));
        assert_eq!(reader.read(5), Some(0));
        assert_eq!(reader.clone().finish(), Some(1));
        assert_eq!(reader.read(0), Some(0));
        assert_eq!(reader.read(1), None);
        let mut unclean = BitReader::new(&[1]);
        assert_eq!(unclean.read(4), Some(0));
        assert_eq!(unclean.finish(), None);
    }

    proptest! {
        #[test]
        fn reader_restores_written_values(values in prop::collection::vec((any::<u32>(), 0u32..=32), 0..100)) {
            let values: Vec<_> = values
                .into_iter()
                .map(|(value, count)| ((u64::from(value) & ((1 << count) - 1)) as u32, count))
                .collect();
            let mut out = Vec::new();
            let mut writer = BitWriter::new(&mut out);
            for &(value, count) in &values {
                writer.write(value, count);
            }
            writer.finish();
            let mut reader = BitReader::new(&out);
            for &(value, count) in &values {
                prop_assert_eq!(reader.read(count), Some(value));
            }
            prop_assert_eq!(reader.finish(), Some(out.len()));
        }
    }
}
