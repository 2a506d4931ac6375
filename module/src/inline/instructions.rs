//! What each instruction does to the stack of values.

use wasmparser::{MemArg, Operator as O};

use super::Inliner;
use super::blocks::Kind;
use crate::program::{Binary, Division, Expression, Intrinsic, Statement, Type, Variable};
use crate::refusal::Refusal;
use crate::{bulk, operators};

impl Inliner<'_, '_> {
    pub(super) fn load(&mut self, ty: Type, bytes: u32, is_signed: bool, at: &MemArg) {
        self.uses_memory = true;
        let address = self.pop();
        let into = self.fresh(ty);
        // Without 64-bit memories an offset has 32 bits.
        let offset = at.offset as u32;
        self.emit(Statement::Load { into, bytes, is_signed, address, offset });
        self.push_variable(into);
    }

    pub(super) fn store(&mut self, bytes: u32, at: &MemArg) {
        self.uses_memory = true;
        let value = self.pop();
        let address = self.pop();
        self.emit(Statement::Store { bytes, address, offset: at.offset as u32, value });
    }

    pub(super) fn divide(&mut self, ty: Type, op: Division) {
        let right = self.pop();
        let left = self.pop();
        let into = self.fresh(ty);
        self.emit(Statement::Divide(into, op, Box::new([left, right])));
        self.push_variable(into);
    }

    pub(super) fn intrinsic(&mut self, intrinsic: Intrinsic) {
        self.intrinsics.push(intrinsic);
        let arguments =
            self.stack.split_off(self.stack.len().saturating_sub(intrinsic.parameters()));
        let into = intrinsic.has_result().then(|| self.fresh(Type::I32));
        self.emit(Statement::Call(into, intrinsic, arguments));
        self.stack.extend(into.map(Expression::Read));
    }

    pub(super) fn global(&mut self, index: u32) -> Result<Variable, Refusal> {
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

    pub(super) fn operator(
        &mut self,
        operator: &O<'_>,
        locals: &[Variable],
    ) -> Result<(), Refusal> {
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
    pub(super) fn computation(&mut self, operator: &O<'_>) -> Result<(), Refusal> {
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

    pub(super) fn global_get(&mut self, index: u32) -> Result<(), Refusal> {
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
}
