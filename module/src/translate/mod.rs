//! Writes programs as kernels, in OpenCL C and in WGSL.
//!
//! Both languages have the same control flow, which [`Writer`] writes: a block is a loop that ends at its end, so that
//! a branch is `break` or, to a loop, `continue`. A branch out of several sets `leave` to the number of loops that are
//! left to leave, and each of these goes on according to it. What the languages write differently is a [`Dialect`].
//!
//! What the text calls is in `kernels/common/module`.

mod opencl;
mod wgsl;

use std::fmt::Write as _;

use super::program::{
    Binary, Division, Expression, Intrinsic, Label, Program, Statement, Type, Unary, Variable,
};

pub use opencl::OpenClC;
pub use wgsl::Wgsl;

/// Work items of a workgroup.
pub const THREADS: u32 = 64;

/// What a kernel is for, and so where its windows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Lanes of a run of their own, which share windows.
    Run,
    /// The lanes of a batch of blocks that the module filtered, each with the windows of its unit.
    Filter,
}

impl Purpose {
    /// The entry point.
    pub fn entry(self) -> &'static str {
        match self {
            Self::Run => "run_module",
            Self::Filter => "undo_module",
        }
    }

    /// The file in `kernels/common` that goes with it.
    fn import(self) -> &'static str {
        match self {
            Self::Run => "module_run",
            Self::Filter => "module_filter",
        }
    }
}

/// The bytes that a run's kernel reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reach {
    /// Bytes of the input.
    pub input: u32,
    /// Bytes of the output.
    pub output: u32,
    /// Bytes of the state.
    pub state: u32,
    /// Bytes of the picture.
    pub pixels: u32,
}

/// The cost block of a kernel that runs N lanes of `program`. Buffers have a word at least, and whole words.
pub fn cost(program: &Program, reach: Reach) -> String {
    let words = |bytes: u32| bytes.max(4).next_multiple_of(4);
    let Reach { input, output, state, pixels } = reach;
    format!(
        "// @pz_cost {{\n//   threads: N\n//   passes: 1\n\
         //   buffers: module_arguments=64, module_input={}, module_output={}, module_state={},\n\
         //            module_pixels={}, module_results=N*12\n\
         //   local_mem: 0\n//   note: a work item has {} bytes of private memory\n// }}\n",
        words(input),
        words(output),
        words(state),
        words(pixels),
        program.memory.len(),
    )
}

/// Base-2 logarithm of the bytes that a work item stands for at least, where lanes stand for 2^`lane_log` bytes: a unit
/// may be shorter than a lane's share.
pub fn item_log(lane_log: u8) -> u8 {
    lane_log.min(18)
}

/// The cost block of a kernel that undoes what `program` did, in lanes of 2^`lane_log` bytes.
pub fn filter_cost(program: &Program, lane_log: u8) -> String {
    format!(
        "// @pz_cost {{\n//   threads: N/{}\n//   passes: 2\n\
         //   buffers: jobs=32, contents=N, filtered=N, results=32\n\
         //   local_mem: 0\n//   note: a work item has {} bytes of private memory\n// }}\n",
        1u32 << item_log(lane_log),
        program.memory.len(),
    )
}

/// The kernel of `program`, but for its cost block.
pub fn kernel<D: Dialect>(program: &Program, purpose: Purpose) -> String {
    let mut text = D::head(program);
    let _ = writeln!(text, "// @pz_import {}", purpose.import());
    let mut writer = Writer::<D> {
        labels: Vec::new(),
        text: String::new(),
        leaves: false,
        dialect: D::of(program),
    };
    writer.all(&program.body);
    let Writer { text: body, leaves, .. } = writer;
    text += &D::start(program, leaves);
    text += &body;
    text += &D::end(program, purpose);
    text
}

/// The words of a lane's first memory that are not 0, by their places.
fn words(program: &Program) -> impl Iterator<Item = (usize, u32)> + '_ {
    let words = program.memory.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    words.enumerate().filter(|(_, word)| *word != 0)
}

/// What a language writes in its own way. Text of a value is in parentheses where it needs them.
pub trait Dialect {
    /// What a function that ends early returns.
    fn of(program: &Program) -> Self;
    /// What comes before the body's function.
    fn head(program: &Program) -> String;
    /// The beginning of the body's function: its variables. `leaves` says whether it needs the variable `leave`.
    fn start(program: &Program, leaves: bool) -> String;
    /// The end of the body's function, and the entry point.
    fn end(program: &Program, purpose: Purpose) -> String;
    /// Begins a loop that only `break` ends.
    const LOOP: &'static str;
    /// The statement that leaves the function, `RETURN` before and `;` after it left out.
    fn give_up(&self) -> &str;
    /// What goes before the arguments of a helper that may trap.
    const LANE: &'static str;
    /// What goes before a call whose result is not used.
    const DROP: &'static str;
    /// A constant.
    fn constant(&self, text: &mut String, ty: Type, value: u64);
    /// An operation with one operand.
    fn unary(&self, text: &mut String, op: Unary, operand: &Expression);
    /// An operation with two operands.
    fn binary(&self, text: &mut String, op: Binary, operands: &[Expression; 2]);
    /// One value or another.
    fn select(&self, text: &mut String, parts: &[Expression; 3]);
    /// A comparison, without parentheses around it.
    fn compare(&self, text: &mut String, op: Binary, operands: &[Expression; 2]);
    /// A value that was loaded by `load` as a word, extended to its variable's type.
    fn loaded(&self, text: &mut String, into: Variable, bits: u32, is_signed: bool, load: &str);
    /// The lower word of a value.
    fn low_word(&self, text: &mut String, value: &Expression);

