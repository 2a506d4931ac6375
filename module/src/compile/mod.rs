//! Compiles programs to machine code.
//!
//! The code gets one pointer, to a [`Context`]. It reads pointers and lengths from there once, and keeps them in
//! registers; each access compares its place with a length first. There is no other way by which it reaches memory, and
//! it calls nothing.

mod values;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, Endianness, InstBuilder, MemFlags, Type as CodeType, Value, types,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Switch, Variable as Register};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};

use super::execute::{Lane, Windows};
use super::limits::PARAMETERS;
use super::program::{Expression, Label, Program, Statement, Trap, Type, Variable};

/// What compiled code reads and writes.
#[repr(C)]
struct Context {
    input: *const u8,
    input_len: u64,
    output: *mut u8,
    output_len: u64,
    state: *mut u32,
    state_len: u64,
    pixels: *mut u32,
    pixels_len: u64,
    memory: *mut u8,
    variables: *mut u64,
    width: u32,
    time: u32,
    number: u32,
    fuel: u32,
    arguments: [u64; PARAMETERS],
    result: u64,
}

/// Gives the code of a [`Trap`], or 0.
type Code = unsafe extern "C" fn(*mut Context) -> u32;

/// A compiled program.
pub struct Compiled {
    code: Code,
    /// How many variables the code keeps in memory.
    variables: usize,
    /// Holds the code.
    module: Option<JITModule>,
}

// SAFETY: the code does not change any more, and keeps nothing between calls. The module is only freed.
unsafe impl Send for Compiled {}
// SAFETY: the same.
unsafe impl Sync for Compiled {}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: nobody runs the code any more: running it borrows this.
            unsafe { module.free_memory() };
        }
    }
}

impl Compiled {
    /// Compiles `program`; `None` if the compiler has no code for this processor, or the system permits none.
    pub fn new(program: &Program) -> Option<Self> {
        let flags = [("opt_level", "speed"), ("enable_verifier", "true")];
        let builder = JITBuilder::with_flags(&flags, default_libcall_names()).ok()?;
        let mut module = JITModule::new(builder);
        let mut context = module.make_context();
        let pointer = module.target_config().pointer_type();
        if pointer != types::I64 {
            return None;
        }
        context.func.signature.params.push(AbiParam::new(pointer));
        context.func.signature.returns.push(AbiParam::new(types::I32));
        let mut scratch = FunctionBuilderContext::new();
        let variables = variables_in_memory(program);
        let function = FunctionBuilder::new(&mut context.func, &mut scratch);
        Compiler::compile(function, program, variables > 0);
        let signature = context.func.signature.clone();
        let function = module.declare_function("entry", Linkage::Local, &signature).ok()?;
        module.define_function(function, &mut context).ok()?;
        module.clear_context(&mut context);
        module.finalize_definitions().ok()?;
        let code = module.get_finalized_function(function);
        // SAFETY: the code was compiled for this signature, and lives as long as the module.
        let code = unsafe { std::mem::transmute::<*const u8, Code>(code) };
        Some(Self { code, variables, module: Some(module) })
    }

    /// Runs a lane of `program`, from which this was compiled.
    ///
    /// # Errors
    /// The trap that ended it.
    pub fn run(
        &self,
        program: &Program,
        windows: &mut Windows<'_>,
        lane: Lane<'_>,
    ) -> Result<u64, Trap> {
        let mut memory = [0u64; super::limits::PRIVATE_BYTES as usize / 8];
        let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        for (to, from) in memory.iter_mut().zip(&program.memory) {
            *to = *from;
        }
        let mut arguments = [0; PARAMETERS];
        for (to, from) in arguments.iter_mut().zip(lane.arguments) {
            *to = *from;
        }
        let mut variables = vec![0; self.variables];
        let mut context = Context {
            input: windows.input.as_ptr(),
            input_len: windows.input.len() as u64,
            output: windows.output.as_mut_ptr(),
            output_len: windows.output.len() as u64,
            state: windows.state.as_mut_ptr(),
            state_len: windows.state.len() as u64,
            pixels: windows.pixels.as_mut_ptr(),
            pixels_len: windows.pixels.len() as u64,
            memory: memory.as_mut_ptr(),
            variables: variables.as_mut_ptr(),
            width: windows.width,
            time: windows.time,
            number: lane.number,
            fuel: lane.fuel,
            arguments,
            result: 0,
        };
        // SAFETY: the pointers are valid for their lengths, private memory for the program's, which is at most
        // `PRIVATE_BYTES`, and the variables for those of the program that the code keeps there. The code stays within
        // them.
        let code = unsafe { (self.code)(&raw mut context) };
        Trap::from_code(code).map_or(Ok(context.result), Err)
    }
}

