//! Reads frames in order, and leaves the decoding of payloads to others.

use std::io::{self, Read, Seek};

use crate::error::{Error, Place};
use crate::format::{
    BlockHeader, CHECKSUM_LEN, Fault, FrameHeader, IndexChecker, NextStructure, Single, read_next,
};
use crate::pipeline::buffer::Buffer;

/// The next structure.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A frame begins.
    Frame(FrameHeader),
    /// A block's header has been read. The caller next reads or skips its payload. A single frame's checksums follow
    /// the payload, so use the header that [`FrameReader::payload`] returns.
    Block(BlockHeader, Place),
    /// A frame has ended. Its index and footer, if it has them, agree with its blocks.
    FrameEnd,
    /// The input has ended, after a whole frame and any padding.
    End,
}

/// Goes from structure to structure, and checks each against what came before.
pub(crate) struct FrameReader<R> {
    source: CountingReader<R>,
    /// Frames that have ended.
    frames: u64,
    open: Option<CurrentFrame>,
}

struct CurrentFrame {
    header: FrameHeader,
    start: u64,
    index: IndexChecker,
}

impl<R: Read> FrameReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self::from(inner, 0, 0)
    }

    /// Starts with frame `number` of a file. `inner` is at `offset`, where that frame begins.
    pub(crate) fn from(inner: R, number: u64, offset: u64) -> Self {
        Self { source: CountingReader { inner, position: offset }, frames: number, open: None }
    }

    /// The place of the current frame, or of the next if none is open.
    pub(crate) fn place(&self) -> Place {
        let offset = self.open.as_ref().map_or(self.source.position, |open| open.start);
        Place::new(self.frames, offset)
    }

    /// The position in the file: bytes read or skipped so far.
    pub(crate) fn position(&self) -> u64 {
        self.source.position
    }

    pub(crate) fn into_inner(self) -> R {
        self.source.inner
    }

    /// Reads the next structure and checks it.
    pub(crate) fn next(&mut self) -> Result<Event, Error> {
        let place = Place::new(self.frames, self.source.position);
        let Some(open) = &mut self.open else {
            let first = self.skip_padding()?;
            let mut from_first = first.as_slice().chain(&mut self.source);
            return match FrameHeader::read(&mut from_first).map_err(|fault| fault.at(place))? {
                Some((header, _)) => {
                    self.open = Some(CurrentFrame {
                        header: header.clone(),
                        start: place.offset,
                        index: IndexChecker::new(),
                    });
                    Ok(Event::Frame(header))
                }
                None if self.frames == 0 => Err(Error::Truncated { place }),
                None => Ok(Event::End),
            };
        };
        if let Some(single) = open.header.single {
            return self.next_of_single(single, place);
        }
        let number = open.index.block_count();
        let in_block = place.in_block(number);
        match read_next(&mut self.source).map_err(|fault| fault.at(in_block))? {
            NextStructure::Block(header) => {
                header
                    .check(&open.header, number)
                    .and_then(|()| {
                        open.index.push(header.block_len(), header.content_len, &open.header)
                    })
                    .map_err(|fault| fault.at(in_block))?;
                Ok(Event::Block(header, in_block))
            }
            NextStructure::Index => {
                let before = place.offset - open.start;
                open.index
                    .finish(&mut self.source, &open.header, before)
                    .map_err(|fault| fault.at(place))?;
                self.open = None;
                self.frames += 1;
                Ok(Event::FrameEnd)
            }
        }
    }

    /// After a frame, reads the padding, if there is any, up to the end of the input. If another frame follows, returns
    /// its first byte. Before the first frame, reads nothing.
    fn skip_padding(&mut self) -> Result<Option<u8>, Error> {
        if self.frames == 0 {
            return Ok(None);
        }
        let mut buffer = [0];
        if self.source.read_more(&mut buffer)? == 0 {
            return Ok(None);
        }
        if buffer != [0] {
            return Ok(Some(buffer[0]));
        }
        let mut buffer = [0; 1 << 13];
        loop {
            let at = self.source.position;
            let n = self.source.read_more(&mut buffer)?;
            if n == 0 {
                return Ok(None);
            }
            if let Some(other) = buffer[..n].iter().position(|&byte| byte != 0) {
                return Err(Fault::NotPz.at(Place::new(self.frames, at + other as u64)));
            }
        }
    }

    /// The next event in a single frame.
    fn next_of_single(&mut self, single: Single, place: Place) -> Result<Event, Error> {
        let Some(open) = &mut self.open else { return Err(NO_FRAME) };
        if single.content_len > 0 && open.index.block_count() == 0 {
            let block = single.block(&open.header);
            let place = place.in_block(0);
            open.index
                .push(block.payload_len, block.content_len, &open.header)
                .map_err(|fault| fault.at(place))?;
            return Ok(Event::Block(block, place));
        }
        // If the frame has a block, the checksum was read with its payload.
        if single.content_len == 0 && self.checksum(place)? != single.header_crc.to_le_bytes() {
            return Err(Fault::Corrupt("the frame's checksum does not agree").at(place));
        }
        self.open = None;
        self.frames += 1;
        Ok(Event::FrameEnd)
    }

    /// If the current frame is a single frame, its header, and what that says about the block.
    fn single(&self) -> Option<(&FrameHeader, Single)> {
        self.open.as_ref().and_then(|open| Some((&open.header, open.header.single?)))
    }

    /// Reads the checksum at the end of a single frame.
    fn checksum(&mut self, place: Place) -> Result<[u8; CHECKSUM_LEN], Error> {
        let mut checksum = [0; CHECKSUM_LEN];
        self.source.read_exact(&mut checksum).map_err(|error| Fault::from(error).at(place))?;
        Ok(checksum)
    }

    /// Reads into `buffer` the payload of the block that [`FrameReader::next`] returned. Returns the block's header
    /// with its checksums.
    pub(crate) fn payload(
        &mut self,
        header: &BlockHeader,
        place: Place,
        buffer: &mut Buffer,
    ) -> Result<BlockHeader, Error> {
        buffer
            .read_exact(&mut self.source, header.payload_len as usize)
            .map_err(|fault| fault.at(place))?;
        if self.single().is_none() {
            return Ok(*header);
        }
        let checksum = self.checksum(place)?;
        let (frame, single) = self.single().ok_or(NO_FRAME)?;
        Ok(single.sealed_block(frame, buffer, checksum))
    }
}

const NO_FRAME: Error = Error::Internal { what: "no frame is open" };

impl<R: Read + Seek> FrameReader<R> {
    /// Skips the payload of the block that [`FrameReader::next`] returned. If the input ends inside it, reading the
    /// next structure fails.
    pub(crate) fn skip_payload(&mut self, header: &BlockHeader, place: Place) -> Result<(), Error> {
        let len = i64::from(header.payload_len);
        self.source.inner.seek_relative(len)?;
        self.source.position += u64::from(header.payload_len);
        if self.single().is_some() {
            self.checksum(place)?;
        }
        Ok(())
    }
}

/// A reader that counts its position.
struct CountingReader<R> {
    inner: R,
    position: u64,
}

impl<R: Read> CountingReader<R> {
    /// Reads at least one byte, unless the input has ended.
    fn read_more(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        loop {
            match self.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return Ok(read?),
            }
        }
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.position += n as u64;
        Ok(n)
    }
}
