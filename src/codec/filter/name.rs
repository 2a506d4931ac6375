//! Chains of filters as text.

use std::fmt;
use std::str::FromStr;

use super::{Filter, FilterChain, Machine, ModuleCall, Stage};

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_stride = |f: &mut fmt::Formatter<'_>, name: &str, width, stride| match stride {
            1 => write!(f, "{name}{width}"),
            _ => write!(f, "{name}{width}x{stride}"),
        };
        match *self {
            Self::Transpose { width } => write!(f, "transpose{width}"),
            Self::BitTranspose { width } => write!(f, "bits{width}"),
            Self::Delta { width, order: 1, stride } => with_stride(f, "delta", width, stride),
            Self::Delta { width, stride, .. } => with_stride(f, "deltadelta", width, stride),
            Self::ZigzagDelta { width, order: 1, stride } => {
                with_stride(f, "zdelta", width, stride)
            }
            Self::ZigzagDelta { width, stride, .. } => with_stride(f, "zdeltadelta", width, stride),
            Self::Zigzag { width } => write!(f, "zigzag{width}"),
            Self::Rotate { width, bits: 1 } => write!(f, "rotate{width}"),
            Self::Rotate { width, bits } => write!(f, "rotate{width}:{bits}"),
            Self::Xor { width, stride } => with_stride(f, "xor", width, stride),
            Self::Decimal { width, digits } => write!(f, "decimal{width}:{digits}"),
            Self::NearDecimal { digits } => write!(f, "neardecimal8:{digits}"),
            Self::Dictionary { width, index, digits: None } => {
                write!(f, "dictionary{width}:{index}")
            }
            Self::Dictionary { width, index, digits: Some(digits) } => {
                write!(f, "dictionary{width}:{index}.{digits}")
            }
            Self::Calls { machine } => f.write_str(machine.name()),
            Self::Module(ModuleCall { number, argument: 0 }) => write!(f, "module{number}"),
            Self::Module(ModuleCall { number, argument }) => write!(f, "module{number}:{argument}"),
        }
    }
}

impl Stage {
    /// The stage with this name.
    fn from_name(text: &str) -> Option<Self> {
        if let Some(machine) = Machine::ALL.into_iter().find(|machine| machine.name() == text) {
            return Some(Self::Calls { machine });
        }
        let digits = text.find(|c: char| c.is_ascii_digit())?;
        let (name, numbers) = text.split_at(digits);
        if name == "module" {
            let (module, argument) = numbers.split_once(':').unwrap_or((numbers, "0"));
            let (number, argument) = (number(module)?, number(argument)?);
            return Some(Self::Module(ModuleCall { number, argument }));
        }
        if name == "dictionary" {
            let (width, parameters) = numbers.split_once(':')?;
            let (index, digits) = match parameters.split_once('.') {
                Some((index, digits)) => (index, Some(number(digits)?)),
                None => (parameters, None),
            };
            let (width, index) = (number(width)?, number(index)?);
            let stage = Self::Dictionary { width, index, digits };
            return stage.is_valid().then_some(stage);
        }
        let (width, stride, parameter) = if let Some((width, stride)) = numbers.split_once('x') {
            (number(width)?, Some(number(stride)?), None)
        } else if let Some((width, parameter)) = numbers.split_once(':') {
            (number(width)?, None, Some(number(parameter)?))
        } else {
            (number(numbers)?, None, None)
        };
        let stage = match (name, stride, parameter) {
            ("transpose", None, None) => Self::Transpose { width },
            ("bits", None, None) => Self::BitTranspose { width },
            ("zigzag", None, None) => Self::Zigzag { width },
            ("delta", stride, None) => Self::Delta { width, order: 1, stride: stride.unwrap_or(1) },
            ("deltadelta", stride, None) => {
                Self::Delta { width, order: 2, stride: stride.unwrap_or(1) }
            }
            ("zdelta", stride, None) => {
                Self::ZigzagDelta { width, order: 1, stride: stride.unwrap_or(1) }
            }
            ("zdeltadelta", stride, None) => {
                Self::ZigzagDelta { width, order: 2, stride: stride.unwrap_or(1) }
            }
            ("rotate", None, bits) => Self::Rotate { width, bits: bits.unwrap_or(1) },
            ("xor", stride, None) => Self::Xor { width, stride: stride.unwrap_or(1) },
            ("decimal", None, Some(digits)) => Self::Decimal { width, digits },
            ("neardecimal", None, Some(digits)) if width == 8 => Self::NearDecimal { digits },
            _ => return None,
        };
        stage.is_valid().then_some(stage)
    }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    // Numbers have no sign.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// The stages of a type's name.
fn of_type(name: &str) -> Option<Vec<Stage>> {
    let (name, stride) = match name.split_once('x') {
        Some((name, stride)) => (name, number(stride)?),
        None => (name, 1),
    };
    let integers = |width| {
        let delta = Stage::Delta { width, order: 1, stride };
        vec![delta, Stage::Zigzag { width }, Stage::Transpose { width }]
    };
    let floats = |width| vec![Stage::Rotate { width, bits: 1 }, Stage::Transpose { width }];
    match (name, stride) {
        ("i16", _) => Some(integers(2)),
        ("i32", _) => Some(integers(4)),
        ("i64", _) => Some(integers(8)),
        ("f16" | "bf16", 1) => Some(floats(2)),
        ("f32", 1) => Some(floats(4)),
        ("f64", 1) => Some(floats(8)),
        _ => None,
    }
}

impl fmt::Display for FilterChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.stages().map(|stage| stage.to_string()).collect();
        f.pad(&names.join(","))
    }
}

impl FilterChain {
    /// The chain with this name, or with the names of its stages.
    pub(crate) fn from_name(text: &str) -> Option<Self> {
        let stages = match of_type(text) {
            Some(stages) => stages,
            None => text.split(',').map(Stage::from_name).collect::<Option<Vec<_>>>()?,
        };
        Self::new(&stages)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Auto => f.pad("auto"),
            Self::Chain(chain) => chain.fmt(f),
        }
    }
}

impl Filter {
    /// The filter with this name.
    pub(crate) fn from_name(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "auto" => Some(Self::Auto),
            _ => FilterChain::from_name(text).map(Self::Chain),
        }
    }
}
