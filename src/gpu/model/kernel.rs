//! The kernel files.
//!
//! They are in `kernels/`: `lz77/` and `bwt/` hold the kernels of those codecs, `filter/` those of filters, `batch/`
//! the kernels that any batch needs, `door/` those that ask the host for files while they run, `common/` the files that
//! kernel files import, `dialects/` the headers of files in OpenCL C, and `test/` the kernels that only tests run.
//!
//! Each stem has a file in OpenCL C and one in WGSL. Both do the same work and state the same cost. (The kernel that
//! rings the bell of a door is in OpenCL C alone: only CUDA has bells.) [`Kernel::source`] turns a file into the text
//! that a backend compiles: it adds constants at the top and replaces each line
//! `// @pz_import NAME` by the file `kernels/common/NAME` of the same language. WGSL has no conditional compilation, so
//! the lines from `// @pz_if CONSTANT` to `// @pz_end` are kept only if that constant is set and not 0; the lines from
//! `// @pz_else` to `// @pz_end` are kept otherwise.
//!
//! CUDA compiles the files in OpenCL C. Where CUDA C++ differs, the files use names that `dialects/opencl.h` and
//! `dialects/cuda.h` define: `SHARED` for workgroup memory, `UINT2` and `UINT4` to make vectors. [`super::cuda_source`]
//! does the rest.
//!
//! An entry point in OpenCL C is a `__kernel` function. In WGSL, it is a function after the line `// @pz_entry`. It has
//! two parameters: the work item's number in its workgroup, and the workgroup's number.
//!
//! ```text
//! // @pz_entry
//! fn NAME(local_index: u32, workgroup_index: u32) {
//! ```
//!
//! A file may be the text of several kernels, which differ in constants and costs. Each of these *variants* has a name
//! and a cost block of its own, `// @pz_cost NAME {`.
//!
//! The constants (`#define` in OpenCL C, `const … : u32` in WGSL) are, in this order: `THREADS`, the size of a
//! workgroup;
//! `TEAMS`, the number of teams in it; `TEAM_PTX`, `TEAM_SUBGROUP` and `TEAM_LOCAL`, one of them 1 and the others 0;
//! then the constants of the dispatch.

use std::borrow::Cow;

use super::cost::{CostError, KernelCost};
use super::cuda_source;
use super::limits::{Api, Language, Limits, Teams};
use crate::process::PerProcess;

/// A kernel file in both languages, or one variant of it.
#[derive(Debug)]
pub struct Kernel {
    /// The file's path under `kernels/` without its extension. For a variant, its name follows after a colon.
    pub stem: &'static str,
    opencl: &'static str,
    /// Empty if WebGPU cannot run it.
    wgsl: &'static str,
    cost: PerProcess<KernelCost>,
}

/// A file that kernel files import.
pub(crate) struct Common {
    pub(crate) name: &'static str,
    opencl: &'static str,
    wgsl: &'static str,
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $file:literal $(: $variant:literal)?;)*) => {
        $(
            $(#[$doc])*
            pub static $name: Kernel = Kernel {
                stem: concat!($file $(, ":", $variant)?),
                opencl: include_str!(concat!("../../../kernels/", $file, ".cl")),
                wgsl: include_str!(concat!("../../../kernels/", $file, ".wgsl")),
                cost: PerProcess::new(),
            };
        )*
        /// Every kernel file.
        pub static ALL: &[&Kernel] = &[$(&$name),*];
    };
}

macro_rules! common {
    ($($name:literal),* $(,)?) => {
        pub(crate) static COMMON: &[Common] = &[$(Common {
            name: $name,
            opencl: include_str!(concat!("../../../kernels/common/", $name, ".cl")),
            wgsl: include_str!(concat!("../../../kernels/common/", $name, ".wgsl")),
        }),*];
    };
}

