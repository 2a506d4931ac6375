//! Undoes a chain of filters.
//!
//! The stages run over tiles of a unit, which stay in the first-level cache. A transposition runs together with the
//! stages before it in the chain.

use super::bit_planes::{self, GROUP, untranspose_all_bits};
use super::dictionary;
use super::transpose::untranspose;
use super::words::Word;
use super::{Context, FilterChain, InvertFault, MAX_STAGES, Stage};
use crate::codec::reserve;

/// Bytes of a tile: all stages of a run finish one before they begin the next. A multiple of every width but those of
/// records.
pub(super) const TILE: usize = 1 << 13;
/// The longest stride whose elements are kept from tile to tile.
const MAX_KEPT: usize = 4;

/// The last elements of a stage in the tile before, for each order.
type Kept = [[u64; MAX_KEPT]; 2];

/// Restores contents from filtered contents.
pub(crate) fn invert(
    chain: &FilterChain,
    contents: &mut [u8],
    scratch: &mut Vec<u8>,
    context: Context<'_>,
) -> Result<(), InvertFault> {
    reserve(scratch, FilterChain::scratch_len(contents.len()))?;
    let mut stages = [Stage::Zigzag { width: 1 }; MAX_STAGES];
    let mut count = 0;
    for stage in chain.stages() {
        stages[count] = stage;
        count += 1;
    }
    for (i, unit) in contents.chunks_mut(chain.unit_len()).enumerate() {
        // Stages after a module in the chain are undone before it.
        let mut left = &stages[..count];
        while let Some(at) = left.iter().rposition(|stage| matches!(stage, Stage::Module(_))) {
            invert_unit(&left[at + 1..], unit, scratch);
            if let Stage::Module(call) = left[at] {
                context.undo(call, i * chain.unit_len(), unit, scratch)?;
            }
            left = &left[..at];
        }
        invert_unit(left, unit, scratch);
    }
    Ok(())
}

fn invert_unit(mut stages: &[Stage], unit: &mut [u8], scratch: &mut Vec<u8>) {
    while let Some((&last, before)) = stages.split_last() {
        if let Stage::Calls { machine } = last {
            machine.undo(unit);
            stages = before;
            continue;
        } else if let Stage::Dictionary { width, index, digits } = last {
            scratch.clear();
            scratch.extend_from_slice(unit);
            match width {
                4 => dictionary::undo::<u32>(scratch, unit, (index, digits)),
                _ => dictionary::undo::<u64>(scratch, unit, (index, digits)),
            }
            stages = before;
            continue;
        } else if last.is_transposition() {
            scratch.clear();
            scratch.extend_from_slice(unit);
            stages = before;
        } else if !runs_in_tiles(last) {
            undo(last, unit, &mut Kept::default());
            stages = before;
            continue;
        }
        // The stages that run in tiles, after the transposition if `last` is one.
        let count = stages.iter().rev().take_while(|&&stage| runs_in_tiles(stage)).count();
        let (later, run) = stages.split_at(stages.len() - count);
        stages = later;
        let mut kept = [Kept::default(); MAX_STAGES];
        let mut shuffle = Shuffle::of(last, unit.len(), scratch);
        if let Some(shuffle) = shuffle.as_mut().filter(|shuffle| !TILE.is_multiple_of(shuffle.step))
        {
            shuffle.undo(unit, 0);
        }
        let mut in_tiles = shuffle.filter(|shuffle| TILE.is_multiple_of(shuffle.step));
        if run.is_empty() && in_tiles.is_none() {
            continue;
        }
        for (i, tile) in unit.chunks_mut(TILE).enumerate() {
            if let Some(shuffle) = &mut in_tiles {
                shuffle.undo(tile, i * TILE);
            }
            for (stage, kept) in run.iter().rev().zip(&mut kept) {
                undo(*stage, tile, kept);
            }
        }
    }
}

/// Whether undoing the stage takes only a tile and a few elements before it.
fn runs_in_tiles(stage: Stage) -> bool {
    match stage {
        Stage::Transpose { .. }
        | Stage::BitTranspose { .. }
        | Stage::Dictionary { .. }
        | Stage::Calls { .. }
        | Stage::Module(_) => false,
        Stage::Delta { stride, .. }
        | Stage::ZigzagDelta { stride, .. }
        | Stage::Xor { stride, .. } => usize::from(stride) <= MAX_KEPT,
        Stage::Zigzag { .. }
        | Stage::Rotate { .. }
        | Stage::Decimal { .. }
        | Stage::NearDecimal { .. } => true,
    }
}

/// A transposition of a unit.
struct Shuffle<'s> {
    is_of_bits: bool,
    width: usize,
    /// Elements of the unit.
    count: usize,
    /// Bytes that move together: an element, or eight of them.
    step: usize,
    planes: &'s [u8],
    /// Room for a tile of byte planes, made from bit planes.
    buffer: [u8; TILE],
}

impl<'s> Shuffle<'s> {
    /// `None` if the stage is not a transposition.
    fn of(stage: Stage, len: usize, planes: &'s [u8]) -> Option<Self> {
        let (is_of_bits, width) = match stage {
            Stage::Transpose { width } => (false, usize::from(width)),
            Stage::BitTranspose { width } => (true, usize::from(width)),
            _ => return None,
        };
        let step = if is_of_bits { 8 * width } else { width };
        Some(Self {
            is_of_bits,
            width,
            count: len / step * step / width,
            step,
            planes,
            buffer: [0; TILE],
        })
    }

