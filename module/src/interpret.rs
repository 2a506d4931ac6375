//! Runs programs step by step, on any processor.

use super::execute::{Lane, Windows};
use super::program::{
    Binary, Division, Expression, Intrinsic, Label, Program, Statement, Trap, Type, Unary, Variable,
};

/// Runs a lane of `program`. Returns its result, 0 if it has none.
///
/// # Errors
/// The trap that ended it.
pub fn run(program: &Program, windows: &mut Windows<'_>, lane: Lane<'_>) -> Result<u64, Trap> {
    run_counting(program, windows, lane).0
}

/// Like `run`; also returns the fuel that is left.
pub fn run_counting(
    program: &Program,
    windows: &mut Windows<'_>,
    lane: Lane<'_>,
) -> (Result<u64, Trap>, u32) {
    let mut values = vec![0; program.variables.len()];
    let arguments = program.parameters.iter().zip(lane.arguments);
    let arguments = arguments.map(|(variable, value)| (*variable, variable.ty.wrap(*value)));
    for (variable, value) in program.initial.iter().copied().chain(arguments) {
        if let Some(place) = values.get_mut(variable.index as usize) {
            *place = value;
        }
    }
    let memory = program.memory.clone();
    let mut run = Run { values, memory, windows, number: lane.number, fuel: lane.fuel };
    let ended = run.all(&program.body);
    let result = ended.map(|_| program.result.map_or(0, |variable| run.read(variable)));
    (result, run.fuel)
}

/// Where a list of statements goes on.
enum Next {
    /// Behind it.
    Behind,
    /// At a label around it.
    At(Label),
}

struct Run<'r, 'w> {
    values: Vec<u64>,
    memory: Vec<u8>,
    windows: &'r mut Windows<'w>,
    number: u32,
    fuel: u32,
}

impl Run<'_, '_> {
    fn read(&self, variable: Variable) -> u64 {
        self.values.get(variable.index as usize).copied().unwrap_or(0)
    }

    fn set(&mut self, variable: Variable, value: u64) {
        if let Some(place) = self.values.get_mut(variable.index as usize) {
            *place = value;
        }
    }

    fn value(&self, expression: &Expression) -> u64 {
        match expression {
            Expression::Constant(_, value) => *value,
            Expression::Read(variable) => self.read(*variable),
            Expression::Unary(op, operand) => unary(*op, operand.ty(), self.value(operand)),
            Expression::Binary(op, operands) => {
                let [left, right] = operands.as_ref();
                binary(*op, left.ty(), self.value(left), self.value(right))
            }
            Expression::Select(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                self.value(if self.value(condition) != 0 { then } else { otherwise })
            }
        }
    }

    fn word(&self, expression: &Expression) -> u32 {
        self.value(expression) as u32
    }

    fn all(&mut self, statements: &[Statement]) -> Result<Next, Trap> {
        for statement in statements {
            if let Next::At(label) = self.step(statement)? {
                return Ok(Next::At(label));
            }
        }
        Ok(Next::Behind)
    }

    fn step(&mut self, statement: &Statement) -> Result<Next, Trap> {
        match statement {
            Statement::Set(variable, value) => {
                let value = self.value(value);
                self.set(*variable, value);
            }
            Statement::Divide(into, op, operands) => {
                let [left, right] = operands.as_ref();
                let value = divide(*op, into.ty, self.value(left), self.value(right))?;
                self.set(*into, value);
            }
            Statement::Load { into, bytes, is_signed, address, offset } => {
                let at = self.place(address, *offset);
                let source = self.memory.get(at..at.saturating_add(*bytes as usize));
                let mut whole = [0; 8];
                for (to, from) in whole.iter_mut().zip(source.ok_or(Trap::Memory)?) {
                    *to = *from;
                }
                let value = u64::from_le_bytes(whole);
                let value = if *is_signed { extend(value, 8 * *bytes) } else { value };
                self.set(*into, into.ty.wrap(value));
            }
            Statement::Store { bytes, address, offset, value } => {
                let (at, value) = (self.place(address, *offset), self.value(value).to_le_bytes());
                let place = self.memory.get_mut(at..at.saturating_add(*bytes as usize));
                for (to, from) in place.ok_or(Trap::Memory)?.iter_mut().zip(value) {
                    *to = from;
                }
            }
            Statement::Check(range) => {
                let [address, count] = range.as_ref();
                let end = self.value(address) + self.value(count);
                if end > self.memory.len() as u64 {
                    return Err(Trap::Memory);
                }
            }
            Statement::Call(into, intrinsic, arguments) => {
                let argument = |at: usize| arguments.get(at).map_or(0, |value| self.word(value));
                let arguments = [argument(0), argument(1), argument(2)];
                let value = self.call(*intrinsic, arguments).ok_or(Trap::Window)?;
                if let Some(into) = into {
                    self.set(*into, value.into());
                }
            }
            Statement::Unreachable => return Err(Trap::Unreachable),
            Statement::Block(label, body) => {
                return Ok(match self.all(body)? {
                    Next::At(at) if at == *label => Next::Behind,
                    next => next,
                });
            }
            Statement::Loop(label, charge, body) => loop {
                self.fuel = self.fuel.checked_sub(*charge).ok_or(Trap::Fuel)?;
                match self.all(body)? {
                    Next::At(at) if at == *label => {}
                    next => return Ok(next),
                }
            },
            Statement::If(condition, then, otherwise) => {
                return self.all(if self.value(condition) != 0 { then } else { otherwise });
            }
            Statement::Branch(label) => return Ok(Next::At(*label)),
            Statement::Switch(index, labels) => {
                let label = labels.get(self.word(index) as usize).or(labels.last());
                return Ok(label.map_or(Next::Behind, |label| Next::At(*label)));
            }
        }
        Ok(Next::Behind)
    }