/// How many variables of `program` the code keeps in memory: none, or all if it would take long to find registers for
/// them. That takes time in the product of statements and variables: a module of 64 KiB took 18 s.
fn variables_in_memory(program: &Program) -> usize {
    let variables = program.variables.len();
    if program.statements() * variables <= MAX_PRODUCT { 0 } else { variables }
}

/// The largest product of statements and variables with which variables live in registers. Compiling then takes up to
/// half a second.
const MAX_PRODUCT: usize = 1 << 19;

/// Where the values of variables are.
enum Variables {
    /// In registers of the processor, as far as it has enough.
    Registers(Vec<Register>),
    /// In memory from this address on, 8 bytes each.
    Memory(Value),
}

/// The places in a [`Context`] that the code needs everywhere, in registers.
#[derive(Clone, Copy)]
struct Places {
    context: Value,
    input: Value,
    input_len: Value,
    output: Value,
    output_len: Value,
    memory: Value,
    fuel: Register,
}

struct Compiler<'b, 'p> {
    builder: FunctionBuilder<'b>,
    program: &'p Program,
    variables: Variables,
    places: Places,
    /// Where branches to open labels go.
    labels: Vec<(Label, Block)>,
    /// The blocks that end the run with a trap.
    traps: Vec<(Trap, Block)>,
}

/// How memory of the host is accessed: each place was compared with a length before.
fn flags() -> MemFlags {
    MemFlags::new().with_notrap().with_endianness(Endianness::Little)
}

fn code_type(ty: Type) -> CodeType {
    match ty {
        Type::I32 => types::I32,
        Type::I64 => types::I64,
    }
}

/// The type of `bytes` bytes.
fn of_bytes(bytes: u32) -> CodeType {
    match bytes {
        1 => types::I8,
        2 => types::I16,
        4 => types::I32,
        _ => types::I64,
    }
}

macro_rules! offset {
    ($field:ident) => {
        std::mem::offset_of!(Context, $field) as i32
    };
}
use offset;

impl<'b, 'p> Compiler<'b, 'p> {
    fn compile(mut builder: FunctionBuilder<'b>, program: &'p Program, is_in_memory: bool) {
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        builder.seal_block(entry);
        let context = builder.block_params(entry)[0];
        let own = MemFlags::trusted();
        let mut load = |ty, at| builder.ins().load(ty, own, context, at);
        let (input, input_len) =
            (load(types::I64, offset!(input)), load(types::I64, offset!(input_len)));
        let (output, output_len) =
            (load(types::I64, offset!(output)), load(types::I64, offset!(output_len)));
        let memory = load(types::I64, offset!(memory));
        let first_fuel = load(types::I32, offset!(fuel));
        let fuel = builder.declare_var(types::I32);
        builder.def_var(fuel, first_fuel);
        let variables = if is_in_memory {
            // The host has filled it with zeros.
            Variables::Memory(builder.ins().load(types::I64, own, context, offset!(variables)))
        } else {
            let register = |ty: &Type| {
                let register = builder.declare_var(code_type(*ty));
                let zero = builder.ins().iconst(code_type(*ty), 0);
                builder.def_var(register, zero);
                register
            };
            Variables::Registers(program.variables.iter().map(register).collect())
        };
        let places = Places { context, input, input_len, output, output_len, memory, fuel };
        let mut compiler =
            Self { builder, program, variables, places, labels: Vec::new(), traps: Vec::new() };
        compiler.all();
        compiler.builder.seal_all_blocks();
        compiler.builder.finalize();
    }

