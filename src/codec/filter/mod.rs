//! Reversible filters for typed data: numbers, records, pixels, sound.
//!
//! LZ77 and entropy coders see bytes. In arrays of wider elements, bytes that resemble each other lie apart: the
//! exponents of floats, the high bytes of integers that change slowly. A chain of one to three [`Stage`]s rearranges
//! the bytes of a block before the codec, so that like stands beside like; a decoder inverts the stages in reverse
//! order after the codec. Every stage turns n bytes into n bytes.
//!
//! A block is filtered in *units* of 2^18 to 2^20 bytes, each alone, so that units can be done in parallel.
//! [`format`](mod@crate::format#filters) defines the stages exactly.
//!
//! | module | |
//! |---|---|
//! | [`choose`] | which chain suits a block |
//! | [`hints`] | chains that a header at the beginning of the input suggests |
//! | [`name`] | chains as text, as on command lines and in listings |
//! | [`forward`] | applies a chain |
//! | [`inverse`] | undoes it |
//! | [`words`] | elements of 1, 2, 4 and 8 bytes |
//! | [`transpose`] | byte transposition |
//! | [`bit_planes`] | bit transposition |
//! | [`decimal`] | floats that are decimal numbers, as integers |
//! | [`calls`] | calls in programs |
//! | [`dictionary`] | elements as places in a sorted list of their values |
//! | [`modules`] | the interface to stages that a frame's modules define |
//! | [`built_in`] | chains without modules, for benchmarks |

mod bit_planes;
pub mod built_in;
mod calls;
mod choose;
mod decimal;
mod dictionary;
mod forward;
mod hints;
mod inverse;
mod modules;
mod name;
#[cfg(test)]
mod tests;
mod transpose;
mod words;

pub(crate) use calls::Machine;
pub(crate) use choose::{Chooser, CodecTraits};
pub(crate) use forward::apply;
pub(crate) use hints::{Hints, LOOKED_AT};
pub(crate) use inverse::invert;
pub(crate) use modules::{ApplyFault, Context, InvertFault, ModuleCall, RunModule};

/// The most stages of a chain.
pub(crate) const MAX_STAGES: usize = 3;
/// Length of a chain in a header, in bytes.
pub(crate) const DESCRIPTOR_LEN: usize = 1 + 4 * MAX_STAGES;
/// Base-2 logarithms of the lengths that a unit may have, in bytes.
const UNIT_LOGS: std::ops::RangeInclusive<u8> = 18..=20;
/// Base-2 logarithm of the units' length that this encoder uses.
pub(crate) const UNIT_LOG: u8 = 20;

/// One reversible step. Elements are little-endian and have `width` bytes; sums and differences wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// The first bytes of all elements, then all second bytes, and so on. Width 2 to 255.
    Transpose { width: u8 },
    /// Bit 0 of all elements, then bit 1, and so on.
    BitTranspose { width: u8 },
    /// The difference to the element `stride` before; with order 2, the difference of differences.
    Delta { width: u8, order: u8, stride: u16 },
    /// The same, and then [`Self::Zigzag`].
    ZigzagDelta { width: u8, order: u8, stride: u16 },
    /// Signed numbers to unsigned ones: 0, -1, 1, -2 become 0, 1, 2, 3.
    Zigzag { width: u8 },
    /// Rotation left by `bits`: by one, the exponent of a float fills its last byte.
    Rotate { width: u8, bits: u8 },
    /// Exclusive or with the element `stride` before.
    Xor { width: u8, stride: u16 },
    /// Floats that are decimal numbers of `digits` digits after the point become integers.
    Decimal { width: u8, digits: u8 },
    /// The same for floats of 8 bytes near such numbers.
    NearDecimal { digits: u8 },
    /// A sorted list of the unit's values, and for each element its place there, in `index` bytes. With `digits`, the
    /// list has integers in place of floats: those of [`Self::Decimal`], or of [`Self::NearDecimal`] if `width` is 8.
    Dictionary { width: u8, index: u8, digits: Option<u8> },
    /// Addresses instead of distances in the calls of a program.
    Calls { machine: Machine },
    /// The stage that module `number` of the frame defines, with `argument`.
    Module(ModuleCall),
}

