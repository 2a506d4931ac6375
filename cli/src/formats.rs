//! The formats of other programs: recognises them by their first bytes and decodes them with their own libraries.

use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::bufread::GzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use lz4_flex::frame::FrameDecoder;
use pz::{DecodeOptions, Decoder};

use crate::failure::{Failure, describe_io};
use crate::settings::DecodeSettings;
use crate::sizes::ByteRange;
use crate::source::Source;

/// A file format that the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Ours, or anything unknown: our decoder reports what is wrong with it.
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
}

/// Number of first bytes that [`Format::of`] needs.
const HEAD: usize = 6;
/// Bytes that [`copy`] reads and writes at a time.
const CHUNK: usize = 1 << 20;
/// Bytes that the LZ4 library needs to decode the largest blocks.
const LZ4_MEMORY: usize = 12 << 20;

impl Format {
    /// Recognises a format by a file's first bytes.
    pub fn of(head: &[u8]) -> Format {
        match head {
            [0x1f, 0x8b, ..] => Format::Gzip,
            // A zstd file may begin with a skippable frame.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Format::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Format::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Format::Xz,
            [0x04, 0x22, 0x4d, 0x18, ..] => Format::Lz4,
            _ => Format::Pz,
        }
    }

    /// Recognises the format of a source from which nothing has been read.
    pub fn detect(source: &mut Source) -> io::Result<Format> {
        source.peek(HEAD).map(Format::of)
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
        }
    }
}

/// Decodes `source` from its beginning to the end of `range`, writes the contents that lie in the range to
/// `writer`, and returns how many bytes it wrote.
pub fn decode(
    format: Format,
    source: &mut Source,
    writer: &mut dyn Write,
    range: ByteRange,
    settings: &DecodeSettings,
) -> Result<u64, Failure> {
    let outcome = copy(open(format, source, settings)?, writer, range);
    match outcome {
        Ok(end) if end < range.from => Err(past_the_end(end)),
        Ok(end) => Ok(end - range.from),
        Err(Side::Writing(error)) => Err(Failure::from(error)),
        Err(Side::Reading(error)) if format == Format::Pz || source.failed() => {
            Err(Failure::from(error))
        }
        Err(Side::Reading(error)) if wants_memory(&error) => Err(Failure::environment(format!(
            "needs more than {} bytes of memory; -M raises the limit",
            settings.memory
        ))),
        Err(Side::Reading(error)) if is_out_of_memory(&error) => {
            Err(Failure::environment("the system refused memory"))
        }
        Err(Side::Reading(error)) => Err(Failure::input(explain(format, source, &error))),
    }
}

/// The failure for a range that begins after the end of the contents.
pub fn past_the_end(len: u64) -> Failure {
    Failure::environment(format!("the range begins after the end of the contents ({len} bytes)"))
}

/// Prepares to decode our own format. Where the source permits it, several threads read it.
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

fn open<'a>(
    format: Format,
    source: &'a mut Source,
    settings: &DecodeSettings,
) -> Result<Box<dyn Read + 'a>, Failure> {
    if format == Format::Pz {
        return Ok(Box::new(decoder(source, &settings.options)?));
    }
    let reader = BufReader::with_capacity(CHUNK, source);
    let is_lz4 = format == Format::Lz4;
    if is_lz4 && Vec::<u8>::new().try_reserve_exact(LZ4_MEMORY).is_err() {
        return Err(Failure::from(pz::Error::OutOfMemory { needed: LZ4_MEMORY as u64 }));
    }
    Ok(match format {
        Format::Pz | Format::Gzip => Box::new(GzipMembers::new(reader)),
        Format::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(reader)?;
            // Nearly all of its memory is the window.
            decoder.window_log_max(settings.memory.max(1).ilog2().clamp(10, 31))?;
            Box::new(decoder)
        }
        Format::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(reader)),
        Format::Xz => {
            let stream = Stream::new_stream_decoder(settings.memory, CONCATENATED);
            let stream = stream.map_err(|error| Failure::bug(format!("liblzma: {error}")))?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(reader, stream))
        }
        Format::Lz4 => Box::new(Lz4Frames::new(reader)),
    })
}

/// The side of a copy that failed.
enum Side {
    Reading(io::Error),
    Writing(io::Error),
}

/// Copies a range; returns the position in the contents at which it stopped.
fn copy(
    mut reader: Box<dyn Read + '_>,
    writer: &mut dyn Write,
    range: ByteRange,
) -> Result<u64, Side> {
    let mut buffer = vec![0; CHUNK];
    let mut position = 0u64;
    let to = range.to.unwrap_or(u64::MAX);
    while position < to {
        // Fill the chunk first, since each write is a system call.
        let filled = fill(&mut reader, &mut buffer).map_err(Side::Reading)?;
        if filled == 0 {
            break;
        }
        // Leave out the bytes of the chunk that lie before or after the range.
        let skip = range.from.saturating_sub(position).min(filled as u64) as usize;
        let end = (to - position).min(filled as u64) as usize;
        if skip < end {
            writer.write_all(&buffer[skip..end]).map_err(Side::Writing)?;
        }
        position += end as u64;
    }
    Ok(position)
}

