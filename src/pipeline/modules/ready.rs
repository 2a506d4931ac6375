//! A frame's modules, compiled, and the module that an encoder adds to a frame.

use std::sync::{Arc, OnceLock};

use crate::codec::filter::{ApplyFault, ModuleCall, RunModule};
use crate::codec::{Malformed, reserve};
use crate::error::Error;
use crate::format::{Fault, LANE_LOGS, ModuleRecord, ModuleTable};
use crate::gpu::module::filter_kernel;
use crate::gpu::stages::filter::ModuleStep;
use crate::module::execute::Executor;
use crate::module::program::Program;
use crate::module::translate::{Purpose, THREADS, item_log};
use crate::module::{Entry, Lane, Module, Refusal, Trap, Windows};

/// A filter of the user's own: a module that exports `encode` and `decode`, and how it is run.
///
/// [`Options::modules`](crate::Options::modules) takes them; chains name them `module0`, `module1` and so on.
/// Compressed files carry the module, so that they can be decoded anywhere, by whoever [allows](crate::Modules) it. The
/// [format](mod@crate::format#modules) says what both functions are called with; `encode` gets what `decode` gets.
///
/// ```
/// use pz::module::Module;
/// use pz::{DecodeOptions, FilterModule, Modules, Options};
/// // Both functions invert each byte of their lane's share.
/// let module = r#"(module
///     (import "pz" "in8" (func $in8 (param i32) (result i32)))
///     (import "pz" "out8" (func $out8 (param i32 i32)))
///     (func $invert (param $lane i32) (param $lanes i32) (param $len i32) (local $at i32)
///         (local.set $at (local.get $lane))
///         (loop $next
///             (if (i32.lt_u (local.get $at) (local.get $len)) (then
///                 (call $out8 (local.get $at) (i32.xor (call $in8 (local.get $at)) (i32.const 255)))
///                 (local.set $at (i32.add (local.get $at) (local.get $lanes)))
///                 (br $next)))))
///     (export "encode" (func $invert))
///     (export "decode" (func $invert)))"#;
/// let module = Module::read(wat::parse_str(module)?)?;
/// let options = Options::new().modules([FilterModule::new(&module)?]).filter("module0".parse()?);
/// let contents: Vec<u8> = (0..100_000_u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
/// let compressed = pz::compress(&contents, &options)?;
/// assert!(pz::decompress(&compressed, &DecodeOptions::new()).is_err());
/// let trusted = DecodeOptions::new().modules(Modules::Trusted(vec![module.sha256()]));
/// assert_eq!(pz::decompress(&compressed, &trusted)?, contents);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterModule {
    record: ModuleRecord,
}

impl FilterModule {
    /// Base-2 logarithm of the bytes of contents for each lane, by default.
    const LANE_LOG: u8 = 12;

    /// Lanes stand for 4096 bytes each, and have 16 units of [fuel](mod@crate::format#fuel) for each byte: enough for
    /// some 500 instructions.
    ///
    /// # Errors
    /// Says why the module is refused, or that it lacks `encode` or `decode`.
    pub fn new(module: &Module) -> Result<Self, Refusal> {
        for name in ["encode", "decode"] {
            module.entry(name)?;
        }
        let lane_log = Self::LANE_LOG;
        Ok(Self {
            record: ModuleRecord {
                sha256: module.sha256(),
                fuel: 16 << lane_log,
                lane_log,
                bytes: module.bytes().to_vec(),
            },
        })
    }

    /// Sets how many bytes a lane stands for: a power of two from 256 to 2^20. Many lanes run faster on a GPU; where
    /// each must begin anew, such as with differences, few make smaller files. Sets the fuel to 16 for each byte.
    ///
    /// # Errors
    /// If there are no such lanes.
    pub fn lane_bytes(mut self, bytes: u32) -> Result<Self, Refusal> {
        let lane_log = bytes.max(1).ilog2() as u8;
        if !bytes.is_power_of_two() || !LANE_LOGS.contains(&lane_log) {
            let what = format!("has lanes for {bytes} bytes");
            return Err(Refusal::new(what, "give a power of two from 256 to 1048576"));
        }
        (self.record.lane_log, self.record.fuel) = (lane_log, 16 << lane_log);
        Ok(self)
    }

