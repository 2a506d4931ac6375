//! Executes sequences: copies literals and matches.

use super::spec::{BATCH, INITIAL_RECENT, RECENT};
use crate::codec::Malformed;
use crate::codec::lanes::LANES;
use core::ops::Range;

/// Up to 64 decoded sequences. That of lane `l` and parity `p` is at `[p][l]`.
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

/// Bytes that a copy may write past its end, if there is room.
const SLACK: usize = 32;

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
        debug_assert!(literals.len() >= literal_end + SLACK);
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
            if end > self.end || self.literal + run > self.literal_end {
                return Err(Malformed("a sequence exceeds its chunk"));
            }
            if length == 0 {
                if value != 0 || run == 0 {
                    return Err(Malformed(
                        "a sequence without a match has an offset or no literals",
                    ));
                }
            } else if offset > match_start - self.window_start {
                return Err(Malformed("an offset reaches before its window"));
            }
            if end + SLACK <= self.block.len() {
                self.copy_literals(run);
                self.pos = match_start;
                if length > 0 {
                    self.copy_match(offset, length);
                }
                self.pos = end;
            } else {
                let from = self.literal;
                self.block[self.pos..match_start].copy_from_slice(&self.literals[from..][..run]);
                self.literal += run;
                if length > 0 {
                    copy_exactly(self.block, offset, match_start..end);
                }
                self.pos = end;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn copy_literals(&mut self, run: usize) {
        let (from, to) = (self.literal, self.pos);
        self.literal += run;
        copy16(&mut self.block[to..], &self.literals[from..]);
        if run > 16 {
            let mut done = 16;
            while done < run {
                copy16(&mut self.block[to + done..], &self.literals[from + done..]);
                done += 16;
            }
        }
    }

    #[inline(always)]
    fn copy_match(&mut self, offset: usize, length: usize) {
        let (to, from) = (self.pos, self.pos - offset);
        if offset >= 16 {
            move16(self.block, from, to);
            if length > 16 {
                move16(self.block, from + 16, to + 16);
                let mut done = 32;
                while done < length {
                    move16(self.block, from + done, to + done);
                    done += 16;
                }
            }
        } else {
            self.repeat(offset, length);
        }
    }

    /// Copies a match whose offset is below 16, so that it overlaps itself.
    #[inline(always)]
    fn repeat(&mut self, offset: usize, length: usize) {
        let to = self.pos;
        let source: [u8; 16] = *self.block[to - offset..].first_chunk().unwrap();
        let pattern: [u8; 16] =
            core::array::from_fn(|i| source[REPEAT[offset & 15][i] as usize & 15]);
        // The largest multiple of the period within 16 bytes.
        let step = 16 - 16 % offset;
        let mut done = 0;
        while done < length {
            *self.block[to + done..].first_chunk_mut().unwrap() = pattern;
            done += step;
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

/// `REPEAT[offset][i]` is `i` modulo `offset`.
const REPEAT: [[u8; 16]; 16] = {
    let mut table = [[0; 16]; 16];
    let mut offset = 1;
    while offset < 16 {
        let mut i = 0;
        while i < 16 {
            table[offset][i] = (i % offset) as u8;
            i += 1;
        }
        offset += 1;
    }
    table
};

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

#[inline(always)]
fn copy16(to: &mut [u8], from: &[u8]) {
    let chunk: [u8; 16] = *from.first_chunk().unwrap();
    *to.first_chunk_mut().unwrap() = chunk;
}

#[inline(always)]
fn move16(bytes: &mut [u8], from: usize, to: usize) {
    let chunk: [u8; 16] = *bytes[from..].first_chunk().unwrap();
    *bytes[to..].first_chunk_mut().unwrap() = chunk;
}

#[cfg(test)]
mod tests {
    use super::*;

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
