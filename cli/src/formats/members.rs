//! Decodes the files of other programs: members of gzip, streams of bzip2 and xz, frames of zstd and LZ4, one after
//! another. Zeros may follow the last one, since tapes, disks and archivers fill their last block.

use std::io::{self, BufRead, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{Error as XzError, Stream};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation};
use zstd::zstd_safe::get_dict_id_from_frame;

use super::ahead::Ahead;
use super::{Format, HEAD, lz4, skippable_len};
use crate::failure::{Failure, describe_io};

/// First bytes of the skippable frame that holds the dictionary of a `.warc.zst` file.
const DICTIONARY_MAGIC: [u8; 4] = [0x5d, 0x2a, 0x4d, 0x18];
/// The most bytes of a dictionary. zstd makes dictionaries a thousandth of this size.
const MAX_DICTIONARY: u64 = 64 << 20;

/// The longest header of a frame of zstd, in bytes.
const MAX_ZSTD_HEADER: usize = 18;

/// The members of a file.
pub struct Members<R: Read> {
    /// The format of the current member.
    format: Format,
    state: State<R>,
    /// Whether no member has begun.
    is_at_start: bool,
    /// The most memory to take, in bytes.
    memory: u64,
    /// Decodes zstd's frames; knows the file's dictionary.
    zstd: Option<ZstdDecoder<'static>>,
}

enum State<R: Read> {
    /// Before a member, or at the end.
    Between(Ahead<R>),
    In(Box<Member<R>>),
    /// An error has been returned.
    Failed,
}

/// The decoder of a member.
enum Member<R: Read> {
    Gzip(GzDecoder<Ahead<R>>),
    Bzip2(BzDecoder<Ahead<R>>),
    Xz(XzDecoder<Ahead<R>>),
    Zstd {
        input: Ahead<R>,
        /// The number of bytes that the decoder takes next.
        wanted: usize,
        /// The number of the dictionary that the frame names, if any.
        dictionary: Option<u32>,
    },
    Lz4(Ahead<R>, lz4::Frame),
}

/// Why a member cannot be decoded.
pub enum Fault {
    /// The file ends inside it.
    Truncated,
    /// It breaks a rule of its format.
    Corrupt(String),
    /// It needs a dictionary. The number is that of the dictionary, if the file tells it.
    Dictionary(Option<u32>),
    /// It needs more memory than is permitted.
    LimitMemory,
    /// The system refused memory.
    OutOfMemory,
    /// Reading failed.
    Read(io::Error),
}

impl Fault {
    pub fn corrupt(what: &str) -> Self {
        Fault::Corrupt(what.to_string())
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Truncated,
            _ => Fault::Read(error),
        }
    }
}

impl<R: Read> Members<R> {
    /// Prepares to decode a file that begins with a member of this format.
    pub fn new(format: Format, input: R, memory: u64) -> Self {
        let state = State::Between(Ahead::new(input));
        Members { format, state, is_at_start: true, memory, zstd: None }
    }