    /// Sets the [fuel](mod@crate::format#fuel) of a lane: at most 256 units for each byte that it stands for. A turn of
    /// a loop takes a unit for each 32 instructions of work. Decoders refuse a block that takes more.
    ///
    /// # Errors
    /// If there is no such fuel.
    pub fn fuel(mut self, fuel: u32) -> Result<Self, Refusal> {
        let most = ModuleRecord::max_fuel(self.record.lane_log);
        if !(1..=most).contains(&fuel) {
            let what = format!("has {fuel} units of fuel a lane");
            return Err(Refusal::new(what, format!("give 1 to {most}, or a lane more bytes")));
        }
        self.record.fuel = fuel;
        Ok(self)
    }

    /// The SHA-256 of the module.
    pub fn sha256(&self) -> [u8; 32] {
        self.record.sha256
    }

    /// The table of several, in order.
    pub(crate) fn table(modules: impl IntoIterator<Item = Self>) -> ModuleTable {
        ModuleTable::new(modules.into_iter().map(|module| module.record).collect())
    }
}

/// The modules of a frame, compiled.
#[derive(Debug)]
pub(crate) struct FrameModules {
    ready: Vec<Ready>,
    on_devices: OnceLock<Vec<ModuleStep>>,
}

/// A module, compiled.
#[derive(Debug)]
struct Ready {
    lane_log: u8,
    fuel: u32,
    decode: Executor<Program>,
    /// Only encoders have it.
    encode: Option<Executor<Program>>,
}

fn executor(module: &Module, entry: &str) -> Result<Executor<Program>, Refusal> {
    module.entry(entry).map(Entry::into_program).map(Executor::new)
}

impl Ready {
    fn new(record: &ModuleRecord, encodes: bool) -> Result<Self, Refusal> {
        let module = Module::read(&record.bytes[..])?;
        let (lane_log, fuel) = (record.lane_log, record.fuel);
        let encode = encodes.then(|| executor(&module, "encode")).transpose()?;
        Ok(Self { lane_log, fuel, decode: executor(&module, "decode")?, encode })
    }

    /// Runs all lanes of a unit that begins at byte `position` of the frame's contents.
    fn run(
        &self,
        executor: &Executor<Program>,
        argument: u16,
        position: u64,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Trap> {
        let len = input.len() as u64;
        let lanes = len.div_ceil(1 << self.lane_log);
        let mut windows = Windows { input, output, ..Windows::default() };
        for number in 0..lanes {
            let arguments = &[number, lanes, len, len, argument.into(), position];
            let share = (len - (number << self.lane_log)).min(1 << self.lane_log);
            let fuel = self.fuel.min(ModuleRecord::max_fuel_of(share as u32));
            let lane = Lane { number: number as u32, arguments, fuel };
            executor.run_filter(&mut windows, lane)?;
        }
        Ok(())
    }
}

impl FrameModules {
    fn of(ready: Vec<Ready>) -> Self {
        Self { ready, on_devices: OnceLock::new() }
    }

    /// The kernels that undo them on devices, by module number; none if the process has made kernels of too many
    /// modules.
    pub(crate) fn on_devices(&self) -> &[ModuleStep] {
        self.on_devices.get_or_init(|| {
            let steps = self.ready.iter().map(|ready| {
                let Ready { lane_log, fuel, decode, .. } = ready;
                let kernel = filter_kernel(decode.program(), *lane_log).ok()?;
                Some(ModuleStep {
                    kernel,
                    entry: Purpose::Filter.entry(),
                    threads: THREADS,
                    item_log: item_log(*lane_log),
                    lane_log: *lane_log,
                    fuel: *fuel,
                    turns: decode.program().turns(),
                })
            });
            steps.collect::<Option<_>>().unwrap_or_default()
        })
    }

