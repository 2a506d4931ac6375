//! Plans how a device restores blocks with distant matches.

use std::collections::HashMap;

use super::load::InHand;
use super::shared::ArchiveShared;
use crate::access::device::{BatchKind, RestoredBlock, RestoredPiece, SlotBatch, SlotBlock};
use crate::codec::distant::{self, DistantMatch};
use crate::format::BlockHeader;
use crate::pipeline::buffer::zeroed;
use crate::stream::block::{BlockId, matches_of};

/// A block of a batch that has distant matches.
pub(super) struct Repeating {
    /// Its number in the batch.
    number: usize,
    id: BlockId,
    /// The header of its own bytes.
    own: BlockHeader,
    matches: Vec<DistantMatch>,
}

impl Repeating {
    /// The block `back` blocks before this one.
    fn source(&self, back: u32) -> BlockId {
        BlockId { number: self.id.number - u64::from(back), ..self.id }
    }
}

/// The block `id` of `blocks`, which are in the order of the file.
fn find(blocks: &[InHand], id: BlockId) -> Option<&InHand> {
    let at = blocks.binary_search_by_key(&id, |in_hand| in_hand.block.id).ok()?;
    blocks.get(at)
}

impl ArchiveShared {
    /// Finds the blocks of a batch that have distant matches. Leaves out blocks whose lists are damaged or cannot be
    /// read: the CPU decodes those and reports the fault.
    pub(super) fn repeating(&self, opened: &[InHand]) -> Vec<Repeating> {
        let repeating = |(number, one): (usize, &InHand)| {
            let (own, list) = one.header.own.and_then(|_| self.own_header(one))?;
            let matches = matches_of(&one.header, own.content_len, &list).ok()?;
            Some(Repeating { number, id: one.block.id, own, matches })
        };
        opened.iter().enumerate().filter_map(repeating).collect()
    }

    /// The header of a block's own bytes, and the list of its distant matches. Without distant matches these are the
    /// block's header and an empty list.
    fn own_header(&self, in_hand: &InHand) -> Option<(BlockHeader, Vec<u8>)> {
        let header = &in_hand.header;
        let Some(own) = header.own else { return Some((*header, Vec::new())) };
        let mut list = zeroed(own.list_len as usize).ok()?;
        self.loader.read_payload(in_hand, 0, &mut list).ok()?;
        Some((header.of_own_bytes(&list)?, list))
    }

    /// Reads the blocks outside the batch that `repeating` copy from. Leaves out damaged blocks and those that cannot
    /// be read.
    pub(super) fn open_repeated(&self, opened: &[InHand], repeating: &[Repeating]) -> Vec<InHand> {
        let sources = |one: &Repeating| {
            let backs = distant::sources(&one.matches).into_iter();
            backs.map(|back| one.source(back)).collect::<Vec<_>>()
        };
        let mut others: Vec<_> = repeating.iter().flat_map(sources).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|id| find(opened, *id).is_none());
        self.loader.fetch(&others, true).into_iter().flatten().collect()
    }

    /// Plans a batch for a slot. Also returns the numbers of the blocks in the batch, in the slot's order. The slot
    /// restores the blocks of `repeating`, except those that copy from a block missing in `others`. `opened` and
    /// `others` are in the order of the file.
    pub(super) fn plan<'s>(
        &'s self,
        (block_len, kind): (u32, BatchKind),
        opened: &'s [InHand],
        others: &'s [InHand],
        repeating: &[Repeating],
    ) -> (SlotBatch<'s>, Vec<usize>) {
        let mut sources = Vec::new();
        // The number and length of each source; `None` if the block cannot be one.
        let mut known: HashMap<BlockId, Option<(usize, u32)>> = HashMap::new();
        let mut source_of = |id: BlockId| {
            *known.entry(id).or_insert_with(|| {
                let one = find(opened, id).or_else(|| find(others, id))?;
                // `repeating` has the lists that were read before.
                let own = match repeating.binary_search_by_key(&id, |repeating| repeating.id) {
                    Ok(at) => repeating[at].own,
                    Err(_) => self.own_header(one)?.0,
                };
                sources.push(self.slot_block(one, own));
                Some((sources.len() - 1, own.content_len))
            })
        };
        let (mut numbers, mut restored) = (Vec::new(), Vec::new());
        let mut is_alone = vec![true; opened.len()];
        for one in repeating {
            let BlockHeader { content_len, content_crc, .. } = opened[one.number].header;
            if let Some(pieces) = pieces(one, content_len, &mut source_of) {
                is_alone[one.number] = false;
                numbers.push(one.number);
                restored.push(RestoredBlock { content_len, content_crc, pieces });
            }
        }
        let mut order: Vec<_> = (0..opened.len()).filter(|&number| is_alone[number]).collect();
        let block = |&number: &usize| self.slot_block(&opened[number], opened[number].header);
        let blocks = order.iter().map(block).collect();
        order.append(&mut numbers);
        (SlotBatch { block_len, kind, blocks, sources, restored }, order)
    }

    /// A block for a slot. `header` is the block's own, or that of its own bytes, whose payload follows the list of
    /// matches.
    fn slot_block<'s>(&'s self, in_hand: &'s InHand, header: BlockHeader) -> SlotBlock<'s> {
        let BlockId { frame, number } = in_hand.block.id;
        let skip = (in_hand.header.payload_len - header.payload_len) as usize;
        SlotBlock {
            id: (self.id, frame, number),
            header,
            modules: self.loader.modules(frame),
            read: Box::new(move |at, into| self.loader.read_payload(in_hand, skip + at, into)),
        }
    }
}

/// The pieces of a block with `content_len` bytes of contents. `source_of` returns the number of a block among the
/// sources, and the length of its own bytes.
fn pieces(
    one: &Repeating,
    content_len: u32,
    source_of: &mut dyn FnMut(BlockId) -> Option<(usize, u32)>,
) -> Option<Vec<RestoredPiece>> {
    let (itself, _) = source_of(one.id)?;
    let mut pieces = Vec::with_capacity(2 * one.matches.len() + 1);
    // Where the last match ended, and how many own bytes came before it.
    let (mut end, mut own) = (0, 0);
    for &DistantMatch { start, len, back, from } in &one.matches {
        pieces.push(RestoredPiece { source: itself, from: own, len: start - end });
        own += start - end;
        let (source, own_len) = source_of(one.source(back))?;
        if from.checked_add(len)? > own_len {
            return None;
        }
        pieces.push(RestoredPiece { source, from, len });
        end = start + len;
    }
    pieces.push(RestoredPiece { source: itself, from: own, len: content_len - end });
    pieces.retain(|piece| piece.len > 0);
    Some(pieces)
}
