//! Makes a [`Program`] from an entry: everything it calls becomes part of it, and the stack of values becomes
//! expressions and variables.
//!
//! A value stays an expression until an effect would change it, or until it gets too long; then it goes to a variable
//! of its own. The variables of a function's locals are used again by the functions that are called after it has
//! returned. `blocks` has the control flow, `instructions` what each instruction does.

mod blocks;
mod instructions;

use std::collections::BTreeMap;

use wasmparser::{Operator as O, ValType};

use super::bulk::Maker;
use super::calls;
use super::limits::{PARAMETERS, PRIVATE_BYTES, VALUES};
use super::program::{
    Expression, Intrinsic, Label, MAX_EXPRESSION, Program, Statement, Type, Variable,
};
use super::refusal::Refusal;
use super::sections::Sections;
use super::{interpret, operators};
use blocks::{Frame, Kind};

/// Translates the exported function `entry`.
///
/// # Errors
/// Says why it is refused.
pub(super) fn program(sections: &Sections<'_>, entry: &str) -> Result<Program, Refusal> {
    let Some(&function) = sections.exports.get(entry) else {
        let names: Vec<_> =
            sections.exports.keys().map(|name| name.escape_debug().to_string()).collect();
        let has = match names.as_slice() {
            [] => "it exports no function".into(),
            names => format!("it exports {}", names.join(", ")),
        };
        return Err(Refusal::new(format!("does not export {}", entry.escape_debug()), has));
    };
    let inlined = calls::inlined(sections, function)?;
    let mut inliner = Inliner {
        sections,
        name: sections.name(function),
        variables: Vec::new(),
        is_reused: Vec::new(),
        free: [Vec::new(), Vec::new()],
        globals: BTreeMap::new(),
        intrinsics: Vec::new(),
        uses_memory: false,
        labels: 0,
        frames: Vec::new(),
        stack: Vec::new(),
    };
    let (parameters, results, body) = inliner.entry(function)?;
    let uses = |one: &Intrinsic| inliner.intrinsics.contains(one);
    let measure = inlined.get(&function).copied();
    Ok(Program {
        initial: inliner.initial(),
        memory: memory(sections, inliner.uses_memory)?,
        intrinsics: Intrinsic::ALL.into_iter().filter(uses).collect(),
        variables: inliner.variables,
        parameters,
        result: results.first().copied(),
        body,
        operators: measure.map_or(0, |measure| measure.operators),
        call_depth: measure.map_or(0, |measure| measure.depth),
        functions: inlined.len() as u32,
    })
}

/// The first contents of private memory.
fn memory(sections: &Sections<'_>, is_used: bool) -> Result<Vec<u8>, Refusal> {
    if !is_used {
        return Ok(Vec::new());
    }
    let bytes = sections.heap_base.unwrap_or(PRIVATE_BYTES).min(sections.memory_bytes);
    if bytes > PRIVATE_BYTES {
        return Err(Refusal::new(
            format!("has {bytes} bytes of stack and data, and at most {PRIVATE_BYTES} are allowed"),
            "link it with a smaller stack: rustc -C link-arg=-zstack-size=1024",
        ));
    }
    let mut memory = vec![0; bytes.next_multiple_of(16) as usize];
    for (at, data) in &sections.data {
        let place = (*at as usize)
            .checked_add(data.len())
            .and_then(|end| memory.get_mut(*at as usize..end));
        let place = place.ok_or_else(|| {
            Refusal::new(
                format!(
                    "has {} bytes of data at {at}, beyond its {bytes} bytes of memory",
                    data.len()
                ),
                format!("keep stack and data within {PRIVATE_BYTES} bytes"),
            )
        })?;
        place.copy_from_slice(data);
    }
    Ok(memory)
}

struct Inliner<'s, 'a> {
    sections: &'s Sections<'a>,
    /// The function that is being translated, for messages.
    name: String,
    variables: Vec<Type>,
    /// Whether a variable is a local or a global, and so may be set while a value on the stack reads it.
    is_reused: Vec<bool>,
    /// Variables of locals that no open function has, by type.
    free: [Vec<Variable>; 2],
    /// The variables of globals.
    globals: BTreeMap<u32, Variable>,
    intrinsics: Vec<Intrinsic>,
    uses_memory: bool,
    labels: u32,
    frames: Vec<Frame>,
    stack: Vec<Expression>,
}

impl Maker for Inliner<'_, '_> {
    fn variable(&mut self, ty: Type) -> Variable {
        self.fresh(ty)
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }
}

type Entry = (Vec<Variable>, Vec<Variable>, Vec<Statement>);

