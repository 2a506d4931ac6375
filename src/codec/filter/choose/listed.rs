//! Samples of blocks whose units have lists of their values.
//!
//! Within a piece of a block, a list would be much longer for its length than a unit's list. So the values of one whole
//! unit are listed, and the sample's pieces are taken from the places in that list. Few pieces would contain part of a
//! short list, so lists are encoded separately. For a codec that works on whole blocks, the values of all units are
//! listed: its contexts reach from one unit to another.

use super::super::{FilterChain, Stage, UNIT_LOG, dictionary};
use super::{Chooser, PARTS, PIECES, Sample, Shape, apply};
use crate::codec::{OutOfMemory, reserve};

/// The most bytes of lists that the codec encodes.
const MAX_ENCODED: usize = 1 << 14;
/// The search for a list's end goes in steps of this many bytes.
const LIST_STEP: usize = 256;

/// Units whose values a stage has listed.
#[derive(Default)]
pub(super) struct Listed {
    /// The stage; `None` if no unit has a list.
    by: Option<Stage>,
    /// Bytes of the units before the stage.
    contents_len: usize,
    /// The places of their elements in the lists, unit by unit.
    places: Vec<u8>,
    lists: Vec<u8>,
    /// For each chain, bytes that the codec takes for the lists.
    list_sizes: Vec<(FilterChain, usize)>,
}

impl Listed {
    /// Takes lists and places from units filtered by `dictionary`.
    fn take(&mut self, filtered: &[u8], dictionary: Stage) -> Result<(), OutOfMemory> {
        let Stage::Dictionary { width, index, .. } = dictionary else { return Ok(()) };
        let [width, index] = [width, index].map(usize::from);
        self.contents_len = 0;
        self.places.clear();
        self.lists.clear();
        self.list_sizes.clear();
        reserve(&mut self.places, filtered.len() / width * index)?;
        reserve(&mut self.lists, filtered.len())?;
        for unit in filtered.chunks(1 << UNIT_LOG) {
            let range = dictionary::list_range(unit.len(), width, index);
            if range.is_empty() {
                continue;
            }
            self.contents_len += unit.len();
            self.places.extend_from_slice(&unit[..unit.len() / width * index]);
            let list = &unit[range];
            // Zeros fill the list's range after its end.
            let is_used = |step: &[u8]| *step != [0; LIST_STEP][..step.len()];
            let steps = list.chunks(LIST_STEP).rposition(is_used).map_or(0, |last| last + 1);
            self.lists.extend_from_slice(&list[..list.len().min(steps * LIST_STEP)]);
        }
        self.by = (!self.places.is_empty()).then_some(dictionary);
        Ok(())
    }

    /// A part from the middle of the lists. It begins at a multiple of 8 bytes, so that entries are whole.
    fn middle_of_lists(&self) -> &[u8] {
        let len = self.lists.len().min(MAX_ENCODED);
        &self.lists[(self.lists.len() - len) / 2 / 8 * 8..][..len]
    }
}

impl Chooser {
    /// Chains for `contents` that begin with a list of values of `width` bytes, and places of at least `index` bytes;
    /// none if there are too many values. If the values are floats with `digits` digits after the point, the list has
    /// integers. `has_tables` is as in [`CodecTraits`](super::CodecTraits).
    pub(super) fn chains_with_lists(
        &mut self,
        contents: &[u8],
        width: u8,
        index: u8,
        digits: Option<u8>,
        has_tables: bool,
    ) -> Result<Vec<FilterChain>, OutOfMemory> {
        self.listed.by = None;
        let units = match contents.len() >> UNIT_LOG {
            whole @ 1.. if has_tables => &contents[(whole / 2) << UNIT_LOG..][..1 << UNIT_LOG],
            _ => contents,
        };
        for index in index..=2 {
            let dictionary = Stage::Dictionary { width, index, digits };
            let Some(alone) = FilterChain::new(&[dictionary]) else { continue };
            if !apply(&alone, units, &mut self.filtered, &mut self.unit)? {
                continue;
            }
            self.listed.take(&self.filtered, dictionary)?;
            if self.listed.by.is_none() {
                break;
            }
            let delta = Stage::Delta { width: index, order: 1, stride: 1 };
            let differences = Stage::ZigzagDelta { width: index, order: 1, stride: 1 };
            let transpose = Stage::Transpose { width: index };
            let chains: &[&[Stage]] = match index {
                1 => &[&[dictionary], &[dictionary, delta]],
                _ => &[
                    &[dictionary, transpose],
                    &[dictionary],
                    &[dictionary, differences],
                    &[dictionary, differences, transpose],
                ],
            };
            return Ok(chains.iter().filter_map(|stages| FilterChain::new(stages)).collect());
        }
        Ok(Vec::new())
    }

    /// Bytes that pieces of a block of `block_len` bytes take after `chain`, which begins with the units' lists. `None`
    /// if the units have no such lists, or are too short.
    pub(super) fn encoded_with_lists(
        &mut self,
        chain: &FilterChain,
        block_len: usize,
        sample: Sample,
        size: &mut impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<Option<usize>, OutOfMemory> {
        let stages: Vec<_> = chain.stages().collect();
        if self.listed.by != stages.first().copied() {
            return Ok(None);
        }
        let then = FilterChain::new(&stages[1..]);
        let lists_len = match self.listed.list_sizes.iter().find(|(known, _)| known == chain) {
            Some((_, len)) => *len,
            None => {
                let mut lists = self.listed.middle_of_lists();
                if let Some(then) = &then {
                    apply(then, lists, &mut self.filtered, &mut self.unit)?;
                    lists = &self.filtered;
                }
                let len = match lists.len() {
                    0 => 0,
                    taken => size(lists)? * self.listed.lists.len() / taken,
                };
                self.listed.list_sizes.push((*chain, len));
                len
            }
        };
        let contents_len = self.listed.contents_len;
        // Scales `bytes` of the units to `len` bytes of contents.
        let share =
            |bytes: usize, len: usize| (bytes as u64 * len as u64 / contents_len as u64) as usize;
        let all = std::mem::take(&mut self.listed.places);
        let piece_len = share(all.len(), sample.piece_len(block_len)) / PARTS * PARTS;
        // In a transposed unit the planes of places are far apart, so each plane gets tables of its own.
        let planes = if chain.has_transposition() { 2 } else { 1 };
        let parts =
            (self.parts * all.len() / contents_len).clamp(planes.min(self.parts), self.parts);
        // A table that covers more than the places also covers zeros of the list.
        let part_len = (PIECES * piece_len / parts).max(sample.len(block_len) / self.parts);
        let shape = Shape { piece_len, parts, part_len };
        let bytes = match piece_len {
            0 => Ok(None),
            _ => self.encoded_pieces(then.as_ref(), &all, shape, size),
        };
        self.listed.places = all;
        Ok(bytes?.map(|bytes| share(lists_len, sample.len(block_len)) + bytes))
    }
}
