//! Reads and validates a module: its sections, and the bodies of its functions.

use std::collections::BTreeMap;

use wasmparser::{
    DataKind, ExternalKind, FuncType, FunctionBody, KnownCustom, Name, Operator, Parser, Payload,
    TypeRef, ValType, Validator, WasmFeatures,
};

use super::limits::MODULE_BYTES;
use super::program::{Intrinsic, Type};
use super::refusal::Refusal;

/// A global variable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Global {
    /// The first value, and the type; `None` if it is no integer, and so may not be used.
    pub(super) value: Option<(Type, u64)>,
    /// Whether it may change.
    pub(super) is_mutable: bool,
}

/// A valid module. All numbers of functions count imports first.
#[derive(Debug)]
pub(super) struct Sections<'a> {
    types: Vec<FuncType>,
    imports: Vec<(Intrinsic, u32)>,
    functions: Vec<u32>,
    bodies: Vec<FunctionBody<'a>>,
    /// Global variables.
    pub(super) globals: Vec<Global>,
    /// Data, by its place in memory.
    pub(super) data: Vec<(u32, &'a [u8])>,
    /// Exported functions.
    pub(super) exports: BTreeMap<&'a str, u32>,
    /// The exported constant `__heap_base`, behind stack and data.
    pub(super) heap_base: Option<u32>,
    /// Bytes of memory that the module declares.
    pub(super) memory_bytes: u32,
    names: BTreeMap<u32, &'a str>,
    /// The module's own name.
    pub(super) module_name: Option<&'a str>,
}

/// What the validator permits. Whatever of this is not translated is refused where an entry uses it.
const FEATURES: WasmFeatures = WasmFeatures::MVP
    .union(WasmFeatures::MUTABLE_GLOBAL)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::CALL_INDIRECT_OVERLONG)
    .union(WasmFeatures::REFERENCE_TYPES);

impl<'a> Sections<'a> {
    /// Reads a module.
    ///
    /// # Errors
    /// Says why it is refused.
    pub(super) fn read(module: &'a [u8]) -> Result<Self, Refusal> {
        if module.len() > MODULE_BYTES {
            return Err(Refusal::new(
                format!("takes {} bytes, and at most {MODULE_BYTES} are allowed", module.len()),
                "build it with optimisation, without debug information and without the standard library",
            ));
        }
        Validator::new_with_features(FEATURES).validate_all(module)?;
        let mut sections = Self {
            types: Vec::new(),
            imports: Vec::new(),
            functions: Vec::new(),
            bodies: Vec::new(),
            globals: Vec::new(),
            data: Vec::new(),
            exports: BTreeMap::new(),
            heap_base: None,
            memory_bytes: 0,
            names: BTreeMap::new(),
            module_name: None,
        };
        for payload in Parser::new(0).parse_all(module) {
            sections.take(payload?)?;
        }
        let end = |(at, data): &(u32, &[u8])| u64::from(*at) + data.len() as u64;
        if sections.data.iter().any(|data| end(data) > sections.memory_bytes.into()) {
            return Err(Refusal::new("has data beyond its memory", "declare a larger memory"));
        }
        Ok(sections)
    }