    /// Decodes more of the contents. Returns 0 at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        loop {
            match std::mem::replace(&mut self.state, State::Failed) {
                State::Between(mut input) => match self.find_member(&mut input) {
                    Ok(false) => {
                        self.state = State::Between(input);
                        return Ok(0);
                    }
                    Ok(true) => {
                        let position = input.position();
                        let member = self.begin(input);
                        let explain = |fault| self.explain(fault, position);
                        self.state = State::In(member.map_err(explain)?);
                    }
                    Err(fault) => return Err(self.explain(fault, input.position())),
                },
                State::In(mut member) => match member.read(&mut self.zstd, buffer) {
                    Ok(0) => self.state = State::Between(member.into_input()),
                    Ok(count) => {
                        self.state = State::In(member);
                        return Ok(count);
                    }
                    Err(fault) => return Err(self.explain(fault, member.into_input().position())),
                },
                State::Failed => return Err(Failure::input("decoding failed earlier")),
            }
        }
    }

    /// Goes to the next member, and notes its format. Returns false at the end of the file.
    fn find_member(&mut self, input: &mut Ahead<R>) -> Result<bool, Fault> {
        loop {
            if !self.is_at_start {
                let (zeros, is_at_end) = input.skip_zeros()?;
                if is_at_end {
                    return Ok(false);
                }
                // Only streams of xz may have padding between them.
                if zeros > 0 && !(self.format == Format::Xz && zeros.is_multiple_of(4)) {
                    return Err(self.trailing());
                }
            }
            let is_first = std::mem::replace(&mut self.is_at_start, false);
            let head = input.ahead(HEAD)?;
            if let Some(len) = skippable_len(head)
                && self.format.has_skippable_frames()
            {
                if is_first && head.starts_with(&DICTIONARY_MAGIC) {
                    self.load_dictionary(input, len)?;
                } else if io::copy(&mut input.take(8 + len), &mut io::sink())? < 8 + len {
                    return Err(Fault::Truncated);
                }
                continue;
            }
            let format = Format::of(head);
            if format == self.format
                || format.has_skippable_frames() && self.format.has_skippable_frames()
            {
                self.format = format;
                return Ok(true);
            }
            let is_cut = head.len() < HEAD && self.format.magic().starts_with(head);
            return Err(if is_cut { Fault::Truncated } else { self.trailing() });
        }
    }

    fn trailing(&self) -> Fault {
        Fault::Corrupt(format!("trailing bytes are neither {} nor zeros", self.format.name()))
    }

    /// Reads a skippable frame that holds a dictionary of `len` bytes, which may be compressed.
    fn load_dictionary(&mut self, input: &mut Ahead<R>, len: u64) -> Result<(), Fault> {
        let most = MAX_DICTIONARY.min(self.memory / 4);
        if len > most {
            return Err(Fault::LimitMemory);
        }
        let mut frame = Vec::new();
        frame.try_reserve_exact(8 + len as usize).map_err(|_| Fault::OutOfMemory)?;
        input.take(8 + len).read_to_end(&mut frame)?;
        let Some(stored) = frame.get(8..8 + len as usize) else { return Err(Fault::Truncated) };
        let dictionary = if Format::of(stored) == Format::Zstd {
            let mut plain = Vec::new();
            let mut decoder = zstd::Decoder::with_buffer(stored)?.take(most + 1);
            let unpacked = decoder.read_to_end(&mut plain);
            unpacked.map_err(|_| Fault::corrupt("the file's dictionary cannot be decoded"))?;
            plain
        } else {
            stored.to_vec()
        };
        if dictionary.len() as u64 > most {
            return Err(Fault::LimitMemory);
        }
        self.zstd = Some(self.zstd_decoder(&dictionary)?);
        Ok(())
    }

    fn zstd_decoder(&self, dictionary: &[u8]) -> Result<ZstdDecoder<'static>, Fault> {
        let mut decoder =
            ZstdDecoder::with_dictionary(dictionary).map_err(|error| of_zstd(&error))?;
        // Nearly all of the decoder's memory is the window.
        let window_log = self.memory.max(1).ilog2().clamp(10, 31);
        let set = decoder.set_parameter(DParameter::WindowLogMax(window_log));
        set.map_err(|error| of_zstd(&error))?;
        Ok(decoder)
    }

    /// Prepares to decode the member that begins here.
    fn begin(&mut self, mut input: Ahead<R>) -> Result<Box<Member<R>>, Fault> {
        Ok(Box::new(match self.format {
            Format::Gzip => Member::Gzip(GzDecoder::new(input)),
            Format::Bzip2 => Member::Bzip2(BzDecoder::new(input)),
            Format::Xz => {
                let stream = Stream::new_stream_decoder(self.memory, 0);
                let stream = stream.map_err(|error| of_xz(&error))?;
                Member::Xz(XzDecoder::new_stream(input, stream))
            }
            Format::Lz4 => {
                let frame = lz4::Frame::begin(&mut input)?;
                Member::Lz4(input, frame)
            }
            _ => {
                if self.zstd.is_none() {
                    self.zstd = Some(self.zstd_decoder(&[])?);
                }
                let head = input.ahead(MAX_ZSTD_HEADER)?;
                let dictionary = get_dict_id_from_frame(head).map(Into::into);
                Member::Zstd { input, wanted: HEAD, dictionary }
            }
        }))
    }

    fn explain(&self, fault: Fault, position: u64) -> Failure {
        let name = self.format.name();
        match fault {
            Fault::Truncated => Failure::input(format!("truncated {name} file (byte {position})")),
            Fault::Corrupt(what) => {
                let place = format!("at or before byte {position}");
                Failure::input(format!("corrupt {name} file: {what} ({place})"))
            }
            Fault::Dictionary(id) => {
                let id = id.map_or(String::new(), |id| format!(" {id}"));
                Failure::input(format!(
                    "needs the dictionary{id} that this {name} file was made with"
                ))
            }
            Fault::LimitMemory => Failure::environment(format!(
                "needs more than {} bytes of memory; -M raises the limit",
                self.memory
            )),
            Fault::OutOfMemory => Failure::environment("the system refused memory"),
            Fault::Read(error) => Failure::from(error),
        }
    }
}

