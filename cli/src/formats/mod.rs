//! The formats of other programs: recognises them by their first bytes and decodes them with their own libraries.
//!
//! | module | what |
//! |---|---|
//! | `ahead` | reads in large pieces, and looks ahead |
//! | `lz4` | frames of LZ4 |
//! | `members` | one member, stream or frame after another, and the zeros behind them |

mod ahead;
mod lz4;
mod members;

use std::io::{self, Read, Write};

use pz::{DecodeOptions, Decoder};

use crate::failure::Failure;
use crate::settings::DecodeSettings;
use crate::sizes::ByteRange;
use crate::source::Source;
use ahead::Ahead;
use members::Members;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Ours.
    Pz,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// bzip2.
    Bzip2,
    /// The .xz file format.
    Xz,
    /// The LZ4 frame format.
    Lz4,
    /// A compressed format that the program does not read, by its name.
    Other(&'static str),
    /// An archive of tar that is not compressed.
    Tar,
    /// Anything else.
    Unknown,
}

/// [`Format::of`] needs this many first bytes to know every compressed format except that of `.lzma` files.
pub const HEAD: usize = 8;
/// It needs this many to know all formats.
const LONG_HEAD: usize = 512;
/// How far [`Format::detect`] looks for what follows skippable frames.
const MAX_SKIPPED: usize = 1 << 16;
/// Bytes that [`copy`] writes at a time.
const CHUNK: usize = 1 << 20;
/// Bytes that it asks a decoder for at a time. A call of a library that finds a fault loses the bytes it has decoded.
const STEP: usize = 1 << 15;

impl Format {
    /// Recognises a format by a file's first bytes.
    pub fn of(head: &[u8]) -> Format {
        match head {
            [0x89, b'P', b'Z', b'F', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Format::Pz,
            [0x1f, 0x8b, ..] => Format::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Format::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Format::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Format::Xz,
            _ if head.starts_with(&lz4::MAGIC) || head.starts_with(&lz4::LEGACY_MAGIC) => {
                Format::Lz4
            }
            [0x1f, 0x9d, ..] => Format::Other("compress (.Z)"),
            [b'L', b'Z', b'I', b'P', 1, ..] => Format::Other("lzip"),
            [0x89, b'L', b'Z', b'O', 0, 0x0d, 0x0a, 0x1a, ..] => Format::Other("lzop"),
            [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => Format::Other("7z"),
            [b'R', b'a', b'r', b'!', 0x1a, 0x07, ..] => Format::Other("rar"),
            [0x22..=0x27, 0xb5, 0x2f, 0xfd, ..] => Format::Other("zstd (before version 0.8)"),
            _ if is_lzma(head) => Format::Other("lzma"),
            _ if head.get(257..262) == Some(b"ustar") => Format::Tar,
            _ => Format::Unknown,
        }
    }

    /// Recognises the format of an unread source before decoding it. A few bytes that may be the rest of a cut file of
    /// ours count as our format.
    pub fn detect(source: &mut Source) -> io::Result<Format> {
        match Format::recognise(source)? {
            Format::Unknown if Format::Pz.magic().starts_with(source.peek(HEAD)?) => Ok(Format::Pz),
            format => Ok(format),
        }
    }

    /// Recognises the format of an unread source.
    pub fn recognise(source: &mut Source) -> io::Result<Format> {
        let mut at = 0;
        loop {
            // A program that writes to a pipe may pause after the first few bytes.
            let head = source.peek(at + HEAD)?;
            let head = head.get(at..).unwrap_or_default();
            match skippable_len(head) {
                Some(len) if len < (MAX_SKIPPED - at) as u64 => at += 8 + len as usize,
                // Both zstd and LZ4 have such frames.
                Some(_) => return Ok(Format::Zstd),
                None => break,
            }
        }
        let head = source.peek(at + HEAD)?.get(at..).unwrap_or_default();
        match Format::of(head) {
            Format::Unknown if at > 0 => Ok(Format::Zstd),
            Format::Unknown => source.peek(LONG_HEAD).map(Format::of),
            format => Ok(format),
        }
    }

    /// The first bytes of a file that the program reads.
    fn magic(self) -> &'static [u8] {
        match self {
            Format::Pz => b"\x89PZF\r\n\x1a\n",
            Format::Gzip => b"\x1f\x8b",
            Format::Zstd => b"\x28\xb5\x2f\xfd",
            Format::Bzip2 => b"BZh",
            Format::Xz => b"\xfd7zXZ\0",
            Format::Lz4 => &lz4::MAGIC,
            Format::Other(_) | Format::Tar | Format::Unknown => b"",
        }
    }

    /// Whether skippable frames may stand between others.
    fn has_skippable_frames(self) -> bool {
        matches!(self, Format::Zstd | Format::Lz4)
    }

    /// Whether compressing such a file again is useless. False for zip archives, pictures and other formats that may
    /// have uncompressed parts.
    pub fn is_compressed(self) -> bool {
        !matches!(self, Format::Tar | Format::Unknown)
    }

    /// Its common name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Pz => "pz",
            Format::Gzip => "gzip",
            Format::Zstd => "zstd",
            Format::Bzip2 => "bzip2",
            Format::Xz => "xz",
            Format::Lz4 => "lz4",
            Format::Other(name) => name,
            Format::Tar => "tar",
            Format::Unknown => "unknown",
        }
    }

    /// Why the program cannot decode such a file; `None` if it can.
    pub fn refusal(self) -> Option<Failure> {
        let what = match self {
            Format::Other(name) => &format!("is a {name} file, which pz does not read"),
            Format::Tar => {
                "is a plain tar archive: tar -a does not know .pz; tar -I pz -cf makes a compressed one"
            }
            Format::Unknown => "not in pz format",
            _ => return None,
        };
        Some(Failure::input(what))
    }
}