kernels! {
    /// LZ77, decoding: finds each chunk's record.
    LZ77_LAYOUT = "lz77/layout";
    /// LZ77, decoding: builds the tables of each group of chunks.
    LZ77_TABLES = "lz77/tables";
    /// LZ77, decoding: sorts chunks by cost.
    LZ77_ORDER = "lz77/order";
    /// LZ77, decoding: decodes the contents of each chunk.
    LZ77_DECODE = "lz77/decode";
    /// LZ77, decoding: decodes chunks that hold only literals.
    LZ77_LITERALS = "lz77/literals";
    /// LZ77, decoding: writes the contents of windows from recorded sequences.
    LZ77_WINDOWS = "lz77/windows";
    /// Sorts positions by hash, to find candidates for LZ77 matches.
    LZ77_SORT = "lz77/sort": "entries";
    /// Sorts positions by one digit of their hashes.
    LZ77_SORT_PLACES = "lz77/sort": "places";
    /// Finds the latest candidate of each position.
    LZ77_LATEST_ONE = "lz77/latest": "one";
    /// Finds the latest two candidates of each position.
    LZ77_LATEST_TWO = "lz77/latest": "two";
    /// Finds the latest four candidates of each position.
    LZ77_LATEST_FOUR = "lz77/latest": "four";
    /// Finds where each position's candidates are in the sorted order.
    LZ77_LINK = "lz77/link";
    /// The greedy parse of LZ77. As in all parses but the optimal one, a team parses each segment.
    LZ77_GREEDY = "lz77/greedy";
    /// The lazy parse with two candidates per position.
    LZ77_LAZY_TWO = "lz77/lazy": "two";
    /// The lazy parse with four candidates per position.
    LZ77_LAZY_FOUR = "lz77/lazy": "four";
    /// The lazy parse with four candidates by each of two hashes.
    LZ77_LAZY_EIGHT = "lz77/lazy": "eight";
    /// A parse with many candidates per position.
    LZ77_DEEP_QUICK = "lz77/deep": "quick";
    /// A parse with many candidates per position, and one by a hash of three bytes.
    LZ77_DEEP_THOROUGH = "lz77/deep": "thorough";
    /// Lists the candidates of each position for the optimal parse.
    LZ77_CANDIDATES = "lz77/candidates";
    /// Finds candidates in the order of suffixes for the optimal parse.
    LZ77_SUFFIXES = "lz77/suffixes";
    /// Computes the prices of symbols for the optimal parse.
    LZ77_PRICES = "lz77/prices";
    /// The optimal parse.
    LZ77_OPTIMAL = "lz77/optimal";
    /// Chooses the tables of the BWT encoder.
    BWT_ENCODE_CHOOSE = "bwt/encode_choose";
    /// Assigns contexts and counts symbols for the BWT encoder.
    BWT_ENCODE_CONTEXTS = "bwt/encode_contexts";
    /// Computes the ranks of the BWT encoder.
    BWT_ENCODE_RANKS = "bwt/encode_ranks";
    /// Finds the runs and segments of the BWT encoder.
    BWT_ENCODE_RUNS = "bwt/encode_runs";
    /// Codes the words of the BWT encoder.
    BWT_ENCODE_CODE = "bwt/encode_code";
    /// Describes the directory and tables of the BWT encoder.
    BWT_ENCODE_DESCRIBE = "bwt/encode_describe";
    /// Writes the payloads of the BWT encoder.
    BWT_ENCODE_WRITE = "bwt/encode_write";
    /// The radix sort of the forward BWT.
    BWT_SORT = "bwt/sort";
    /// The last step of the forward BWT.
    BWT_SORT_FINISH = "bwt/sort_finish";
    /// Gathers the keys for a round of prefix doubling in the forward BWT.
    BWT_SORT_GATHER = "bwt/sort_gather";
    /// The prefix doubling of the forward BWT.
    BWT_SORT_REFINE = "bwt/sort_refine";
    /// CRC-32C of contents and payloads.
    CRC32C = "batch/crc32c": "both";
    /// CRC-32C of contents alone.
    CRC32C_OF_CONTENTS = "batch/crc32c": "contents";
    /// Applies filters.
    FILTER_FORWARD = "filter/forward";
    /// Undoes zigzag and rotation that no transposition undoes along the way.
    FILTER_WORDS = "filter/words";
    /// Undoes filters of calls in programs.
    FILTER_CALLS = "filter/calls";
    /// Undoes transpositions of bytes and bits, and with them zigzag or rotation of each element.
    FILTER_SHUFFLE = "filter/shuffle";
    /// Undoes differences.
    FILTER_SUMS = "filter/sums";
    /// Undoes differences of adjacent elements of at most 4 bytes.
    FILTER_ADJACENT_SUMS = "filter/adjacent_sums";
    /// Undoes differences of rows of a few bytes.
    FILTER_ROW_SUMS = "filter/row_sums";
    /// Packs payloads one behind another.
    COMPACT = "batch/compact";
    /// Copies between buffers, from any byte to any byte.
    MOVE_BYTES = "batch/move_bytes";
    /// BWT, decoding: reads fixed fields and rows.
    BWT_HEADER = "bwt/header";
    /// BWT, decoding: reads the directory and the descriptions of tables.
    BWT_DESCRIBE = "bwt/describe";
    /// BWT, decoding: builds the tables.
    BWT_TABLES = "bwt/tables";
    /// BWT, decoding: decodes the second stage.
    BWT_SEGMENTS = "bwt/segments";
    /// BWT, decoding: turns decoded segments into the transform.
    BWT_EXPAND = "bwt/expand";
    /// BWT, decoding: inverts the transform.
    BWT_INVERSE = "bwt/inverse";
    /// Turns matches into sequences and literals.
    LZ77_SEQUENCES = "lz77/sequences";
    /// Counts literals.
    LZ77_COUNTS = "lz77/counts";
    /// Builds the models of groups.
    LZ77_MODELS = "lz77/models";
    /// Builds the FSE models of groups.
    LZ77_NORMS = "lz77/norms";
    /// Codes symbols with FSE.
    LZ77_STATES = "lz77/states";
    /// Writes the words of chunks.
    LZ77_ROWS = "lz77/rows";
    /// Writes payloads.
    LZ77_PACK = "lz77/pack";
}