/// Added to the order of differences that zigzag follows.
const HAS_ZIGZAG: u8 = 4;

impl Stage {
    /// Bytes of an element; 1 for modules, which do not state theirs.
    pub(crate) const fn width(self) -> usize {
        match self {
            Self::Module(_) => 1,
            Self::NearDecimal { .. } => 8,
            Self::Calls { machine } => machine.width() as usize,
            Self::Transpose { width }
            | Self::BitTranspose { width }
            | Self::Delta { width, .. }
            | Self::ZigzagDelta { width, .. }
            | Self::Zigzag { width }
            | Self::Rotate { width, .. }
            | Self::Xor { width, .. }
            | Self::Decimal { width, .. }
            | Self::Dictionary { width, .. } => width as usize,
        }
    }

    /// Whether the stage only moves bytes or bits to other places of its unit.
    const fn is_transposition(self) -> bool {
        matches!(self, Self::Transpose { .. } | Self::BitTranspose { .. })
    }

    /// The stage as in a header: `id`, `order`, `width` and `parameter`, from the lowest bit.
    pub(crate) const fn to_word(self) -> u32 {
        let (id, order, parameter) = match self {
            Self::Module(ModuleCall { number, argument }) => {
                return 15 | (number as u32) << 8 | (argument as u32) << 16;
            }
            Self::Transpose { .. } => (1, 0, 0),
            Self::BitTranspose { .. } => (2, 0, 0),
            Self::Delta { order, stride, .. } => (3, order, stride),
            Self::ZigzagDelta { order, stride, .. } => (3, order | HAS_ZIGZAG, stride),
            Self::Zigzag { .. } => (4, 0, 0),
            Self::Rotate { bits, .. } => (5, 0, bits as u16),
            Self::Xor { stride, .. } => (6, 0, stride),
            Self::Decimal { digits, .. } => (7, 0, digits as u16),
            Self::NearDecimal { digits } => (7, 1, digits as u16),
            Self::Dictionary { index, digits: None, .. } => (8, 0, index as u16),
            Self::Dictionary { index, digits: Some(digits), .. } => (8, digits + 1, index as u16),
            Self::Calls { .. } => (9, 0, 0),
        };
        id | (order as u32) << 4 | (self.width() as u32) << 8 | (parameter as u32) << 16
    }

    /// The stage of a header's word; `None` if the format reserves it.
    pub(crate) fn from_word(word: u32) -> Option<Self> {
        let (width, order) = ((word >> 8) as u8, (word >> 4) as u8 & 15);
        let parameter = (word >> 16) as u16;
        let digits = parameter as u8;
        let stage = match word & 15 {
            1 => Self::Transpose { width },
            2 => Self::BitTranspose { width },
            3 if order & HAS_ZIGZAG != 0 => {
                Self::ZigzagDelta { width, order: order & !HAS_ZIGZAG, stride: parameter }
            }
            3 => Self::Delta { width, order, stride: parameter },
            4 => Self::Zigzag { width },
            5 => Self::Rotate { width, bits: parameter as u8 },
            6 => Self::Xor { width, stride: parameter },
            7 if order == 1 => Self::NearDecimal { digits },
            7 => Self::Decimal { width, digits },
            8 => Self::Dictionary { width, index: parameter as u8, digits: order.checked_sub(1) },
            9 => Self::Calls { machine: Machine::of_width(width)? },
            15 => Self::Module(ModuleCall { number: width, argument: parameter }),
            _ => return None,
        };
        // A field that the stage does not have must be 0.
        (stage.is_valid() && stage.to_word() == word).then_some(stage)
    }

