//! What a module may be and hold. The format states the same figures.

/// Bytes of a module.
pub const MODULE_BYTES: usize = 64 << 10;
/// Bytes of a lane's private memory: stack and data.
pub const PRIVATE_BYTES: u32 = 4096;
/// Levels of calls, the entry's included.
pub const CALL_DEPTH: u32 = 32;
/// Length of an entry with everything inlined: each instruction of a function counts 1, `end` too, in every place to
/// which the function is inlined. A `br_table` counts 1 more for each label, a `call` 1 more for each local of the
/// function that it calls, parameters included.
pub const OPERATORS: u32 = 32_768;
/// Locals, parameters included, of all functions of a chain of calls together.
pub const LOCALS: u32 = 512;
/// Blocks, loops, conditions and bodies of functions inside one another, with everything inlined. WGSL permits 127
/// nested braces.
pub const NESTING: usize = 100;
/// Work that a unit of fuel pays for, counted by `operators::work`.
pub const WORK_OF_UNIT: u32 = 32;
/// Parameters of an entry.
pub const PARAMETERS: usize = 8;
/// Parameters, or results, of a block or of a function that is not an entry.
pub const VALUES: usize = 16;