/// The kernels that device tests run.
#[cfg(test)]
pub(crate) static TEST_DEVICE: Kernel = Kernel::of_texts(
    "test/device",
    include_str!("../../../kernels/test/device.cl"),
    include_str!("../../../kernels/test/device.wgsl"),
);

/// A kernel that does not compile.
#[cfg(test)]
pub(crate) static TEST_BROKEN: Kernel = Kernel::of_texts(
    "test/broken",
    include_str!("../../../kernels/test/broken.cl"),
    include_str!("../../../kernels/test/broken.wgsl"),
);

/// A kernel file whose cost block has a mistake.
#[cfg(test)]
pub(crate) static TEST_MALFORMED: Kernel = Kernel::of_texts(
    "test/malformed",
    "// @pz_cost {\n//   threads: N\n//   passes: 1\n//   buffers: a=1x\n//   local_mem: 0\n// }\n",
    "",
);

/// A kernel file without a cost block.
#[cfg(test)]
pub(crate) static TEST_MISSING: Kernel = Kernel::of_texts("test/missing", "void f() {}\n", "");

common![
    "binary",
    "bwt",
    "bwt_encode",
    "bwt_sort_state",
    "crc",
    "door",
    "door_wait",
    "filter",
    "filter_calls",
    "filter_words",
    "lanes",
    "length_code",
    "log2",
    "lz77_chunk_prices",
    "lz77_chunks",
    "lz77_code",
    "lz77_common_length",
    "lz77_group",
    "lz77_long_length",
    "lz77_price_table",
    "lz77_records",
    "lz77_segment",
    "lz77_symbols",
    "lz77_words",
    "module",
    "module_filter",
    "module_run",
    "team",
    "tile_scan",
];

/// Sends requests through a door, for the program to measure it. It is here, and not in the program, because tests of
/// kernels reach those of this list only: whether both languages state the same cost, and whether each compiler of CUDA
/// takes them.
pub static DOOR_MEASURE: Kernel = Kernel::of_texts(
    "door/measure",
    include_str!("../../../kernels/door/measure.cl"),
    include_str!("../../../kernels/door/measure.wgsl"),
);
/// Searches files for a byte string.
pub(crate) static DOOR_SEARCH: Kernel = Kernel::of_texts(
    "door/search",
    include_str!("../../../kernels/door/search.cl"),
    include_str!("../../../kernels/door/search.wgsl"),
);
/// Rings the bell of a door. It is in OpenCL C alone.
pub(crate) static DOOR_RING: Kernel =
    Kernel::of_texts("door/ring", include_str!("../../../kernels/door/ring.cl"), "");

/// Kernels that send requests through a door, for tests.
#[cfg(test)]
pub(crate) static TEST_DOOR: Kernel = Kernel::of_texts(
    "test/door",
    include_str!("../../../kernels/test/door.cl"),
    include_str!("../../../kernels/test/door.wgsl"),
);

/// The text that kernels at a door import, in OpenCL C and CUDA C++.
pub(crate) static DOOR: &str = include_str!("../../../kernels/common/door.cl");
/// The same in WGSL.
pub(crate) static DOOR_WGSL: &str = include_str!("../../../kernels/common/door.wgsl");