    /// Sets `tile`, which begins at byte `start` of the unit.
    fn undo(&mut self, tile: &mut [u8], start: usize) {
        #[cfg(all(feature = "simd", target_arch = "x86_64"))]
        {
            let gains = self.is_of_bits || matches!(self.width, 3 | 4);
            if gains && crate::codec::lanes::avx2::is_available() {
                // SAFETY: the features are present.
                return unsafe { self.undo_with_avx2(tile, start) };
            }
        }
        self.undo_inline(tile, start, bit_planes::join_rows);
    }

    /// [`Self::undo`], compiled for AVX2.
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn undo_with_avx2(&mut self, tile: &mut [u8], start: usize) {
        self.undo_inline(tile, start, |rows, to| bit_planes::join_rows_with_avx2(rows, to));
    }

    /// [`Self::undo`], compiled for the processor that the caller is compiled for.
    #[inline(always)]
    fn undo_inline(
        &mut self,
        tile: &mut [u8],
        start: usize,
        join: impl Fn([&[u8; GROUP]; 8], &mut [u8; 8 * GROUP]),
    ) {
        let first = start / self.width;
        let last = self.count.min((start + tile.len()) / self.width);
        let (planes, width, count) = (self.planes, self.width, self.count);
        if first < last {
            let elements = &mut tile[..(last - first) * width];
            if self.is_of_bits {
                let buffer = &mut self.buffer;
                untranspose_all_bits(planes, elements, width, count, first..last, buffer, join);
            } else {
                untranspose(planes, elements, width, count, first..last);
            }
        }
    }
}

/// Undoes a stage that leaves elements in their places. `kept` are the last elements before the tile.
fn undo(stage: Stage, tile: &mut [u8], kept: &mut Kept) {
    match stage.width() {
        1 => undo_on::<u8>(stage, tile, kept),
        2 => undo_on::<u16>(stage, tile, kept),
        4 => undo_on::<u32>(stage, tile, kept),
        _ => undo_on::<u64>(stage, tile, kept),
    }
}

fn undo_on<W: Word>(stage: Stage, tile: &mut [u8], kept: &mut Kept) {
    let elements = W::elements_mut(tile);
    match stage {
        Stage::ZigzagDelta { width, order, stride } => {
            each(W::elements_mut(tile), W::undo_zigzag);
            undo_on::<W>(Stage::Delta { width, order, stride }, tile, kept);
        }
        Stage::Delta { order: 2, stride: 1, .. } => {
            let [first, second] = kept;
            let mut sums = [W::from_carry(first[0]), W::from_carry(second[0])];
            W::running_sums_of_sums(elements, &mut sums);
            [first[0], second[0]] = sums.map(W::to_carry);
        }
        Stage::Delta { order, stride, .. } => {
            for kept in kept.iter_mut().take(order.into()) {
                if stride == 1 {
                    kept[0] = W::running_sums(elements, W::from_carry(kept[0])).to_carry();
                } else {
                    accumulate(elements, stride.into(), kept, W::add);
                }
            }
        }
        Stage::Xor { stride, .. } => accumulate(elements, stride.into(), &mut kept[0], W::xor),
        Stage::Zigzag { .. } => each(elements, W::undo_zigzag),
        // A constant, for which there are vector instructions.
        Stage::Rotate { bits: 1, .. } => each(elements, |word: W| word.undo_rotate(1)),
        Stage::Rotate { bits, .. } => each(elements, |word: W| word.undo_rotate(bits)),
        Stage::Decimal { digits, .. } => each(elements, |word: W| word.undo_decimal(digits)),
        Stage::NearDecimal { digits } => {
            each(elements, |word: W| word.undo_near_decimal(digits));
        }
        Stage::Transpose { .. }
        | Stage::BitTranspose { .. }
        | Stage::Dictionary { .. }
        | Stage::Calls { .. }
        | Stage::Module(_) => {}
    }
}

fn each<W: Word>(elements: &mut [W::Bytes], act: impl Fn(W) -> W) {
    for element in elements {
        *element = act(W::load(*element)).store();
    }
}

/// Adds to each element the one `stride` before it, as `add` defines it.
fn accumulate<W: Word>(
    elements: &mut [W::Bytes],
    stride: usize,
    kept: &mut [u64; MAX_KEPT],
    add: impl Fn(W, W) -> W,
) {
    match stride {
        1 => accumulate_few::<W, 1>(elements, kept, add),
        2 => accumulate_few::<W, 2>(elements, kept, add),
        3 => accumulate_few::<W, 3>(elements, kept, add),
        4 => accumulate_few::<W, 4>(elements, kept, add),
        _ => {
            // With the whole unit in the tile, nothing comes before it.
            let mut rows = elements.chunks_mut(stride);
            let Some(mut before) = rows.next() else { return };
            for row in rows {
                for (element, before) in row.iter_mut().zip(&*before) {
                    *element = add(W::load(*element), W::load(*before)).store();
                }
                before = row;
            }
        }
    }
}

fn accumulate_few<W: Word, const S: usize>(
    elements: &mut [W::Bytes],
    kept: &mut [u64; MAX_KEPT],
    add: impl Fn(W, W) -> W,
) {
    let mut before: [W; S] = std::array::from_fn(|i| W::from_carry(kept[i]));
    let (groups, rest) = elements.as_chunks_mut::<S>();
    for group in groups {
        for (element, before) in group.iter_mut().zip(&mut before) {
            *before = add(W::load(*element), *before);
            *element = before.store();
        }
    }
    // The next tile begins in the middle of a group.
    let count = rest.len();
    for (element, before) in rest.iter_mut().zip(&mut before) {
        *before = add(W::load(*element), *before);
        *element = before.store();
    }
    before.rotate_left(count);
    for (kept, before) in kept.iter_mut().zip(before) {
        *kept = before.to_carry();
    }
}
