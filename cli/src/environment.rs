//! Environment variables that stand for options.

use std::fmt::Display;

use crate::failure::Failure;

/// Parses an environment variable by the rules of the option that it stands for. Empty means unset.
pub fn from_environment<T, E: Display>(
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, Failure> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let Some(text) = value.to_str() else {
        return Err(Failure::environment(format!("{name}: is not valid Unicode")));
    };
    match parse(text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Failure::environment(format!("{name}: invalid value '{text}': {error}"))),
    }
}
