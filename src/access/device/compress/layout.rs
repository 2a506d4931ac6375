//! How the blocks of a batch lie in the output.

use super::blocks::Block;
use crate::error::Error;
use crate::stream::FrameWriter;

/// Where each payload of a batch goes, and what stands around the payloads.
pub(super) struct Layout {
    /// What writes the next batch.
    pub(super) frames: FrameWriter,
    /// Headers, indices and footers.
    around: Vec<u8>,
    /// How much of that comes before each payload.
    before: Vec<usize>,
    /// Bytes in all.
    pub(super) len: usize,
}

impl Layout {
    /// The layout of `blocks` after what `frames` has written. The frame ends with them if they `are_last`.
    pub(super) fn new(
        frames: &FrameWriter,
        blocks: &[Block],
        are_last: bool,
    ) -> Result<Self, Error> {
        let mut frames = frames.clone();
        let (mut around, mut before) = (Vec::new(), Vec::new());
        let mut payloads = 0;
        for (number, block) in (1..).zip(blocks) {
            let len = block.payload_len();
            let header = frames.begin_block(&mut around, block.coded, block.content_len, len)?;
            around.extend_from_slice(&header.to_bytes());
            before.push(around.len());
            payloads += len;
            frames.end_block(&mut around, &header, are_last && number == blocks.len())?;
        }
        let len = around.len() + payloads;
        Ok(Self { frames, around, before, len })
    }

    /// Writes to `room` what stands around the payloads of `blocks`, and returns each payload's place. Places are
    /// shorter than their payloads, or empty, if there is less room than the layout needs.
    pub(super) fn places<'r>(&self, room: &'r mut [u8], blocks: &[Block]) -> Vec<&'r mut [u8]> {
        let mut room = room;
        let mut take = |len: usize| {
            let all = std::mem::take(&mut room);
            let (taken, left) = all.split_at_mut(len.min(all.len()));
            room = left;
            taken
        };
        let mut done = 0;
        let mut put = |until: usize, to: &mut [u8]| {
            to.copy_from_slice(&self.around[done..][..to.len()]);
            done = until;
        };
        let mut written = 0;
        let mut places = Vec::with_capacity(blocks.len());
        for (block, &before) in blocks.iter().zip(&self.before) {
            put(before, take(before - written));
            written = before;
            places.push(take(block.payload_len()));
        }
        put(self.around.len(), take(self.around.len() - written));
        places
    }
}
