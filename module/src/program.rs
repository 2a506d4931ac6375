//! The form that every back end reads: one function without calls, whose control flow is structured.
//!
//! `inline` makes it from a module. Values are integers of 32 or 64 bits, without a sign; operations that need
//! one say so. An [`Expression`] has no effect and cannot trap, so a back end may compute it where it likes between the
//! statements around it. Whatever has an effect or may trap is a [`Statement`].
//!
//! # What every back end must do alike
//! - All variables are 0 at first, except parameters, and those that [`Program::initial`] names.
//! - A [`Loop`](Statement::Loop) takes its charge of fuel each time its beginning is reached, from before it or by a
//!   branch. Where less is left, the run traps with [`Trap::Fuel`].
//! - Sums, differences, products and shifts drop the bits that do not fit. Shifts and rotations count modulo the width.
//! - An access beyond private memory, a window, the state or the picture traps.
//! - The first trap counts. A back end stops at once, or carries on to the next beginning of a loop with a value of its
//!   own choice: whatever it writes after the trap is refused with the rest.

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
}

impl Type {
    /// Number of bits.
    #[doc(hidden)]
    pub fn bits(self) -> u32 {
        match self {
            Self::I32 => 32,
            Self::I64 => 64,
        }
    }

    /// `value` without the bits that this type lacks.
    #[doc(hidden)]
    pub fn wrap(self, value: u64) -> u64 {
        match self {
            Self::I32 => value & 0xffff_ffff,
            Self::I64 => value,
        }
    }
}

/// A variable of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variable {
    /// Its index in [`Program::variables`].
    pub index: u32,
    /// Its type.
    pub ty: Type,
}

/// What one operand becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    /// Number of zero bits above the highest one.
    Clz,
    /// Number of zero bits below the lowest one.
    Ctz,
    /// Number of one bits.
    Popcnt,
    /// Sign extension of the lowest 8, 16 or 32 bits within the operand's type.
    Extend(u8),
    /// The lower 32 bits of a value of 64.
    Wrap,
    /// 32 bits, followed by zeros.
    ExtendUnsigned,
    /// 32 bits, followed by copies of the highest.
    ExtendSigned,
}

/// What two operands of one type become. Comparisons give 1 or 0, of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    Shl,
    ShrSigned,
    ShrUnsigned,
    Rotl,
    Rotr,
    Eq,
    Ne,
    LessSigned,
    LessUnsigned,
    LessOrEqualSigned,
    LessOrEqualUnsigned,
}

impl Binary {
    /// Whether the result is 1 or 0, of 32 bits.
    pub fn compares(self) -> bool {
        matches!(
            self,
            Self::Eq
                | Self::Ne
                | Self::LessSigned
                | Self::LessUnsigned
                | Self::LessOrEqualSigned
                | Self::LessOrEqualUnsigned
        )
    }
}

/// A value without effects. Its tree has at most [`MAX_EXPRESSION`] nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    /// A number.
    Constant(Type, u64),
    /// A variable's value.
    Read(Variable),
    /// An operation with one operand.
    Unary(Unary, Box<Expression>),
    /// An operation with two operands of one type.
    Binary(Binary, Box<[Expression; 2]>),
    /// The second part if the first, of 32 bits, is not 0; otherwise the third.
    Select(Box<[Expression; 3]>),
}

impl Expression {
    /// The constant of 32 bits.
    pub fn i32(value: u32) -> Self {
        Self::Constant(Type::I32, value.into())
    }

    /// The type of the value.
    pub fn ty(&self) -> Type {
        match self {
            Self::Constant(ty, _) => *ty,
            Self::Read(variable) => variable.ty,
            Self::Unary(Unary::Wrap, _) => Type::I32,
            Self::Unary(Unary::ExtendUnsigned | Unary::ExtendSigned, _) => Type::I64,
            Self::Unary(_, operand) => operand.ty(),
            Self::Binary(op, _) if op.compares() => Type::I32,
            Self::Binary(_, operands) => operands[0].ty(),
            Self::Select(parts) => parts[1].ty(),
        }
    }

    /// Number of nodes.
    pub fn size(&self) -> usize {
        match self {
            Self::Constant(..) | Self::Read(_) => 1,
            Self::Unary(_, operand) => 1 + operand.size(),
            Self::Binary(_, operands) => 1 + operands.iter().map(Self::size).sum::<usize>(),
            Self::Select(parts) => 1 + parts.iter().map(Self::size).sum::<usize>(),
        }
    }

