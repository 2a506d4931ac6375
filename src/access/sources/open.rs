//! Opens sources.

use std::path::Path;
use std::sync::Arc;

use super::error::SourceError;
#[cfg(not(feature = "remote"))]
use super::error::SourceErrorKind;
use super::options::SourceOptions;
use super::source::Source;
use super::uri::{Address, Uri};
use super::{file, memory};
#[cfg(feature = "remote")]
use super::{http, s3};

/// Opens the source that `uri` names. A server gets one request, for the first bytes.
///
/// # Errors
/// Those of [`SourceErrorKind`](super::SourceErrorKind).
pub fn open(uri: &Uri, options: &SourceOptions) -> Result<Arc<dyn Source>, SourceError> {
    match uri.address() {
        Address::File(path) => Ok(Arc::new(file::FileSource::open(uri.to_string(), path)?)),
        Address::Memory(name) => memory::open(uri, name),
        #[cfg(feature = "remote")]
        Address::Http(url) => http::open(uri, http::HttpTarget::Url(url.clone()), options),
        #[cfg(feature = "remote")]
        Address::S3 { bucket, key } => {
            let object = s3::Object::from_environment(uri, bucket, key)?;
            http::open(uri, http::HttpTarget::S3(object), options)
        }
        #[cfg(not(feature = "remote"))]
        Address::Http(_) | Address::S3 { .. } => {
            let _ = options;
            let what = "needs the feature `remote`, which this build lacks";
            Err(SourceError::new(uri.to_string(), SourceErrorKind::Unsupported, what))
        }
    }
}

/// Opens a local file by its path, which messages then show.
///
/// # Errors
/// Those of [`SourceErrorKind`](super::SourceErrorKind).
pub fn open_path(path: &Path) -> Result<Arc<dyn Source>, SourceError> {
    Ok(Arc::new(file::FileSource::open(path.display().to_string(), path)?))
}