    fn take(&mut self, payload: Payload<'a>) -> Result<(), Refusal> {
        match payload {
            Payload::TypeSection(types) => {
                for ty in types.into_iter_err_on_gc_types() {
                    self.types.push(ty?);
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import?;
                    self.import(import.module, import.name, import.ty)?;
                }
            }
            Payload::FunctionSection(functions) => {
                for function in functions {
                    self.functions.push(function?);
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let bytes = memory?.initial.saturating_mul(65_536);
                    self.memory_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                }
            }
            Payload::GlobalSection(globals) => {
                for global in globals {
                    let global = global?;
                    let value = match global.init_expr.get_operators_reader().read()? {
                        Operator::I32Const { value } => Some((Type::I32, u64::from(value as u32))),
                        Operator::I64Const { value } => Some((Type::I64, value as u64)),
                        _ => None,
                    };
                    self.globals.push(Global { value, is_mutable: global.ty.mutable });
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export?;
                    match export.kind {
                        ExternalKind::Func => {
                            self.exports.insert(export.name, export.index);
                        }
                        ExternalKind::Global if export.name == "__heap_base" => {
                            let global = self.globals.get(export.index as usize);
                            let value = global.and_then(|global| global.value);
                            self.heap_base = value.map(|(_, value)| value as u32);
                        }
                        _ => {}
                    }
                }
            }
            Payload::StartSection { .. } => {
                return Err(Refusal::new(
                    "has a start function, which would run before each lane",
                    "call what it does from the entry",
                ));
            }
            Payload::DataSection(data) => {
                for data in data {
                    let data = data?;
                    let DataKind::Active { offset_expr, .. } = data.kind else { continue };
                    let Operator::I32Const { value } = offset_expr.get_operators_reader().read()?
                    else {
                        return Err(Refusal::new(
                            "has data whose place is not a constant",
                            "give each data segment a constant address",
                        ));
                    };
                    self.data.push((value as u32, data.data));
                }
            }
            Payload::CodeSectionEntry(body) => self.bodies.push(body),
            Payload::CustomSection(section) => {
                // Names are for people only: a malformed section of them has none.
                if let KnownCustom::Name(names) = section.as_known() {
                    for subsection in names {
                        if let Ok(Name::Module { name, .. }) = &subsection {
                            self.module_name = Some(*name);
                        }
                        let Ok(Name::Function(names)) = subsection else { continue };
                        let names = names.into_iter().filter_map(Result::ok);
                        self.names.extend(names.map(|naming| (naming.index, naming.name)));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, module: &str, name: &str, ty: TypeRef) -> Result<(), Refusal> {
        let found = Intrinsic::ALL.into_iter().find(|one| one.names() == (module, name));
        let (Some(intrinsic), TypeRef::Func(index)) = (found, ty) else {
            let all = Intrinsic::ALL.map(|one| format!("{}.{}", one.names().0, one.names().1));
            return Err(Refusal::new(
                format!("imports {module}.{name}, which is unknown"),
                format!("import nothing but the functions {}", all.join(", ")),
            ));
        };
        let (parameters, results) = (intrinsic.parameters(), usize::from(intrinsic.has_result()));
        let fits = self.types.get(index as usize).is_some_and(|ty| {
            let all = ty.params().iter().chain(ty.results());
            ty.params().len() == parameters
                && ty.results().len() == results
                && all.copied().all(|ty| ty == ValType::I32)
        });
        if !fits {
            return Err(Refusal::new(
                format!("imports {module}.{name} with another type"),
                format!("declare it with {parameters} parameters and {results} results, all i32"),
            ));
        }
        self.imports.push((intrinsic, index));
        Ok(())
    }

    /// The intrinsic that function `index` is; `None` if it has a body.
    pub(super) fn intrinsic(&self, index: u32) -> Option<Intrinsic> {
        self.imports.get(index as usize).map(|(intrinsic, _)| *intrinsic)
    }

    /// The type of function `index`.
    pub(super) fn function_type(&self, index: u32) -> Option<&FuncType> {
        let at = (index as usize).checked_sub(self.imports.len());
        let ty = match at {
            None => self.imports.get(index as usize).map(|(_, ty)| *ty),
            Some(at) => self.functions.get(at).copied(),
        };
        self.types.get(ty? as usize)
    }

    /// A type that a block names.
    pub(super) fn block_type(&self, index: u32) -> Option<&FuncType> {
        self.types.get(index as usize)
    }

    /// The body of function `index`.
    pub(super) fn body(&self, index: u32) -> Option<&FunctionBody<'a>> {
        self.bodies.get((index as usize).checked_sub(self.imports.len())?)
    }

    /// What to call function `index` in messages: its name in the source, or that under which it is exported, or its
    /// number.
    pub(super) fn name(&self, index: u32) -> String {
        let exported = || self.exports.iter().find(|(_, export)| **export == index);
        match self.names.get(&index).copied().or_else(|| exported().map(|(name, _)| *name)) {
            Some(name) => format!("`{}`", name.escape_debug()),
            None => format!("number {index}"),
        }
    }
}
