//! The footer: the lengths of a frame, at its very end. From them a seeking reader finds the frame and its index.

use std::io::Read;

use crc32c::crc32c_append;

use super::{Fault, read_array};

/// Length in bytes.
pub(crate) const LEN: usize = 20;

/// The fields of the footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Length of the frame's contents.
    pub(crate) content_size: u64,
    /// Length of the frame, from the first byte of its magic to the last byte of the footer.
    pub(crate) frame_len: u64,
}

impl Footer {
    /// Appends the footer to `bytes`, which already hold the index, marker included.
    pub(crate) fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.content_size.to_le_bytes());
        bytes.extend_from_slice(&self.frame_len.to_le_bytes());
        let checksum = crc32c::crc32c(bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }

    /// Reads and checks the footer. `index_crc` is the CRC-32C of the index, marker included.
    pub(crate) fn read(reader: &mut impl Read, index_crc: u32) -> Result<Self, Fault> {
        let bytes: [u8; LEN] = read_array(reader)?;
        let (footer, checksum) = Self::parse_unchecked(&bytes);
        if crc32c_append(index_crc, &bytes[..16]) != checksum {
            return Err(Fault::Corrupt("the checksum of index and footer does not agree"));
        }
        Ok(footer)
    }

    /// Returns the fields and the checksum. Only the index before the footer can confirm them.
    pub(crate) fn parse_unchecked(bytes: &[u8; LEN]) -> (Self, u32) {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let footer = Self { content_size: word(0), frame_len: word(8) };
        (footer, u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crc32c::crc32c;

    #[test]
    fn round_trip_and_damage() {
        let footer = Footer { content_size: 1 << 40, frame_len: 12_345 };
        let mut bytes = b"index".to_vec();
        footer.append_to(&mut bytes);
        let checksum = crc32c(b"index");
        assert_eq!(Footer::read(&mut &bytes[5..], checksum).unwrap(), footer);
        for bit in 40..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::read(&mut &damaged[5..], checksum).is_err());
        }
        assert!(Footer::read(&mut &bytes[5..20], checksum).is_err());
    }
}