    fn all(&mut self) {
        let context = self.places.context;
        for (at, variable) in (0..).zip(&self.program.parameters) {
            let at = offset!(arguments) + 8 * at;
            let value = self.builder.ins().load(types::I64, MemFlags::trusted(), context, at);
            let value = match variable.ty {
                Type::I32 => self.builder.ins().ireduce(types::I32, value),
                Type::I64 => value,
            };
            self.define(*variable, value);
        }
        for (variable, value) in &self.program.initial {
            let value = self.constant(variable.ty, *value);
            self.define(*variable, value);
        }
        if !self.statements(&self.program.body) {
            if let Some(variable) = self.program.result {
                let value = self.read(variable);
                let value = match variable.ty {
                    Type::I32 => self.builder.ins().uextend(types::I64, value),
                    Type::I64 => value,
                };
                self.builder.ins().store(MemFlags::trusted(), value, context, offset!(result));
            }
            let zero = self.constant(Type::I32, 0);
            self.builder.ins().return_(&[zero]);
        }
        for (trap, block) in std::mem::take(&mut self.traps) {
            self.builder.switch_to_block(block);
            self.builder.set_cold_block(block);
            let code = self.constant(Type::I32, trap.code().into());
            self.builder.ins().return_(&[code]);
        }
    }

    fn define(&mut self, variable: Variable, value: Value) {
        match &self.variables {
            Variables::Registers(registers) => {
                self.builder.def_var(registers[variable.index as usize], value);
            }
            Variables::Memory(base) => {
                let at = 8 * variable.index as i32;
                self.builder.ins().store(MemFlags::trusted(), value, *base, at);
            }
        }
    }

    fn read(&mut self, variable: Variable) -> Value {
        match &self.variables {
            Variables::Registers(registers) => {
                self.builder.use_var(registers[variable.index as usize])
            }
            Variables::Memory(base) => {
                let (ty, at) = (code_type(variable.ty), 8 * variable.index as i32);
                self.builder.ins().load(ty, MemFlags::trusted(), *base, at)
            }
        }
    }

    fn constant(&mut self, ty: Type, value: u64) -> Value {
        self.builder.ins().iconst(code_type(ty), ty.wrap(value) as i64)
    }

    /// Goes on only if `condition` is 0.
    fn trap_if(&mut self, condition: Value, trap: Trap) {
        let target = self.trap_block(trap);
        let next = self.builder.create_block();
        self.builder.ins().brif(condition, target, &[], next, &[]);
        self.begin(next);
    }

    /// Begins a block to which no more branches come. An open block would take a parameter for each variable that is
    /// read behind it, so that compiling would take time in the square of a module's length.
    fn begin(&mut self, block: Block) {
        self.builder.switch_to_block(block);
        self.builder.seal_block(block);
    }

    fn trap_block(&mut self, trap: Trap) -> Block {
        if let Some((_, block)) = self.traps.iter().find(|(other, _)| *other == trap) {
            return *block;
        }
        let block = self.builder.create_block();
        self.traps.push((trap, block));
        block
    }

    /// Compiles statements. Returns whether what follows them is never reached.
    fn statements(&mut self, statements: &[Statement]) -> bool {
        statements.iter().any(|statement| self.statement(statement))
    }

    fn target(&self, label: Label) -> Option<Block> {
        self.labels.iter().rev().find(|(other, _)| *other == label).map(|(_, block)| *block)
    }

