//! Restores blocks with distant matches on a device.
//!
//! Such a block consists of own bytes, of its own and of blocks before it. A lane decodes those blocks, and moves the
//! pieces to the contents of one more decoder, which computes the checksums and moves what is wanted of the contents. Own
//! bytes stay in the device's memory as long as there is room (`kept`): blocks nearby often repeat the same ones.

use std::collections::HashMap;
use std::ops::Range;

use super::flight::{
    Flight, LaneBatch, LaneBlock, OriginOf, Purpose, Sending, Sent, Submitted, Wants, part_of,
};
use super::lane::{Key, Lane, unprepared};
use crate::gpu::coder::{CoderError, Origin, Part, RangeTask, RawBlock};

/// Longer pieces of restored blocks are moved in parts: all moves of a dispatch get as many workgroups as the longest.
const LONGEST_PIECE: usize = 256 << 10;

/// Cuts a range into parts of at most [`LONGEST_PIECE`] bytes: the beginning and length of each.
fn cut(range: Range<u32>) -> impl Iterator<Item = (u32, u32)> {
    let end = range.end;
    range.step_by(LONGEST_PIECE).map(move |from| (from, (end - from).min(LONGEST_PIECE as u32)))
}

impl Lane<'_> {
    /// Restores blocks with distant matches, those of `batch.restored` with the numbers in `range`: decodes their sources to
    /// the contents of another decoder, which checks them.
    pub(super) fn restore(
        &mut self,
        batch: &LaneBatch<'_>,
        range: Range<usize>,
        wants: &mut Wants<'_, '_>,
        flight: &mut Flight,
    ) -> Result<(), CoderError> {
        let most = self.core.batch_of(RangeTask::Restore, batch.block_len);
        let key = (RangeTask::Restore, batch.block_len, most);
        for start in range.clone().step_by(most.max(1) as usize) {
            let some = start..range.end.min(start + most as usize);
            if some.is_empty() {
                continue;
            }
            self.reserve_decoder(key, flight, None)?;
            let core = self.core;
            let Some((_, decoder)) = self.decoders.front_mut() else { continue };
            // The pieces: the number of the source, the first byte, and where it goes in the restored contents.
            let mut pieces = Vec::new();
            for (slot, restored) in (0..).zip(&batch.restored[some.clone()]) {
                let mut at = 0;
                for piece in &restored.pieces {
                    for (from, bytes) in cut(piece.from..piece.from + piece.len) {
                        let part = decoder.restored_part(Origin::Raw(from), bytes, (slot, at));
                        pieces.push((piece.source, from, part));
                        at += bytes;
                    }
                }
            }
            let mut numbers: Vec<_> = pieces.iter().map(|(source, ..)| *source).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let of_kept = |number: &usize| {
                let id = batch.sources[*number].id;
                Some((*number, (id, core.kept().get(id)?)))
            };
            let mut own: HashMap<_, _> = numbers.iter().filter_map(of_kept).collect();
            numbers.retain(|number| !own.contains_key(number));
            let from_own = |(source, from, part): &(usize, u32, Part)| {
                let (_, own) = own.get(source)?;
                let origin = Origin::Buffer(own.buffer(), own.bytes() as u32, *from);
                Some(Part { origin, ..*part })
            };
            let mut from_own: Vec<_> = pieces.iter().filter_map(from_own).collect();
            decoder.submit(&[], &mut from_own)?;
            // Others are kept from now on.
            for number in numbers.iter().filter(|_| self.is_open) {
                let LaneBlock { id, header, .. } = &batch.sources[*number];
                let Some(new) = core.kept().buffer(header.content_len) else { continue };
                let (buffer, buffer_end) = (new.buffer(), new.bytes());
                pieces.extend(cut(0..header.content_len).map(|(from, bytes)| {
                    let (origin, at) = (Origin::Raw(from), u64::from(from));
                    (*number, from, Part { origin, bytes, buffer, buffer_end, at })
                }));
                own.insert(*number, (*id, new));
            }
            pieces.sort_by_key(|(source, ..)| *source);
            let alone = batch.blocks.len();
            let members = alone + some.start..alone + some.end;
            let group = flight.add_group(members, numbers.len(), own.into_values().collect());
            let purpose = &|_| Purpose::Group(group);
            let parts_of = &mut |number: usize, origin: &OriginOf<'_>| {
                let first = pieces.partition_point(|(source, ..)| *source < number);
                let of_source = pieces[first..].iter().take_while(|(source, ..)| *source == number);
                of_source.map(|(_, from, part)| Part { origin: origin(*from), ..*part }).collect()
            };
            let (block_len, blocks, restorer) = (batch.block_len, &batch.sources[..], Some(key));
            let sending = &mut Sending { block_len, blocks, purpose, parts_of, restorer };
            let restored = self
                .send(&numbers, sending, flight)
                .and_then(|()| self.submit_restored(key, batch, some, wants, flight));
            if restored.is_err() {
                flight.give_up(group);
                self.drop_all(flight);
            }
            restored?;
        }
        Ok(())
    }

    /// Submits the blocks that have been put together.
    fn submit_restored(
        &mut self,
        key: Key,
        batch: &LaneBatch<'_>,
        some: Range<usize>,
        wants: &mut Wants<'_, '_>,
        flight: &mut Flight,
    ) -> Result<(), CoderError> {
        let (mut raws, mut parts, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
        for (slot, number) in (0..).zip(some) {
            let restored = &batch.restored[number];
            raws.push(RawBlock { content_len: restored.content_len, ..RawBlock::default() });
            let number = batch.blocks.len() + number;
            let origin = |from| Origin::Contents(slot, from);
            parts.extend(wants.of(number).iter().map(|want| part_of(want, &origin)));
            let (purpose, content_crc) = (Purpose::Wanted(number), restored.content_crc);
            blocks.push(Sent { purpose, payload_crc: 0, content_crc });
        }
        let Some((_, decoder)) = self.decoders.iter_mut().find(|(own, _)| *own == key) else {
            return Ok(());
        };
        if !self.is_open && !decoder.runs_at_once(&raws)? {
            return Err(CoderError::Device(unprepared()));
        }
        decoder.submit(&raws, &mut parts)?;
        flight.submitted.push(Submitted { key, blocks });
        Ok(())
    }
}