    /// Prepares to undo the modules' filters.
    ///
    /// # Errors
    /// If a module breaks a rule of the format.
    pub(crate) fn to_decode(table: &ModuleTable) -> Result<Self, Fault> {
        let ready = table.records().iter().map(|record| Ready::new(record, false));
        let ready = ready.collect::<Result<_, _>>();
        ready.map(Self::of).map_err(|_| {
            Fault::Corrupt("a module of the frame breaks a rule: pz module check says which")
        })
    }

    /// Prepares to filter with the modules of an encoder's frames, and to check that the result can be undone; `None`
    /// if there are none. [`FilterModule::new`] has checked them.
    pub(crate) fn of_encoder(table: &ModuleTable) -> Result<Option<Arc<Self>>, Error> {
        if table.is_empty() {
            return Ok(None);
        }
        let ready = table.records().iter().map(|record| Ready::new(record, true));
        let ready = ready.collect::<Result<_, _>>();
        let ready = ready.map_err(|_| Error::Internal { what: "a module changed" })?;
        Ok(Some(Arc::new(Self::of(ready))))
    }
}

impl RunModule for FrameModules {
    fn apply(
        &self,
        call: ModuleCall,
        position: u64,
        before: &[u8],
        after: &mut [u8],
    ) -> Result<(), ApplyFault> {
        let ModuleCall { number, argument } = call;
        let failed = |what| ApplyFault::Module { number, what };
        let Some((ready, encode)) = self
            .ready
            .get(usize::from(number))
            .and_then(|ready| Some((ready, ready.encode.as_ref()?)))
        else {
            return Err(failed("it is not among the options' modules"));
        };
        ready.run(encode, argument, position, before, after).map_err(|trap| {
            failed(match trap {
                Trap::Fuel => "`encode` ran out of fuel",
                Trap::Memory => "`encode` reached beyond its private memory",
                Trap::Window => "`encode` reached beyond its input or output",
                Trap::Division => "`encode` divided by zero, or the quotient does not fit",
                Trap::Unreachable => "`encode` gave up",
            })
        })?;
        let mut restored = Vec::new();
        reserve(&mut restored, before.len())?;
        restored.resize(before.len(), 0);
        ready
            .run(&ready.decode, argument, position, after, &mut restored)
            .map_err(|trap| failed(of_decode(trap).1))?;
        if restored != before {
            return Err(failed("`decode` does not restore what `encode` was given"));
        }
        Ok(())
    }

    fn undo(
        &self,
        call: ModuleCall,
        position: u64,
        before: &[u8],
        after: &mut [u8],
    ) -> Result<(), Malformed> {
        let missing = Malformed("a filter of the block names a module that the frame lacks");
        let ready = self.ready.get(usize::from(call.number)).ok_or(missing)?;
        ready
            .run(&ready.decode, call.argument, position, before, after)
            .map_err(|trap| Malformed(of_decode(trap).0))
    }
}

/// The name that a module has in its section of names.
pub(crate) fn name(record: &ModuleRecord) -> Option<String> {
    Module::read(&record.bytes[..]).ok()?.name().map(str::to_string)
}

/// The meaning of a trap in `decode`: for a decoder, and for an encoder that checks.
fn of_decode(trap: Trap) -> (&'static str, &'static str) {
    match trap {
        Trap::Fuel => ("the block's module ran out of fuel", "`decode` ran out of fuel"),
        Trap::Memory => (
            "the block's module reached beyond its private memory",
            "`decode` reached beyond its private memory",
        ),
        Trap::Window => (
            "the block's module reached beyond its input or output",
            "`decode` reached beyond its input or output",
        ),
        Trap::Division => (
            "the block's module divided by zero",
            "`decode` divided by zero, or the quotient does not fit",
        ),
        Trap::Unreachable => ("the block's module gave up", "`decode` gave up"),
    }
}