impl<R: Read> Member<R> {
    /// Decodes more of the member. Returns 0 at its end.
    fn read(
        &mut self,
        zstd: &mut Option<ZstdDecoder<'static>>,
        buffer: &mut [u8],
    ) -> Result<usize, Fault> {
        match self {
            Member::Gzip(decoder) => {
                let read = decoder.read(buffer);
                read.map_err(|error| of_library(error, decoder.get_ref().failed()))
            }
            Member::Bzip2(decoder) => {
                let read = decoder.read(buffer);
                read.map_err(|error| of_library(error, decoder.get_ref().failed()))
            }
            Member::Xz(decoder) => {
                let read = decoder.read(buffer);
                read.map_err(|error| of_library(error, decoder.get_ref().failed()))
            }
            Member::Zstd { input, wanted, dictionary } => match zstd {
                Some(decoder) => {
                    read_zstd(decoder, input, wanted, buffer).map_err(|fault| match fault {
                        Fault::Dictionary(_) => Fault::Dictionary(*dictionary),
                        fault => fault,
                    })
                }
                None => Ok(0),
            },
            Member::Lz4(input, frame) => frame.read(input, buffer),
        }
    }

    fn into_input(self) -> Ahead<R> {
        match self {
            Member::Gzip(decoder) => decoder.into_inner(),
            Member::Bzip2(decoder) => decoder.into_inner(),
            Member::Xz(decoder) => decoder.into_inner(),
            Member::Zstd { input, .. } | Member::Lz4(input, _) => input,
        }
    }
}

/// Decodes more of a zstd frame; 0 bytes at its end. Gives the decoder one block at a time: if a block is damaged, the
/// contents of those before it have been returned.
fn read_zstd<R: Read>(
    decoder: &mut ZstdDecoder<'static>,
    input: &mut Ahead<R>,
    wanted: &mut usize,
    buffer: &mut [u8],
) -> Result<usize, Fault> {
    while *wanted > 0 {
        let held = input.fill_buf()?;
        let is_at_end = held.is_empty();
        let given = &held[..held.len().min(*wanted)];
        let step = decoder.run_on_buffers(given, buffer).map_err(|error| of_zstd(&error))?;
        input.consume(step.bytes_read);
        *wanted = step.remaining;
        if step.bytes_written > 0 {
            return Ok(step.bytes_written);
        }
        if is_at_end && *wanted > 0 {
            return Err(Fault::Truncated);
        }
    }
    Ok(0)
}

/// The meaning of an error of a library. `is_reading` says that reading failed.
fn of_library(error: io::Error, is_reading: bool) -> Fault {
    if is_reading {
        return Fault::Read(error);
    }
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<XzError>()) {
        return of_xz(error);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Fault::Truncated,
        io::ErrorKind::OutOfMemory => Fault::OutOfMemory,
        _ => {
            let text = describe_io(&error);
            Fault::corrupt(text.strip_prefix("bzip2: ").unwrap_or(&text))
        }
    }
}

fn of_xz(error: &XzError) -> Fault {
    match error {
        XzError::MemLimit => Fault::LimitMemory,
        XzError::Mem => Fault::OutOfMemory,
        error => Fault::Corrupt(error.to_string()),
    }
}

/// zstd's errors are only text.
fn of_zstd(error: &io::Error) -> Fault {
    let text = error.to_string();
    match &*text {
        "Dictionary mismatch" => Fault::Dictionary(None),
        _ if text.contains("too much memory") => Fault::LimitMemory,
        _ if text.contains("not enough memory") || text.contains("could not allocate") => {
            Fault::OutOfMemory
        }
        _ => Fault::Corrupt(text),
    }
}