    fn statement(&mut self, statement: &Statement) -> bool {
        match statement {
            Statement::Set(variable, value) => {
                let value = self.value(value);
                self.define(*variable, value);
            }
            Statement::Divide(into, op, operands) => {
                let [left, right] = operands.as_ref();
                let (left, right) = (self.value(left), self.value(right));
                let value = self.divide(*op, into.ty, left, right);
                self.define(*into, value);
            }
            Statement::Load { into, bytes, is_signed, address, offset } => {
                let place = self.place(address, *offset, *bytes);
                let (part, whole) = (of_bytes(*bytes), code_type(into.ty));
                let value = self.builder.ins().load(part, flags(), place, 0);
                let value = match (part == whole, is_signed) {
                    (true, _) => value,
                    (false, true) => self.builder.ins().sextend(whole, value),
                    (false, false) => self.builder.ins().uextend(whole, value),
                };
                self.define(*into, value);
            }
            Statement::Store { bytes, address, offset, value } => {
                let place = self.place(address, *offset, *bytes);
                let (part, ty) = (of_bytes(*bytes), code_type(value.ty()));
                let value = self.value(value);
                let value =
                    if part == ty { value } else { self.builder.ins().ireduce(part, value) };
                self.builder.ins().store(flags(), value, place, 0);
            }
            Statement::Check(range) => {
                let [address, count] = range.as_ref();
                let (address, count) = (self.value(address), self.value(count));
                let address = self.builder.ins().uextend(types::I64, address);
                let count = self.builder.ins().uextend(types::I64, count);
                let end = self.builder.ins().iadd(address, count);
                let len = self.program.memory.len() as i64;
                let is_beyond = self.builder.ins().icmp_imm(IntCC::UnsignedGreaterThan, end, len);
                self.trap_if(is_beyond, Trap::Memory);
            }
            Statement::Call(into, intrinsic, arguments) => {
                let arguments: Vec<_> = arguments.iter().map(|value| self.value(value)).collect();
                let value = self.call(*intrinsic, &arguments);
                if let (Some(into), Some(value)) = (into, value) {
                    self.define(*into, value);
                }
            }
            Statement::Unreachable => {
                let block = self.trap_block(Trap::Unreachable);
                self.builder.ins().jump(block, &[]);
                return true;
            }
            Statement::Block(label, body) => {
                let behind = self.builder.create_block();
                self.labels.push((*label, behind));
                if !self.statements(body) {
                    self.builder.ins().jump(behind, &[]);
                }
                self.labels.pop();
                self.begin(behind);
            }
            Statement::Loop(label, charge, body) => {
                let begin = self.builder.create_block();
                self.builder.ins().jump(begin, &[]);
                self.builder.switch_to_block(begin);
                let fuel = self.builder.use_var(self.places.fuel);
                let charge = i64::from(*charge);
                let is_out = self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, fuel, charge);
                self.trap_if(is_out, Trap::Fuel);
                let less = self.builder.ins().iadd_imm(fuel, -charge);
                self.builder.def_var(self.places.fuel, less);
                self.labels.push((*label, begin));
                let ends = self.statements(body);
                self.labels.pop();
                self.builder.seal_block(begin);
                return ends;
            }
            Statement::If(condition, then, otherwise) => {
                return self.condition(condition, then, otherwise);
            }
            Statement::Branch(label) => {
                if let Some(target) = self.target(*label) {
                    self.builder.ins().jump(target, &[]);
                }
                return true;
            }
            Statement::Switch(index, labels) => {
                let index = self.value(index);
                let targets: Vec<_> =
                    labels.iter().filter_map(|label| self.target(*label)).collect();
                if let Some((last, others)) = targets.split_last() {
                    let mut switch = Switch::new();
                    for (at, target) in others.iter().enumerate() {
                        switch.set_entry(at as u128, *target);
                    }
                    switch.emit(&mut self.builder, index, *last);
                }
                return true;
            }
        }
        false
    }

    fn condition(
        &mut self,
        condition: &Expression,
        then: &[Statement],
        otherwise: &[Statement],
    ) -> bool {
        let condition = self.value(condition);
        let (first, second) = (self.builder.create_block(), self.builder.create_block());
        let behind = self.builder.create_block();
        self.builder.ins().brif(condition, first, &[], second, &[]);
        let mut ends = true;
        for (block, statements) in [(first, then), (second, otherwise)] {
            self.begin(block);
            if !self.statements(statements) {
                self.builder.ins().jump(behind, &[]);
                ends = false;
            }
        }
        self.begin(behind);
        if ends {
            // Nothing goes there, and code must end.
            let block = self.trap_block(Trap::Unreachable);
            self.builder.ins().jump(block, &[]);
        }
        ends
    }
}
