//! Decides whether a decoder would accept a frame.

use std::io::{Read, Seek};

use super::walk::Walk;
use super::{Item, What};
use crate::error::Error;
use crate::format::{CHECKSUM_LEN, Fault, FrameHeader, INDEX_MARKER, IndexChecker};
use crate::stream::window::ReadFrom;

/// Applies the rules of a decoder to each structure, with the decoder's own code.
#[derive(Default)]
pub(super) struct Tracker {
    open: Option<Tracked>,
}

struct Tracked {
    start: u64,
    header: FrameHeader,
    index: IndexChecker,
    /// Whether all structures so far were regular.
    is_regular: bool,
}

/// A frame whose header has been read and whose end has not.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenFrame {
    pub(super) start: u64,
    /// Regular blocks so far.
    pub(super) blocks: u64,
}

impl Tracker {
    pub(super) fn open_frame(&self) -> Option<OpenFrame> {
        let open = self.open.as_ref()?;
        Some(OpenFrame { start: open.start, blocks: open.index.block_count() })
    }

    /// Records the next structure, and returns whether a decoder would accept it there.
    pub(super) fn observe(
        &mut self,
        item: &Item,
        walk: &mut Walk,
        reader: &mut (impl Read + Seek),
    ) -> Result<bool, Error> {
        match (&item.what, &mut self.open) {
            (What::Frame(header), open) => {
                let is_regular = open.is_none();
                let index = IndexChecker::new();
                let header = header.clone();
                *open = Some(Tracked { start: item.start, header, index, is_regular: true });
                Ok(is_regular)
            }
            (What::Single { single, len, .. }, open) => {
                let is_between = open.take().is_none();
                let is_whole = item.end - item.start == *len;
                if !is_whole || single.content_len > 0 {
                    // Decoding will check the block itself.
                    return Ok(is_between && is_whole);
                }
                let at = item.end - CHECKSUM_LEN as u64;
                let checksum = walk.window.at(reader, at, CHECKSUM_LEN)?;
                Ok(is_between && checksum == single.header_crc.to_le_bytes())
            }
            (What::Block(header), Some(open)) if open.is_regular => {
                let number = open.index.block_count();
                let is_whole = item.end - item.start == u64::from(header.block_len());
                open.is_regular = is_whole
                    && header.check(&open.header, number).is_ok()
                    && open
                        .index
                        .push(header.block_len(), header.content_len, &open.header)
                        .is_ok();
                Ok(open.is_regular)
            }
            (What::End(_), Some(open)) if open.is_regular => {
                let at = item.start + INDEX_MARKER.len() as u64;
                let before = item.start - open.start;
                let mut index = ReadFrom { window: &mut walk.window, reader, at };
                let outcome = open.index.finish(&mut index, &open.header, before);
                self.open = None;
                match outcome {
                    Ok(()) => Ok(true),
                    Err(Fault::Io(error)) => Err(error.into()),
                    Err(_) => Ok(false),
                }
            }
            (What::End(_), open) => {
                *open = None;
                Ok(false)
            }
            (What::Block(_) | What::Damage, open) => {
                if let Some(open) = open {
                    open.is_regular = false;
                }
                Ok(false)
            }
        }
    }
}
