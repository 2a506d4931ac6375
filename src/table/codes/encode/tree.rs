//! Writes nodes with children.

use super::distinct::{count_runs, distinct, runs};
use super::floats::decimals;
use super::recipe::{Recipe, node_time};
use super::{Coded, line, packed};
use crate::codec::lanes::Backend;
use crate::table::codes::exceptions;
use crate::table::codes::spec::*;
use crate::table::codes::value::Value;

/// Writes nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writer {
    pub(super) backend: Backend,
    /// The width that codes shall have, if they can.
    pub(super) width: Option<u32>,
}

impl Writer {
    /// Without a wish for a width: for children whose width nobody asks for.
    fn free(self) -> Self {
        Self { width: None, ..self }
    }

    /// Writes a sequence as a plan says, in whose leaves the code may differ from it if values demand that. `None` if
    /// the root's kind cannot express them.
    pub(super) fn build<T: Value>(
        self,
        recipe: &Recipe,
        values: &[T],
        order: Order,
    ) -> Option<(Coded, Recipe)> {
        let coded = match recipe {
            Recipe::Plain => plain(values),
            Recipe::Constant => constant(values)?,
            Recipe::Packed => {
                let wished =
                    self.width.and_then(|_| packed::build(values, order, self.width, self.backend));
                wished.or_else(|| packed::build(values, order, None, self.backend))?
            }
            Recipe::Line => {
                let wished =
                    self.width.and_then(|_| line::build(values, order, self.width, self.backend));
                wished.or_else(|| line::build(values, order, None, self.backend))?
            }
            Recipe::Bits => return None,
            Recipe::Dictionary(children) => {
                let [entries, codes] = &**children;
                return self.dictionary(values, order, Children::Planned([entries, codes]));
            }
            Recipe::Runs(children) => {
                let [values_, ends] = &**children;
                return self.runs(values, order, Children::Planned([values_, ends]));
            }
            Recipe::Decimal { near, integers } => {
                return self.decimal(values, *near, Children::Planned([integers, integers]));
            }
            Recipe::Split { cut, children } => {
                let [high, low] = &**children;
                return self.split(values, *cut, Children::Planned([high, low]));
            }
        };
        Some((coded, recipe.clone()))
    }

    /// Writes a child as planned, or as is best.
    fn child<T: Value>(
        self,
        values: &[T],
        order: Order,
        children: &Children<'_>,
        number: usize,
    ) -> (Coded, Recipe) {
        match children {
            Children::Planned(recipes) => self
                .build(recipes[number], values, order)
                .or_else(|| self.build(&Recipe::Packed, values, order))
                .unwrap_or_else(|| (plain(values), Recipe::Plain)),
            Children::Best(above) => self.best(values, order, *above),
        }
    }

    pub(super) fn dictionary<T: Value>(
        self,
        values: &[T],
        order: Order,
        children: Children<'_>,
    ) -> Option<(Coded, Recipe)> {
        let distinct = distinct(values, order, values.len())?;
        let (entries, entries_recipe) = self.free().child(&distinct.entries, order, &children, 0);
        let (codes, codes_recipe) = self.child(&distinct.codes, Order::Unsigned, &children, 1);
        let entries_len = (distinct.entries.len() as u32).to_le_bytes();
        let mut coded = Coded::leaf(Kind::Dictionary, &[&entries_len], Vec::new(), values.len());
        coded.append(entries);
        coded.append(codes);
        Some((coded, Recipe::Dictionary(Box::new([entries_recipe, codes_recipe]))))
    }

    pub(super) fn runs<T: Value>(
        self,
        values: &[T],
        order: Order,
        children: Children<'_>,
    ) -> Option<(Coded, Recipe)> {
        if count_runs(values) > values.len() / 2 {
            return None;
        }
        let (firsts, ends) = runs(values);
        let (firsts, values_recipe) = self.free().child(&firsts, order, &children, 0);
        let (coded_ends, ends_recipe) = self.free().child(&ends, Order::Unsigned, &children, 1);
        let mut coded = runs_node(ends.len(), values.len());
        coded.append(firsts);
        coded.append(coded_ends);
        Some((coded, Recipe::Runs(Box::new([values_recipe, ends_recipe]))))
    }