/// Length of the contents of a skippable frame that begins with these 8 bytes.
fn skippable_len(head: &[u8]) -> Option<u64> {
    match *head {
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, a, b, c, d, ..] => {
            Some(u32::from_le_bytes([a, b, c, d]).into())
        }
        _ => None,
    }
}

/// Whether a file may be a `.lzma` file, whose format has no magic. It begins with the usual parameters, then the
/// dictionary size of a preset, then the length of the contents or all ones.
fn is_lzma(head: &[u8]) -> bool {
    let Some(&[0x5d, a, b, c, d, len @ ..]) = head.first_chunk::<13>() else { return false };
    let size = u32::from_le_bytes([a, b, c, d]);
    size >= 1 << 12
        && matches!(size >> size.trailing_zeros(), 1 | 3)
        && (len == [0xff; 8] || len[5..] == [0; 3])
}

/// Decodes `source` from its beginning to the end of `range`, writes the contents that lie in the range to `writer`,
/// and returns how many bytes it wrote. Before it returns a fault, it has written everything that was decoded before
/// the fault.
pub fn decode(
    format: Format,
    source: &mut Source,
    writer: &mut dyn Write,
    range: ByteRange,
    settings: &DecodeSettings,
) -> Result<u64, Failure> {
    if let Some(refusal) = format.refusal() {
        return Err(refusal);
    }
    let end = if format == Format::Pz {
        let mut decoder = decoder(source, &settings.options)?;
        copy(|buffer| Ok(decoder.read(buffer)?), writer, range)?
    } else {
        let mut members = Members::new(format, source, settings.memory);
        copy(|buffer| members.read(buffer), writer, range)?
    };
    if end < range.from {
        return Err(past_the_end(end));
    }
    Ok(end - range.from)
}

/// Copies a range of an uncompressed file. Returns how many bytes it wrote.
pub fn pass(source: &mut Source, writer: &mut dyn Write, range: ByteRange) -> Result<u64, Failure> {
    let mut input = Ahead::new(source);
    let end = copy(|buffer| Ok(input.read(buffer)?), writer, range)?;
    if end < range.from {
        return Err(past_the_end(end));
    }
    Ok(end - range.from)
}

/// The failure for a range that begins after the end of the contents.
pub fn past_the_end(len: u64) -> Failure {
    Failure::environment(format!("the range begins after the end of the contents ({len} bytes)"))
}

/// Prepares to decode our own format. If the source permits it, several threads read it.
pub fn decoder<'s>(
    source: &'s mut Source,
    options: &DecodeOptions,
) -> Result<Decoder<&'s mut Source>, Failure> {
    let places = source.places(true);
    let mut decoder = Decoder::new(source, options)?;
    if let Some((places, _)) = &places {
        decoder.read_from_places(places, 0);
    }
    Ok(decoder)
}

