//! The ladder of samples: which chains compete on which sample, and by which margin one must win.
//!
//! Each step costs more than the one before, and so settles only what the cheaper steps left open. Every step has the
//! same form: contenders encode a sample, and the smallest result must beat that of a rival, which is the block
//! without a filter or the chain that leads so far.
//!
//! 1. *Hopeless.* The glance orders its candidates by entropy, so if the first makes a small sample larger by more than
//!    1/16, the others help no more. Chains from elsewhere, such as a header or lists of values, may still help.
//! 2. *Leader.* The best of all candidates leads if it saves anything at all. The sample is too small for a margin:
//!    the larger samples have one.
//! 3. *Lists.* For a codec that works on whole blocks, small samples show too little of the contexts of places in a
//!    list. So a quarter of the block decides between the list's chains and the best chain without a list.
//! 4. *Clear.* For the fastest codecs, choosing must be fast too, so a saving of 1/8 settles that the block is
//!    filtered. It does not if many numbers of the block equal distant ones, out of the samples' reach: the codec would
//!    find these without a filter.
//! 5. *Planes of bits* in place of bytes. They stay in the race if a small sample gets hardly larger.
//! 6. They lead if they save 1/64 of a larger sample, because samples flatter planes. And they hide far repetitions,
//!    which samples do not show: the planes must also be smaller than what the bytes take without such repetitions.
//! 7. *Worth it.* LZ77 has its own tables for each part of a block, so 1/32 of the block shows what the rest will be
//!    like. The leader must save 1/32 of that, to be worth its time. Each unit has a list of its own, so equal bytes of
//!    two units become different places: the block without a filter gets credit for such repetitions.
//! 8. *Not far behind.* A codec that works on whole blocks learns more from each further part, so 1/32 of the block
//!    only refuses a leader that is behind by 1/8.
//! 9. *The middle quarter* then decides, and a saving of 1/128 is enough.
//!
//! Steps 7 to 9 extrapolate. Samples do not show matches that reach farther than a piece, and filters break such
//! matches. But if a larger sample takes fewer bytes for its length than a smaller one did, the block will take fewer
//! still: the choice assumes the same factor again, and after a quarter of the block, when contexts have learned most,
//! a quarter of that.

use super::super::{FilterChain, Stage};
use super::{Chooser, CodecTraits, Sample, repeats};
use crate::codec::OutOfMemory;

/// The steps, in the order in which a block takes them.
const LADDER: [Step; 9] = [
    // 1. Hopeless.
    Step {
        applies: |standing| !standing.candidates.has_others,
        contenders: Contenders::First,
        won: Then::Continue,
        is_enough: |size, plain, _| size <= plain + plain / 16,
        ..Step::BASE
    },
    // 2. Leader.
    Step { contenders: Contenders::All, is_enough: |size, plain, _| size < plain, ..Step::BASE },
    // 3. Lists.
    Step {
        applies: |standing| !standing.codec.has_tables && standing.leads_with_list(),
        contenders: Contenders::Lists,
        sample: Sample::QUARTER,
        is_enough: |size, plain, _| size + size / 128 < plain,
        won: Then::Settle,
        ..Step::BASE
    },
    // 4. Clear.
    Step {
        applies: |standing| standing.codec.is_fast,
        hidden: Hidden::FarNumbers,
        is_enough: |size, _, plain| size + size / 8 < plain,
        won: Then::Settle,
        lost: Then::Continue,
        ..Step::BASE
    },
    // 5. Planes of bits: not hopeless.
    Step {
        contenders: Contenders::Planes,
        rival: Rival::Leader,
        is_enough: |size, bytes, _| size < bytes + bytes / 32,
        won: Then::Continue,
        lost: Then::DropPlanes,
        ..Step::BASE
    },
    // 6. Planes of bits: better.
    Step {
        contenders: Contenders::Planes,
        rival: Rival::Leader,
        sample: Sample::LARGE,
        hidden: Hidden::FarBytes,
        is_enough: |size, bytes, seen| size + size / 64 < bytes && size < seen,
        lost: Then::Continue,
        ..Step::BASE
    },
    // 7. Worth it.
    Step {
        applies: |standing| standing.codec.has_tables,
        sample: Sample::LARGE,
        extrapolated: Some(Extrapolation { before: Sample::SMALL, trusted: 1 }),
        hidden: Hidden::OtherUnits,
        is_enough: |size, _, plain| size + size / 32 < plain,
        ..Step::BASE
    },
    // 8. Not far behind.
    Step {
        applies: |standing| !standing.codec.has_tables,
        sample: Sample::LARGE,
        extrapolated: Some(Extrapolation { before: Sample::SMALL, trusted: 1 }),
        is_enough: |size, plain, _| size <= plain + plain / 8,
        ..Step::BASE
    },
    // 9. The middle quarter.
    Step {
        applies: |standing| !standing.codec.has_tables,
        sample: Sample::Middle,
        extrapolated: Some(Extrapolation { before: Sample::LARGE, trusted: 4 }),
        is_enough: |size, plain, _| size + size / 128 < plain,
        ..Step::BASE
    },
];

