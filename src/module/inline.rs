//! Makes a [`Program`] from an entry: everything it calls becomes part of it, and the stack of values becomes expressions
//! and variables.
//!
//! A value stays an expression until an effect would change it, or until it gets too long; then it goes to a variable of
//! its own. The variables of a function's locals are used again by the functions that are called after it has returned.

use std::collections::BTreeMap;

use wasmparser::{BlockType, MemArg, Operator as O, ValType};

use super::bulk::{self, Maker};
use super::calls;
use super::interpret;
use super::limits::{NESTING, PARAMETERS, PRIVATE_BYTES, VALUES};
use super::operators;
use super::program::{
    Binary, Division, Expression, Intrinsic, Label, MAX_EXPRESSION, Program, Statement, Type,
    Variable,
};
use super::refusal::Refusal;
use super::sections::Sections;

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

/// What a frame was opened by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Function,
    Block,
    Loop,
    If,
    Else,
}

/// A block, loop, condition or function that is open.
#[derive(Debug)]
struct Frame {
    kind: Kind,
    label: Label,
    /// Whether something branches to it.
    is_target: bool,
    /// The values that a branch to a loop brings.
    parameters: Vec<Variable>,
    /// The values that are there at its end.
    results: Vec<Variable>,
    /// Values on the stack that are not its own.
    height: usize,
    /// What it does; for [`Kind::Else`], what it does otherwise.
    statements: Vec<Statement>,
    /// The condition, and for [`Kind::Else`] what is done if it holds.
    condition: Option<Expression>,
    then: Vec<Statement>,
    /// Whether the condition's first part does not reach its end.
    then_is_dead: bool,
    /// Whether what follows is not reached.
    is_dead: bool,
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