impl Inliner<'_, '_> {
    /// Translates the entry: its parameters, its result, and what it does.
    fn entry(&mut self, function: u32) -> Result<Entry, Refusal> {
        let ty = self.sections.function_type(function).cloned();
        let Some(ty) = ty.filter(|_| self.sections.body(function).is_some()) else {
            return Err(self.refuse("is an import", "export a function of the module's own"));
        };
        if ty.params().len() > PARAMETERS || ty.results().len() > 1 {
            return Err(self.refuse(
                format!("has {} parameters and {} results", ty.params().len(), ty.results().len()),
                format!("an entry has at most {PARAMETERS} parameters and one result"),
            ));
        }
        let mut parameters = Vec::new();
        for ty in ty.params() {
            let ty = self.integer(*ty)?;
            parameters.push(self.fresh(ty));
        }
        self.stack.extend(parameters.iter().map(|parameter| Expression::Read(*parameter)));
        // A frame around all, whose statements are the program's.
        let frame = self.frame(Kind::Block, Vec::new(), Vec::new(), None);
        self.frames.push(frame);
        self.call(function)?;
        let results: Vec<_> = ty.results().iter().map(|_| self.pop()).collect();
        let results = results.into_iter().filter_map(|value| match value {
            Expression::Read(variable) => Some(variable),
            _ => None,
        });
        let results = results.collect();
        let body = self.frames.pop().map(|frame| frame.statements).unwrap_or_default();
        Ok((parameters, results, body))
    }

    /// The globals' first values.
    fn initial(&self) -> Vec<(Variable, u64)> {
        let value = |index: u32| self.sections.globals.get(index as usize)?.value;
        let values =
            self.globals.iter().filter_map(|(index, variable)| Some((*variable, value(*index)?.1)));
        values.filter(|(_, value)| *value != 0).collect()
    }

    fn refuse(&self, what: impl Into<String>, remedy: impl Into<String>) -> Refusal {
        Refusal::new(what, remedy).of(&self.name)
    }

    fn integer(&self, ty: ValType) -> Result<Type, Refusal> {
        match ty {
            ValType::I32 => Ok(Type::I32),
            ValType::I64 => Ok(Type::I64),
            ValType::F32 | ValType::F64 => Err(self.floats()),
            _ => Err(self.refuse("has values that are no integers", "use integers only")),
        }
    }

    fn floats(&self) -> Refusal {
        self.refuse(
            "computes with floating-point numbers",
            "devices round them differently: work on their bits, or with fixed-point integers",
        )
    }

    fn integers(&self, types: &[ValType]) -> Result<Vec<Type>, Refusal> {
        if types.len() > VALUES {
            return Err(self.refuse(
                format!("passes {} values at once", types.len()),
                format!("keep to {VALUES}: put the rest into memory"),
            ));
        }
        types.iter().map(|ty| self.integer(*ty)).collect()
    }

    /// A new variable, which is set before each use.
    fn fresh(&mut self, ty: Type) -> Variable {
        let variable = Variable { index: self.variables.len() as u32, ty };
        self.variables.push(ty);
        self.is_reused.push(false);
        variable
    }

    /// A variable for a local.
    fn local(&mut self, ty: Type) -> Variable {
        if let Some(variable) = self.free[ty as usize].pop() {
            return variable;
        }
        let variable = self.fresh(ty);
        self.reuse(variable);
        variable
    }

    fn reuse(&mut self, variable: Variable) {
        if let Some(is_reused) = self.is_reused.get_mut(variable.index as usize) {
            *is_reused = true;
        }
    }

    // The module is valid, so the stack and the list of frames have what an instruction takes. Should they not, a
    // constant and an empty frame keep this free of panics.

    fn pop(&mut self) -> Expression {
        self.stack.pop().unwrap_or(Expression::i32(0))
    }

    fn emit(&mut self, statement: Statement) {
        if let Some(frame) = self.frames.last_mut() {
            frame.statements.push(statement);
        }
    }

    /// Pushes a value. What has only constants is one itself: WGSL computes such expressions when it is compiled, and
    /// refuses those that overflow.
    fn push(&mut self, value: Expression) {
        let value = interpret::folded(value);
        if value.size() > MAX_EXPRESSION { self.keep(value) } else { self.stack.push(value) }
    }

    /// Computes a value now, and pushes the variable that has it.
    fn keep(&mut self, value: Expression) {
        let variable = self.fresh(value.ty());
        self.emit(Statement::Set(variable, value));
        self.stack.push(Expression::Read(variable));
    }

    /// Pushes the variable `into`, which a statement has set.
    fn push_variable(&mut self, into: Variable) {
        self.stack.push(Expression::Read(into));
    }

