//! Executes sequences: copies literals and matches.

use core::ops::Range;

use super::spec::{BATCH, INITIAL_RECENT, RECENT};
use crate::codec::Malformed;
use crate::codec::lanes::LANES;

/// Up to 64 decoded sequences. The one of lane `l` and parity `p` is at `[p][l]`.
pub(crate) struct SequenceBatch {
    /// `literals | length << 16`.
    pub lengths: [[u32; LANES]; 2],
    /// A recent offset if below [`RECENT`], otherwise an explicit offset plus `RECENT - 1`.
    pub offsets: [[u32; LANES]; 2],
    /// Not zero if a literal run or a match is longer than the format allows.
    pub exceeds: u32,
}

impl Default for SequenceBatch {
    fn default() -> Self {
        Self { lengths: [[0; LANES]; 2], offsets: [[0; LANES]; 2], exceeds: 0 }
    }
}

/// Bytes that a copy reads and writes at once, needed or not: most literal runs and matches are no longer, and the
/// processor cannot predict which are. So a copy may overrun its end by up to this many bytes.
const SLACK: usize = 32;

/// Matches at this offset or a longer one are copied 16 bytes at a time.
const FAR: usize = 16;

/// Number of explicit offsets kept: any power of two above [`RECENT`].
const RING: usize = 4;

/// Executes the sequences of one chunk.
pub(crate) struct Executor<'a> {
    block: &'a mut [u8],
    window_start: usize,
    pos: usize,
    end: usize,
    /// The chunk's literals, followed by at least [`SLACK`] other bytes.
    literals: &'a [u8],
    literal: usize,
    literal_end: usize,
    ring: [u32; RING],
    explicit: usize,
}

impl<'a> Executor<'a> {
    #[inline(always)]
    pub(crate) fn new(
        block: &'a mut [u8],
        window_start: usize,
        chunk: Range<usize>,
        literals: &'a [u8],
        literal_end: usize,
    ) -> Self {
        // The copies rely on these.
        assert!(window_start <= chunk.start && chunk.end <= block.len());
        assert!(literals.len() >= literal_end + SLACK);
        let mut ring = [0; RING];
        for (i, &offset) in INITIAL_RECENT.iter().enumerate() {
            ring[RECENT - 1 - i] = offset;
        }
        Self {
            block,
            window_start,
            pos: chunk.start,
            end: chunk.end,
            literals,
            literal: 0,
            literal_end,
            ring,
            explicit: RECENT,
        }
    }

    /// Executes the first `n` sequences of a batch.
    #[inline(always)]
    pub(crate) fn run(&mut self, batch: &SequenceBatch, n: usize) -> Result<(), Malformed> {
        debug_assert!(n <= BATCH);
        if batch.exceeds != 0 {
            return Err(Malformed("a run or a match is too long"));
        }
        for i in 0..n {
            let (parity, lane) = (i & 1, (i >> 1) & (LANES - 1));
            let lengths = batch.lengths[parity][lane];
            let (run, length) = (lengths as usize & 0xffff, lengths as usize >> 16);
            let value = batch.offsets[parity][lane];

            let is_explicit = value >= RECENT as u32;
            let recent = self.ring[self.explicit.wrapping_sub(1 + value as usize) % RING];
            let offset = if is_explicit { value - (RECENT as u32 - 1) } else { recent } as usize;
            self.ring[self.explicit % RING] = offset as u32;
            self.explicit += usize::from(is_explicit);

            let match_start = self.pos + run;
            let end = match_start + length;
            let is_empty = (length == 0) & ((value != 0) | (run == 0));
            let exceeds = (end > self.end) | (self.literal + run > self.literal_end);
            let leaves_window = offset > match_start - self.window_start;
            if is_empty | exceeds | leaves_window {
                return Err(if exceeds {
                    Malformed("a sequence exceeds its chunk")
                } else if is_empty {
                    Malformed("a sequence without a match has an offset or no literals")
                } else {
                    Malformed("an offset reaches before its window")
                });
            }
            if end + SLACK <= self.block.len() {
                // SAFETY: the sequence has just been checked. `SLACK` bytes follow it in the block, and `SLACK` bytes
                // follow the last literal.
                unsafe { self.copy(run, offset, length) };
            } else {
                let from = self.literal;
                self.block[self.pos..match_start].copy_from_slice(&self.literals[from..][..run]);
                copy_exactly(self.block, offset, match_start..end);
            }
            self.literal += run;
            self.pos = end;
        }
        Ok(())
    }

