//! Frames of LZ4: those of its frame format, and the legacy ones that `lz4 -l` and Linux's build make.
//!
//! The library decodes only the blocks. Its own frame reader takes a file that is cut between two blocks for complete,
//! takes an empty block for the end, and refuses legacy frames with blocks that did not shrink.

use std::hash::Hasher;
use std::io::Read;
use std::ops::Range;

use lz4_flex::block::{decompress_into, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::ahead::Ahead;
use super::members::Fault;

/// First bytes of a frame.
pub const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// First bytes of a legacy frame.
pub const LEGACY_MAGIC: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];

/// How far back blocks refer to those before them.
const WINDOW: usize = 64 << 10;
/// The most contents of a legacy block.
const LEGACY_BLOCK: usize = 8 << 20;
/// The longest legacy block: a block that cannot be compressed grows a little. A larger number in place of a block's
/// length is the magic of what follows.
const MAX_LEGACY_LEN: usize = LEGACY_BLOCK + LEGACY_BLOCK / 255 + 16;

/// A decoder of one frame.
pub struct Frame {
    is_legacy: bool,
    has_block_checksums: bool,
    /// Whether blocks may refer to those before them.
    is_linked: bool,
    /// Checksum of the contents so far, if the frame ends with one.
    content_hash: Option<XxHash32>,
    /// Length of the remaining contents, if the header records it.
    left: Option<u64>,
    /// The most contents of a block.
    block_size: usize,
    /// The coded block.
    payload: Vec<u8>,
    /// In the first [`WINDOW`] bytes, the contents that the next block may refer to; then the last block.
    contents: Vec<u8>,
    /// Length of that window.
    window: usize,
    /// The part of the last block that has not been passed on.
    unread: Range<usize>,
    is_over: bool,
}

impl Frame {
    /// Reads the header of the frame that begins here.
    pub fn begin<R: Read>(input: &mut Ahead<R>) -> Result<Self, Fault> {
        let magic: [u8; 4] = array(input)?;
        let mut frame = Frame {
            is_legacy: true,
            has_block_checksums: false,
            is_linked: false,
            content_hash: None,
            left: None,
            block_size: LEGACY_BLOCK,
            payload: Vec::new(),
            contents: Vec::new(),
            window: 0,
            unread: WINDOW..WINDOW,
            is_over: false,
        };
        let mut most = MAX_LEGACY_LEN;
        if magic != LEGACY_MAGIC {
            frame.read_header(input)?;
            most = frame.block_size;
        }
        let refused = |_| Fault::OutOfMemory;
        frame.payload.try_reserve_exact(most).map_err(refused)?;
        frame.contents.try_reserve_exact(WINDOW + frame.block_size).map_err(refused)?;
        frame.payload.resize(most, 0);
        frame.contents.resize(WINDOW + frame.block_size, 0);
        Ok(frame)
    }

    fn read_header<R: Read>(&mut self, input: &mut Ahead<R>) -> Result<(), Fault> {
        let mut hash = XxHash32::with_seed(0);
        let descriptor: [u8; 2] = array(input)?;
        hash.write(&descriptor);
        let [flags, sizes] = descriptor;
        if flags >> 6 != 1 || flags & 2 != 0 || sizes & 0x8f != 0 || sizes >> 4 < 4 {
            return Err(Fault::corrupt("the header of an LZ4 frame is not valid"));
        }
        self.is_legacy = false;
        self.is_linked = flags & 0x20 == 0;
        self.has_block_checksums = flags & 0x10 != 0;
        self.content_hash = (flags & 4 != 0).then(|| XxHash32::with_seed(0));
        self.block_size = 1 << (8 + 2 * (sizes >> 4));
        if flags & 8 != 0 {
            let size: [u8; 8] = array(input)?;
            hash.write(&size);
            self.left = Some(u64::from_le_bytes(size));
        }
        let mut dictionary = None;
        if flags & 1 != 0 {
            let id: [u8; 4] = array(input)?;
            hash.write(&id);
            dictionary = Some(u32::from_le_bytes(id));
        }
        let [check] = array(input)?;
        if check != (hash.finish_32() >> 8) as u8 {
            return Err(Fault::corrupt("the checksum of an LZ4 frame's header does not agree"));
        }
        dictionary.map_or(Ok(()), |id| Err(Fault::Dictionary(Some(id))))
    }

    /// Decodes more of the frame from `input`. Returns 0 at its end.
    pub fn read<R: Read>(
        &mut self,
        input: &mut Ahead<R>,
        buffer: &mut [u8],
    ) -> Result<usize, Fault> {
        while self.unread.is_empty() && !self.is_over {
            self.next_block(input)?;
        }
        let n = self.unread.len().min(buffer.len());
        buffer[..n].copy_from_slice(&self.contents[self.unread.start..][..n]);
        self.unread.start += n;
        Ok(n)
    }

    /// Decodes the next block, or finds the end of the frame.
    fn next_block<R: Read>(&mut self, input: &mut Ahead<R>) -> Result<(), Fault> {
        let field = match *input.ahead(4)? {
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            [] if self.is_legacy => 0,
            _ => return Err(Fault::Truncated),
        };
        // Nothing marks the end of a legacy frame: padding, another frame, or the end of the file follows.
        if self.is_legacy && (field == 0 || field as usize > MAX_LEGACY_LEN) {
            self.is_over = true;
            return Ok(());
        }
        let _: [u8; 4] = array(input)?;
        if field == 0 {
            return self.end(input);
        }
        let is_stored = !self.is_legacy && field >> 31 == 1;
        let len = if is_stored { field & (u32::MAX >> 1) } else { field } as usize;
        let payload =
            self.payload.get_mut(..len).ok_or(Fault::corrupt("an LZ4 block is too long"))?;
        input.read_exact(payload)?;
        if self.has_block_checksums && array(input)? != XxHash32::oneshot(0, payload).to_le_bytes()
        {
            return Err(Fault::corrupt("the checksum of an LZ4 block does not agree"));
        }
        if self.is_linked {
            let last = self.unread.end - WINDOW;
            self.contents.copy_within(last..WINDOW + last, 0);
            self.window = WINDOW.min(self.window + last);
        }
        let (window, contents) = self.contents.split_at_mut(WINDOW);
        let window = &window[WINDOW - self.window..];
        let decoded = if is_stored {
            contents[..len].copy_from_slice(payload);
            Ok(len)
        } else if window.is_empty() {
            decompress_into(payload, contents)
        } else {
            decompress_into_with_dict(payload, contents, window)
        };
        let n = decoded.map_err(|_| Fault::corrupt("an LZ4 block is not valid"))?;
        if let Some(hash) = &mut self.content_hash {
            hash.write(&contents[..n]);
        }
        if let Some(left) = &mut self.left {
            let short = Fault::corrupt("an LZ4 frame is longer than its header says");
            *left = left.checked_sub(n as u64).ok_or(short)?;
        }
        self.unread = WINDOW..WINDOW + n;
        Ok(())
    }

    /// Checks the end of a frame.
    fn end<R: Read>(&mut self, input: &mut Ahead<R>) -> Result<(), Fault> {
        self.is_over = true;
        if self.left.is_some_and(|left| left > 0) {
            return Err(Fault::corrupt("an LZ4 frame is shorter than its header says"));
        }
        if let Some(hash) = &self.content_hash
            && array(input)? != hash.finish_32().to_le_bytes()
        {
            return Err(Fault::corrupt("the checksum of an LZ4 frame's contents does not agree"));
        }
        Ok(())
    }
}

/// Takes the next `N` bytes.
fn array<const N: usize, R: Read>(input: &mut Ahead<R>) -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}
