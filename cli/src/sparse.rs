//! Holes: parts of a regular file that hold zeros and take no space.

use std::fs::File;
use std::io;

/// Bytes that a file system stores together: a hole begins and ends at a multiple of them.
const PAGE: usize = 4096;

/// Shorter runs of zeros are written, because each hole costs a system call and an entry in the file's map.
const MIN_HOLE: usize = 4 * PAGE;

static ZEROS: [u8; PAGE] = [0; PAGE];

/// The first part of `bytes`, which lie at `offset` in their file: its length, and whether it may be a hole. A part
/// that may not be a hole ends where a hole begins, or at the end.
pub fn first_part(bytes: &[u8], offset: u64) -> (usize, bool) {
    let mut at = offset.next_multiple_of(PAGE as u64).saturating_sub(offset) as usize;
    let mut zeros_from = at;
    // Nearly every page of other data differs in its first bytes, so this costs next to nothing.
    while let Some(page) = bytes.get(at..at + PAGE) {
        if page != ZEROS {
            if at - zeros_from >= MIN_HOLE {
                break;
            }
            zeros_from = at + PAGE;
        }
        at += PAGE;
    }
    match (at - zeros_from >= MIN_HOLE, zeros_from) {
        (true, 0) => (at, true),
        (true, from) => (from, false),
        (false, _) => (bytes.len(), false),
    }
}

/// Whether a regular file has holes. Also true for a file that the file system compresses, or stores in its directory.
#[cfg(target_os = "linux")]
pub fn has_holes(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    metadata.blocks() < metadata.len() / 512
}

/// The first offset at or after `offset` that is not in a hole of `file`, if the system tells; the file's length if
/// there is none. Moves the file's position.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn data_from(file: &File, offset: u64) -> io::Result<u64> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Err(rustix::io::Errno::NXIO) => Ok(file.metadata()?.len()),
        // Other errors mean that the file system does not report holes.
        data => Ok(data.unwrap_or(offset)),
    }
}

/// This system does not report holes.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn data_from(_: &File, offset: u64) -> io::Result<u64> {
    Ok(offset)
}

/// Fills `buffer` from `offset` on, without reading holes. Moves the file's position.
///
/// # Errors
/// The errors of reading; [`io::ErrorKind::UnexpectedEof`] if the file is too short.
#[cfg(target_os = "linux")]
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;

    use rustix::fs::{SeekFrom, seek};

    let end = offset + buffer.len() as u64;
    let mut at = offset;
    while at < end {
        let data = data_from(file, at)?.clamp(at, end);
        let hole = match seek(file, SeekFrom::Hole(data)) {
            Ok(hole) if data < hole && data < end => hole.min(end),
            _ => end,
        };
        let part = |from: u64, to: u64| (from - offset) as usize..(to - offset) as usize;
        buffer[part(at, data)].fill(0);
        file.read_exact_at(&mut buffer[part(data, hole)], data)?;
        at = hole;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of all parts of `bytes` at `offset`; those of holes are negative.
    fn parts(bytes: &[u8], offset: u64) -> Vec<isize> {
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let (len, is_hole) = first_part(&bytes[at..], offset + at as u64);
            assert!(len > 0 && (!is_hole || bytes[at..at + len].iter().all(|&byte| byte == 0)));
            parts.push(if is_hole { -(len as isize) } else { len as isize });
            at += len;
        }
        parts
    }

    #[test]
    fn long_runs_of_zeros_are_holes() {
        let (page, hole) = (PAGE as isize, MIN_HOLE as isize);
        // Zeros of this length between ones, at this offset.
        for (before, zeros, after, offset, expected) in [
            (0, 3 * page, 0, 0, vec![3 * page]),
            (0, hole, 0, 0, vec![-hole]),
            (0, hole + 5, 0, 0, vec![-hole, 5]),
            (0, hole, 7, 0, vec![-hole, 7]),
            (page, hole, page, 0, vec![page, -hole, page]),
            (7, 10 * page, 7, 0, vec![page, -9 * page, 14]),
            (1, hole + page - 1, 1, 0, vec![page, -hole, 1]),
            (1, hole + page - 2, 1, 0, vec![hole + page]),
            // Holes begin at multiples of the file's pages, not of the buffer's.
            (0, hole + page, 0, 5, vec![page - 5, -hole, 5]),
            (0, hole, 0, 5, vec![hole]),
            (0, 100, 0, 5, vec![100]),
            (0, 0, 0, 0, vec![]),
        ] {
            let ones = |len: isize| vec![1; len as usize];
            let bytes = [ones(before), vec![0; zeros as usize], ones(after)].concat();
            assert_eq!(parts(&bytes, offset), expected, "{before} {zeros} {after} at {offset}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn holes_are_read_as_zeros() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        for (at, byte) in [(0, 1), (300_000, 2), (700_000, 3)] {
            file.write_all_at(&[byte; 5000], at).unwrap();
        }
        let mut expected = vec![0; 1 << 20];
        FileExt::read_exact_at(&file, &mut expected, 0).unwrap();
        for (from, to) in
            [(0, 1 << 20), (4999, 300_001), (400_000, 500_000), (705_000, 1 << 20), (9, 9)]
        {
            let mut buffer = vec![9; to - from];
            read_exact_at(&file, &mut buffer, from as u64).unwrap();
            assert!(buffer == expected[from..to], "{from}..{to}");
        }
        let mut buffer = vec![9; 2];
        let beyond = read_exact_at(&file, &mut buffer, (1 << 20) - 1).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
    }
}
