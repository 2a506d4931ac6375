//! A batch of blocks for a slot, and what becomes of them.

use std::ops::Range;
use std::sync::Arc;

use super::core::{BatchKind, DecoderKey};
use super::kept::{KeptSources, OwnBytes, SourceId};
use crate::access::sources::SourceError;
use crate::format::BlockHeader;
use crate::gpu::coder::{DecodedBlock, MovedPart, Origin};
use crate::pipeline::modules::FrameModules;

/// A block that a slot decodes.
pub(in crate::access) struct SlotBlock<'w> {
    /// Which block it is.
    pub(in crate::access) id: SourceId,
    /// Its header; of a block with distant matches, that of its own bytes.
    pub(in crate::access) header: BlockHeader,
    /// What runs the modules of its frame, if that has some.
    pub(in crate::access) modules: Option<&'w FrameModules>,
    /// Reads its payload from some byte on, as much as there is memory.
    pub(in crate::access) read: Box<ReadPayload<'w>>,
}

pub(in crate::access) type ReadPayload<'w> =
    dyn Fn(usize, &mut [u8]) -> Result<(), SourceError> + Sync + 'w;

/// A block with distant matches, as what it consists of.
pub(in crate::access) struct RestoredBlock {
    /// Length of its contents.
    pub(in crate::access) content_len: u32,
    /// CRC-32C of its contents.
    pub(in crate::access) content_crc: u32,
    /// The pieces of its contents, in order.
    pub(in crate::access) pieces: Vec<RestoredPiece>,
}

/// Bytes of a source.
#[derive(Clone, Copy)]
pub(in crate::access) struct RestoredPiece {
    /// The number of the source.
    pub(in crate::access) source: usize,
    /// The first byte.
    pub(in crate::access) from: u32,
    /// Number of bytes.
    pub(in crate::access) len: u32,
}

/// What a slot does at once. The blocks that are wanted have numbers: those of `blocks` come first, then those of
/// `restored`.
pub(in crate::access) struct SlotBatch<'w> {
    /// The most bytes of contents of any block.
    pub(in crate::access) block_len: u32,
    /// Plain or repeating.
    pub(in crate::access) kind: BatchKind,
    /// The blocks that are wanted as they are decoded.
    pub(in crate::access) blocks: Vec<SlotBlock<'w>>,
    /// The blocks that others consist of.
    pub(in crate::access) sources: Vec<SlotBlock<'w>>,
    /// The blocks that consist of others.
    pub(in crate::access) restored: Vec<RestoredBlock>,
}

/// Returns the parts to move of the block with this number, given where each byte of its contents is found. From the
/// first call on they may be written.
pub(in crate::access) type PartsOf<'p> =
    dyn FnMut(usize, &dyn Fn(u32) -> Origin) -> Vec<MovedPart> + 'p;

/// Blocks that a slot sends to decoders.
pub(super) struct Sending<'s, 'w> {
    /// The most bytes of contents of any block of the batch.
    pub(super) block_len: u32,
    pub(super) kind: BatchKind,
    pub(super) blocks: &'s [SlotBlock<'w>],
    /// If they are sources of blocks to restore: the number of that group, and the decoder that their pieces go to.
    pub(super) restoring: Option<(usize, DecoderKey)>,
}

impl Sending<'_, '_> {
    /// What block `number` is decoded for.
    pub(super) fn purpose(&self, number: usize) -> Purpose {
        match self.restoring {
            None => Purpose::Wanted(number),
            Some((group, _)) => Purpose::Group(group),
        }
    }
}

/// What became of a block.
pub(in crate::access) enum BlockOutcome {
    /// The CPU has to decode it.
    Left,
    /// Its contents are where they are wanted.
    Done,
    /// Its payload could not be read.
    Unread(SourceError),
}

/// A batch that a slot has begun.
pub(in crate::access) struct SubmittedBatch {
    /// What has become of each wanted block so far.
    outcomes: Vec<BlockOutcome>,
    /// The blocks that each decoder has in hand, in its order.
    pub(super) in_decoders: Vec<(DecoderKey, Vec<SubmittedBlock>)>,
    groups: Vec<RestoredGroup>,
}

/// Blocks that are restored together.
struct RestoredGroup {
    /// Their numbers.
    members: Range<usize>,
    /// How many of their sources have not been decoded.
    missing: usize,
    /// Own bytes in use, and whose they are: those that were kept, and new ones to keep.
    own: Vec<(SourceId, Arc<OwnBytes>)>,
}

/// A block that a decoder has in hand.
pub(super) struct SubmittedBlock {
    pub(super) purpose: Purpose,
    pub(super) payload_crc: u32,
    pub(super) content_crc: u32,
}

/// What a block is decoded for.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// It is the wanted block with this number.
    Wanted(usize),
    /// It is a source of the blocks of the group with this number.
    Group(usize),
}

impl SubmittedBatch {
    pub(super) fn new(batch: &SlotBatch<'_>) -> Self {
        let wanted = batch.blocks.len() + batch.restored.len();
        let outcomes = std::iter::repeat_with(|| BlockOutcome::Left).take(wanted).collect();
        Self { outcomes, in_decoders: Vec::new(), groups: Vec::new() }
    }

    /// Notes that the wanted blocks `members` are restored from so many sources that are to be decoded, and from `own`,
    /// which is then complete. Returns the number of their group.
    pub(super) fn add_group(
        &mut self,
        members: Range<usize>,
        sources: usize,
        own: Vec<(SourceId, Arc<OwnBytes>)>,
    ) -> usize {
        self.groups.push(RestoredGroup { members, missing: sources, own });
        self.groups.len() - 1
    }

    /// Removes the group that was added last. No decoder may still have a block of it.
    pub(super) fn drop_group(&mut self) {
        self.groups.pop();
    }

    /// Notes that the payload of a block could not be read.
    pub(super) fn note_unread(&mut self, purpose: Purpose, error: SourceError) {
        if let Purpose::Wanted(number) = purpose {
            self.outcomes[number] = BlockOutcome::Unread(error);
        }
    }

    /// Notes what a decoder says of the blocks that it had in hand; nothing of blocks that were only moved.
    pub(super) fn note(&mut self, blocks: Vec<SubmittedBlock>, decoded: &[DecodedBlock]) {
        for (number, block) in blocks.into_iter().enumerate() {
            let SubmittedBlock { purpose, payload_crc, content_crc } = block;
            let is_right = decoded.get(number).is_none_or(|decoded| {
                let found = (decoded.payload_crc, decoded.content_crc);
                decoded.is_decoded && !decoded.is_filtered && found == (payload_crc, content_crc)
            });
            match purpose {
                Purpose::Wanted(number) if is_right => self.outcomes[number] = BlockOutcome::Done,
                Purpose::Group(number) if is_right => self.groups[number].missing -= 1,
                _ => {}
            }
        }
    }

    /// What became of each wanted block, when no decoder has one in hand. Own bytes that are right go to `kept`.
    pub(super) fn end(mut self, kept: &KeptSources) -> Vec<BlockOutcome> {
        for RestoredGroup { members, missing, own } in self.groups {
            let outcomes = &mut self.outcomes[members];
            if missing > 0 {
                // The CPU finds out what is wrong.
                outcomes.fill_with(|| BlockOutcome::Left);
            } else if outcomes.iter().all(|outcome| matches!(outcome, BlockOutcome::Done)) {
                own.into_iter().for_each(|(id, own)| kept.keep(id, own));
            }
        }
        self.outcomes
    }
}