    fn place(&self, address: &Expression, offset: u32) -> usize {
        let at = self.value(address) + u64::from(offset);
        usize::try_from(at).unwrap_or(usize::MAX)
    }

    /// Calls an intrinsic; `None` if it reaches beyond what there is.
    fn call(&mut self, intrinsic: Intrinsic, [first, second, third]: [u32; 3]) -> Option<u32> {
        let at = first as usize;
        Some(match intrinsic {
            Intrinsic::In8 => (*self.windows.input.get(at)?).into(),
            Intrinsic::In32 => u32::from_le_bytes(*self.windows.input.as_chunks().0.get(at)?),
            Intrinsic::Out8 => {
                *self.windows.output.get_mut(at)? = second as u8;
                0
            }
            Intrinsic::Out32 => {
                *self.windows.output.as_chunks_mut().0.get_mut(at)? = second.to_le_bytes();
                0
            }
            Intrinsic::ThreadId => self.number,
            Intrinsic::AtomicAdd => {
                let word = self.windows.state.get_mut(at)?;
                let old = *word;
                *word = old.wrapping_add(second);
                old
            }
            Intrinsic::ReadState => *self.windows.state.get(at)?,
            Intrinsic::WriteState => {
                *self.windows.state.get_mut(at)? = second;
                0
            }
            Intrinsic::SetPixel => {
                let width = self.windows.width;
                let at = (first < width).then_some(u64::from(second) * u64::from(width))?;
                let at = usize::try_from(at + u64::from(first)).ok()?;
                *self.windows.pixels.get_mut(at)? = third;
                0
            }
            Intrinsic::GetTime => self.windows.time,
        })
    }
}

/// The constant that an operation on constants gives, or the expression as it is.
pub(super) fn folded(expression: Expression) -> Expression {
    let ty = expression.ty();
    let constant = |operand: &Expression| match operand {
        Expression::Constant(_, value) => Some(*value),
        _ => None,
    };
    let value = match &expression {
        Expression::Unary(op, operand) => {
            constant(operand).map(|value| unary(*op, operand.ty(), value))
        }
        Expression::Binary(op, operands) => {
            let [left, right] = operands.as_ref();
            let operands = constant(left).zip(constant(right));
            operands.map(|(first, second)| binary(*op, left.ty(), first, second))
        }
        Expression::Select(parts) => {
            let [condition, then, otherwise] = parts.as_ref();
            return match constant(condition) {
                Some(0) => otherwise.clone(),
                Some(_) => then.clone(),
                None => expression,
            };
        }
        _ => None,
    };
    value.map_or(expression, |value| Expression::Constant(ty, value))
}

/// The lowest `bits` bits of `value`, with copies of their highest above them.
fn extend(value: u64, bits: u32) -> u64 {
    let unused = u64::BITS - bits;
    ((value << unused) as i64 >> unused) as u64
}

/// A value with its sign.
fn signed(ty: Type, value: u64) -> i64 {
    extend(value, ty.bits()) as i64
}

fn unary(op: Unary, ty: Type, value: u64) -> u64 {
    let unused = u64::BITS - ty.bits();
    match op {
        Unary::Clz => u64::from(value.leading_zeros() - unused),
        Unary::Ctz => u64::from(value.trailing_zeros().min(ty.bits())),
        Unary::Popcnt => u64::from(value.count_ones()),
        Unary::Extend(bits) => ty.wrap(extend(value, bits.into())),
        Unary::Wrap => Type::I32.wrap(value),
        Unary::ExtendUnsigned => value,
        Unary::ExtendSigned => extend(value, 32),
    }
}

fn binary(op: Binary, ty: Type, left: u64, right: u64) -> u64 {
    let by = (right % u64::from(ty.bits())) as u32;
    let rotated = |by: u32| match ty {
        Type::I32 => (left as u32).rotate_left(by).into(),
        Type::I64 => left.rotate_left(by),
    };
    ty.wrap(match op {
        Binary::Add => left.wrapping_add(right),
        Binary::Sub => left.wrapping_sub(right),
        Binary::Mul => left.wrapping_mul(right),
        Binary::And => left & right,
        Binary::Or => left | right,
        Binary::Xor => left ^ right,
        Binary::Shl => left << by,
        Binary::ShrSigned => (signed(ty, left) >> by) as u64,
        Binary::ShrUnsigned => left >> by,
        Binary::Rotl => rotated(by),
        Binary::Rotr => rotated(ty.bits() - by),
        Binary::Eq => (left == right).into(),
        Binary::Ne => (left != right).into(),
        Binary::LessSigned => (signed(ty, left) < signed(ty, right)).into(),
        Binary::LessUnsigned => (left < right).into(),
        Binary::LessOrEqualSigned => (signed(ty, left) <= signed(ty, right)).into(),
        Binary::LessOrEqualUnsigned => (left <= right).into(),
    })
}

fn divide(op: Division, ty: Type, left: u64, right: u64) -> Result<u64, Trap> {
    let (first, second) = (signed(ty, left), signed(ty, right));
    let result = match op {
        Division::QuotientUnsigned => left.checked_div(right),
        Division::RemainderUnsigned => left.checked_rem(right),
        Division::QuotientSigned => {
            let quotient = first.checked_div(second);
            // Of 32 bits, a quotient of 2^31 does not fit.
            let fits = |quotient: &i64| ty == Type::I64 || i32::try_from(*quotient).is_ok();
            quotient.filter(fits).map(|quotient| quotient as u64)
        }
        Division::RemainderSigned => (second != 0).then(|| first.wrapping_rem(second) as u64),
    };
    result.map(|value| ty.wrap(value)).ok_or(Trap::Division)
}
