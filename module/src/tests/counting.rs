//! Modules that count their fuel themselves, for wasmi, which counts another way. This is what the format's text says
//! of fuel, written once more: it works on the module's functions, and inlines nothing.

use std::collections::HashMap;

use wasm_encoder::reencode::{Reencode as _, RoundtripReencoder};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, ExportKind, ExportSection, Function, FunctionSection,
    GlobalSection, GlobalType, Instruction, RawSection, TypeSection, ValType,
};
use wasmparser::{FunctionBody, Operator as O, Parser, Payload, TypeRef};

/// The exported global that holds the fuel that is left: less than 0 if it did not suffice.
pub(super) const FUEL: &str = "fuel of pz";

/// What a function takes.
#[derive(Clone, Default)]
struct Taken {
    /// The charges of its loops, by the numbers of their instructions.
    charges: HashMap<usize, i64>,
    /// Work outside of loops that are charged.
    outside: u64,
    /// Whether it can return.
    returns: bool,
}

/// A block, loop or condition that is open, or the function.
#[derive(Default)]
struct Open {
    /// The number of its instruction, if it is a loop.
    loop_at: Option<usize>,
    is_condition: bool,
    /// Whether its first instruction can be reached.
    begins: bool,
    /// Whether its end can be reached from its first part, or by a branch.
    ends: bool,
    is_target: bool,
    work: u64,
}

struct Functions<'a> {
    imports: u32,
    /// Parameters of each function's type.
    parameters: Vec<u32>,
    bodies: Vec<FunctionBody<'a>>,
    /// `None` while a function is being looked at.
    taken: HashMap<u32, Option<Taken>>,
}

impl Functions<'_> {
    fn locals(&self, function: u32) -> u64 {
        let body = &self.bodies[(function - self.imports) as usize];
        let locals = body.get_locals_reader().unwrap().into_iter().map(|local| local.unwrap().0);
        u64::from(self.parameters[function as usize]) + locals.map(u64::from).sum::<u64>()
    }

    fn taken(&mut self, function: u32) -> Taken {
        match self.taken.get(&function) {
            Some(Some(taken)) => return taken.clone(),
            // Functions that call themselves are of no entry.
            Some(None) => return Taken { returns: true, ..Taken::default() },
            None => {}
        }
        self.taken.insert(function, None);
        let body = self.bodies[(function - self.imports) as usize].clone();
        let mut taken = Taken::default();
        let mut open = vec![Open { begins: true, ..Open::default() }];
        let mut is_reached = true;
        for (at, operator) in body.get_operators_reader().unwrap().into_iter().enumerate() {
            let operator = operator.unwrap();
            let mut work = 0;
            let mut goes_on = true;
            let mut targets = Vec::new();
            match &operator {
                O::Block { .. } | O::Loop { .. } | O::If { .. } => {
                    let is_condition = matches!(operator, O::If { .. });
                    if is_reached && is_condition {
                        open.last_mut().unwrap().work += 1;
                    }
                    let loop_at = matches!(operator, O::Loop { .. }).then_some(at);
                    open.push(Open {
                        loop_at,
                        is_condition,
                        begins: is_reached,
                        ..Open::default()
                    });
                    continue;
                }
                O::Else => {
                    let condition = open.last_mut().unwrap();
                    condition.ends |= is_reached;
                    condition.is_condition = false;
                    is_reached = condition.begins;
                    continue;
                }
                O::End => {
                    let closed = open.pop().unwrap();
                    let is_loop = closed.loop_at.is_some();
                    // A condition without another part goes on if it does not hold.
                    is_reached |= closed.ends
                        || closed.is_target && !is_loop
                        || closed.is_condition && closed.begins;
                    let Some(around) = open.last_mut() else {
                        taken.outside = closed.work;
                        break;
                    };
                    match closed.loop_at {
                        Some(at) if closed.is_target => {
                            let charge = closed.work.div_ceil(32).max(1);
                            taken.charges.insert(at, charge as i64);
                        }
                        _ => around.work += closed.work,
                    }
                    continue;
                }
                O::Nop => {}
                O::Br { relative_depth } => {
                    (work, goes_on) = (1, false);
                    targets.push(*relative_depth);
                }
                O::BrIf { relative_depth } => {
                    work = 1;
                    targets.push(*relative_depth);
                }
                O::BrTable { targets: table } => {
                    (work, goes_on) = (1 + u64::from(table.len()), false);
                    targets.extend(table.targets().map(Result::unwrap));
                    targets.push(table.default());
                }
                O::Return => {
                    (work, goes_on) = (1, false);
                    targets.push(open.len() as u32 - 1);
                }
                O::Unreachable => (work, goes_on) = (1, false),
                O::Call { function_index } if *function_index < self.imports => work = 8,
                O::Call { function_index } if is_reached => {
                    let called = self.taken(*function_index);
                    work = self.locals(*function_index) + called.outside;
                    goes_on = called.returns;
                }
                O::I32DivS | O::I32DivU | O::I32RemS | O::I32RemU => work = 8,
                O::I64DivS | O::I64DivU | O::I64RemS | O::I64RemU => work = 32,
                O::MemoryFill { .. } | O::MemoryCopy { .. } => work = 8,
                _ => work = 1,
            }
            if is_reached {
                open.last_mut().unwrap().work += work;
                for depth in targets {
                    let at = open.len() - 1 - depth as usize;
                    open[at].is_target = true;
                }
                is_reached = goes_on;
            }
        }
        taken.returns = is_reached;
        self.taken.insert(function, Some(taken.clone()));
        taken
    }
}