/// Contenders encode a sample. The best of them wins if it beats the rival by enough.
struct Step {
    /// Whether a block takes the step.
    applies: fn(&Standing<'_>) -> bool,
    contenders: Contenders,
    rival: Rival,
    sample: Sample,
    /// How to infer the block's size from the sample's. `None` compares the samples.
    extrapolated: Option<Extrapolation>,
    /// Repetitions that only help the rival, and that the sample does not show.
    hidden: Hidden,
    /// Whether the best contender wins, by its size, the rival's, and the rival's less the hidden repetitions.
    is_enough: fn(usize, usize, usize) -> bool,
    won: Then,
    lost: Then,
}

impl Step {
    /// The leader against no filter, on a small sample.
    const BASE: Self = Self {
        applies: |_| true,
        contenders: Contenders::Leader,
        rival: Rival::NoFilter,
        sample: Sample::SMALL,
        extrapolated: None,
        hidden: Hidden::Nothing,
        is_enough: |_, _, _| true,
        won: Then::Lead,
        lost: Then::Refuse,
    };
}

#[derive(Clone, Copy)]
enum Contenders {
    /// The first candidate.
    First,
    /// All candidates.
    All,
    /// The leader.
    Leader,
    /// The leader, the best candidate without a list, and the list alone.
    Lists,
    /// The leader with planes of bits in place of bytes, if its last stage transposes bytes. Only for codecs with
    /// tables.
    Planes,
}

#[derive(Clone, Copy)]
enum Rival {
    /// The block without a filter. Nothing competes with it any more once the choice is settled.
    NoFilter,
    Leader,
}

#[derive(Clone, Copy)]
enum Hidden {
    Nothing,
    /// Numbers that equal others far away: see [`repeats::come_from_afar`]. If there are many, nothing is seen.
    FarNumbers,
    /// For codecs with matches: see [`repeats::without_far_bytes`].
    FarBytes,
    /// For codecs with matches, if the leader has lists: see [`repeats::without_other_units`].
    OtherUnits,
}

/// What a step's outcome means.
#[derive(Clone, Copy)]
enum Then {
    Continue,
    /// The winner leads.
    Lead,
    /// The winner leads, and the block is filtered.
    Settle,
    DropPlanes,
    /// The block is not filtered.
    Refuse,
}

/// How to infer a block's size from those of two samples.
#[derive(Clone, Copy)]
struct Extrapolation {
    /// The smaller sample.
    before: Sample,
    /// 1/n of the expected saving counts.
    trusted: usize,
}

impl Extrapolation {
    /// The expected size of the block, scaled to the length of the second of two samples.
    fn apply(self, sizes: [usize; 2], lens: [usize; 2]) -> usize {
        sizes[1] - (sizes[1] - expected(sizes, lens)) / self.trusted
    }
}

/// Chains to choose from, the most promising first.
#[derive(Default)]
pub(super) struct Candidates {
    pub chains: Vec<FilterChain>,
    /// Whether some do not come from the glance.
    pub has_others: bool,
}

/// What the steps so far have found.
struct Standing<'a> {
    codec: CodecTraits,
    candidates: &'a Candidates,
    leader: Option<FilterChain>,
    /// The first leader. Its smaller samples also stand for those of its planes, which small samples flatter most.
    first: Option<FilterChain>,
    may_have_planes: bool,
    is_settled: bool,
    /// Bytes of samples, with a chain or without.
    sizes: Vec<(Sample, Option<FilterChain>, usize)>,
}