    /// Whether a variable for which `which` holds is read.
    pub fn reads(&self, which: &impl Fn(Variable) -> bool) -> bool {
        match self {
            Self::Constant(..) => false,
            Self::Read(variable) => which(*variable),
            Self::Unary(_, operand) => operand.reads(which),
            Self::Binary(_, operands) => operands.iter().any(|operand| operand.reads(which)),
            Self::Select(parts) => parts.iter().any(|part| part.reads(which)),
        }
    }
}

/// The most nodes of an expression: a longer one is computed in parts, in variables.
pub const MAX_EXPRESSION: usize = 24;

/// A division. The result has the type of its variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// The quotient of numbers with a sign, rounded towards 0.
    QuotientSigned,
    /// The quotient.
    QuotientUnsigned,
    /// What the quotient of numbers with a sign leaves; it has the sign of the dividend.
    RemainderSigned,
    /// What the quotient leaves.
    RemainderUnsigned,
}

/// What a module may import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intrinsic {
    /// `pz.in8(at)`: a byte of the input.
    In8,
    /// `pz.in32(at)`: word `at` of the input, little-endian.
    In32,
    /// `pz.out8(at, value)`: sets a byte of the output.
    Out8,
    /// `pz.out32(at, value)`: sets word `at` of the output, little-endian.
    Out32,
    /// `gpu.thread_id()`: the lane's number.
    ThreadId,
    /// `gpu.atomic_add(at, value)`: adds to a word of the state, and gives what it was.
    AtomicAdd,
    /// `gpu.read_state(at)`: a word of the state.
    ReadState,
    /// `gpu.write_state(at, value)`: sets a word of the state.
    WriteState,
    /// `gpu.set_pixel(x, y, colour)`: sets a pixel. From its lowest byte, a colour is red, green, blue and alpha.
    SetPixel,
    /// `gpu.get_time()`: the time that the caller passed, in milliseconds, the same for all lanes.
    GetTime,
}

impl Intrinsic {
    /// Every intrinsic.
    pub const ALL: [Self; 10] = [
        Self::In8,
        Self::In32,
        Self::Out8,
        Self::Out32,
        Self::ThreadId,
        Self::AtomicAdd,
        Self::ReadState,
        Self::WriteState,
        Self::SetPixel,
        Self::GetTime,
    ];

    /// The names under which a module imports it.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::In8 => ("pz", "in8"),
            Self::In32 => ("pz", "in32"),
            Self::Out8 => ("pz", "out8"),
            Self::Out32 => ("pz", "out32"),
            Self::ThreadId => ("gpu", "thread_id"),
            Self::AtomicAdd => ("gpu", "atomic_add"),
            Self::ReadState => ("gpu", "read_state"),
            Self::WriteState => ("gpu", "write_state"),
            Self::SetPixel => ("gpu", "set_pixel"),
            Self::GetTime => ("gpu", "get_time"),
        }
    }

    /// Number of parameters, all `i32`.
    pub fn parameters(self) -> usize {
        match self {
            Self::ThreadId | Self::GetTime => 0,
            Self::In8 | Self::In32 | Self::ReadState => 1,
            Self::Out8 | Self::Out32 | Self::AtomicAdd | Self::WriteState => 2,
            Self::SetPixel => 3,
        }
    }

    /// Whether it has a result, an `i32`.
    pub fn has_result(self) -> bool {
        !matches!(self, Self::Out8 | Self::Out32 | Self::WriteState | Self::SetPixel)
    }
}

/// Where a branch goes: the number of a [`Statement::Block`] or [`Statement::Loop`] around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(pub u32);

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// Sets a variable.
    Set(Variable, Expression),
    /// Divides. A divisor of 0 traps, and so does a signed quotient that does not fit.
    Divide(Variable, Division, Box<[Expression; 2]>),
    /// Reads `bytes` bytes of private memory, little-endian, at `address + offset`, which does not wrap. A load of
    /// fewer bytes than the variable's is extended, with copies of the highest bit if it `is_signed`.
    Load {
        /// Where the value goes.
        into: Variable,
        /// 1, 2, 4 or 8.
        bytes: u32,
        /// Whether the highest bit is a sign.
        is_signed: bool,
        /// Of 32 bits.
        address: Expression,
        /// Added to the address.
        offset: u32,
    },
    /// Writes the lowest `bytes` bytes of a value to private memory.
    Store {
        /// 1, 2, 4 or 8.
        bytes: u32,
        /// Of 32 bits.
        address: Expression,
        /// Added to the address.
        offset: u32,
        /// What to write.
        value: Expression,
    },
    /// Traps unless as many bytes of private memory as the second value says exist at the address that the first is.
    Check(Box<[Expression; 2]>),
    /// Calls what the module imports. A result is dropped where it has no variable.
    Call(Option<Variable>, Intrinsic, Vec<Expression>),
    /// Traps.
    Unreachable,
    /// Statements that a branch to the label leaves.
    Block(Label, Vec<Statement>),
    /// Statements that a branch to the label begins again. Without one they run once. The number, at least 1, is the
    /// charge: the fuel for one turn.
    Loop(Label, u32, Vec<Statement>),
    /// One list of statements or the other: the first if the condition, of 32 bits, is not 0.
    If(Expression, Vec<Statement>, Vec<Statement>),
    /// Leaves a block, or begins a loop again.
    Branch(Label),
    /// Branches to the label at the index, and to the last if there are fewer. There is at least one.
    Switch(Expression, Vec<Label>),
}

