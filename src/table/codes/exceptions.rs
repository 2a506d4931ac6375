//! Values that a node cannot express, by vector and lane.
//!
//! The exceptions of a vector come in rounds, at most one for each lane in each: a work item finds its own by counting
//! the mask's bits below its lane, without a sum over lanes. (G-ALP, "Rethinking Light-weight Encodings for GPUs",
//! DaMoN 2025, gives lanes their exceptions by offsets instead.)

use super::spec::{LANES, ROWS_PER_EXCEPTION, VECTOR, vectors};
use super::value::Value;
use crate::codec::Malformed;

/// The checked exceptions of a node; `starts` is empty if it has none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Exceptions<'a> {
    starts: &'a [[u8; 4]],
    rounds: &'a [[u8; 4]],
}

/// A round: a mask, the steps, the values.
struct Round<'a> {
    mask: u32,
    steps: &'a [u8],
    values: &'a [[u8; 4]],
}

/// Words of a value.
const fn words_of<T: Value>() -> usize {
    T::BITS.div_ceil(32) as usize
}

/// Splits the round off that `words` begin with.
fn split_round<'a, T: Value>(words: &'a [[u8; 4]]) -> Option<(Round<'a>, &'a [[u8; 4]])> {
    let (&mask, words) = words.split_first()?;
    let mask = u32::from_le_bytes(mask);
    let count = mask.count_ones() as usize;
    let (steps, words) = words.split_at_checked(count.div_ceil(4))?;
    let (values, words) = words.split_at_checked(count * words_of::<T>())?;
    Some((Round { mask, steps: steps.as_flattened(), values }, words))
}

impl Round<'_> {
    /// Calls `act` with lane, step and value of each exception.
    fn each<T: Value>(&self, mut act: impl FnMut(usize, usize, T)) {
        let count = self.mask.count_ones() as usize;
        let mut lanes = self.mask;
        for i in 0..count {
            let lane = lanes.trailing_zeros() as usize;
            lanes &= lanes - 1;
            let word = |k: usize| u32::from_le_bytes(self.values[k * count + i]).into();
            let value = (1..words_of::<T>())
                .fold(T::from_u64(word(0)), |x, k| x.xor(T::from_u64(word(k)).shl(32 * k as u32)));
            act(lane, self.steps[i].into(), value);
        }
    }
}

impl<'a> Exceptions<'a> {
    /// Checks every rule of the format. `rows` is the length of the node's sequence.
    pub(crate) fn new<T: Value>(
        starts: &'a [u8],
        rounds: &'a [u8],
        rows: usize,
    ) -> Result<Self, Malformed> {
        let this = Self { starts: starts.as_chunks().0, rounds: rounds.as_chunks().0 };
        if this.starts.is_empty() {
            return Ok(this);
        }
        let first = u32::from_le_bytes(this.starts[0]);
        let last = u32::from_le_bytes(this.starts[this.starts.len() - 1]);
        if first != 0 || last as usize != this.rounds.len() {
            return Err(Malformed("rounds of exceptions do not start or end with their part"));
        }
        let mut count = 0;
        for vector in 0..vectors(rows) {
            let [start, end] = this.bounds(vector);
            let words = this.rounds.get(start..end);
            let words = words.ok_or(Malformed("rounds of exceptions are out of order"))?;
            count += check_vector::<T>(words, VECTOR.min(rows - vector * VECTOR))?;
        }
        if count > rows / ROWS_PER_EXCEPTION {
            return Err(Malformed("too many exceptions"));
        }
        Ok(this)
    }

    pub(crate) fn is_none(&self) -> bool {
        self.starts.is_empty()
    }

    fn bounds(&self, vector: usize) -> [usize; 2] {
        [0, 1].map(|i| u32::from_le_bytes(self.starts[vector + i]) as usize)
    }

    /// Calls `act` with the row in the vector and the value of each exception of a vector.
    #[inline]
    pub(crate) fn each<T: Value>(&self, vector: usize, mut act: impl FnMut(usize, T)) {
        if self.starts.is_empty() {
            return;
        }
        let [start, end] = self.bounds(vector);
        let mut words = &self.rounds[start..end];
        while let Some((round, rest)) = split_round::<T>(words) {
            round.each(|lane, step, value| act(step * LANES + lane, value));
            words = rest;
        }
    }

    /// Puts the values of a vector's exceptions in their places.
    #[inline]
    pub(crate) fn patch<T: Value>(&self, vector: usize, out: &mut [T; VECTOR]) {
        self.each(vector, |row, value| out[row % VECTOR] = value);
    }
}

/// Checks the rounds of a vector of `rows` rows, and counts its exceptions.
fn check_vector<T: Value>(mut words: &[[u8; 4]], rows: usize) -> Result<usize, Malformed> {
    let (mut before, mut least_steps, mut count) = (u32::MAX, [0; LANES], 0);
    while !words.is_empty() {
        let (round, rest) =
            split_round::<T>(words).ok_or(Malformed("a round of exceptions is cut off"))?;
        if round.mask == 0 || round.mask & !before != 0 {
            return Err(Malformed("a round of exceptions has lanes that it must not have"));
        }
        let mut fault = None;
        round.each(|lane, step, value: T| {
            if step < least_steps[lane] || step * LANES + lane >= rows {
                fault = Some(Malformed("an exception is out of order or of no row"));
            }
            least_steps[lane] = step + 1;
            count += 1;
            let _ = value;
        });
        let narrow = T::BITS < 32
            && round.values.iter().any(|&word| u32::from_le_bytes(word) >> T::BITS != 0);
        if narrow || round.steps[round.mask.count_ones() as usize..].iter().any(|&step| step != 0) {
            fault = Some(Malformed("a round of exceptions has bits that must be 0"));
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        before = round.mask;
        words = rest;
    }
    Ok(count)
}

/// The parts `starts` and `rounds` for exceptions (row, value) in the order of rows; both empty if there are none.
pub(crate) fn write<T: Value>(exceptions: &[(u32, T)], rows: usize) -> [Vec<u8>; 2] {
    if exceptions.is_empty() {
        return [Vec::new(), Vec::new()];
    }
    let (mut starts, mut rounds) = (vec![0; 4], Vec::new());
    let mut rest = exceptions;
    for vector in 1..=vectors(rows) {
        let end = rest.partition_point(|&(row, _)| (row as usize) < vector * VECTOR);
        let (mut here, after) = (rest[..end].to_vec(), &rest[end..]);
        rest = after;
        while !here.is_empty() {
            let mut lanes: [Option<(u32, T)>; LANES] = [None; LANES];
            here.retain(|&(row, value)| {
                let lane = &mut lanes[row as usize % LANES];
                let later = lane.is_some();
                lane.get_or_insert((row, value));
                later
            });
            let taken = || lanes.iter().flatten();
            let bits = lanes.iter().zip(0..).map(|(lane, l)| u32::from(lane.is_some()) << l);
            rounds.extend_from_slice(&bits.sum::<u32>().to_le_bytes());
            rounds.extend(taken().map(|(row, _)| (*row as usize % VECTOR / LANES) as u8));
            rounds.resize(rounds.len().next_multiple_of(4), 0);
            for k in 0..words_of::<T>() {
                let word = |value: T| value.shr(32 * k as u32).low() as u32;
                rounds.extend(taken().flat_map(|&(_, value)| word(value).to_le_bytes()));
            }
        }
        starts.extend_from_slice(&((rounds.len() / 4) as u32).to_le_bytes());
    }
    [starts, rounds]
}