    /// Copies the next `run` literals, and after them a match of `length` bytes from `offset` bytes before.
    ///
    /// # Safety
    /// At least `run` literals remain. The match begins within the block, and at least [`SLACK`] bytes of the block
    /// follow its end.
    #[inline(always)]
    unsafe fn copy(&mut self, run: usize, offset: usize, length: usize) {
        // SAFETY: no copy reads or writes more than `SLACK` bytes past the end of the run or the match. Copies within
        // the block read only bytes before the first byte that they write.
        unsafe {
            let from = self.literals.as_ptr().add(self.literal);
            let to = self.block.as_mut_ptr().add(self.pos);
            copy_bytes::<32>(from, to);
            let mut done = 32;
            while done < run {
                copy_bytes::<32>(from.add(done), to.add(done));
                done += 32;
            }
            let to = to.add(run);
            let from = to.sub(offset);
            if offset >= FAR {
                copy_bytes::<16>(from, to);
                copy_bytes::<16>(from.add(16), to.add(16));
                let mut done = 32;
                while done < length {
                    copy_bytes::<16>(from.add(done), to.add(done));
                    done += 16;
                }
            } else if length > 0 {
                repeat(offset, to, length);
            }
        }
    }

    /// Checks that the chunk is complete.
    #[inline(always)]
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        if self.pos != self.end || self.literal != self.literal_end {
            return Err(Malformed("a chunk's sequences do not fill it"));
        }
        Ok(())
    }
}

/// Copies `N` bytes at once.
///
/// # Safety
/// `N` bytes at `from` can be read, and `N` at `to` written.
#[inline(always)]
unsafe fn copy_bytes<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise. Arrays of bytes need no alignment.
    unsafe { *to.cast::<[u8; N]>() = *from.cast::<[u8; N]>() }
}

/// A multiple of each offset below [`FAR`]. It is at least 8, the least distance between copies of 8 bytes.
const MULTIPLES: [u8; FAR] = [0, 8, 8, 9, 8, 10, 12, 14, 8, 9, 10, 11, 12, 13, 14, 15];

/// Copies a match that may overlap itself: its `offset` is less than [`FAR`].
///
/// # Safety
/// `offset` bytes before `to` can be read, and `length` and seven more from `to` on can be read and written.
#[inline(always)]
unsafe fn repeat(offset: usize, to: *mut u8, length: usize) {
    // SAFETY: the caller's promise. All bytes read at or after `to` have been written before.
    unsafe {
        let from = to.sub(offset);
        if offset < 8 {
            for i in 0..8 {
                *to.add(i) = *from.add(i);
            }
        } else {
            copy_bytes::<8>(from, to);
        }
        let multiple = MULTIPLES[offset % FAR] as usize;
        let mut done = 8;
        while done < length {
            copy_bytes::<8>(to.add(done).sub(multiple), to.add(done));
            done += 8;
        }
    }
}

/// Copies a match to `range`, and writes nothing after it.
#[inline(never)]
fn copy_exactly(bytes: &mut [u8], offset: usize, range: Range<usize>) {
    let (from, mut at) = (range.start - offset, range.start);
    while at < range.end {
        // From here to `at`, bytes repeat with a period of `offset`: each round can copy twice as many.
        let n = (at - from).min(range.end - at);
        bytes.copy_within(from..from + n, at);
        at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_offset_and_length_is_copied_right() {
        let literals: Vec<u8> = (0..200).map(|i| 255 - i).collect();
        for offset in 1..=70u32 {
            for (run, length) in (0..70).flat_map(|run| (3..100).map(move |length| (run, length))) {
                let before: Vec<u8> = (0..70).collect();
                let mut expected = before.clone();
                expected.extend_from_slice(&literals[..run]);
                for _ in 0..length {
                    expected.push(expected[expected.len() - offset as usize]);
                }
                let end = expected.len();
                let mut batch = SequenceBatch::default();
                batch.lengths[0][0] = (run | length << 16) as u32;
                batch.offsets[0][0] = offset + RECENT as u32 - 1;
                // With room for the copies' overrun, and without.
                for room in [SLACK, SLACK - 1, 0] {
                    let mut block = vec![99; end + room];
                    block[..before.len()].copy_from_slice(&before);
                    let chunk = before.len()..end;
                    let literals = &literals[..run + SLACK];
                    let mut executor = Executor::new(&mut block, 0, chunk, literals, run);
                    executor.run(&batch, 1).unwrap();
                    executor.finish().unwrap();
                    assert!(block[..end] == expected, "{run} and {length} at {offset}, {room}");
                    assert!(room == SLACK || block[end..].iter().all(|&byte| byte == 99));
                }
            }
        }
    }

    #[test]
    fn an_exact_copy_repeats_its_period() {
        for offset in 1..40 {
            for length in 0..200 {
                let mut bytes: Vec<u8> = (0..250).collect();
                let mut expected = bytes.clone();
                for i in 45..45 + length {
                    expected[i] = expected[i - offset];
                }
                copy_exactly(&mut bytes, offset, 45..45 + length);
                assert!(bytes == expected, "{length} bytes at offset {offset}");
            }
        }
    }
}
