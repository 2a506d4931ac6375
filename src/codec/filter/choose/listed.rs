//! Samples of blocks whose units have lists of their values.
//!
//! A piece of a block would have a list of its own, much longer for its length than that of a unit. So one whole unit is
//! filtered, and pieces are taken of the result, from each quarter alike. Few of them would meet a short list, so lists are
//! encoded apart from them. For a codec that works on whole blocks, all units are filtered: its contexts reach from one to another.

use super::super::{FilterChain, Stage, UNIT_LOG, dictionary};
use super::{Chooser, PARTS, PIECES, Sample, apply, places};
use crate::codec::{OutOfMemory, reserve};

/// The most bytes of lists that the codec encodes.
const MAX_ENCODED: usize = 1 << 15;

/// The lists of units.
#[derive(Default)]
pub(super) struct Lists {
    bytes: Vec<u8>,
    /// Bytes that the codec takes for them in each chain.
    sizes: Vec<(FilterChain, usize)>,
}

impl Lists {
    /// Entries in the middle, of 8 bytes or fewer.
    fn middle(&self) -> &[u8] {
        let len = self.bytes.len().min(MAX_ENCODED);
        &self.bytes[(self.bytes.len() - len) / 2 / 8 * 8..][..len]
    }
}

impl Chooser {
    /// Chains for `contents` that begin with a list of values of `width` bytes; none if there are too many values. If they are
    /// floats with so many `digits` behind the point, the list has integers. `has_tables` is as for [`Chooser::choose`].
    pub(super) fn chains_with_lists(
        &mut self,
        contents: &[u8],
        width: u8,
        digits: Option<u8>,
        has_tables: bool,
    ) -> Result<Vec<FilterChain>, OutOfMemory> {
        let units = match contents.len() >> UNIT_LOG {
            whole @ 1.. if has_tables => &contents[(whole / 2) << UNIT_LOG..][..1 << UNIT_LOG],
            _ => contents,
        };
        for index in [1, 2] {
            let dictionary = Stage::Dictionary { width, index, digits };
            let Some(alone) = FilterChain::new(&[dictionary]) else { continue };
            self.listed_by = None;
            if !apply(&alone, units, &mut self.listed, &mut self.unit)? {
                continue;
            }
            self.listed_by = Some(dictionary);
            self.take_lists(width.into(), index.into())?;
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

    /// Moves the lists to a place of their own.
    fn take_lists(&mut self, width: usize, index: usize) -> Result<(), OutOfMemory> {
        let lists = &mut self.lists;
        lists.sizes.clear();
        lists.bytes.clear();
        reserve(&mut lists.bytes, self.listed.len())?;
        for unit in self.listed.chunks_mut(1 << UNIT_LOG) {
            let range = dictionary::list_range(unit.len(), width, index);
            let list = &mut unit[range];
            let zeros = list.iter().rev().take_while(|&&byte| byte == 0).count();
            let used = (list.len() - zeros).next_multiple_of(width);
            lists.bytes.extend_from_slice(&list[..used]);
            list[..used].fill(0);
        }
        Ok(())
    }

    /// Bytes that pieces of a block of `block_len` bytes take after `chain`, which begins with the lists that its units have.
    /// `None` if they have no such lists, or are too short.
    pub(super) fn encoded_with_lists(
        &mut self,
        chain: &FilterChain,
        block_len: usize,
        sample: Sample,
        size: &mut impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<Option<usize>, OutOfMemory> {
        let stages: Vec<_> = chain.stages().collect();
        if self.listed_by != stages.first().copied() {
            return Ok(None);
        }
        let then = FilterChain::new(&stages[1..]);
        let lists_len = match self.lists.sizes.iter().find(|(known, _)| known == chain) {
            Some((_, len)) => *len,
            None => {
                let mut lists = self.lists.middle();
                if let Some(then) = &then {
                    apply(then, lists, &mut self.filtered, &mut self.unit)?;
                    lists = &self.filtered;
                }
                let len = match lists.len() {
                    0 => 0,
                    taken => size(lists)? * self.lists.bytes.len() / taken,
                };
                self.lists.sizes.push((*chain, len));
                len
            }
        };
        let mut all = &self.listed;
        if let Some(then) = &then {
            apply(then, all, &mut self.filtered, &mut self.unit)?;
            all = &self.filtered;
        }
        let (piece_len, len) = (sample.piece_len(block_len), sample.len(block_len));
        let quarter = piece_len / PARTS;
        reserve(&mut self.sample, len)?;
        self.sample.clear();
        self.sample.resize(len, 0);
        for (i, place) in places(all.len(), PIECES, piece_len).enumerate() {
            let start = place.start >> UNIT_LOG << UNIT_LOG;
            let unit = &all[start..all.len().min(start + (1 << UNIT_LOG))];
            let Some(last) = (unit.len() / PARTS).checked_sub(quarter) else { return Ok(None) };
            for j in 0..PARTS {
                let from = j * (unit.len() / PARTS) + ((place.start - start) / PARTS).min(last);
                self.sample[(j * PIECES + i) * quarter..][..quarter]
                    .copy_from_slice(&unit[from..from + quarter]);
            }
        }
        let mut total = (lists_len as u64 * len as u64 / all.len() as u64) as usize;
        for part in self.sample.chunks_exact(len / self.parts) {
            total += size(part)?;
        }
        Ok(Some(total))
    }
}
