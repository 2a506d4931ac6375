//! Restores blocks with distant matches on a device.
//!
//! Such a block is assembled from pieces of its own bytes and of the own bytes of earlier blocks. A slot decodes these
//! sources, and moves the pieces to the contents of another decoder. That decoder computes the checksums and moves the
//! parts that are wanted. Own bytes stay in device memory while there is room (in `core`), because nearby blocks often
//! copy from the same ones.

use std::collections::HashMap;
use std::ops::Range;

use super::core::{BatchKind, DecoderKey};
use super::decoder_slot::{DecoderSlot, unprepared};
use super::slot_batch::{
    PartsOf, Purpose, RestoredBlock, RestoredPiece, Sending, SlotBatch, SlotBlock, SubmittedBatch,
    SubmittedBlock,
};
use crate::gpu::coder::{CoderError, MovedPart, Origin, RangeDecoder, RangeTask, RawBlock};

/// Longer pieces are moved in parts, because a dispatch gives each of its moves as many workgroups as the longest one
/// needs.
const LONGEST_PIECE: usize = 256 << 10;

/// Cuts a range into parts of at most [`LONGEST_PIECE`] bytes. Returns the start and length of each.
fn cut(range: Range<u32>) -> impl Iterator<Item = (u32, u32)> {
    let end = range.end;
    range.step_by(LONGEST_PIECE).map(move |from| (from, (end - from).min(LONGEST_PIECE as u32)))
}

/// A piece of a source, and where it goes.
struct PlacedPiece {
    /// The number of the source.
    source: usize,
    /// The first byte.
    from: u32,
    /// The move of the piece. Its origin is set later, when the decoded source has a place.
    part: MovedPart,
}

/// The pieces of `blocks`, with their places in the contents of `restorer`.
fn placed(restorer: &RangeDecoder<'_>, blocks: &[RestoredBlock]) -> Vec<PlacedPiece> {
    let mut all = Vec::new();
    for (block, restored) in (0..).zip(blocks) {
        let mut at = 0;
        for &RestoredPiece { source, from, len } in &restored.pieces {
            for (from, bytes) in cut(from..from + len) {
                let part = restorer.restored_part(Origin::Raw(from), bytes, (block, at));
                all.push(PlacedPiece { source, from, part });
                at += bytes;
            }
        }
    }
    all
}

impl DecoderSlot<'_> {
    /// Restores blocks `range` of `batch.restored`, as many at once as a decoder has room for.
    pub(super) fn restore(
        &mut self,
        batch: &SlotBatch<'_>,
        range: Range<usize>,
        parts_of: &mut PartsOf<'_>,
        submitted: &mut SubmittedBatch,
    ) -> Result<(), CoderError> {
        let most = self.core.batch_of(RangeTask::Restore, batch.block_len, batch.kind);
        if most == 0 {
            return Ok(());
        }
        let key = (RangeTask::Restore, batch.block_len, most);
        for start in range.clone().step_by(most as usize) {
            let some = start..range.end.min(start + most as usize);
            self.restore_group(key, batch, some, parts_of, submitted)?;
        }
        Ok(())
    }

    /// Restores blocks `some` together: decodes their sources, moves the pieces to the decoder for `key`, and submits
    /// the assembled blocks there.
    fn restore_group(
        &mut self,
        key: DecoderKey,
        batch: &SlotBatch<'_>,
        some: Range<usize>,
        parts_of: &mut PartsOf<'_>,
        submitted: &mut SubmittedBatch,
    ) -> Result<(), CoderError> {
        let core = self.core;
        let restorer = self.reserve_decoder(key, submitted, None)?;
        let mut all = placed(restorer, &batch.restored[some.clone()]);
        let mut numbers: Vec<_> = all.iter().map(|placed| placed.source).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let of_kept = |number: &usize| {
            let id = batch.sources[*number].id;
            Some((*number, (id, core.kept.get(id)?)))
        };
        let mut own: HashMap<_, _> = numbers.iter().filter_map(of_kept).collect();
        numbers.retain(|number| !own.contains_key(number));
        let from_own = |PlacedPiece { source, from, part }: &PlacedPiece| {
            let (_, own) = own.get(source)?;
            let origin = Origin::Buffer(own.buffer, own.bytes as u32, *from);
            Some(MovedPart { origin, ..*part })
        };
        let mut from_own: Vec<_> = all.iter().filter_map(from_own).collect();
        restorer.submit(&[], &mut from_own)?;
        // Keeps the own bytes of the sources that are decoded now.
        for source in numbers.iter().copied().filter(|_| self.is_open) {
            let SlotBlock { id, header, .. } = &batch.sources[source];
            let Some(new) = core.kept.buffer(header.content_len) else { continue };
            let (buffer, buffer_end) = (new.buffer, new.bytes);
            all.extend(cut(0..header.content_len).map(|(from, bytes)| {
                let (origin, at) = (Origin::Raw(from), u64::from(from));
                PlacedPiece {
                    source,
                    from,
                    part: MovedPart { origin, bytes, buffer, buffer_end, at },
                }
            }));
            own.insert(source, (*id, new));
        }
        all.sort_by_key(|placed| placed.source);
        let alone = batch.blocks.len();
        let members = alone + some.start..alone + some.end;
        let group = submitted.add_group(members, numbers.len(), own.into_values().collect());
        let pieces_of = &mut |number: usize, origin: &dyn Fn(u32) -> Origin| {
            let first = all.partition_point(|placed| placed.source < number);
            let of_source = all[first..].iter().take_while(|placed| placed.source == number);
            of_source
                .map(|placed| MovedPart { origin: origin(placed.from), ..placed.part })
                .collect()
        };
        let (block_len, blocks, restoring) = (batch.block_len, &batch.sources, Some((group, key)));
        let sending = Sending { block_len, kind: BatchKind::Sources, blocks, restoring };
        let restored = self
            .send(&numbers, &sending, pieces_of, submitted)
            .and_then(|()| self.submit_restored(key, batch, some, parts_of, submitted));
        if restored.is_err() {
            self.drop_all(submitted);
            submitted.drop_group();
        }
        restored
    }

    /// Submits the assembled blocks.
    fn submit_restored(
        &mut self,
        key: DecoderKey,
        batch: &SlotBatch<'_>,
        some: Range<usize>,
        parts_of: &mut PartsOf<'_>,
        submitted: &mut SubmittedBatch,
    ) -> Result<(), CoderError> {
        let (mut raws, mut parts, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
        for (block, number) in (0..).zip(some) {
            let restored = &batch.restored[number];
            raws.push(RawBlock { content_len: restored.content_len, ..RawBlock::default() });
            let number = batch.blocks.len() + number;
            let origin = |from| Origin::Contents(block, from);
            parts.extend(parts_of(number, &origin));
            let (purpose, content_crc) = (Purpose::Wanted(number), restored.content_crc);
            blocks.push(SubmittedBlock { purpose, payload_crc: 0, content_crc });
        }
        let Some((_, decoder)) = self.decoders.iter_mut().find(|(own, _)| *own == key) else {
            return Ok(());
        };
        if !self.is_open && !decoder.runs_at_once(&raws)? {
            return Err(CoderError::Device(unprepared()));
        }
        decoder.submit(&raws, &mut parts)?;
        submitted.in_decoders.push((key, blocks));
        Ok(())
    }
}