/// Copies a range of the contents that `read` returns. Returns the position in the contents at which it stopped.
fn copy(
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Failure>,
    writer: &mut dyn Write,
    range: ByteRange,
) -> Result<u64, Failure> {
    let mut buffer = vec![0; CHUNK];
    let mut position = 0u64;
    let to = range.to.unwrap_or(u64::MAX);
    while position < to {
        // Fill the chunk first, since each write is a system call.
        let wanted = CHUNK.min(usize::try_from(to - position).unwrap_or(CHUNK));
        let mut filled = 0;
        let mut outcome = Ok(1);
        while filled < wanted && outcome.as_ref().is_ok_and(|&count| count > 0) {
            let end = wanted.min(filled + STEP);
            outcome = read(&mut buffer[filled..end]);
            filled += outcome.as_ref().map_or(0, |&count| count);
        }
        // Leave out the bytes of the chunk that lie before or after the range.
        let skip = range.from.saturating_sub(position).min(filled as u64) as usize;
        if skip < filled {
            writer.write_all(&buffer[skip..filled])?;
        }
        position += filled as u64;
        if outcome? == 0 {
            break;
        }
    }
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes() {
        let xz = b"\xfd7zXZ\x00\x00\x04";
        let tar = [&[b'a'; 257][..], b"ustar\x0000"].concat();
        for (head, name) in [
            (&b"\x89PZF\r\n\x1a\n"[..], "pz"),
            (b"\x89PZF\n\x1a\n", "unknown"),
            (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "gzip"),
            (b"\x28\xb5\x2f\xfd\x04\x00\x00\x00", "zstd"),
            (b"\x26\xb5\x2f\xfd\x04\x00\x00\x00", "zstd (before version 0.8)"),
            (xz, "xz"),
            (b"BZh91AY&", "bzip2"),
            (b"BZh01AY&", "unknown"),
            (b"\x04\x22\x4d\x18\x64\x40\xa7\x00", "lz4"),
            (b"\x02\x21\x4c\x18\x07\x00\x00\x00", "lz4"),
            (b"\x1f\x9d\x90", "compress (.Z)"),
            (b"LZIP\x01\x0c", "lzip"),
            (b"\x89LZO\x00\r\n\x1a", "lzop"),
            (b"7z\xbc\xaf\x27\x1c\x00\x04", "7z"),
            (b"Rar!\x1a\x07\x01\x00", "rar"),
            (b"\x5d\x00\x00\x80\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00", "lzma"),
            (b"\x5d\x00\x00\x10\x00\x06\x00\x00\x00\x00\x00\x00\x00\x00", "lzma"),
            (b"\x5d\x00\x00\x50\x00\x06\x00\x00\x00\x00\x00\x00\x00\x00", "unknown"),
            (b"] = [1, 2, 3, 4]", "unknown"),
            (&tar, "tar"),
            (b"PK\x03\x04\x14\x00\x00\x00", "unknown"),
            (b"\x89PNG\r\n\x1a\n", "unknown"),
            (b"LZIPPER ", "unknown"),
            (b"plain text", "unknown"),
            (b"", "unknown"),
        ] {
            assert_eq!(Format::of(head).name(), name, "{head:x?}");
        }
    }

    /// A cut LZ4 frame is noticed, also if it is cut between two blocks.
    #[test]
    fn cut_lz4_files_are_noticed() {
        let contents: Vec<u8> =
            (0..300_000u32).map(|i| ((u64::from(i) * u64::from(i)) >> 7) as u8).collect();
        let info =
            lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&contents).unwrap();
        let frame = encoder.finish().unwrap();
        let two = [&frame[..], &frame[..]].concat();
        let decode = |bytes: &[u8]| {
            let mut members = Members::new(Format::Lz4, bytes, 1 << 30);
            let mut out = Vec::new();
            copy(|buffer| members.read(buffer), &mut out, ByteRange::WHOLE).map(|_| out)
        };
        assert!(decode(&two).unwrap() == [&contents[..], &contents[..]].concat());
        // Find where blocks and frames end: each block's length comes before it, and the frame's header takes 7 bytes.
        let mut ends = vec![0, frame.len(), two.len()];
        for begin in [0, frame.len()] {
            let mut at = begin + 7;
            while let Some(len) =
                two[at..].first_chunk().map(|len| u32::from_le_bytes(*len) << 1 >> 1)
                && len > 0
            {
                at += 4 + len as usize;
                ends.push(at);
            }
        }
        assert_eq!(ends.len(), 3 + 2 * 5);
        let cuts = (1..two.len()).filter(|&cut| {
            let is_near = ends.iter().any(|end| cut.abs_diff(*end) < 8);
            cut != frame.len() && (is_near || cut % 101 == 0)
        });
        for cut in cuts {
            assert!(decode(&two[..cut]).is_err(), "cut at {cut} of {}", two.len());
        }
    }
}
