//! Corrects the checksums of damaged files.

use crc32c::crc32c;
use sha2::{Digest as _, Sha256};

const MAGIC: &[u8] = b"\x89PZF\r\n\x1a\n";
/// Length of a block's filters.
const FILTERS: usize = 13;
/// Length of the further fields of a block with distant matches.
const DISTANT: usize = 12;

/// Goes through `file` while it looks like a frame (`src/format/FORMAT.md`), and corrects the checksum of every header,
/// payload, index and footer, and the hash of every module. The checksums of contents stay, except those of stored
/// blocks, whose contents are the payload.
pub fn reseal(file: &mut [u8]) {
    if file.starts_with(MAGIC) && file.get(12).is_some_and(|flags| flags & 8 != 0) {
        single(file);
        return;
    }
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

/// Writes the checksum of `from..to` at `to`. Returns the end of the checksum.
fn seal(file: &mut [u8], from: usize, to: usize) -> Option<usize> {
    let checksum = crc32c(file.get(from..to)?);
    file.get_mut(to..to + 4)?.copy_from_slice(&checksum.to_le_bytes());
    Some(to + 4)
}

/// Seals a single frame: its check and, if the block is stored or filled, so that its contents are known, its checksum.
fn single(file: &mut [u8]) -> Option<()> {
    let (kind, flags) = (*file.get(11)? >> 4, *file.get(12)?);
    let (method, filters) = (kind & 7, if kind & 8 != 0 { FILTERS } else { 0 });
    let width = usize::from(flags >> 4 & 3);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, &byte| n << 8 | usize::from(byte));
    let lengths = 13..13 + if method < 2 { width } else { 2 * width };
    let content_len = match width {
        0 => 0,
        _ => number(file.get(13..13 + width)?) + 1,
    };
    let mut header = lengths.end + filters;
    let list = header;
    for bit in [2, 4] {
        if flags & bit != 0 {
            header += 1 + usize::from(*file.get(header)?);
        }
    }
    let start = modules(file, flags, list, header + 1)?;
    let check = crc32c(file.get(..header)?) as u8;
    *file.get_mut(header)? = check;
    let counted = match method {
        0 => file.get(..start.checked_add(content_len)?)?.to_vec(),
        1 => {
            let mut counted = file.get(..start + 1)?.to_vec();
            counted.resize(start + 1 + content_len, *file.get(start)?);
            counted
        }
        _ => return None,
    };
    let end = start + if method == 0 { content_len } else { 1 };
    file.get_mut(end..end + 4)?.copy_from_slice(&crc32c(&counted).to_le_bytes());
    Some(())
}

fn frame_header(file: &mut [u8]) -> Option<usize> {
    if !file.starts_with(MAGIC) {
        return None;
    }
    let flags = *file.get(12)?;
    let mut len = 13 + usize::from(flags & 1) * 8;
    let list = len;
    for bit in [2, 4] {
        if flags & bit != 0 {
            len += 1 + usize::from(*file.get(len)?);
        }
    }
    let end = modules(file, flags, list, len + 4)?;
    seal(file, 0, len)?;
    Some(end)
}

/// Corrects the hashes of the modules at `at` in the header's list at `list`, if the flags say that there is one.
/// Returns the end of the modules.
fn modules(file: &mut [u8], flags: u8, list: usize, mut at: usize) -> Option<usize> {
    if flags & 2 == 0 {
        return Some(at);
    }
    let entries = usize::from(*file.get(list)?) / 40;
    for entry in (0..entries).map(|number| list + 1 + 40 * number) {
        let &[low, high] = file.get(entry + 32..entry + 34)? else { return None };
        let len = usize::from(u16::from_le_bytes([low, high])) + 1;
        let hash = Sha256::digest(file.get(at..at + len)?);
        file.get_mut(entry..entry + 32)?.copy_from_slice(&hash);
        at += len;
    }
    Some(at)
}

fn block(file: &mut [u8], at: usize) -> Option<usize> {
    if file.get(at..at + 2)? != [0xB7, 0x42] {
        return None;
    }
    let number = |at: usize| {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let kind = file.get(at + 2)?;
    let filters = if kind & 8 != 0 { FILTERS } else { 0 };
    let optional = filters + if kind & 4 != 0 { DISTANT } else { 0 };
    let stored = kind & 15 == 0;
    let len = number(at + if stored { 7 } else { 11 })?;
    // The payload's checksum is 15 bytes after the marker; in a stored block, whose payload is the contents, 11 bytes.
    let (field, header) = if stored { (at + 11, at + 15) } else { (at + 15, at + 23 + optional) };
    let payload = header + 4..(header + 4).checked_add(len)?;
    let checksum = crc32c(file.get(payload.clone())?);
    file.get_mut(field..field + 4)?.copy_from_slice(&checksum.to_le_bytes());
    seal(file, at, header)?;
    Some(payload.end)
}