    /// A condition, in the parentheses that a statement needs.
    fn condition(&self, text: &mut String, condition: &Expression) {
        text.push('(');
        match condition {
            Expression::Binary(op, operands) if op.compares() => self.compare(text, *op, operands),
            other => {
                self.value(text, other);
                text.push_str("!=0u");
            }
        }
        text.push(')');
    }

    /// A value.
    fn value(&self, text: &mut String, expression: &Expression) {
        match expression {
            Expression::Constant(ty, value) => self.constant(text, *ty, *value),
            Expression::Read(variable) => {
                let _ = write!(text, "v{}", variable.index);
            }
            Expression::Unary(op, operand) => self.unary(text, *op, operand),
            Expression::Binary(op, operands) => self.binary(text, *op, operands),
            Expression::Select(parts) => self.select(text, parts),
        }
    }

    /// A value as text of its own.
    fn text(&self, expression: &Expression) -> String {
        let mut text = String::new();
        self.value(&mut text, expression);
        text
    }
}

/// Appends `left`, an operator and `right`, in parentheses.
fn infix<D: Dialect + ?Sized>(
    dialect: &D,
    text: &mut String,
    op: &str,
    operands: &[Expression; 2],
) {
    text.push('(');
    dialect.value(text, &operands[0]);
    text.push_str(op);
    dialect.value(text, &operands[1]);
    text.push(')');
}

/// Appends a shift whose count is taken modulo the width.
fn shift<D: Dialect + ?Sized>(
    dialect: &D,
    text: &mut String,
    symbol: &str,
    operands: &[Expression; 2],
) {
    let mask = operands[0].ty().bits() - 1;
    text.push('(');
    dialect.value(text, &operands[0]);
    text.push_str(symbol);
    match &operands[1] {
        Expression::Constant(_, by) => {
            let _ = write!(text, "{}u", by & u64::from(mask));
        }
        by => {
            text.push('(');
            dialect.value(text, by);
            let _ = write!(text, "&{mask}u)");
        }
    }
    text.push(')');
}

/// Appends a call of `name` with `operands`.
fn call<D: Dialect + ?Sized>(dialect: &D, text: &mut String, name: &str, operands: &[Expression]) {
    text.push_str(name);
    text.push('(');
    for (at, operand) in operands.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        dialect.value(text, operand);
    }
    text.push(')');
}

/// A name for values of 32 bits, or the same with `_long` behind.
fn sized(name: &str, ty: Type) -> String {
    match ty {
        Type::I32 => name.into(),
        Type::I64 => format!("{name}_long"),
    }
}

/// A block or loop that is open in the text.
struct Open {
    label: Label,
    is_loop: bool,
    /// Whether a branch leaves it for one farther out.
    is_crossed: bool,
}

/// Writes statements.
struct Writer<D> {
    labels: Vec<Open>,
    text: String,
    /// Whether the variable `leave` is used.
    leaves: bool,
    dialect: D,
}

/// Whether nothing can follow these statements in the text.
fn end_here(statements: &[Statement]) -> bool {
    matches!(
        statements.last(),
        Some(Statement::Branch(_) | Statement::Switch(..) | Statement::Unreachable)
    )
}