/// An entry of a module, with all that it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The types of all variables.
    pub variables: Vec<Type>,
    /// The variables that hold the arguments, in order.
    pub parameters: Vec<Variable>,
    /// Variables that do not begin with 0, and their values.
    pub initial: Vec<(Variable, u64)>,
    /// The variable that holds the result at the end.
    pub result: Option<Variable>,
    /// What to do.
    pub body: Vec<Statement>,
    /// The first contents of private memory, of which each lane has its own. Its length, a multiple of 16, is the
    /// memory's; 0 if the program does not use it.
    pub memory: Vec<u8>,
    /// The intrinsics that are called, in the order of [`Intrinsic::ALL`].
    pub intrinsics: Vec<Intrinsic>,
    /// The program's length, counted as for [`super::limits::OPERATORS`].
    pub operators: u32,
    /// Levels of calls, 1 for an entry that calls nothing.
    pub call_depth: u32,
    /// Number of functions: the entry, and all that it calls.
    pub functions: u32,
}

impl Program {
    /// Number of loops.
    pub fn loops(&self) -> u32 {
        let mut loops = 0;
        visit(&self.body, &mut |statement| {
            loops += u32::from(matches!(statement, Statement::Loop(..)));
        });
        loops
    }

    /// The most turns that a kernel's loops take for a unit of fuel. In kernels, blocks are loops too, as is a
    /// division of 64 bits in WGSL. A block begins at most once per turn of a loop that takes fuel.
    pub fn turns(&self) -> u32 {
        let mut turns = 1;
        visit(&self.body, &mut |statement| match statement {
            Statement::Block(..) => turns += 1,
            Statement::Divide(into, ..) if into.ty == Type::I64 => turns += 65,
            _ => {}
        });
        turns
    }

    /// The number of statements, those inside others included.
    pub(crate) fn statements(&self) -> usize {
        let mut count = 0;
        visit(&self.body, &mut |_| count += 1);
        count
    }
}

/// Calls `take` with each statement.
fn visit(statements: &[Statement], take: &mut impl FnMut(&Statement)) {
    for statement in statements {
        take(statement);
        match statement {
            Statement::Block(_, body) | Statement::Loop(_, _, body) => visit(body, take),
            Statement::If(_, then, otherwise) => {
                visit(then, take);
                visit(otherwise, take);
            }
            _ => {}
        }
    }
}

/// Why a run was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trap {
    /// A loop had too little fuel left.
    Fuel,
    /// An access beyond private memory.
    Memory,
    /// An access beyond the input, the output, the state or the picture.
    Window,
    /// A division by zero, or a quotient that does not fit.
    Division,
    /// The module gave up: `unreachable`, which panics become.
    Unreachable,
}

impl Trap {
    const ALL: [Self; 5] =
        [Self::Fuel, Self::Memory, Self::Window, Self::Division, Self::Unreachable];

    /// The number by which compiled programs and kernels report it, from 1.
    #[doc(hidden)]
    pub fn code(self) -> u32 {
        self as u32 + 1
    }

    /// The trap of a number; `None` for 0, which is none.
    #[doc(hidden)]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|trap| trap.code() == code)
    }
}

impl std::fmt::Display for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fuel => "it ran out of fuel: its loops do more work than allowed",
            Self::Memory => "it reached beyond its private memory",
            Self::Window => "it reached beyond its input, output, state or picture",
            Self::Division => "it divided by zero, or the quotient does not fit",
            Self::Unreachable => "it gave up: it reached an `unreachable`, as a panic does",
        })
    }
}
