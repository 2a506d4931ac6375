//! Inputs on other machines.

use std::time::Duration;

use pz::access::{self, SourceError, SourceOptions, SourceReader, Uri};

use crate::environment::from_environment;
use crate::failure::Failure;

/// Opens what `uri` names. `PZ_TIMEOUT` limits how long reading from it may take.
pub fn open(uri: &Uri) -> Result<SourceReader, Failure> {
    let mut options = SourceOptions::new();
    if let Some(limit) = from_environment("PZ_TIMEOUT", seconds)? {
        options = options.time_limit(limit);
    }
    Ok(SourceReader::new(access::open(uri, &options).map_err(failure)?))
}

/// The failure to open or read a source. The caller prints the source's URI before it.
pub fn failure(error: SourceError) -> Failure {
    Failure::from(pz::Error::from(error))
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected a number of seconds".into()),
    }
}
