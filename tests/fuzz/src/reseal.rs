//! Right checksums on wrong files.

use crc32c::crc32c;

const MAGIC: &[u8] = b"\x89PZF\r\n\x1a\n";

/// Goes through `file` as far as it looks like a frame (`src/format/FORMAT.md`), and puts the right checksum on
/// every header, payload, index and footer. Contents keep the checksum that they claim, except stored ones, which
/// are their own payload.
pub fn reseal(file: &mut [u8]) {
    if let Some(at) = frame_header(file) {
        let mut at = at;
        while let Some(next) = block(file, at) {
            at = next;
        }
        let footer = file.len().checked_sub(4);
        if let Some(end) = footer.filter(|_| file.get(at..at + 2) == Some(&[0xB7, 0x49])) {
            seal(file, at, end);
        }
    }
}

/// Writes the checksum of `from..to` at `to`; gives the end of it.
fn seal(file: &mut [u8], from: usize, to: usize) -> Option<usize> {
    let checksum = crc32c(file.get(from..to)?);
    file.get_mut(to..to + 4)?.copy_from_slice(&checksum.to_le_bytes());
    Some(to + 4)
}

fn frame_header(file: &mut [u8]) -> Option<usize> {
    if !file.starts_with(MAGIC) {
        return None;
    }
    let flags = *file.get(12)?;
    let mut len = 13 + usize::from(flags & 1) * 8;
    for bit in [2, 4] {
        if flags & bit != 0 {
            len += 1 + usize::from(*file.get(len)?);
        }
    }
    seal(file, 0, len)
}

fn block(file: &mut [u8], at: usize) -> Option<usize> {
    if file.get(at..at + 2)? != [0xB7, 0x42] {
        return None;
    }
    let number = |at: usize| {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let stored = file.get(at + 2)? & 15 == 0;
    let len = number(at + if stored { 7 } else { 11 })?;
    // Both kinds have the payload's checksum 15 bytes from the marker, or 11: stored contents are their own payload.
    let (field, header) = if stored { (at + 11, at + 15) } else { (at + 15, at + 23) };
    let payload = header + 4..(header + 4).checked_add(len)?;
    let checksum = crc32c(file.get(payload.clone())?);
    file.get_mut(field..field + 4)?.copy_from_slice(&checksum.to_le_bytes());
    seal(file, at, header)?;
    Some(payload.end)
}
