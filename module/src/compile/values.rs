//! Code for values, divisions and accesses.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Type as CodeType, Value, types};

use super::{Compiler, Context, Places, code_type, flags, of_bytes, offset};
use crate::program::{Binary, Division, Expression, Intrinsic, Trap, Type, Unary};

impl Compiler<'_, '_> {
    pub(super) fn value(&mut self, expression: &Expression) -> Value {
        match expression {
            Expression::Constant(ty, value) => self.constant(*ty, *value),
            Expression::Read(variable) => self.read(*variable),
            Expression::Unary(op, operand) => {
                let value = self.value(operand);
                self.unary(*op, operand.ty(), value)
            }
            Expression::Binary(op, operands) => {
                let [left, right] = operands.as_ref();
                let (left, right) = (self.value(left), self.value(right));
                self.binary(*op, left, right)
            }
            Expression::Select(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                let (then, otherwise) = (self.value(then), self.value(otherwise));
                let condition = self.value(condition);
                self.builder.ins().select(condition, then, otherwise)
            }
        }
    }

    pub(super) fn unary(&mut self, op: Unary, ty: Type, value: Value) -> Value {
        let ins = self.builder.ins();
        match op {
            Unary::Clz => ins.clz(value),
            Unary::Ctz => ins.ctz(value),
            Unary::Popcnt => ins.popcnt(value),
            Unary::Extend(bits) => {
                let part = ins.ireduce(of_bytes(u32::from(bits) / 8), value);
                self.builder.ins().sextend(code_type(ty), part)
            }
            Unary::Wrap => ins.ireduce(types::I32, value),
            Unary::ExtendUnsigned => ins.uextend(types::I64, value),
            Unary::ExtendSigned => ins.sextend(types::I64, value),
        }
    }

    pub(super) fn binary(&mut self, op: Binary, left: Value, right: Value) -> Value {
        let ins = self.builder.ins();
        let condition = match op {
            Binary::Add => return ins.iadd(left, right),
            Binary::Sub => return ins.isub(left, right),
            Binary::Mul => return ins.imul(left, right),
            Binary::And => return ins.band(left, right),
            Binary::Or => return ins.bor(left, right),
            Binary::Xor => return ins.bxor(left, right),
            Binary::Shl => return ins.ishl(left, right),
            Binary::ShrSigned => return ins.sshr(left, right),
            Binary::ShrUnsigned => return ins.ushr(left, right),
            Binary::Rotl => return ins.rotl(left, right),
            Binary::Rotr => return ins.rotr(left, right),
            Binary::Eq => IntCC::Equal,
            Binary::Ne => IntCC::NotEqual,
            Binary::LessSigned => IntCC::SignedLessThan,
            Binary::LessUnsigned => IntCC::UnsignedLessThan,
            Binary::LessOrEqualSigned => IntCC::SignedLessThanOrEqual,
            Binary::LessOrEqualUnsigned => IntCC::UnsignedLessThanOrEqual,
        };
        let is_so = ins.icmp(condition, left, right);
        self.builder.ins().uextend(types::I32, is_so)
    }

    pub(super) fn divide(&mut self, op: Division, ty: Type, left: Value, right: Value) -> Value {
        let is_zero = self.builder.ins().icmp_imm(IntCC::Equal, right, 0);
        self.trap_if(is_zero, Trap::Division);
        match op {
            Division::QuotientUnsigned => self.builder.ins().udiv(left, right),
            Division::RemainderUnsigned => self.builder.ins().urem(left, right),
            Division::QuotientSigned => {
                let least = match ty {
                    Type::I32 => i32::MIN.into(),
                    Type::I64 => i64::MIN,
                };
                let least = self.builder.ins().iconst(
                    code_type(ty),
                    if ty == Type::I32 { least & 0xffff_ffff } else { least },
                );
                let is_least = self.builder.ins().icmp(IntCC::Equal, left, least);
                let is_minus_one = self.builder.ins().icmp_imm(IntCC::Equal, right, -1);
                let exceeds = self.builder.ins().band(is_least, is_minus_one);
                self.trap_if(exceeds, Trap::Division);
                self.builder.ins().sdiv(left, right)
            }
            Division::RemainderSigned => {
                // By -1 nothing remains, as by 1. The processor's instruction fails where the quotient does not fit.
                let one = self.constant(ty, 1);
                let is_minus_one = self.builder.ins().icmp_imm(IntCC::Equal, right, -1);
                let right = self.builder.ins().select(is_minus_one, one, right);
                self.builder.ins().srem(left, right)
            }
        }
    }

