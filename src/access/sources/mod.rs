//! Sources: bytes that a URI names, to be read in any order.
//!
//! | module | what |
//! |---|---|
//! | `uri` | names of sources |
//! | `source`, `error` | what all sources do, how to read them like files, and why they fail |
//! | `open`, `options` | opens the source that a URI names |
//! | `file`, `memory` | local files, and bytes that this process has published |
//! | `http`, `s3`, `retry` | servers and object stores |

mod error;
pub(crate) mod file;
#[cfg(feature = "remote")]
mod http;
mod memory;
mod open;
mod options;
#[cfg(feature = "remote")]
mod retry;
#[cfg(feature = "remote")]
mod s3;
mod source;
pub(crate) mod uri;

pub use error::{SourceError, SourceErrorKind};
pub(crate) use file::Positioned;
pub use memory::{publish, withdraw};
pub use open::{open, open_path};
pub use options::SourceOptions;
pub use source::{Source, SourceReader, Traffic};
pub use uri::Uri;
