//! What each instruction computes.

use wasmparser::{MemArg, Operator as O};

use super::program::{Binary, Division, Type, Unary};

/// An operation with two operands, and whether they are swapped: greater is less with the operands swapped.
pub(super) fn binary(operator: &O<'_>) -> Option<(Binary, bool)> {
    Some(match operator {
        O::I32Add | O::I64Add => (Binary::Add, false),
        O::I32Sub | O::I64Sub => (Binary::Sub, false),
        O::I32Mul | O::I64Mul => (Binary::Mul, false),
        O::I32And | O::I64And => (Binary::And, false),
        O::I32Or | O::I64Or => (Binary::Or, false),
        O::I32Xor | O::I64Xor => (Binary::Xor, false),
        O::I32Shl | O::I64Shl => (Binary::Shl, false),
        O::I32ShrS | O::I64ShrS => (Binary::ShrSigned, false),
        O::I32ShrU | O::I64ShrU => (Binary::ShrUnsigned, false),
        O::I32Rotl | O::I64Rotl => (Binary::Rotl, false),
        O::I32Rotr | O::I64Rotr => (Binary::Rotr, false),
        O::I32Eq | O::I64Eq => (Binary::Eq, false),
        O::I32Ne | O::I64Ne => (Binary::Ne, false),
        O::I32LtS | O::I64LtS => (Binary::LessSigned, false),
        O::I32LtU | O::I64LtU => (Binary::LessUnsigned, false),
        O::I32LeS | O::I64LeS => (Binary::LessOrEqualSigned, false),
        O::I32LeU | O::I64LeU => (Binary::LessOrEqualUnsigned, false),
        O::I32GtS | O::I64GtS => (Binary::LessSigned, true),
        O::I32GtU | O::I64GtU => (Binary::LessUnsigned, true),
        O::I32GeS | O::I64GeS => (Binary::LessOrEqualSigned, true),
        O::I32GeU | O::I64GeU => (Binary::LessOrEqualUnsigned, true),
        _ => return None,
    })
}

/// An operation with one operand.
pub(super) fn unary(operator: &O<'_>) -> Option<Unary> {
    Some(match operator {
        O::I32Clz | O::I64Clz => Unary::Clz,
        O::I32Ctz | O::I64Ctz => Unary::Ctz,
        O::I32Popcnt | O::I64Popcnt => Unary::Popcnt,
        O::I32Extend8S | O::I64Extend8S => Unary::Extend(8),
        O::I32Extend16S | O::I64Extend16S => Unary::Extend(16),
        O::I64Extend32S => Unary::Extend(32),
        O::I32WrapI64 => Unary::Wrap,
        O::I64ExtendI32U => Unary::ExtendUnsigned,
        O::I64ExtendI32S => Unary::ExtendSigned,
        _ => return None,
    })
}

/// The type of the operand that a comparison with zero has.
pub(super) fn is_zero(operator: &O<'_>) -> Option<Type> {
    match operator {
        O::I32Eqz => Some(Type::I32),
        O::I64Eqz => Some(Type::I64),
        _ => None,
    }
}

/// The work of an instruction that is reached: about the number of simple operations that take as long on a slow
/// processor. `locals` gives the number of locals of a function, and nothing for an import. The format states the same
/// figures.
pub(super) fn work(operator: &O<'_>, locals: impl Fn(u32) -> Option<u32>) -> u32 {
    match operator {
        O::Block { .. } | O::Loop { .. } | O::Else | O::End | O::Nop => 0,
        // The locals are set; the function's own instructions count besides.
        O::Call { function_index } => locals(*function_index).unwrap_or(8),
        O::BrTable { targets } => 1 + targets.len(),
        O::MemoryCopy { .. } | O::MemoryFill { .. } => 8,
        other => match division(other) {
            Some((Type::I32, _)) => 8,
            Some((Type::I64, _)) => 32,
            None => 1,
        },
    }
}

/// A division, and the type of its operands.
pub(super) fn division(operator: &O<'_>) -> Option<(Type, Division)> {
    Some(match operator {
        O::I32DivS => (Type::I32, Division::QuotientSigned),
        O::I32DivU => (Type::I32, Division::QuotientUnsigned),
        O::I32RemS => (Type::I32, Division::RemainderSigned),
        O::I32RemU => (Type::I32, Division::RemainderUnsigned),
        O::I64DivS => (Type::I64, Division::QuotientSigned),
        O::I64DivU => (Type::I64, Division::QuotientUnsigned),
        O::I64RemS => (Type::I64, Division::RemainderSigned),
        O::I64RemU => (Type::I64, Division::RemainderUnsigned),
        _ => return None,
    })
}

/// A load: the type of its result, its bytes, whether it copies the sign, and where from.
pub(super) fn load(operator: &O<'_>) -> Option<(Type, u32, bool, MemArg)> {
    Some(match *operator {
        O::I32Load { memarg } => (Type::I32, 4, false, memarg),
        O::I32Load8U { memarg } => (Type::I32, 1, false, memarg),
        O::I32Load8S { memarg } => (Type::I32, 1, true, memarg),
        O::I32Load16U { memarg } => (Type::I32, 2, false, memarg),
        O::I32Load16S { memarg } => (Type::I32, 2, true, memarg),
        O::I64Load { memarg } => (Type::I64, 8, false, memarg),
        O::I64Load8U { memarg } => (Type::I64, 1, false, memarg),
        O::I64Load8S { memarg } => (Type::I64, 1, true, memarg),
        O::I64Load16U { memarg } => (Type::I64, 2, false, memarg),
        O::I64Load16S { memarg } => (Type::I64, 2, true, memarg),
        O::I64Load32U { memarg } => (Type::I64, 4, false, memarg),
        O::I64Load32S { memarg } => (Type::I64, 4, true, memarg),
        _ => return None,
    })
}

/// A store: its bytes, and where to.
pub(super) fn store(operator: &O<'_>) -> Option<(u32, MemArg)> {
    Some(match *operator {
        O::I32Store8 { memarg } | O::I64Store8 { memarg } => (1, memarg),
        O::I32Store16 { memarg } | O::I64Store16 { memarg } => (2, memarg),
        O::I32Store { memarg } | O::I64Store32 { memarg } => (4, memarg),
        O::I64Store { memarg } => (8, memarg),
        _ => return None,
    })
}

/// The instruction's name in WebAssembly's text format.
pub(super) fn name(operator: &O<'_>) -> String {
    let debug = format!("{operator:?}");
    let camel = debug.split([' ', '(']).next().unwrap_or_default();
    let mut name = String::new();
    let mut words = 0;
    for (at, c) in camel.char_indices() {
        if c.is_ascii_uppercase() && at > 0 {
            words += 1;
            name.push(if words == 1 { '.' } else { '_' });
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// The kinds of instructions that are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsupported {
    /// On floating-point numbers.
    Floats,
    /// On the size of memory.
    Memory,
    /// Any other.
    Other,
}

impl Unsupported {
    /// The kind of the instruction `name`.
    pub(super) fn of(name: &str) -> Self {
        if name.contains("f32") || name.contains("f64") {
            Self::Floats
        } else if name == "memory.grow" || name == "memory.size" {
            Self::Memory
        } else {
            Self::Other
        }
    }
}