/// Calls every team function, to test backends.
#[cfg(test)]
pub(crate) static TEST_TEAM: Kernel = Kernel::of_texts(
    "test/team",
    include_str!("../../../kernels/test/team.cl"),
    include_str!("../../../kernels/test/team.wgsl"),
);

/// A loop of any length, to test backends.
#[cfg(test)]
pub(crate) static TEST_TURNS: Kernel = Kernel::of_texts(
    "test/turns",
    include_str!("../../../kernels/test/turns.cl"),
    include_str!("../../../kernels/test/turns.wgsl"),
);

/// The header of every file in OpenCL C.
const OPENCL_DIALECT: &str = include_str!("../../../kernels/dialects/opencl.h");

/// Makes each entry point in OpenCL C state the size of its workgroups, as WGSL always does. Without it, a compiler may
/// give each work item so many registers that the largest workgroups do not run. A compiler that knows the size ignores
/// MAX_REGISTERS, so the size alone must then limit the registers well enough.
const WORKGROUPS: &str =
    "#define __kernel kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))\n";

/// The constant of a dispatch that limits the registers of a work item, on NVIDIA's GPUs.
const MAX_REGISTERS: &str = "MAX_REGISTERS";

/// The limit on the registers of a work item in these constants of a dispatch.
#[cfg(any(feature = "cuda", feature = "opencl"))]
pub(in crate::gpu) fn max_registers(defines: &[(&'static str, u32)]) -> Option<u32> {
    defines.iter().find(|(name, _)| *name == MAX_REGISTERS).map(|(_, most)| *most)
}

impl Kernel {
    /// A kernel with these texts.
    pub(in crate::gpu) const fn of_texts(
        stem: &'static str,
        opencl: &'static str,
        wgsl: &'static str,
    ) -> Self {
        Self { stem, opencl, wgsl, cost: PerProcess::new() }
    }

    /// The cost that the file states.
    ///
    /// # Errors
    /// Fails if the cost block is malformed, or the two languages state different costs.
    pub fn cost(&self) -> Result<&KernelCost, CostError> {
        if let Some(cost) = self.cost.get() {
            return Ok(cost);
        }
        let cost = self.parse(|api| self.text(api))?;
        Ok(self.cost.get_or_init(|| cost))
    }

    /// Parses the cost blocks of both texts, or of the only one.
    pub(in crate::gpu) fn parse(
        &self,
        text: impl Fn(Api) -> Cow<'static, str>,
    ) -> Result<KernelCost, CostError> {
        let parse = |api| KernelCost::parse(&format!("kernels/{}", self.file(api)), &text(api));
        let cost = parse(Api::OpenCl)?;
        if self.wgsl.is_empty() {
            return Ok(cost);
        }
        let other = parse(Api::WebGpu)?;
        match cost.difference(&other) {
            Some(key) => Err(CostError::differs(self.stem, key)),
            None => Ok(cost),
        }
    }

    /// The file's path under `kernels/`, and the variant.
    fn file_and_variant(&self) -> (&'static str, Option<&'static str>) {
        match self.stem.split_once(':') {
            Some((file, variant)) => (file, Some(variant)),
            None => (self.stem, None),
        }
    }

    /// The path under `kernels/` of the file in the language of `api`.
    pub(in crate::gpu) fn file(&self, api: Api) -> String {
        format!("{}.{}", self.file_and_variant().0, extension(api))
    }

    /// The file's text. If it has several cost blocks, only the variant's own remains.
    pub fn text(&self, api: Api) -> Cow<'static, str> {
        let text = match api.language() {
            Language::OpenClC => self.opencl,
            Language::Wgsl => self.wgsl,
        };
        let text = newest(&self.file(api), text);
        match self.file_and_variant().1 {
            Some(variant) => with_cost_of(variant, &text).into(),
            None => text,
        }
    }

    /// The source that a backend compiles: see the module's documentation.
    pub fn source(&self, limits: &Limits, threads: u32, defines: &[(&'static str, u32)]) -> String {
        let team = |teams| u32::from(limits.teams == teams);
        let own = [
            ("THREADS", threads),
            ("TEAMS", threads / 32),
            ("TEAM_PTX", team(Teams::Ptx)),
            ("TEAM_SUBGROUP", team(Teams::Subgroup)),
            ("TEAM_LOCAL", team(Teams::Local)),
        ];
        let mut source = String::new();
        for (name, value) in own.iter().chain(defines) {
            source += &match limits.api.language() {
                Language::OpenClC => format!("#define {name} {value}u\n"),
                Language::Wgsl => format!("const {name}: u32 = {value}u;\n"),
            };
        }
        let is_limited = defines.iter().any(|(name, _)| *name == MAX_REGISTERS);
        let states_workgroups = !(is_limited && threads <= 256);
        match limits.api {
            Api::Cuda => source += &cuda_source::head(states_workgroups),
            Api::OpenCl => {
                if states_workgroups {
                    source += WORKGROUPS;
                }
                source += &newest("dialects/opencl.h", OPENCL_DIALECT);
            }
            Api::WebGpu => {}
        }
        let is_set = |name: &str| own.iter().chain(defines).any(|(n, v)| *n == name && *v != 0);
        resolve(&self.text(limits.api), limits.api, &is_set, &mut Vec::new(), &mut source);
        source
    }
}

/// The extension of kernel files for `api`.
fn extension(api: Api) -> &'static str {
    match api.language() {
        Language::OpenClC => "cl",
        Language::Wgsl => "wgsl",
    }
}

/// The text of a file with variants, for one of them: its cost block loses the name, and the lines of the other cost
/// blocks become empty comments, so that line numbers stay.
pub(in crate::gpu) fn with_cost_of(variant: &str, text: &str) -> String {
    let own = format!("// @pz_cost {variant} {{");
    let mut is_others = false;
    let mut result = String::new();
    for line in text.lines() {
        is_others |= line.starts_with("// @pz_cost ") && line != own;
        result += match line {
            _ if is_others => "//",
            _ if line == own => "// @pz_cost {",
            _ => line,
        };
        result.push('\n');
        is_others &= line != "// }";
    }
    result
}

/// The first line of an entry point in WGSL. It takes the place of `// @pz_entry`.
const ENTRY: &str = "@compute @workgroup_size(THREADS)";

/// The second line of an entry point in WGSL, made from the line in the file. Workgroups are numbered in two
/// dimensions, because a device's limit for one dimension may be less than the workgroups of a dispatch.
fn entry_head(line: &str) -> String {
    let name = line.strip_suffix("(local_index: u32, workgroup_index: u32) {");
    let name = name.unwrap_or_else(|| panic!("no entry point: {line}"));
    format!(
        "{name}(@builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) workgroup: vec3<u32>, \
         @builtin(num_workgroups) workgroups: vec3<u32>) {{ \
         let workgroup_index = workgroup.y * workgroups.x + workgroup.x;\n"
    )
}

/// Appends `text`. Expands each import once, and drops the lines that the constants disable.
fn resolve(
    text: &str,
    api: Api,
    is_set: &dyn Fn(&str) -> bool,
    imported: &mut Vec<&'static str>,
    source: &mut String,
) {
    let mut kept = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(constant) = line.strip_prefix("// @pz_if ") {
            kept.push(is_set(constant.trim()));
        } else if line == "// @pz_else" {
            if let Some(innermost) = kept.last_mut() {
                *innermost = !*innermost;
            }
        } else if line == "// @pz_end" {
            kept.pop();
        } else if kept.contains(&false) {
        } else if let Some(name) = line.strip_prefix("// @pz_import ") {
            let common = COMMON.iter().find(|common| common.name == name.trim());
            let common = common.unwrap_or_else(|| panic!("no kernels/common/{name}"));
            if imported.contains(&common.name) {
                continue;
            }
            imported.push(common.name);
            let text = match api.language() {
                Language::OpenClC => common.opencl,
                Language::Wgsl => common.wgsl,
            };
            let text = newest(&format!("common/{}.{}", common.name, extension(api)), text);
            resolve(&text, api, is_set, imported, source);
        } else if line == "// @pz_entry" {
            *source += ENTRY;
            source.push('\n');
            *source += &entry_head(lines.next().unwrap_or_default());
        } else {
            *source += line;
            source.push('\n');
        }
    }
}

/// In tests, the current text of the file in the folder named by `PZ_KERNELS`, so that kernels can be edited without
/// recompiling the library. Otherwise the text that was compiled in.
pub(super) fn newest(file: &str, compiled: &'static str) -> Cow<'static, str> {
    #[cfg(test)]
    if let Some(folder) = std::env::var_os("PZ_KERNELS")
        && !file.starts_with("module/")
    {
        let path = std::path::Path::new(&folder).join(file);
        return std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}")).into();
    }
    let _ = file;
    compiled.into()
}
