//! What blocks with distant matches consist of, for a device that restores them.

use std::collections::HashMap;

use super::Shared;
use super::layout::BlockId;
use super::on_the_way::Opened;
use crate::access::device::{LaneBatch, LaneBlock, Piece, RestoredBlock};
use crate::codec::distant::{self, Bounds, DistantMatch};
use crate::format::{BlockHeader, Fault};

/// The own bytes of a block: all of its contents, if it has no distant matches.
struct OwnBytes {
    /// Their header.
    header: BlockHeader,
    /// The list of the block's matches, which comes before their payload.
    list: Vec<u8>,
}

/// A block of a batch that repeats others, or itself.
pub(super) struct Repeating {
    /// Its number in the batch.
    number: usize,
    id: BlockId,
    matches: Vec<DistantMatch>,
}

impl Repeating {
    /// The block that is `back` blocks before.
    fn source(&self, back: u32) -> BlockId {
        BlockId { number: self.id.number - u64::from(back), ..self.id }
    }
}

impl Shared {
    /// Finds the blocks of a batch that repeat others. It leaves out blocks whose lists are damaged or cannot be read: the
    /// CPU decodes those, and says what is wrong.
    pub(super) fn repeating(&self, opened: &[Opened]) -> Vec<Repeating> {
        let repeating = |(number, opened): (usize, &Opened)| {
            let header = opened.header;
            let own_len = header.own?.len;
            let list = self.own_bytes(opened)?.list;
            let list = distant::decode::<Fault>(&list, header.content_len).ok()?;
            let BlockHeader { number: before, content_len, .. } = header;
            let bounds = Bounds { number: before, content_len, own_len };
            let matches = distant::parse::<Fault>(&list, &bounds).ok()?;
            Some(Repeating { number, id: opened.staged.block.id, matches })
        };
        opened.iter().enumerate().filter_map(repeating).collect()
    }

    fn own_bytes(&self, Opened { staged, header }: &Opened) -> Option<OwnBytes> {
        let Some(own) = header.own else {
            return Some(OwnBytes { header: *header, list: Vec::new() });
        };
        let mut list = Vec::new();
        list.try_reserve_exact(own.list_len as usize).ok()?;
        list.resize(own.list_len as usize, 0);
        self.read_payload(staged, header, 0, &mut list).ok()?;
        Some(OwnBytes { header: header.of_own_bytes(&list)?, list })
    }

    /// Reads the blocks that `repeating` repeat beside those of the batch. What is damaged or cannot be read is left out.
    pub(super) fn open_repeated(&self, opened: &[Opened], repeating: &[Repeating]) -> Vec<Opened> {
        let sources = |one: &Repeating| {
            let backs = distant::sources(&one.matches).into_iter();
            backs.map(|back| one.source(back)).collect::<Vec<_>>()
        };
        let mut others: Vec<_> = repeating.iter().flat_map(sources).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|id| !opened.iter().any(|opened| opened.staged.block.id == *id));
        self.open_others(others)
    }

    /// What a lane is to do with a batch, and the batch's numbers of the blocks that the lane is to bring, in its order. The
    /// blocks of `repeating` are to be restored, but for those that repeat what `others` lack.
    pub(super) fn plan<'s>(
        &'s self,
        block_len: u32,
        opened: &'s [Opened],
        others: &'s [Opened],
        repeating: &[Repeating],
    ) -> (LaneBatch<'s>, Vec<usize>) {
        let all = || opened.iter().chain(others);
        let of_id: HashMap<_, _> = all().map(|opened| (opened.staged.block.id, opened)).collect();
        let mut sources = Vec::new();
        // The number of each source, and its length; `None` if it cannot be one.
        let mut known: HashMap<BlockId, Option<(usize, u32)>> = HashMap::new();
        let mut source_of = |id: BlockId| {
            *known.entry(id).or_insert_with(|| {
                let opened = *of_id.get(&id)?;
                let OwnBytes { header, list } = self.own_bytes(opened)?;
                sources.push(self.lane_block(opened, header, list.len()));
                Some((sources.len() - 1, header.content_len))
            })
        };
        let (mut numbers, mut restored) = (Vec::new(), Vec::new());
        for one in repeating {
            let BlockHeader { content_len, content_crc, .. } = opened[one.number].header;
            if let Some(pieces) = pieces(one, content_len, &mut source_of) {
                numbers.push(one.number);
                restored.push(RestoredBlock { content_len, content_crc, pieces });
            }
        }
        let mut order: Vec<_> = (0..opened.len()).filter(|n| !numbers.contains(n)).collect();
        let block = |&number: &usize| self.lane_block(&opened[number], opened[number].header, 0);
        let blocks = order.iter().map(block).collect();
        order.append(&mut numbers);
        (LaneBatch { block_len, blocks, sources, restored }, order)
    }

    /// A block for a lane, whose payload begins after `skip` bytes of the block's.
    fn lane_block<'s>(
        &'s self,
        opened: &'s Opened,
        header: BlockHeader,
        skip: usize,
    ) -> LaneBlock<'s> {
        let Opened { staged, header: whole } = opened;
        let BlockId { frame, number } = staged.block.id;
        LaneBlock {
            id: (self.id, frame, number),
            header,
            modules: self.loader.modules(staged.block.id.frame),
            read: Box::new(move |at, into| self.read_payload(staged, whole, skip + at, into)),
        }
    }
}

/// The pieces of a block with so many bytes of contents. `source_of` finds the number of a block as a source, and the
/// length of its own bytes.
fn pieces(
    one: &Repeating,
    content_len: u32,
    source_of: &mut dyn FnMut(BlockId) -> Option<(usize, u32)>,
) -> Option<Vec<Piece>> {
    let (itself, _) = source_of(one.id)?;
    let mut pieces = Vec::with_capacity(2 * one.matches.len() + 1);
    // Where the last match ends, and how many own bytes come before.
    let (mut end, mut own) = (0, 0);
    for &DistantMatch { start, len, back, from } in &one.matches {
        pieces.push(Piece { source: itself, from: own, len: start - end });
        own += start - end;
        let (source, own_len) = source_of(one.source(back))?;
        if from.checked_add(len)? > own_len {
            return None;
        }
        pieces.push(Piece { source, from, len });
        end = start + len;
    }
    pieces.push(Piece { source: itself, from: own, len: content_len - end });
    pieces.retain(|piece| piece.len > 0);
    Some(pieces)
}