impl Standing<'_> {
    fn leads_with_list(&self) -> bool {
        self.leader.is_some_and(|leader| leader.has_dictionary())
    }

    fn size(&self, sample: Sample, chain: Option<FilterChain>) -> Option<usize> {
        let known = self.sizes.iter().find(|known| (known.0, known.1) == (sample, chain));
        known.map(|(_, _, size)| *size)
    }

    /// The candidate without a list that takes the fewest bytes of a small sample.
    fn best_without_list(&self) -> Option<FilterChain> {
        let chains = self.candidates.chains.iter().copied();
        chains
            .filter(|chain| !chain.has_dictionary())
            .min_by_key(|chain| self.size(Sample::SMALL, Some(*chain)))
    }

    fn contenders(&self, contenders: Contenders) -> Vec<FilterChain> {
        let chains = &self.candidates.chains;
        let leader = self.leader.into_iter();
        match contenders {
            Contenders::First => chains.iter().take(1).copied().collect(),
            Contenders::All => chains.clone(),
            Contenders::Leader => leader.collect(),
            Contenders::Lists => {
                let is_alone =
                    |chain: &FilterChain| chain.has_dictionary() && chain.has_one_stage();
                let alone = chains.iter().copied().find(is_alone);
                let alone = alone.filter(|alone| Some(*alone) != self.leader);
                leader.chain(self.best_without_list()).chain(alone).collect()
            }
            Contenders::Planes if self.may_have_planes => {
                leader.filter_map(|leader| with_bits(&leader)).collect()
            }
            Contenders::Planes => Vec::new(),
        }
    }

    fn rival(&self, rival: Rival) -> Option<FilterChain> {
        match rival {
            Rival::NoFilter => None,
            Rival::Leader => self.leader,
        }
    }

    /// The rival's bytes, less the repetitions in `contents` that a sample does not show.
    fn seen(&self, hidden: Hidden, bytes: usize, contents: &[u8]) -> Result<usize, OutOfMemory> {
        match hidden {
            Hidden::FarNumbers if repeats::come_from_afar(contents)? => Ok(0),
            Hidden::FarBytes if self.codec.has_matches => {
                repeats::without_far_bytes(bytes, contents)
            }
            Hidden::OtherUnits if self.codec.has_matches && self.leads_with_list() => {
                repeats::without_other_units(bytes, contents)
            }
            _ => Ok(bytes),
        }
    }

    /// Bytes of the step's sample with `chain`, or of the block, scaled to the sample's length.
    fn estimate(
        &mut self,
        step: &Step,
        chain: Option<FilterChain>,
        chooser: &mut Chooser,
        contents: &[u8],
        size: &mut impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<usize, OutOfMemory> {
        let first = self.first;
        let mut encoded = |sample, chain: Option<FilterChain>| {
            if let Some(bytes) = self.size(sample, chain) {
                return Ok(bytes);
            }
            let bytes = chooser.encoded(chain.as_ref(), contents, sample, size)?;
            self.sizes.push((sample, chain, bytes));
            Ok(bytes)
        };
        let bytes = encoded(step.sample, chain)?;
        let Some(extrapolation) = step.extrapolated else { return Ok(bytes) };
        let before = encoded(extrapolation.before, chain.and(first))?;
        let lens = [extrapolation.before, step.sample].map(|sample| sample.len(contents.len()));
        Ok(extrapolation.apply([before, bytes], lens))
    }
}

/// The chain among `candidates` for `contents`; `None` if filtering does not pay. `size` is as in [`Chooser::choose`].
pub(super) fn climb(
    chooser: &mut Chooser,
    contents: &[u8],
    codec: CodecTraits,
    candidates: &Candidates,
    size: &mut impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
) -> Result<Option<FilterChain>, OutOfMemory> {
    let mut standing = Standing {
        codec,
        candidates,
        leader: None,
        first: None,
        may_have_planes: codec.has_tables,
        is_settled: false,
        sizes: Vec::new(),
    };
    for step in &LADDER {
        let is_open = !(standing.is_settled && matches!(step.rival, Rival::NoFilter));
        let contenders = standing.contenders(step.contenders);
        if contenders.is_empty() || !is_open || !(step.applies)(&standing) {
            continue;
        }
        let rival = standing.rival(step.rival);
        let mut estimate = |chain| standing.estimate(step, chain, chooser, contents, size);
        let bytes = estimate(rival)?;
        let mut best = (usize::MAX, contenders[0]);
        for chain in contenders {
            let size = estimate(Some(chain))?;
            if size < best.0 {
                best = (size, chain);
            }
        }
        let is_enough = |seen| (step.is_enough)(best.0, bytes, seen);
        // Hidden repetitions take long to find, and only help the rival.
        let has_won = is_enough(bytes) && is_enough(standing.seen(step.hidden, bytes, contents)?);
        let outcome = if has_won { step.won } else { step.lost };
        match outcome {
            Then::Continue => {}
            Then::Lead | Then::Settle => {
                standing.leader = Some(best.1);
                standing.first = standing.first.or(standing.leader);
                standing.is_settled |= matches!(outcome, Then::Settle);
            }
            Then::DropPlanes => standing.may_have_planes = false,
            Then::Refuse => return Ok(None),
        }
    }
    Ok(standing.leader)
}

/// The expected size of the block, scaled to the length of the second of two samples. The second takes fewer bytes for
/// its length than the first by some factor; the block is expected to take fewer than the second by the same factor.
fn expected([first, second]: [usize; 2], lens: [usize; 2]) -> usize {
    let [first, second] = [first as u128, second as u128];
    let scaled = first * lens[1] as u128 / lens[0] as u128;
    (second * second / scaled.max(second).max(1)) as usize
}

/// The chain with bits transposed instead of bytes, if its elements are no records.
fn with_bits(chain: &FilterChain) -> Option<FilterChain> {
    let mut stages: Vec<_> = chain.stages().collect();
    match stages.last_mut() {
        Some(last @ &mut Stage::Transpose { width }) => {
            *last = Stage::BitTranspose { width };
            FilterChain::new(&stages)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_saves_much_does_not_promise_all() {
        let lens = [1 << 14, 1 << 16];
        assert_eq!(expected([1000, 4000], lens), 4000, "nothing saved");
        assert_eq!(expected([1000, 2000], lens), 1000, "half, and half again");
        assert_eq!(expected([1000, 5000], lens), 5000, "no loss is expected");
        assert_eq!(expected([0, 0], lens), 0);
        // A wave with a period of twelve pieces: differences take less than a seventh of it in the small sample.
        assert!(expected([716, 1988], lens) < expected([5768, 8628], lens));
        expected([usize::MAX / 8; 2], lens);
    }
}
