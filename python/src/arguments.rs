//! Options from keyword arguments. `None` stands for the default.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pz::{DecodeOptions, Error, Level, Modules, Options};

use crate::device::Device;
use crate::error;

/// Keyword arguments.
pub type Keywords<'a, 'py> = &'a Bound<'py, PyDict>;

/// The options for compression at `level`.
pub fn encode_options(
    py: Python<'_>,
    level: i64,
    keywords: Option<Keywords<'_, '_>>,
) -> PyResult<Options> {
    let mut options = Options::new().level(to_level(py, level)?);
    let raise = |error: Error| error::raise(py, error);
    let (mut device, mut device_memory) = (None, None);
    for (key, value) in keywords.into_iter().flatten() {
        let key = key.cast_into::<PyString>()?;
        let key = key.to_str()?;
        match key {
            "pipeline" => {
                if let Some(name) = text(&value)? {
                    options = options.pipeline(name.parse().map_err(raise)?);
                }
            }
            "filter" => {
                if let Some(name) = text(&value)? {
                    options = options.filter(name.parse().map_err(raise)?);
                }
            }
            "block_size" => options = set(options, number(&value, key)?, Options::block_size),
            "window" => options = set(options, number(&value, key)?, Options::window),
            "long" => options = set(options, number(&value, key)?, Options::long_distance),
            "rsyncable" => options = set(options, value.extract()?, Options::rsyncable),
            "threads" => options = set(options, number(&value, key)?, Options::threads),
            "memory" => options = set(options, number(&value, key)?, Options::memory),
            "verify" => options = set(options, value.extract()?, Options::verify),
            "device" => device = text(&value)?,
            "device_memory" => device_memory = number(&value, key)?,
            _ => return Err(unexpected(key)),
        }
    }
    Ok(match Device::new(py, device.as_deref().unwrap_or("cpu"), device_memory)? {
        Device::Cpu => options,
        Device::Auto(auto) => options.auto(&auto),
        Device::Named(gpu) => options.gpu(gpu),
    })
}

/// The options for decompression.
pub fn decode_options(
    py: Python<'_>,
    keywords: Option<Keywords<'_, '_>>,
) -> PyResult<DecodeOptions> {
    let mut options = DecodeOptions::new();
    let (mut device, mut device_memory) = (None, None);
    for (key, value) in keywords.into_iter().flatten() {
        let key = key.cast_into::<PyString>()?;
        let key = key.to_str()?;
        match key {
            "threads" => options = set(options, number(&value, key)?, DecodeOptions::threads),
            "max_output" => options = set(options, number(&value, key)?, DecodeOptions::max_output),
            "max_memory" => options = set(options, number(&value, key)?, DecodeOptions::max_memory),
            "allow_modules" => options = options.modules(modules(&value)?),
            "device" => device = text(&value)?,
            "device_memory" => device_memory = number(&value, key)?,
            _ => return Err(unexpected(key)),
        }
    }
    Ok(match Device::new(py, device.as_deref().unwrap_or("cpu"), device_memory)? {
        Device::Cpu => options,
        Device::Auto(auto) => options.auto(&auto),
        Device::Named(gpu) => options.gpu(gpu),
    })
}

/// Which modules of a file may run: all, none, or those with these hashes.
fn modules(value: &Bound<'_, PyAny>) -> PyResult<Modules> {
    if let Ok(allowed) = value.extract::<Option<bool>>() {
        return Ok(if allowed == Some(true) { Modules::Allow } else { Modules::Refuse });
    }
    let hashes: Vec<String> = value.extract()?;
    let parsed: Option<_> = hashes.iter().map(|hash| sha256(hash)).collect();
    let wrong = || {
        let what = "allow_modules is neither a bool nor a list of SHA-256 as 64 hexadecimal digits";
        error::option(value.py(), what.into())
    };
    parsed.map(Modules::Trusted).ok_or_else(wrong)
}

fn sha256(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    let (digits, rest) = text.as_bytes().as_chunks::<2>();
    if digits.len() != hash.len() || !rest.is_empty() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(digits) {
        let [high, low] = digits.map(|digit| (digit as char).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(hash)
}

fn to_level(py: Python<'_>, level: i64) -> PyResult<Level> {
    let known = u32::try_from(level).ok().and_then(|level| Level::new(level).ok());
    known.ok_or_else(|| {
        let (min, max) = (Level::MIN.get(), Level::MAX.get());
        error::option(py, format!("level {level} is not between {min} and {max}"))
    })
}

/// `options` with `value`, if there is one.
fn set<O, T>(options: O, value: Option<T>, setter: impl FnOnce(O, T) -> O) -> O {
    match value {
        Some(value) => setter(options, value),
        None => options,
    }
}

fn text(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    value.extract()
}

/// Parses a number that is not negative.
fn number<'py, T: FromPyObjectOwned<'py, Error = PyErr>>(
    value: &Bound<'py, PyAny>,
    key: &str,
) -> PyResult<Option<T>> {
    let py = value.py();
    value.extract().map_err(|error: PyErr| match error.is_instance_of::<PyOverflowError>(py) {
        true => error::option(py, format!("{key} {value} is out of range")),
        false => error,
    })
}

fn unexpected(key: &str) -> PyErr {
    PyTypeError::new_err(format!("got an unexpected keyword argument '{key}'"))
}