    const fn is_valid(self) -> bool {
        let is_word = matches!(self.width(), 1 | 2 | 4 | 8);
        match self {
            Self::Module(_) | Self::Calls { .. } => true,
            Self::Transpose { width } => width > 1,
            Self::BitTranspose { .. } | Self::Zigzag { .. } => is_word,
            Self::Delta { order, stride, .. } | Self::ZigzagDelta { order, stride, .. } => {
                is_word && matches!(order, 1 | 2) && stride > 0
            }
            Self::Rotate { width, bits } => is_word && bits > 0 && bits < 8 * width,
            Self::Xor { stride, .. } => is_word && stride > 0,
            Self::NearDecimal { digits } => digits <= 15,
            Self::Decimal { width, digits } => match decimal::max_digits(width) {
                Some(most) => digits <= most,
                None => false,
            },
            Self::Dictionary { width, index, digits } => {
                let most = match decimal::max_digits(width) {
                    Some(most) => most,
                    None => return false,
                };
                // The most that a header has room for.
                let fits = match digits {
                    Some(digits) => digits <= most && digits < 15,
                    None => true,
                };
                fits && matches!(index, 1 | 2)
            }
        }
    }
}

/// A chain of filters for blocks: one to three stages. Its text has their names with commas between them.
///
/// | name | stage |
/// |---|---|
/// | `transposeW` | byte transpose: the first bytes of all elements of W bytes (2 to 255), then all second bytes, … |
/// | `bitsW` | bit transpose: bit 0 of all elements, then bit 1, … |
/// | `deltaW`, `deltaWxS` | the difference to the element before, or S before |
/// | `deltadeltaW`, `deltadeltaWxS` | the difference of such differences |
/// | `zdelta…`, `zdeltadelta…` | the same, and zigzag after it |
/// | `zigzagW` | signed to unsigned numbers: small ones of either sign become small |
/// | `rotateW`, `rotateW:B` | rotation left by 1 or B bits: by one, a float's exponent fills a byte |
/// | `xorW`, `xorWxS` | exclusive or with the element before, or S before |
/// | `decimalW:D` | floats of W bytes (4 or 8) with up to D digits after the point, as integers |
/// | `neardecimal8:D` | floats of 8 bytes next to such numbers, as integers |
/// | `dictionaryW:P` | elements of W bytes (4 or 8) as places, of P bytes (1 or 2), in a list of the unit's values |
/// | `dictionaryW:P.D` | the same of floats with up to D digits after the point, which are listed as integers |
/// | `x86`, `arm64` | a program for such a processor: calls of one function become equal |
/// | `moduleN`, `moduleN:A` | what module N of the frame does with the argument 0 or A (up to 65535) |
///
/// W is 1, 2, 4 or 8 bytes where no other range is given. Chains that suit a type have names too: `i16`, `i32` and
/// `i64` for integers that change slowly, `f16`, `bf16`, `f32` and `f64` for floats; `x3` after the name of an integer
/// says that three such series take turns.
///
/// ```
/// use pz::FilterChain;
/// let chain: FilterChain = "i64x3".parse()?;
/// assert_eq!(chain.to_string(), "delta8x3,zigzag8,transpose8");
/// assert_eq!(chain, "delta8x3,zigzag8,transpose8".parse()?);
/// assert!("transpose1".parse::<FilterChain>().is_err());
/// # Ok::<(), pz::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FilterChain {
    stages: [Option<Stage>; MAX_STAGES],
    unit_log: u8,
}

impl FilterChain {
    /// A chain of `stages`; `None` if they are too few, too many or invalid.
    pub(crate) fn new(stages: &[Stage]) -> Option<Self> {
        let is_valid =
            (1..=MAX_STAGES).contains(&stages.len()) && stages.iter().all(|stage| stage.is_valid());
        let mut chain = Self { stages: [None; MAX_STAGES], unit_log: UNIT_LOG };
        for (place, stage) in chain.stages.iter_mut().zip(stages) {
            *place = Some(*stage);
        }
        is_valid.then_some(chain)
    }

