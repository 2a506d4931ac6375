//! A batch of blocks for a decoder slot, and the outcomes of the blocks.

use std::ops::Range;
use std::sync::Arc;

use super::core::{BatchKind, DecoderKey, KeptSources, OwnBytes, SourceId};
use crate::access::sources::SourceError;
use crate::format::BlockHeader;
use crate::gpu::coder::{DecodedBlock, MovedPart, Origin};
use crate::pipeline::modules::FrameModules;

/// A block that a slot decodes.
pub(in crate::access) struct SlotBlock<'w> {
    /// The block's identity, for own bytes that are kept.
    pub(in crate::access) id: SourceId,
    /// The block's header, or that of its own bytes.
    pub(in crate::access) header: BlockHeader,
    /// What runs the modules of its frame, if it has some.
    pub(in crate::access) modules: Option<&'w FrameModules>,
    /// Fills memory with the payload from a byte on.
    pub(in crate::access) read: Box<ReadPayload<'w>>,
}

pub(in crate::access) type ReadPayload<'w> =
    dyn Fn(usize, &mut [u8]) -> Result<(), SourceError> + Sync + 'w;

/// A block with distant matches, as a list of pieces.
pub(in crate::access) struct RestoredBlock {
    /// Length of its contents.
    pub(in crate::access) content_len: u32,
    /// CRC-32C of its contents.
    pub(in crate::access) content_crc: u32,
    /// The pieces of its contents, in order.
    pub(in crate::access) pieces: Vec<RestoredPiece>,
}

/// A piece of a source's own bytes.
#[derive(Clone, Copy)]
pub(in crate::access) struct RestoredPiece {
    /// The number of the source.
    pub(in crate::access) source: usize,
    /// The first byte.
    pub(in crate::access) from: u32,
    /// Number of bytes.
    pub(in crate::access) len: u32,
}

/// A batch for a slot. Wanted blocks are numbered: first those of `blocks`, then those of `restored`.
pub(in crate::access) struct SlotBatch<'w> {
    /// The length of the longest block, in bytes of contents.
    pub(in crate::access) block_len: u32,
    /// [`BatchKind::Plain`] or [`BatchKind::Repeating`].
    pub(in crate::access) kind: BatchKind,
    /// Wanted blocks without distant matches.
    pub(in crate::access) blocks: Vec<SlotBlock<'w>>,
    /// Blocks whose own bytes the restored blocks are assembled from.
    pub(in crate::access) sources: Vec<SlotBlock<'w>>,
    /// Wanted blocks with distant matches.
    pub(in crate::access) restored: Vec<RestoredBlock>,
}

/// Returns the parts of a wanted block or of a source that are to be moved. Takes the block's number, and a function
/// that returns where a byte of its contents is. From the first call on, the device may write these parts.
pub(in crate::access) type PartsOf<'p> =
    dyn FnMut(usize, &dyn Fn(u32) -> Origin) -> Vec<MovedPart> + 'p;

/// Blocks that a slot sends to decoders.
pub(super) struct Sending<'s, 'w> {
    /// The length of the longest block of the batch, in bytes of contents.
    pub(super) block_len: u32,
    pub(super) kind: BatchKind,
    pub(super) blocks: &'s [SlotBlock<'w>],
    /// For sources: the number of the group that is restored from them, and the decoder that assembles the group.
    pub(super) restoring: Option<(usize, DecoderKey)>,
}

impl Sending<'_, '_> {
    /// The purpose of block `number`.
    pub(super) fn purpose(&self, number: usize) -> Purpose {
        match self.restoring {
            None => Purpose::Wanted(number),
            Some((group, _)) => Purpose::Group(group),
        }
    }
}

/// The outcome of a block.
pub(in crate::access) enum BlockOutcome {
    /// The CPU has to decode it.
    Left,
    /// Its wanted parts are in their places.
    Done,
    /// Its payload could not be read.
    Unread(SourceError),
}

/// A batch that a decoder slot has begun.
pub(in crate::access) struct SubmittedBatch {
    /// The outcome of each wanted block so far.
    outcomes: Vec<BlockOutcome>,
    /// The blocks that each decoder is working on, in its order.
    pub(super) in_decoders: Vec<(DecoderKey, Vec<SubmittedBlock>)>,
    groups: Vec<RestoredGroup>,
}

/// Blocks that are restored together.
struct RestoredGroup {
    /// Their numbers.
    members: Range<usize>,
    /// How many of their sources have not been decoded.
    missing: usize,
    /// Own bytes in use, with their blocks: those that were kept, and new ones to keep.
    own: Vec<(SourceId, Arc<OwnBytes>)>,
}

/// A block that a decoder is working on.
pub(super) struct SubmittedBlock {
    pub(super) purpose: Purpose,
    pub(super) payload_crc: u32,
    pub(super) content_crc: u32,
}

/// What a block is decoded for.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// For the wanted block with this number.
    Wanted(usize),
    /// As a source of the group with this number.
    Group(usize),
}

impl SubmittedBatch {
    pub(super) fn new(batch: &SlotBatch<'_>) -> Self {
        let wanted = batch.blocks.len() + batch.restored.len();
        let outcomes = std::iter::repeat_with(|| BlockOutcome::Left).take(wanted).collect();
        Self { outcomes, in_decoders: Vec::new(), groups: Vec::new() }
    }

    /// Adds a group: the wanted blocks `members` are restored from `sources` sources that are decoded now, and from
    /// `own`. Returns the number of the group.
    pub(super) fn add_group(
        &mut self,
        members: Range<usize>,
        sources: usize,
        own: Vec<(SourceId, Arc<OwnBytes>)>,
    ) -> usize {
        self.groups.push(RestoredGroup { members, missing: sources, own });
        self.groups.len() - 1
    }

    /// Removes the group that was added last. No decoder may still work on a block of it.
    pub(super) fn drop_group(&mut self) {
        self.groups.pop();
    }

    /// Records that the payload of a block could not be read.
    pub(super) fn note_unread(&mut self, purpose: Purpose, error: SourceError) {
        if let Purpose::Wanted(number) = purpose {
            self.outcomes[number] = BlockOutcome::Unread(error);
        }
    }

    /// Records the results of a decoder. Blocks that were only moved have none.
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

    /// Returns the outcomes, after all decoders have finished. Puts correct own bytes in `kept`.
    pub(super) fn end(mut self, kept: &KeptSources) -> Vec<BlockOutcome> {
        for RestoredGroup { members, missing, own } in self.groups {
            let outcomes = &mut self.outcomes[members];
            if missing > 0 {
                // The CPU decodes them and finds the fault.
                outcomes.fill_with(|| BlockOutcome::Left);
            } else if outcomes.iter().all(|outcome| matches!(outcome, BlockOutcome::Done)) {
                own.into_iter().for_each(|(id, own)| kept.keep(id, own));
            }
        }
        self.outcomes
    }
}