    pub(super) fn decimal<T: Value>(
        self,
        values: &[T],
        near: bool,
        children: Children<'_>,
    ) -> Option<(Coded, Recipe)> {
        let decimals = decimals(values, near)?;
        let [starts, rounds] = exceptions::write(&decimals.exceptions, values.len());
        let words = ((rounds.len() / 4) as u32).to_le_bytes();
        let parts = vec![decimals.digits, starts, rounds];
        let mut coded = Coded::leaf(Kind::Decimal, &[&[near.into()], &words], parts, values.len());
        let (child, integers) = self.child(&decimals.integers, Order::Signed, &children, 0);
        coded.append(child);
        Some((coded, Recipe::Decimal { near, integers: Box::new(integers) }))
    }

    pub(super) fn split<T: Value>(
        self,
        values: &[T],
        cut: super::floats::Cut,
        children: Children<'_>,
    ) -> Option<(Coded, Recipe)> {
        let half = |i: usize| values.iter().map(|&value| cut.halves(value)[i]).collect::<Vec<T>>();
        let (high, high_recipe) = self.free().child(&half(0), Order::Unsigned, &children, 0);
        let (low, low_recipe) = self.free().child(&half(1), Order::Unsigned, &children, 1);
        let fields = [cut.at, cut.rotated.into()];
        let mut coded = Coded::leaf(Kind::Split, &[&fields], Vec::new(), values.len());
        coded.append(high);
        coded.append(low);
        let children = Box::new([high_recipe, low_recipe]);
        Some((coded, Recipe::Split { cut, children }))
    }
}

/// How children are to be written.
pub(super) enum Children<'a> {
    Planned([&'a Recipe; 2]),
    /// As is best below these nodes.
    Best(Above),
}

/// A node of runs, without its children.
fn runs_node(runs: usize, rows: usize) -> Coded {
    let mut coded = Coded::leaf(Kind::Runs, &[&(runs as u32).to_le_bytes()], Vec::new(), rows);
    coded.time = node_time(Kind::Runs, rows, runs);
    coded
}

/// Values as they are.
pub(super) fn plain<T: Value>(values: &[T]) -> Coded {
    let mut part = Vec::with_capacity(values.len() * T::BYTES);
    values.iter().for_each(|value| value.append(&mut part));
    Coded::leaf(Kind::Plain, &[], vec![part], values.len())
}

fn constant<T: Value>(values: &[T]) -> Option<Coded> {
    let (first, rest) = values.split_first()?;
    rest.iter().all(|value| value == first).then(|| {
        let mut value = Vec::new();
        first.append(&mut value);
        Coded::leaf(Kind::Constant, &[&value], Vec::new(), values.len())
    })
}

/// Booleans: a constant, a bitmap, or runs if they are smaller than half of it.
pub(super) fn booleans(values: &[u8], backend: Backend) -> (Coded, Recipe) {
    if let Some(constant) = constant(values) {
        return (constant, Recipe::Constant);
    }
    let (firsts, ends) = runs(values);
    let bits = bits(values);
    if ends.len() <= values.len() / 2 && ends.len() < values.len() / 32 {
        let writer = Writer { backend, width: None };
        let above = Above::default().with(Kind::Runs);
        let mut coded = runs_node(ends.len(), values.len());
        coded.append(self::bits(&firsts));
        let (ends, recipe) = writer.best(&ends, Order::Unsigned, above);
        coded.append(ends);
        if 2 * coded.len() < bits.len() {
            return (coded, Recipe::Runs(Box::new([Recipe::Bits, recipe])));
        }
    }
    (bits, Recipe::Bits)
}

fn bits(values: &[u8]) -> Coded {
    let byte = |eight: &[u8]| eight.iter().zip(0..).map(|(bit, i)| bit << i).sum();
    let bitmap = values.chunks(8).map(byte).collect();
    Coded::leaf(Kind::Bits, &[], vec![bitmap], values.len())
}