    /// The stages, in the order in which an encoder applies them.
    pub(crate) fn stages(&self) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        self.stages.into_iter().flatten()
    }

    /// The numbers of the modules in the chain.
    pub(crate) fn modules(&self) -> impl Iterator<Item = u8> {
        self.stages().filter_map(|stage| match stage {
            Stage::Module(call) => Some(call.number),
            _ => None,
        })
    }

    /// Whether the chain has modules.
    pub(crate) fn has_modules(&self) -> bool {
        self.modules().next().is_some()
    }

    fn has_one_stage(&self) -> bool {
        self.stages().count() == 1
    }

    /// Whether a stage makes lists of values.
    fn has_dictionary(&self) -> bool {
        self.stages().any(|stage| matches!(stage, Stage::Dictionary { .. }))
    }

    /// Whether a stage transposes bytes or bits.
    fn has_transposition(&self) -> bool {
        self.stages().any(Stage::is_transposition)
    }

    /// How far back, in bytes, the filtered value of an element may depend on other elements.
    pub(crate) fn reach(&self) -> usize {
        let of = |stage| match stage {
            Stage::Delta { width, order, stride } | Stage::ZigzagDelta { width, order, stride } => {
                usize::from(width) * usize::from(order) * usize::from(stride)
            }
            Stage::Xor { width, stride } => usize::from(width) * usize::from(stride),
            _ => 0,
        };
        self.stages().map(of).sum()
    }

    /// Bytes of a unit.
    pub(crate) const fn unit_len(&self) -> usize {
        1 << self.unit_log
    }

    /// Bytes of scratch memory to apply or undo any chain on a block of `block_len` bytes.
    pub(crate) fn scratch_len(block_len: usize) -> usize {
        block_len.min(1 << *UNIT_LOGS.end())
    }

    /// The chain as in a header.
    pub(crate) fn to_bytes(self) -> [u8; DESCRIPTOR_LEN] {
        let mut bytes = [0; DESCRIPTOR_LEN];
        bytes[0] = self.unit_log;
        let (words, _) = bytes[1..].as_chunks_mut();
        for (word, stage) in words.iter_mut().zip(self.stages()) {
            *word = stage.to_word().to_le_bytes();
        }
        bytes
    }

    /// The chain of a header's bytes; `None` if the format reserves them.
    pub(crate) fn from_bytes(bytes: &[u8; DESCRIPTOR_LEN]) -> Option<Self> {
        let (words, _) = bytes[1..].as_chunks();
        let words = words.iter().map(|&word| u32::from_le_bytes(word));
        let used = words.clone().take_while(|&word| word != 0).count();
        let mut stages = [None; MAX_STAGES];
        for (place, word) in stages.iter_mut().zip(words).take(used) {
            *place = Some(Stage::from_word(word)?);
        }
        let chain = Self { stages, unit_log: bytes[0] };
        // Comparing the bytes refuses stages after an empty one.
        let is_valid =
            used > 0 && UNIT_LOGS.contains(&chain.unit_log) && chain.to_bytes() == *bytes;
        is_valid.then_some(chain)
    }
}

/// Which filters to apply to each block before its pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Filter {
    /// None.
    #[default]
    None,
    /// For each block the chain that suits its contents, or none. The choice depends only on the contents, the codec,
    /// and a header at the beginning of the input: headers of `.npy`, safetensors, Parquet, WAV, BMP and TIFF files
    /// state widths and rows, and so add chains to choose from.
    Auto,
    /// This chain, for all blocks.
    Chain(FilterChain),
}

impl Filter {
    /// The chain for all blocks, if the filter is one.
    pub(crate) fn chain(self) -> Option<FilterChain> {
        match self {
            Self::Chain(chain) => Some(chain),
            Self::None | Self::Auto => None,
        }
    }

    /// Bytes of memory that a worker takes to filter a block of `block_len` bytes.
    pub(crate) fn memory(self, block_len: usize) -> u64 {
        match self {
            Self::None => 0,
            Self::Chain(chain) => {
                // The encoder undoes a module's result at once, to compare it with the unit.
                let units = if chain.has_modules() { 2 } else { 1 };
                let values = if chain.has_dictionary() { dictionary::MEMORY } else { 0 };
                (block_len + units * FilterChain::scratch_len(block_len) + values) as u64
            }
            // The block with lists, the places and lists taken from it, a sample's piece with the bytes before it, a
            // quarter of the block, and its encoded form.
            Self::Auto => {
                let with_dictionaries = 3 * block_len + dictionary::MEMORY;
                let filtering =
                    with_dictionaries + block_len + 2 * FilterChain::scratch_len(block_len);
                let before = 2 * hints::MAX_REACH.min(block_len);
                let sampling = 5 * choose::sample_len(block_len) / 2 + before;
                (filtering + sampling + block_len / 2) as u64
            }
        }
    }
}