    /// The place of `bytes` bytes in private memory.
    pub(super) fn place(&mut self, address: &Expression, offset: u32, bytes: u32) -> Value {
        let address = self.value(address);
        let address = self.builder.ins().uextend(types::I64, address);
        let at = self.builder.ins().iadd_imm(address, i64::from(offset));
        // Neither sum overflows 64 bits.
        let end = self.builder.ins().iadd_imm(at, i64::from(bytes));
        let len = self.program.memory.len() as i64;
        let is_beyond = self.builder.ins().icmp_imm(IntCC::UnsignedGreaterThan, end, len);
        self.trap_if(is_beyond, Trap::Memory);
        self.builder.ins().iadd(self.places.memory, at)
    }

    /// The place of element `at` of `1 << log` bytes in a window of `len` elements.
    pub(super) fn element(&mut self, base: Value, len: Value, at: Value, log: i64) -> Value {
        let is_beyond = self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, at, len);
        self.trap_if(is_beyond, Trap::Window);
        let offset = self.builder.ins().ishl_imm(at, log);
        self.builder.ins().iadd(base, offset)
    }

    /// A value from the context.
    pub(super) fn of_context(&mut self, ty: CodeType, at: i32) -> Value {
        self.builder.ins().load(ty, MemFlags::trusted(), self.places.context, at)
    }

    pub(super) fn call(&mut self, intrinsic: Intrinsic, arguments: &[Value]) -> Option<Value> {
        let Places { input, input_len, output, output_len, .. } = self.places;
        let wide: Vec<_> =
            arguments.iter().map(|value| self.builder.ins().uextend(types::I64, *value)).collect();
        match intrinsic {
            Intrinsic::In8 => {
                let place = self.element(input, input_len, wide[0], 0);
                Some(self.builder.ins().uload8(types::I32, flags(), place, 0))
            }
            Intrinsic::In32 => {
                let words = self.builder.ins().ushr_imm(input_len, 2);
                let place = self.element(input, words, wide[0], 2);
                Some(self.builder.ins().load(types::I32, flags(), place, 0))
            }
            Intrinsic::Out8 => {
                let place = self.element(output, output_len, wide[0], 0);
                self.builder.ins().istore8(flags(), arguments[1], place, 0);
                None
            }
            Intrinsic::Out32 => {
                let words = self.builder.ins().ushr_imm(output_len, 2);
                let place = self.element(output, words, wide[0], 2);
                self.builder.ins().store(flags(), arguments[1], place, 0);
                None
            }
            Intrinsic::ThreadId => Some(self.of_context(types::I32, offset!(number))),
            Intrinsic::GetTime => Some(self.of_context(types::I32, offset!(time))),
            Intrinsic::AtomicAdd | Intrinsic::ReadState | Intrinsic::WriteState => {
                let state = self.of_context(types::I64, offset!(state));
                let len = self.of_context(types::I64, offset!(state_len));
                let place = self.element(state, len, wide[0], 2);
                let own = MemFlags::new().with_notrap();
                if intrinsic == Intrinsic::WriteState {
                    self.builder.ins().store(own, arguments[1], place, 0);
                    return None;
                }
                let old = self.builder.ins().load(types::I32, own, place, 0);
                if intrinsic == Intrinsic::AtomicAdd {
                    let sum = self.builder.ins().iadd(old, arguments[1]);
                    self.builder.ins().store(own, sum, place, 0);
                }
                Some(old)
            }
            Intrinsic::SetPixel => {
                let pixels = self.of_context(types::I64, offset!(pixels));
                let len = self.of_context(types::I64, offset!(pixels_len));
                let width = self.of_context(types::I32, offset!(width));
                let is_beyond =
                    self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, arguments[0], width);
                self.trap_if(is_beyond, Trap::Window);
                let width = self.builder.ins().uextend(types::I64, width);
                let row = self.builder.ins().imul(wide[1], width);
                let at = self.builder.ins().iadd(row, wide[0]);
                let place = self.element(pixels, len, at, 2);
                self.builder.ins().store(MemFlags::new().with_notrap(), arguments[2], place, 0);
                None
            }
        }
    }
}