    /// Computes now the values on the stack that read a variable for which `which` holds.
    fn settle(&mut self, which: impl Fn(&Self, Variable) -> bool) {
        for at in 0..self.stack.len() {
            let is_read = |value: &Expression| value.reads(&|variable| which(self, variable));
            if !self.stack.get(at).is_some_and(is_read) {
                continue;
            }
            let Some(place) = self.stack.get_mut(at) else { continue };
            let value = std::mem::replace(place, Expression::i32(0));
            let variable = self.fresh(value.ty());
            self.emit(Statement::Set(variable, value));
            if let Some(place) = self.stack.get_mut(at) {
                *place = Expression::Read(variable);
            }
        }
    }

    /// Computes now the values on the stack that a local's or a global's next value could change.
    fn settle_all(&mut self) {
        self.settle(|inliner, variable| {
            inliner.is_reused.get(variable.index as usize).copied().unwrap_or(false)
        });
    }

    fn set(&mut self, variable: Variable, value: Expression) {
        self.settle(|_, other| other == variable);
        if value != Expression::Read(variable) {
            self.emit(Statement::Set(variable, value));
        }
    }

    /// Sets several variables at once, to values that may read any of them.
    fn set_all(&mut self, variables: &[Variable], mut values: Vec<Expression>) {
        if variables.len() > 1 {
            for value in &mut values {
                if value.reads(&|read| variables.contains(&read)) {
                    let variable = self.fresh(value.ty());
                    let value = std::mem::replace(value, Expression::Read(variable));
                    self.emit(Statement::Set(variable, value));
                }
            }
        }
        for (variable, value) in variables.iter().zip(values) {
            if value != Expression::Read(*variable) {
                self.emit(Statement::Set(*variable, value));
            }
        }
    }

    /// Makes the body of a function part of the program. Its arguments are on the stack; its results will be.
    fn call(&mut self, function: u32) -> Result<(), Refusal> {
        let caller = std::mem::replace(&mut self.name, self.sections.name(function));
        let (Some(ty), Some(body)) =
            (self.sections.function_type(function), self.sections.body(function))
        else {
            return Ok(());
        };
        let mut types = self.parameters(ty.params())?;
        for local in body.get_locals_reader()? {
            let (count, ty) = local?;
            let ty = self.integer(ty)?;
            types.extend(std::iter::repeat_n(ty, count as usize));
        }
        let results = self.integers(ty.results())?;
        let results: Vec<_> = results.into_iter().map(|ty| self.fresh(ty)).collect();
        let locals: Vec<_> = types.into_iter().map(|ty| self.local(ty)).collect();
        // What the function sets must not change values that wait on the stack: they may read globals.
        self.settle(|inliner, variable| inliner.globals.values().any(|global| *global == variable));
        let arguments = self.stack.split_off(self.stack.len().saturating_sub(ty.params().len()));
        self.set_all(&locals[..arguments.len().min(locals.len())], arguments);
        for local in locals.iter().skip(ty.params().len()) {
            self.emit(Statement::Set(*local, Expression::Constant(local.ty, 0)));
        }
        let frame = self.frame(Kind::Function, Vec::new(), results, None);
        self.open(frame)?;
        let outside = self.frames.len() - 1;
        // Blocks of code that is not reached.
        let mut skipped = 0u32;
        for operator in body.get_operators_reader()? {
            let operator = operator?;
            if self.frames.last().is_some_and(|frame| frame.is_dead) {
                match operator {
                    O::Block { .. } | O::Loop { .. } | O::If { .. } => skipped += 1,
                    O::End if skipped > 0 => skipped -= 1,
                    O::End | O::Else if skipped == 0 => self.operator(&operator, &locals)?,
                    _ => {}
                }
            } else {
                self.work(&operator);
                self.operator(&operator, &locals)?;
            }
            if self.frames.len() <= outside {
                break;
            }
        }
        for local in locals {
            self.free[local.ty as usize].push(local);
        }
        self.name = caller;
        Ok(())
    }

    /// Counts the work of an instruction for the frame that it is in.
    fn work(&mut self, operator: &O<'_>) {
        let work = operators::work(operator, |function| match self.sections.intrinsic(function) {
            Some(_) => None,
            None => Some(calls::locals(self.sections, function).unwrap_or(0)),
        });
        if let Some(frame) = self.frames.last_mut() {
            frame.work = frame.work.saturating_add(work);
        }
    }

    fn parameters(&self, types: &[ValType]) -> Result<Vec<Type>, Refusal> {
        types.iter().map(|ty| self.integer(*ty)).collect()
    }
}