    fn frame(
        &mut self,
        kind: Kind,
        parameters: Vec<Variable>,
        results: Vec<Variable>,
        condition: Option<Expression>,
    ) -> Frame {
        let label = self.label();
        Frame {
            kind,
            label,
            is_target: false,
            parameters,
            results,
            height: self.stack.len(),
            statements: Vec::new(),
            condition,
            then: Vec::new(),
            then_is_dead: false,
            is_dead: false,
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

    fn parameters(&self, types: &[ValType]) -> Result<Vec<Type>, Refusal> {
        types.iter().map(|ty| self.integer(*ty)).collect()
    }

    fn open(&mut self, frame: Frame) -> Result<(), Refusal> {
        if self.frames.len() > NESTING {
            return Err(self.refuse(
                format!("nests blocks more than {NESTING} deep, with those of its callers"),
                "divide it into steps that follow one another, or use tables instead of many branches",
            ));
        }
        self.frames.push(frame);
        Ok(())
    }

    /// Opens a block, loop or condition.
    fn open_block(
        &mut self,
        kind: Kind,
        ty: BlockType,
        condition: Option<Expression>,
    ) -> Result<(), Refusal> {
        let (parameters, results) = match ty {
            BlockType::Empty => (Vec::new(), Vec::new()),
            BlockType::Type(ty) => (Vec::new(), vec![self.integer(ty)?]),
            BlockType::FuncType(index) => {
                let ty = self.sections.block_type(index);
                let (parameters, results) =
                    ty.map_or((&[][..], &[][..]), |ty| (ty.params(), ty.results()));
                (self.integers(parameters)?, self.integers(results)?)
            }
        };
        self.settle_all();
        let parameters: Vec<_> = parameters.into_iter().map(|ty| self.fresh(ty)).collect();
        let results: Vec<_> = results.into_iter().map(|ty| self.fresh(ty)).collect();
        let values = self.stack.split_off(self.stack.len().saturating_sub(parameters.len()));
        self.set_all(&parameters, values);
        let frame = self.frame(kind, parameters.clone(), results, condition);
        self.open(frame)?;
        self.stack.extend(parameters.into_iter().map(Expression::Read));
        Ok(())
    }

    /// Goes to the frame `depth` levels out, with the values on top of the stack, which stay there.
    fn branch(&mut self, depth: u32) -> Vec<Statement> {
        let Some(at) = self.frames.len().checked_sub(1 + depth as usize) else { return Vec::new() };
        let Some(frame) = self.frames.get_mut(at) else { return Vec::new() };
        frame.is_target = true;
        let variables = if frame.kind == Kind::Loop { &frame.parameters } else { &frame.results };
        let (variables, label) = (variables.clone(), frame.label);
        let from = self.stack.len().saturating_sub(variables.len());
        let values = self.stack.get(from..).unwrap_or_default().to_vec();
        let outer = self.frames.last_mut().map(|frame| std::mem::take(&mut frame.statements));
        self.set_all(&variables, values);
        self.emit(Statement::Branch(label));
        let statements = self
            .frames
            .last_mut()
            .map(|frame| std::mem::replace(&mut frame.statements, outer.unwrap_or_default()));
        statements.unwrap_or_default()
    }

    /// The number of values that a branch `depth` levels out takes along.
    fn arity(&self, depth: u32) -> usize {
        let at = self.frames.len().checked_sub(1 + depth as usize);
        let frame = at.and_then(|at| self.frames.get(at));
        frame.map_or(0, |frame| {
            if frame.kind == Kind::Loop { frame.parameters.len() } else { frame.results.len() }
        })
    }

    /// What follows is not reached.
    fn die(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.is_dead = true;
            let height = frame.height;
            self.stack.truncate(height);
        }
    }

    /// Goes on behind the frame, or to its other part, with the values on top of the stack.
    fn fall(&mut self) {
        let Some(frame) = self.frames.last() else { return };
        let (is_dead, height, results) = (frame.is_dead, frame.height, frame.results.clone());
        if !is_dead {
            let values = self.stack.split_off(self.stack.len().saturating_sub(results.len()));
            self.set_all(&results, values);
        }
        self.stack.truncate(height);
    }

    fn otherwise(&mut self) {
        self.fall();
        let Some(frame) = self.frames.last_mut() else { return };
        frame.kind = Kind::Else;
        frame.then = std::mem::take(&mut frame.statements);
        frame.then_is_dead = std::mem::take(&mut frame.is_dead);
        let parameters = frame.parameters.clone();
        self.stack.extend(parameters.into_iter().map(Expression::Read));
    }

    fn end(&mut self) {
        // A condition without another part passes its parameters on.
        if self.frames.last().is_some_and(|frame| frame.kind == Kind::If) {
            self.otherwise();
        }
        self.fall();
        let Some(frame) = self.frames.pop() else { return };
        let Frame { kind, label, is_target, results, statements, condition, then, .. } = frame;
        let ends = frame.is_dead && (kind != Kind::Else || frame.then_is_dead);
        let mut inner = match condition {
            Some(condition) => vec![Statement::If(condition, then, statements)],
            None => statements,
        };
        if is_target {
            inner = vec![match kind {
                Kind::Loop => Statement::Loop(label, inner),
                _ => Statement::Block(label, inner),
            }];
        }
        if let Some(around) = self.frames.last_mut() {
            around.statements.append(&mut inner);
        }
        self.stack.extend(results.into_iter().map(Expression::Read));
        if ends && (!is_target || kind == Kind::Loop) && !self.frames.is_empty() {
            // The entry's result must stay, though nothing sets it.
            if self.frames.len() > 1 {
                self.die();
            }
        }
    }

    fn load(&mut self, ty: Type, bytes: u32, is_signed: bool, at: &MemArg) {
        self.uses_memory = true;
        let address = self.pop();
        let into = self.fresh(ty);
        // Without 64-bit memories an offset has 32 bits.
        let offset = at.offset as u32;
        self.emit(Statement::Load { into, bytes, is_signed, address, offset });
        self.push_variable(into);
    }

    fn store(&mut self, bytes: u32, at: &MemArg) {
        self.uses_memory = true;
        let value = self.pop();
        let address = self.pop();
        self.emit(Statement::Store { bytes, address, offset: at.offset as u32, value });
    }

    fn divide(&mut self, ty: Type, op: Division) {
        let right = self.pop();
        let left = self.pop();
        let into = self.fresh(ty);
        self.emit(Statement::Divide(into, op, Box::new([left, right])));
        self.push_variable(into);
    }

    fn intrinsic(&mut self, intrinsic: Intrinsic) {
        self.intrinsics.push(intrinsic);
        let arguments =
            self.stack.split_off(self.stack.len().saturating_sub(intrinsic.parameters()));
        let into = intrinsic.has_result().then(|| self.fresh(Type::I32));
        self.emit(Statement::Call(into, intrinsic, arguments));
        self.stack.extend(into.map(Expression::Read));
    }

    fn global(&mut self, index: u32) -> Result<Variable, Refusal> {
        if let Some(variable) = self.globals.get(&index) {
            return Ok(*variable);
        }
        let global = self.sections.globals.get(index as usize);
        let Some((ty, _)) = global.and_then(|global| global.value) else {
            return Err(self.refuse(
                "uses a global that is no integer constant at first",
                "use integers only",
            ));
        };
        let variable = self.fresh(ty);
        self.reuse(variable);
        self.globals.insert(index, variable);
        Ok(variable)
    }

    fn operator(&mut self, operator: &O<'_>, locals: &[Variable]) -> Result<(), Refusal> {
        let local = |index: u32| {
            locals.get(index as usize).copied().unwrap_or(Variable { index: 0, ty: Type::I32 })
        };
        match *operator {
            O::Nop => {}
            O::Unreachable => {
                self.emit(Statement::Unreachable);
                self.die();
            }
            O::Block { blockty } => self.open_block(Kind::Block, blockty, None)?,
            O::Loop { blockty } => self.open_block(Kind::Loop, blockty, None)?,
            O::If { blockty } => {
                let condition = self.pop();
                self.open_block(Kind::If, blockty, Some(condition))?;
            }
            O::Else => self.otherwise(),
            O::End => self.end(),
            O::Br { relative_depth } => {
                let statements = self.branch(relative_depth);
                statements.into_iter().for_each(|statement| self.emit(statement));
                self.die();
            }
            O::BrIf { relative_depth } => {
                let condition = self.pop();
                self.branch_if(condition, relative_depth);
            }
            O::BrTable { ref targets } => self.branch_table(targets)?,
            O::Return => {
                let depth = self.frames.iter().rev().position(|frame| frame.kind == Kind::Function);
                let statements = self.branch(depth.unwrap_or(0) as u32);
                statements.into_iter().for_each(|statement| self.emit(statement));
                self.die();
            }
            O::Call { function_index } => match self.sections.intrinsic(function_index) {
                Some(intrinsic) => self.intrinsic(intrinsic),
                None => self.call(function_index)?,
            },
            O::Drop => {
                self.pop();
            }
            O::Select | O::TypedSelect { .. } => {
                let condition = self.pop();
                let otherwise = self.pop();
                let then = self.pop();
                self.push(Expression::Select(Box::new([condition, then, otherwise])));
            }
            O::LocalGet { local_index } => self.push(Expression::Read(local(local_index))),
            O::LocalSet { local_index } => {
                let value = self.pop();
                self.set(local(local_index), value);
            }
            O::LocalTee { local_index } => {
                let value = self.pop();
                self.set(local(local_index), value);
                self.push(Expression::Read(local(local_index)));
            }
            O::GlobalGet { global_index } => self.global_get(global_index)?,
            O::GlobalSet { global_index } => {
                let variable = self.global(global_index)?;
                let value = self.pop();
                self.set(variable, value);
            }
            O::I32Const { value } => self.push(Expression::i32(value as u32)),
            O::I64Const { value } => self.push(Expression::Constant(Type::I64, value as u64)),
            ref other => return self.computation(other),
        }
        Ok(())
    }

    /// An instruction that only works on values and memory.
    fn computation(&mut self, operator: &O<'_>) -> Result<(), Refusal> {
        if let Some(op) = operators::binary(operator) {
            let right = self.pop();
            let left = self.pop();
            let (binary, is_swapped) = op;
            let operands = if is_swapped { [right, left] } else { [left, right] };
            self.push(Expression::Binary(binary, Box::new(operands)));
        } else if let Some(unary) = operators::unary(operator) {
            let operand = self.pop();
            self.push(Expression::Unary(unary, Box::new(operand)));
        } else if let Some(ty) = operators::is_zero(operator) {
            let operand = self.pop();
            let operands = Box::new([operand, Expression::Constant(ty, 0)]);
            self.push(Expression::Binary(Binary::Eq, operands));
        } else if let Some((ty, division)) = operators::division(operator) {
            self.divide(ty, division);
        } else if let Some((ty, bytes, is_signed, at)) = operators::load(operator) {
            self.load(ty, bytes, is_signed, &at);
        } else if let Some((bytes, at)) = operators::store(operator) {
            self.store(bytes, &at);
        } else if let O::MemoryFill { .. } | O::MemoryCopy { .. } = operator {
            self.uses_memory = true;
            let (count, second, to) = (self.pop(), self.pop(), self.pop());
            let statements = match operator {
                O::MemoryFill { .. } => bulk::fill(self, [to, second, count]),
                _ => bulk::copy(self, [to, second, count]),
            };
            statements.into_iter().for_each(|statement| self.emit(statement));
        } else {
            let name = operators::name(operator);
            return Err(match operators::Unsupported::of(&name) {
                operators::Unsupported::Floats => self.floats(),
                operators::Unsupported::Memory => self.refuse(
                    format!("uses {name}"),
                    "private memory has a fixed size: use local variables and fixed arrays",
                ),
                operators::Unsupported::Other => self.refuse(
                    format!("uses {name}"),
                    "use integers, locals, loops and private memory only",
                ),
            });
        }
        Ok(())
    }

    fn global_get(&mut self, index: u32) -> Result<(), Refusal> {
        let global = self.sections.globals.get(index as usize);
        if let Some((ty, value)) =
            global.filter(|global| !global.is_mutable).and_then(|global| global.value)
        {
            self.push(Expression::Constant(ty, value));
        } else {
            let variable = self.global(index)?;
            self.push(Expression::Read(variable));
        }
        Ok(())
    }

    /// Computes now the values that a branch takes along, which are used twice.
    fn settle_top(&mut self, count: usize) {
        let from = self.stack.len().saturating_sub(count);
        for value in self.stack.split_off(from) {
            if value.size() > 1 { self.keep(value) } else { self.stack.push(value) }
        }
    }

    fn branch_if(&mut self, condition: Expression, depth: u32) {
        self.settle_top(self.arity(depth));
        let statements = self.branch(depth);
        self.emit(Statement::If(condition, statements, Vec::new()));
    }

    fn branch_table(&mut self, targets: &wasmparser::BrTable<'_>) -> Result<(), Refusal> {
        let index = self.pop();
        let mut depths = targets.targets().collect::<Result<Vec<_>, _>>()?;
        depths.push(targets.default());
        if self.arity(targets.default()) == 0 {
            let mut labels = Vec::new();
            for depth in depths {
                let at = self.frames.len().checked_sub(1 + depth as usize);
                if let Some(frame) = at.and_then(|at| self.frames.get_mut(at)) {
                    frame.is_target = true;
                    labels.push(frame.label);
                }
            }
            self.emit(Statement::Switch(index, labels));
        } else {
            // Where values go differs from label to label.
            self.settle_top(self.arity(targets.default()));
            let variable = self.fresh(Type::I32);
            self.emit(Statement::Set(variable, index));
            let last = depths.pop().unwrap_or(0);
            for (at, depth) in (0..).zip(depths) {
                let operands = Box::new([Expression::Read(variable), Expression::i32(at)]);
                self.branch_if(Expression::Binary(Binary::Eq, operands), depth);
            }
            let statements = self.branch(last);
            statements.into_iter().for_each(|statement| self.emit(statement));
        }
        self.die();
        Ok(())
    }
}
