//! `memory.fill` and `memory.copy`, as loops: eight bytes at a time, then the rest byte by byte.
//!
//! They take fuel as loops do, a unit for a turn: for n bytes floor(n / 8) + n mod 8 + 2 units.

use super::program::{Binary, Expression, Label, Statement, Type, Unary, Variable};

/// Makes variables and labels.
pub(super) trait Maker {
    /// A new variable.
    fn variable(&mut self, ty: Type) -> Variable;
    /// A new label.
    fn label(&mut self) -> Label;
}

fn binary(op: Binary, left: Expression, right: Expression) -> Expression {
    Expression::Binary(op, Box::new([left, right]))
}

/// Adds a number to a variable, or subtracts it.
fn change(op: Binary, variable: Variable, by: u32) -> Statement {
    Statement::Set(variable, binary(op, Expression::Read(variable), Expression::i32(by)))
}

/// Runs `step`, which handles `bytes` bytes, until fewer than that are left.
fn repeat(maker: &mut impl Maker, left: Variable, bytes: u32, step: Vec<Statement>) -> Statement {
    let (done, again) = (maker.label(), maker.label());
    let is_done = binary(Binary::LessUnsigned, Expression::Read(left), Expression::i32(bytes));
    let mut body = vec![Statement::If(is_done, vec![Statement::Branch(done)], Vec::new())];
    body.extend(step);
    body.push(change(Binary::Sub, left, bytes));
    body.push(Statement::Branch(again));
    Statement::Block(done, vec![Statement::Loop(again, 1, body)])
}

/// Traps unless `count` bytes at `address` are in private memory; also if they are none.
fn check(address: Variable, count: Variable) -> Statement {
    Statement::Check(Box::new([Expression::Read(address), Expression::Read(count)]))
}

/// Sets `count` bytes from `to` on to the lowest byte of `value`.
pub(super) fn fill(maker: &mut impl Maker, [to, value, count]: [Expression; 3]) -> Vec<Statement> {
    let (at, left) = (maker.variable(Type::I32), maker.variable(Type::I32));
    let word = maker.variable(Type::I64);
    let byte = binary(Binary::And, value, Expression::i32(255));
    let ones = Expression::Constant(Type::I64, 0x0101_0101_0101_0101);
    let whole = binary(Binary::Mul, Expression::Unary(Unary::ExtendUnsigned, Box::new(byte)), ones);
    let mut statements = vec![
        Statement::Set(left, count),
        Statement::Set(word, whole),
        Statement::Set(at, to),
        check(at, left),
    ];
    for bytes in [8, 1] {
        let (address, value) = (Expression::Read(at), Expression::Read(word));
        let step = vec![
            Statement::Store { bytes, address, offset: 0, value },
            change(Binary::Add, at, bytes),
        ];
        statements.push(repeat(maker, left, bytes, step));
    }
    statements
}

/// Copies `count` bytes from `from` on to `to`; the places may overlap.
pub(super) fn copy(maker: &mut impl Maker, [to, from, count]: [Expression; 3]) -> Vec<Statement> {
    let (at, source) = (maker.variable(Type::I32), maker.variable(Type::I32));
    let (left, word) = (maker.variable(Type::I32), maker.variable(Type::I64));
    let mut directions = Vec::new();
    // What lies before its source is copied from the beginning, all else from the end.
    for is_forward in [true, false] {
        let mut statements = Vec::new();
        if !is_forward {
            for place in [at, source] {
                let end = binary(Binary::Add, Expression::Read(place), Expression::Read(left));
                statements.push(Statement::Set(place, end));
            }
        }
        for bytes in [8, 1] {
            let op = if is_forward { Binary::Add } else { Binary::Sub };
            let moves = [change(op, at, bytes), change(op, source, bytes)];
            let (address, value) = (Expression::Read(at), Expression::Read(word));
            let from = Expression::Read(source);
            let transfer = [
                Statement::Load { into: word, bytes, is_signed: false, address: from, offset: 0 },
                Statement::Store { bytes, address, offset: 0, value },
            ];
            let step = if is_forward {
                transfer.into_iter().chain(moves).collect()
            } else {
                moves.into_iter().chain(transfer).collect()
            };
            statements.push(repeat(maker, left, bytes, step));
        }
        directions.push(statements);
    }
    let backward = directions.pop().unwrap_or_default();
    let forward = directions.pop().unwrap_or_default();
    let is_before =
        binary(Binary::LessOrEqualUnsigned, Expression::Read(at), Expression::Read(source));
    vec![
        Statement::Set(left, count),
        Statement::Set(source, from),
        Statement::Set(at, to),
        check(source, left),
        check(at, left),
        Statement::If(is_before, forward, backward),
    ]
}