/// Reads until `buffer` is full or the input ends.
fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Whether a decoder stopped at our memory limit.
fn wants_memory(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<liblzma::stream::Error>());
    matches!(inner, Some(liblzma::stream::Error::MemLimit))
        // zstd's errors are only text.
        || error.to_string().contains("too much memory")
}

/// Whether the system refused a decoder memory that our limit allows.
fn is_out_of_memory(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<liblzma::stream::Error>());
    matches!(inner, Some(liblzma::stream::Error::Mem))
        || error.kind() == io::ErrorKind::OutOfMemory
        // From zstd and bzip2.
        || error.to_string().contains("not enough memory")
        || error.to_string().contains("out of memory")
}

fn explain(format: Format, source: &Source, error: &io::Error) -> String {
    let (name, place) = (format.name(), source.bytes_read());
    match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("truncated {name} file (byte {place})"),
        _ => format!("corrupt {name} file: {} (at or before byte {place})", describe_io(error)),
    }
}

/// Decodes all members of a gzip file, one after another. Like `gzip`, it accepts zeros at the end, since tapes and
/// disks pad a file's last block. Anything else after a member is an error.
struct GzipMembers<R: BufRead> {
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipMembers<R> {
    fn new(inner: R) -> Self {
        GzipMembers { member: Some(GzDecoder::new(inner)) }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let inner = self.member.take().map(GzDecoder::into_inner);
            self.member = inner.map(next_member).transpose()?.flatten();
        }
        Ok(0)
    }
}

/// The member that begins at the reader's position; `None` if only zeros follow.
fn next_member<R: BufRead>(mut reader: R) -> io::Result<Option<GzDecoder<R>>> {
    let mut after_zeros = false;
    loop {
        let ahead = reader.fill_buf()?;
        let zeros = ahead.iter().take_while(|&&byte| byte == 0).count();
        match ahead.get(zeros) {
            None if zeros == 0 => return Ok(None),
            None => {
                after_zeros = true;
                reader.consume(zeros);
            }
            Some(0x1f) if zeros == 0 && !after_zeros => return Ok(Some(GzDecoder::new(reader))),
            Some(_) => {
                let what = "trailing bytes are neither gzip nor zeros";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
    }
}

/// Decodes all frames of an LZ4 file, one after another. Each frame gets its own decoder, because the library's
/// decoder expects every frame to have the first one's block size.
///
/// The library also takes the end of the input for the end of a frame, and so would accept a file cut between two
/// blocks. We detect that: the decoder of a complete frame stops before it sees the end of the input.
struct Lz4Frames<R: Read> {
    decoder: Option<FrameDecoder<EndWatch<R>>>,
}

/// Notes whether the input has ended, and whether anything was read since the last frame.
struct EndWatch<R> {
    inner: R,
    ended: bool,
    read_since_frame: bool,
}

impl<R: Read> Lz4Frames<R> {
    fn new(inner: R) -> Self {
        let watch = EndWatch { inner, ended: false, read_since_frame: false };
        Lz4Frames { decoder: Some(FrameDecoder::new(watch)) }
    }
}

impl<R: Read> Read for EndWatch<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.ended |= count == 0 && !buffer.is_empty();
        self.read_since_frame |= count > 0;
        Ok(count)
    }
}

impl<R: Read> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let count = decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let watch = self.decoder.take().map(FrameDecoder::into_inner);
            self.decoder = match watch {
                Some(EndWatch { ended: true, read_since_frame: true, .. }) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Some(EndWatch { ended: false, inner, .. }) => Lz4Frames::new(inner).decoder,
                _ => None,
            };
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic() {
        for (head, format) in [
            (&b"\x1f\x8b\x08\x00"[..], Format::Gzip),
            (b"\x28\xb5\x2f\xfd", Format::Zstd),
            (b"\x50\x2a\x4d\x18", Format::Zstd),
            (b"BZh91A", Format::Bzip2),
            (b"BZh01A", Format::Pz),
            (b"\xfd7zXZ\x00", Format::Xz),
            (b"\x04\x22\x4d\x18", Format::Lz4),
            (b"", Format::Pz),
            (b"plain text", Format::Pz),
        ] {
            assert_eq!(Format::of(head), format, "{head:x?}");
        }
    }

    /// The library alone accepts a file cut between blocks.
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
            let mut out = Vec::new();
            Lz4Frames::new(bytes).read_to_end(&mut out).map(|_| out)
        };
        assert!(decode(&two).unwrap() == [&contents[..], &contents[..]].concat());
        // Where blocks and frames end: each block's length comes before it, and the frame's header takes 7 bytes.
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
