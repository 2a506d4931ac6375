//! The filters that `pz bench` compares.

use std::str::FromStr;

use pz::{Error, Filter};

/// What `all` stands for: every type, and chains that suit stereo sound, pixels, floats and small numbers.
const ALL: [&str; 20] = [
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
];

/// A filter under the name that the user gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub name: String,
    pub filter: Filter,
}

impl FromStr for Named {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self { name: text.to_string(), filter: text.parse()? })
    }
}

/// One value of the option: a filter, or all that have names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filters(Vec<Named>);

impl FromStr for Filters {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let names = if text == "all" { &ALL[..] } else { &[text] };
        names.iter().map(|name| name.parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl Filters {
    /// The filters of all `given` values, each once; without any, none alone.
    pub fn merge(given: &[Self]) -> Vec<Named> {
        let mut merged: Vec<Named> = Vec::new();
        for named in given.iter().flat_map(|filters| &filters.0) {
            if merged.iter().all(|other| other.filter != named.filter) {
                merged.push(named.clone());
            }
        }
        if merged.is_empty() {
            merged.push(Named { name: "none".into(), filter: Filter::None });
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
        assert!("f17".parse::<Filters>().is_err());
    }
}