/// Takes `charge` units, and traps if there are fewer.
fn take(function: &mut Function, fuel: u32, charge: &[Instruction<'_>]) {
    function.instruction(&Instruction::GlobalGet(fuel));
    for instruction in charge {
        function.instruction(instruction);
    }
    for instruction in [
        Instruction::I64Sub,
        Instruction::GlobalSet(fuel),
        Instruction::GlobalGet(fuel),
        Instruction::I64Const(0),
        Instruction::I64LtS,
        Instruction::If(BlockType::Empty),
        Instruction::Unreachable,
        Instruction::End,
    ] {
        function.instruction(&instruction);
    }
}

/// A function that takes what `memory.fill` and `memory.copy` take for their last argument, and returns its arguments.
fn bulk(fuel: u32) -> Function {
    let mut function = Function::new([]);
    let count = || [Instruction::LocalGet(2), Instruction::I64ExtendI32U];
    let eighths = [Instruction::I64Const(3), Instruction::I64ShrU];
    let rest = [Instruction::I64Const(7), Instruction::I64And];
    let sum = [Instruction::I64Add, Instruction::I64Const(2), Instruction::I64Add];
    let charge: Vec<_> =
        count().into_iter().chain(eighths).chain(count()).chain(rest).chain(sum).collect();
    take(&mut function, fuel, &charge);
    for local in 0..3 {
        function.instruction(&Instruction::LocalGet(local));
    }
    function.instruction(&Instruction::End);
    function
}

/// The sections of a module that are changed.
#[derive(Default)]
struct Changed {
    types: TypeSection,
    functions: FunctionSection,
    globals: GlobalSection,
    exports: ExportSection,
    imported_globals: u32,
}

impl Changed {
    /// Reads the sections before the code, and what the functions are.
    fn read<'a>(bytes: &'a [u8], functions: &mut Functions<'a>) -> Self {
        let mut changed = Self::default();
        let mut same = RoundtripReencoder;
        let mut types = Vec::new();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.unwrap() {
                Payload::TypeSection(section) => {
                    for ty in section.clone().into_iter_err_on_gc_types() {
                        types.push(ty.unwrap().params().len() as u32);
                    }
                    same.parse_type_section(&mut changed.types, section).unwrap();
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        match import.unwrap().ty {
                            TypeRef::Func(ty) => {
                                functions.imports += 1;
                                functions.parameters.push(types[ty as usize]);
                            }
                            TypeRef::Global(_) => changed.imported_globals += 1,
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    for ty in section.clone() {
                        functions.parameters.push(types[ty.unwrap() as usize]);
                    }
                    same.parse_function_section(&mut changed.functions, section).unwrap();
                }
                Payload::GlobalSection(section) => {
                    same.parse_global_section(&mut changed.globals, section).unwrap();
                }
                Payload::ExportSection(section) => {
                    same.parse_export_section(&mut changed.exports, section).unwrap();
                }
                Payload::CodeSectionEntry(body) => functions.bodies.push(body),
                _ => {}
            }
        }
        changed
    }
}

/// The module with a global that holds `fuel` units at first, and instructions that take them.
pub(super) fn counting(bytes: &[u8], fuel: u32) -> Vec<u8> {
    let mut functions =
        Functions { imports: 0, parameters: Vec::new(), bodies: Vec::new(), taken: HashMap::new() };
    let mut changed = Changed::read(bytes, &mut functions);
    let three = [ValType::I32; 3];
    let ty = changed.types.len();
    changed.types.ty().function(three, three);
    let bulk_at = functions.imports + changed.functions.len();
    changed.functions.function(ty);
    let global = changed.imported_globals + changed.globals.len();
    let kind = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
    changed.globals.global(kind, &ConstExpr::i64_const(fuel.into()));
    changed.exports.export(FUEL, ExportKind::Global, global);

    let mut code = CodeSection::new();
    for (number, body) in functions.bodies.clone().into_iter().enumerate() {
        let charges = functions.taken(functions.imports + number as u32).charges;
        let mut function = RoundtripReencoder.new_function_with_parsed_locals(&body).unwrap();
        for (at, operator) in body.get_operators_reader().unwrap().into_iter().enumerate() {
            let operator = operator.unwrap();
            if let O::MemoryFill { .. } | O::MemoryCopy { .. } = operator {
                function.instruction(&Instruction::Call(bulk_at));
            }
            function.instruction(&RoundtripReencoder.instruction(operator).unwrap());
            if let Some(charge) = charges.get(&at) {
                take(&mut function, global, &[Instruction::I64Const(*charge)]);
            }
        }
        code.function(&function);
    }
    code.function(&bulk(global));

    // The sections in their order; those that are not changed as they are.
    let mut others: Vec<(u8, &[u8])> = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        if let Some((id, range)) = payload.unwrap().as_section() {
            others.push((id, &bytes[range.start as usize..range.end as usize]));
        }
    }
    let mut module = wasm_encoder::Module::new();
    let order = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11];
    for id in order {
        match id {
            1 => {
                module.section(&changed.types);
            }
            3 => {
                module.section(&changed.functions);
            }
            6 => {
                module.section(&changed.globals);
            }
            7 => {
                module.section(&changed.exports);
            }
            10 => {
                module.section(&code);
            }
            _ => {
                for (_, data) in others.iter().filter(|(other, _)| *other == id) {
                    module.section(&RawSection { id, data });
                }
            }
        }
    }
    module.finish()
}
