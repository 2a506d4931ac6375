//! Finds the kind of a node that costs the least.

use super::distinct::{count_runs, distinct};
use super::floats::{Cut, decimals};
use super::recipe::{Recipe, cost, node_time};
use super::tree::{Children, Writer, plain};
use super::{Coded, sample};
use crate::table::codes::spec::*;
use crate::table::codes::value::Value;

/// Beyond this share of distinct values or runs, in eighths, neither dictionary nor runs is tried.
const EIGHTHS: usize = 3;

impl Writer {
    /// Writes a sequence in the code that a sample says costs the least.
    pub(super) fn best<T: Value>(
        self,
        values: &[T],
        order: Order,
        above: Above,
    ) -> (Coded, Recipe) {
        if values.iter().all(|value| Some(value) == values.first())
            && let Some(found) = self.build(&Recipe::Constant, values, order)
        {
            return found;
        }
        let sampled = sample(values);
        let is_all = sampled.len() == values.len();
        let mut candidates = self.candidates(&sampled, values, order, above);
        candidates.sort_by_key(|(cost, ..)| *cost);
        let mut best: Option<(u64, (Coded, Recipe))> = None;
        for (estimate, coded, recipe) in candidates {
            if is_all {
                return (coded, recipe);
            }
            // The sample may promise too much. Then the next candidate may be better.
            let estimate = u128::from(estimate) * values.len() as u128 / sampled.len() as u128;
            if best
                .as_ref()
                .is_some_and(|(least, _)| u128::from(*least) <= estimate + estimate / 16)
            {
                break;
            }
            if let Some(found) = self.whole(&recipe, values, order, above) {
                let cost = found.0.cost();
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    best = Some((cost, found));
                }
            }
        }
        if let Some((_, best)) = best {
            return best;
        }
        (plain(values), Recipe::Plain)
    }

    /// Writes the whole sequence with the root's kind of `recipe`; children are chosen anew, from all of their values.
    fn whole<T: Value>(
        self,
        recipe: &Recipe,
        values: &[T],
        order: Order,
        above: Above,
    ) -> Option<(Coded, Recipe)> {
        let children = Children::Best(above.with(recipe.kind()));
        match recipe {
            Recipe::Dictionary(_) => self.dictionary(values, order, children),
            Recipe::Runs(_) => self.runs(values, order, children),
            Recipe::Decimal { near, .. } => self.decimal(values, *near, children),
            Recipe::Split { cut, .. } => self.split(values, *cut, children),
            _ => self.build(recipe, values, order),
        }
    }

    /// Codes of the sample that may be the best for `values`, with their costs.
    fn candidates<T: Value>(
        self,
        sampled: &[T],
        values: &[T],
        order: Order,
        above: Above,
    ) -> Vec<(u64, Coded, Recipe)> {
        let rows = sampled.len();
        let mut found = Vec::new();
        let mut add = |candidate: Option<(Coded, Recipe)>| {
            if let Some((coded, recipe)) = candidate {
                found.push((coded.cost(), coded, recipe));
            }
        };
        add(self.build(&Recipe::Plain, sampled, order));
        add(self.build(&Recipe::Packed, sampled, order));
        add(self.build(&Recipe::Line, sampled, order));
        if !above.permits_children() {
            return found;
        }
        let children = |kind| Children::Best(above.with(kind));
        if above.permits(Kind::Runs) && count_runs(sampled) * 8 <= rows * EIGHTHS {
            add(self.runs(sampled, order, children(Kind::Runs)));
        }
        if order == Order::Float && matches!(T::BITS, 32 | 64) && above.permits(Kind::Decimal) {
            let exact = decimals(sampled, false).is_some();
            if exact || T::BITS == 64 {
                add(self.decimal(sampled, !exact, children(Kind::Decimal)));
            }
        }
        if order == Order::Float
            && above.permits(Kind::Split)
            && let Some(cut) = Cut::of(sampled)
        {
            add(self.split(sampled, cut, children(Kind::Split)));
        }
        let least = found.iter().map(|(cost, ..)| *cost).min().unwrap_or(u64::MAX);
        if above.permits(Kind::Dictionary)
            && let Some(few) = distinct(sampled, order, rows * EIGHTHS / 8)
        {
            // Entries that the sample has are the fewest that there can be.
            let code = (few.entries.len() as u64 - 1).bit_len() as usize;
            let bound = cost(rows * code / 8, node_time(Kind::Dictionary, rows, 0));
            let may_run = count_runs(sampled) * 8 <= rows * EIGHTHS;
            if (bound < least || may_run)
                && let Some((coded, recipe)) =
                    self.dictionary(sampled, order, children(Kind::Dictionary))
            {
                let bytes = scaled(&coded, few.entries.len() * T::BYTES, sampled, values, order);
                if let Some(bytes) = bytes {
                    found.push((cost(bytes, coded.time), coded, recipe));
                }
            }
        }
        found
    }
}

/// Bytes that a dictionary's code takes for as many rows as the sample has, if it has the entries of all values.
/// `plain` are the bytes of the sample's entries. `None` if there are too many entries.
fn scaled<T: Value>(
    coded: &Coded,
    plain: usize,
    sampled: &[T],
    values: &[T],
    order: Order,
) -> Option<usize> {
    if sampled.len() == values.len() {
        return Some(coded.len());
    }
    let few = (plain / T::BYTES).max(1);
    let all = distinct(values, order, MAX_ENTRIES)?.entries.len();
    let wider = ((all as u64 - 1).bit_len() - (few as u64 - 1).bit_len()) as usize;
    let entries = all * T::BYTES * sampled.len() / values.len();
    Some(coded.len().saturating_sub(plain) + wider * sampled.len() / 8 + entries)
}
