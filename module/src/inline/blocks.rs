//! Blocks, loops, conditions and the bodies of functions, and branches out of them.

use wasmparser::{BlockType, BrTable};

use super::Inliner;
use crate::bulk::Maker as _;
use crate::limits::{NESTING, WORK_OF_UNIT};
use crate::program::{Binary, Expression, Label, Statement, Type, Variable};
use crate::refusal::Refusal;

/// What a frame was opened by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Block,
    Loop,
    If,
    Else,
}

/// A block, loop, condition or function that is open.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) label: Label,
    /// Whether something branches to it.
    pub(super) is_target: bool,
    /// The values that a branch to a loop brings.
    pub(super) parameters: Vec<Variable>,
    /// The values that are there at its end.
    pub(super) results: Vec<Variable>,
    /// Values on the stack that are not its own.
    pub(super) height: usize,
    /// The work of its instructions, without those of loops inside it, counted by [`Inliner::work`].
    pub(super) work: u32,
    /// What it does; for [`Kind::Else`], what it does otherwise.
    pub(super) statements: Vec<Statement>,
    /// The condition, and for [`Kind::Else`] what is done if it holds.
    pub(super) condition: Option<Expression>,
    pub(super) then: Vec<Statement>,
    /// Whether the condition's first part does not reach its end.
    pub(super) then_is_dead: bool,
    /// Whether what follows is not reached.
    pub(super) is_dead: bool,
}
impl Inliner<'_, '_> {
    pub(super) fn frame(
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
            work: 0,
            statements: Vec::new(),
            condition,
            then: Vec::new(),
            then_is_dead: false,
            is_dead: false,
        }
    }

    pub(super) fn open(&mut self, frame: Frame) -> Result<(), Refusal> {
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
    pub(super) fn open_block(
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
    pub(super) fn branch(&mut self, depth: u32) -> Vec<Statement> {
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
    pub(super) fn arity(&self, depth: u32) -> usize {
        let at = self.frames.len().checked_sub(1 + depth as usize);
        let frame = at.and_then(|at| self.frames.get(at));
        frame.map_or(0, |frame| {
            if frame.kind == Kind::Loop { frame.parameters.len() } else { frame.results.len() }
        })
    }

    /// What follows is not reached.
    pub(super) fn die(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.is_dead = true;
            let height = frame.height;
            self.stack.truncate(height);
        }
    }

    /// Goes on behind the frame, or to its other part, with the values on top of the stack.
    pub(super) fn fall(&mut self) {
        let Some(frame) = self.frames.last() else { return };
        let (is_dead, height, results) = (frame.is_dead, frame.height, frame.results.clone());
        if !is_dead {
            let values = self.stack.split_off(self.stack.len().saturating_sub(results.len()));
            self.set_all(&results, values);
        }
        self.stack.truncate(height);
    }

    pub(super) fn otherwise(&mut self) {
        self.fall();
        let Some(frame) = self.frames.last_mut() else { return };
        frame.kind = Kind::Else;
        frame.then = std::mem::take(&mut frame.statements);
        frame.then_is_dead = std::mem::take(&mut frame.is_dead);
        let parameters = frame.parameters.clone();
        self.stack.extend(parameters.into_iter().map(Expression::Read));
    }

    pub(super) fn end(&mut self) {
        // A condition without another part passes its parameters on.
        if self.frames.last().is_some_and(|frame| frame.kind == Kind::If) {
            self.otherwise();
        }
        self.fall();
        let Some(frame) = self.frames.pop() else { return };
        let Frame { kind, label, is_target, results, statements, condition, then, work, .. } =
            frame;
        let ends = frame.is_dead && (kind != Kind::Else || frame.then_is_dead);
        let mut inner = match condition {
            Some(condition) => vec![Statement::If(condition, then, statements)],
            None => statements,
        };
        // Each turn of a loop pays for itself. The loop around pays for one that runs only once.
        let mut unpaid = work;
        if is_target {
            inner = vec![match kind {
                Kind::Loop => {
                    unpaid = 0;
                    Statement::Loop(label, work.div_ceil(WORK_OF_UNIT).max(1), inner)
                }
                _ => Statement::Block(label, inner),
            }];
        }
        if let Some(around) = self.frames.last_mut() {
            around.statements.append(&mut inner);
            around.work = around.work.saturating_add(unpaid);
        }
        self.stack.extend(results.into_iter().map(Expression::Read));
        if ends && (!is_target || kind == Kind::Loop) && !self.frames.is_empty() {
            // The entry's result must stay, though nothing sets it.
            if self.frames.len() > 1 {
                self.die();
            }
        }
    }

    /// Computes now the values that a branch takes along, which are used twice.
    pub(super) fn settle_top(&mut self, count: usize) {
        let from = self.stack.len().saturating_sub(count);
        for value in self.stack.split_off(from) {
            if value.size() > 1 { self.keep(value) } else { self.stack.push(value) }
        }
    }

    pub(super) fn branch_if(&mut self, condition: Expression, depth: u32) {
        self.settle_top(self.arity(depth));
        let statements = self.branch(depth);
        self.emit(Statement::If(condition, statements, Vec::new()));
    }

    pub(super) fn branch_table(&mut self, targets: &BrTable<'_>) -> Result<(), Refusal> {
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
