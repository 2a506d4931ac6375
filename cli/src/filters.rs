//! The filters that `pz bench` compares.

use std::str::FromStr;

use crate::failure::Failure;
use crate::filtering::{Chain, Lanes, Loaded};

/// What `all` stands for: every type, and chains that suit stereo sound, pixels, floats, small numbers and programs.
const ALL: [&str; 22] = [
    "none",
    "auto",
    "i16",
    "i16x2",
    "i32",
    "i64",
    "bf16",
    "f32",
    "f64",
    "delta1",
    "delta1x3",
    "delta1x4",
    "transpose2",
    "transpose4",
    "transpose8",
    "delta2,zigzag2,bits2",
    "delta4,zigzag4,bits4",
    "delta8,zigzag8,bits8",
    "xor4,transpose4",
    "xor8,transpose8",
    "x86",
    "arm64",
];

/// A filter under the name that the user gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    name: String,
    chain: Chain,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { name: text.to_string(), chain: text.parse()? })
    }
}

/// A filter to measure with.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The name that the user gave it.
    pub name: String,
    /// The filter.
    pub filter: Loaded,
}

/// One value of the option: a filter, or all that have names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filters(Vec<Named>);

impl FromStr for Filters {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = if text == "all" { &ALL[..] } else { &[text] };
        names.iter().map(|name| name.parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl Filters {
    /// The different filters of all `given` values; without values, only "none". Reads their modules, to run with
    /// `lanes`.
    ///
    /// # Errors
    /// If a module cannot be read, or is no filter; or if options for modules come without one.
    pub fn load(given: &[Self], lanes: &Lanes) -> Result<Vec<Candidate>, Failure> {
        let merged = Self::merge(given);
        lanes.check(merged.iter().map(|named| &named.chain))?;
        merged
            .into_iter()
            .map(|Named { name, chain }| Ok(Candidate { name, filter: chain.load(lanes)? }))
            .collect()
    }

    /// The same, without reading modules.
    fn merge(given: &[Self]) -> Vec<Named> {
        let mut merged: Vec<Named> = Vec::new();
        for named in given.iter().flat_map(|filters| &filters.0) {
            if merged.iter().all(|other| other.chain != named.chain) {
                merged.push(named.clone());
            }
        }
        if merged.is_empty() {
            merged.push(Named { name: "none".into(), chain: Chain::NONE });
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filter_is_measured_once() {
        let merge = |given: &[&str]| -> Vec<String> {
            let given: Vec<Filters> = given.iter().map(|text| text.parse().unwrap()).collect();
            Filters::merge(&given).into_iter().map(|named| named.name).collect()
        };
        assert_eq!(merge(&[]), ["none"]);
        assert_eq!(merge(&["f16", "auto", "bf16"]), ["f16", "auto"]);
        assert_eq!(merge(&["all"]), ALL);
        assert_eq!(merge(&["all", "f16", "decimal8:2"]).len(), ALL.len() + 1);
        assert_eq!(merge(&["x.wasm", "x.wasm:0", "y.wasm,bits1"]), ["x.wasm", "y.wasm,bits1"]);
        assert!("f17".parse::<Filters>().is_err());
    }
}