impl<D: Dialect> Writer<D> {
    fn all(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn value(&mut self, expression: &Expression) {
        self.dialect.value(&mut self.text, expression);
    }

    fn set(&mut self, variable: Variable) {
        let _ = write!(self.text, "v{}=", variable.index);
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Set(variable, value) => {
                self.set(*variable);
                self.value(value);
                self.push(";\n");
            }
            Statement::Divide(into, op, operands) => {
                self.set(*into);
                let name = match op {
                    Division::QuotientSigned => "quotient_signed",
                    Division::QuotientUnsigned => "quotient",
                    Division::RemainderSigned => "remainder_signed",
                    Division::RemainderUnsigned if into.ty == Type::I32 => "remainder_of",
                    Division::RemainderUnsigned => "remainder",
                };
                self.helper(&sized(name, into.ty), operands.as_ref(), "");
            }
            Statement::Load { into, bytes, is_signed, address, offset } => {
                self.set(*into);
                if *bytes == 8 {
                    self.helper("load8", std::slice::from_ref(address), &format!(",{offset}u"));
                } else {
                    let address = self.dialect.text(address);
                    let load = format!("load({}{address},{offset}u,{bytes}u)", D::LANE);
                    self.dialect.loaded(&mut self.text, *into, 8 * *bytes, *is_signed, &load);
                    self.push(";\n");
                }
            }
            Statement::Store { bytes, address, offset, value } => {
                let _ =
                    write!(self.text, "store{}({}", if *bytes == 8 { "8" } else { "" }, D::LANE);
                self.value(address);
                let _ = write!(self.text, ",{offset}u,");
                if *bytes == 8 {
                    self.value(value);
                } else {
                    let _ = write!(self.text, "{bytes}u,");
                    self.dialect.low_word(&mut self.text, value);
                }
                self.push(");\n");
            }
            Statement::Check(range) => {
                let [address, count] = [0, 1].map(|at: usize| self.dialect.text(&range[at]));
                let (drop, lane) = (D::DROP, D::LANE);
                let _ = writeln!(self.text, "{drop}is_in_memory({lane}{address},0u,{count});");
            }
            Statement::Call(into, intrinsic, arguments) => {
                self.intrinsic(*into, *intrinsic, arguments)
            }
            Statement::Unreachable => {
                let _ = writeln!(
                    self.text,
                    "set_trap({}TRAP_UNREACHABLE);return{};",
                    D::LANE,
                    self.dialect.give_up()
                );
            }
            Statement::Block(label, body) => self.labelled(*label, None, body),
            Statement::Loop(label, charge, body) => self.labelled(*label, Some(*charge), body),
            Statement::If(condition, then, otherwise) => {
                self.push("if");
                self.dialect.condition(&mut self.text, condition);
                self.push("{\n");
                self.all(then);
                if !otherwise.is_empty() {
                    self.push("}else{\n");
                    self.all(otherwise);
                }
                self.push("}\n");
            }
            Statement::Branch(label) => self.branch(*label),
            Statement::Switch(index, labels) => self.switch(index, labels),
        }
    }

    /// A call of a helper that may trap, with `more` arguments as text.
    fn helper(&mut self, name: &str, arguments: &[Expression], more: &str) {
        self.push(name);
        self.push("(");
        let mut lane = D::LANE;
        if arguments.is_empty() {
            lane = lane.trim_end_matches(',');
        }
        self.push(lane);
        for (at, argument) in arguments.iter().enumerate() {
            if at > 0 {
                self.push(",");
            }
            self.value(argument);
        }
        self.push(more);
        self.push(");\n");
    }

    fn intrinsic(
        &mut self,
        into: Option<Variable>,
        intrinsic: Intrinsic,
        arguments: &[Expression],
    ) {
        let name = match intrinsic {
            Intrinsic::AtomicAdd => "state_add",
            Intrinsic::ThreadId => "thread_id",
            other => other.names().1,
        };
        match into {
            Some(variable) => self.set(variable),
            None if intrinsic.has_result() => self.push(D::DROP),
            None => {}
        }
        self.helper(name, arguments, "");
    }

    /// A block, or a loop with its charge.
    fn labelled(&mut self, label: Label, charge: Option<u32>, body: &[Statement]) {
        self.push(D::LOOP);
        if let Some(charge) = charge {
            let (lane, give_up) = (D::LANE, self.dialect.give_up());
            let _ = write!(self.text, "if(must_end({lane}{charge}u)){{return{give_up};}}");
        }
        self.push("\n");
        self.labels.push(Open { label, is_loop: charge.is_some(), is_crossed: false });
        self.all(body);
        self.push(if end_here(body) { "}\n" } else { "break;}\n" });
        let closed = self.labels.pop();
        if closed.is_some_and(|open| open.is_crossed) {
            let goes_on = self.labels.last().is_some_and(|open| open.is_loop);
            self.push(if goes_on {
                "if(leave!=0u){leave-=1u;if(leave==0u){continue;}break;}\n"
            } else {
                "if(leave!=0u){leave-=1u;break;}\n"
            });
        }
    }

    fn branch(&mut self, label: Label) {
        let Some(at) = self.labels.iter().rposition(|open| open.label == label) else { return };
        let between = self.labels.len() - 1 - at;
        if between == 0 {
            self.push(if self.labels[at].is_loop { "continue;\n" } else { "break;\n" });
            return;
        }
        self.leaves = true;
        for open in &mut self.labels[at + 1..] {
            open.is_crossed = true;
        }
        let _ = writeln!(self.text, "leave={between}u;break;");
    }

    /// Halves the labels until one remains, so that a choice among many takes few comparisons.
    fn switch(&mut self, index: &Expression, labels: &[Label]) {
        let index = self.dialect.text(index);
        self.choose(&index, 0, labels);
    }

    fn choose(&mut self, index: &str, first: u32, labels: &[Label]) {
        let Some((label, others)) = labels.split_first() else { return };
        if others.iter().all(|other| other == label) {
            self.branch(*label);
            return;
        }
        let half = labels.len() / 2;
        let (lower, upper) = labels.split_at(half);
        let from = first + half as u32;
        let _ = writeln!(self.text, "if({index}<{from}u){{");
        self.choose(index, first, lower);
        self.push("}else{\n");
        self.choose(index, from, upper);
        self.push("}\n");
    }
}
