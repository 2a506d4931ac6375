//! The functions that an entry reaches, and what they come to when each call is replaced by the function's body.
//!
//! A device has no call stack, so a function that calls itself, directly or by way of others, cannot be inlined. Calls
//! that double at each level could: so the length with everything inlined is computed, and limited, before anything is.

use std::collections::BTreeMap;

use wasmparser::Operator;

use super::limits::{CALL_DEPTH, LOCALS, OPERATORS};
use super::refusal::Refusal;
use super::sections::Sections;

/// What a function comes to, with everything inlined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inlined {
    /// Its length, counted as for [`OPERATORS`].
    pub(super) operators: u32,
    /// Levels of calls.
    pub(super) depth: u32,
    /// Locals of the longest chain of calls.
    pub(super) locals: u32,
}

/// Checks all that `entry` reaches, and returns what each of these functions comes to.
///
/// # Errors
/// Refuses recursion, calls through tables, and what exceeds the limits.
pub(super) fn inlined(
    sections: &Sections<'_>,
    entry: u32,
) -> Result<BTreeMap<u32, Inlined>, Refusal> {
    let mut calls = Calls { sections, chain: Vec::new(), done: BTreeMap::new() };
    calls.visit(entry)?;
    Ok(calls.done)
}

struct Calls<'s, 'a> {
    sections: &'s Sections<'a>,
    /// The functions that are being visited, each called by the one before it.
    chain: Vec<u32>,
    done: BTreeMap<u32, Inlined>,
}

impl Calls<'_, '_> {
    /// Visits `function` and what it calls. The chain, which is limited, bounds the recursion.
    fn visit(&mut self, function: u32) -> Result<Inlined, Refusal> {
        if let Some(done) = self.done.get(&function) {
            return Ok(*done);
        }
        let name = self.sections.name(function);
        self.check_chain(function)?;
        self.chain.push(function);
        let locals = locals(self.sections, function)?;
        let (mut operators, mut deepest, mut most) = (0u64, 0, 0);
        let sections = self.sections;
        let body = sections.body(function);
        let body = body.ok_or_else(|| {
            Refusal::new("is an import", "export a function of the module's own").of(&name)
        })?;
        for operator in body.get_operators_reader()? {
            operators += 1;
            match operator? {
                Operator::Call { function_index }
                    if self.sections.body(function_index).is_some() =>
                {
                    let callee = self.visit(function_index)?;
                    deepest = deepest.max(callee.depth);
                    most = most.max(callee.locals);
                    operators += u64::from(callee.operators)
                        + u64::from(self::locals(sections, function_index)?);
                }
                Operator::BrTable { targets } => operators += u64::from(targets.len()),
                Operator::CallIndirect { .. } => {
                    return Err(Refusal::new(
                        "calls a function through a table",
                        "a device cannot: call functions by name, and choose among them with a match",
                    )
                    .of(&name));
                }
                _ => {}
            }
        }
        self.chain.pop();
        let inlined = Inlined {
            operators: u32::try_from(operators).unwrap_or(u32::MAX),
            depth: deepest + 1,
            locals: most.saturating_add(locals),
        };
        check(&inlined).map_err(|refusal| refusal.of(&name))?;
        self.done.insert(function, inlined);
        Ok(inlined)
    }

    /// Refuses to call `function` where a call of it has not returned, and chains that are too long.
    fn check_chain(&self, function: u32) -> Result<(), Refusal> {
        const REMEDY: &str = "a device has no call stack: write a loop instead, with a fixed array for what must be \
            kept";
        let name = self.sections.name(function);
        if let Some(at) = self.chain.iter().position(|caller| *caller == function) {
            let others = self.chain.iter().skip(at + 1).map(|index| self.sections.name(*index));
            let others: Vec<_> = others.collect();
            let what = match others.as_slice() {
                [] => "calls itself".into(),
                others => format!("calls itself by way of {}", others.join(" and ")),
            };
            return Err(Refusal::new(what, REMEDY).of(&name));
        }
        if self.chain.len() >= CALL_DEPTH as usize {
            return Err(Refusal::new(
                format!("is called at level {} of nested calls", CALL_DEPTH + 1),
                format!(
                    "keep to {CALL_DEPTH} levels: let functions do more of the work themselves"
                ),
            )
            .of(&name));
        }
        Ok(())
    }
}

/// The number of locals of a function, parameters included.
pub(super) fn locals(sections: &Sections<'_>, function: u32) -> Result<u32, Refusal> {
    let ty = sections.function_type(function);
    let mut count = ty.map_or(0, |ty| ty.params().len() as u32);
    if let Some(body) = sections.body(function) {
        for local in body.get_locals_reader()? {
            count = count.saturating_add(local?.0);
        }
    }
    Ok(count)
}

fn check(inlined: &Inlined) -> Result<(), Refusal> {
    let Inlined { operators, depth, locals } = *inlined;
    if depth > CALL_DEPTH {
        return Err(Refusal::new(
            format!("nests calls {depth} deep"),
            format!("keep to {CALL_DEPTH} levels: let functions do more of the work themselves"),
        ));
    }
    if operators > OPERATORS {
        return Err(Refusal::new(
            format!("has {operators} instructions once all that it calls is inlined"),
            format!("keep to {OPERATORS}: call from fewer places, in a loop"),
        ));
    }
    if locals > LOCALS {
        return Err(Refusal::new(
            format!("has {locals} locals, with those of the functions that it calls"),
            format!("keep to {LOCALS}: put arrays into memory"),
        ));
    }
    Ok(())
}
