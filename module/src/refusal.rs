//! Why a module is refused.

use std::fmt;

/// Why a module is refused: where, what is wrong, and what to do instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The function that is at fault, by its name or number; `None` if the whole module is.
    pub function: Option<String>,
    /// What is wrong, as what the function or the module does.
    pub what: String,
    /// What to do instead.
    pub remedy: String,
}

impl Refusal {
    /// The module `what`; `remedy` helps.
    #[doc(hidden)]
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { function: None, what: what.into(), remedy: remedy.into() }
    }

    /// It is `function` that does it.
    pub(crate) fn of(self, function: &str) -> Self {
        Self { function: Some(function.into()), ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => write!(f, "function {function} {}; {}", self.what, self.remedy),
            None => write!(f, "the module {}; {}", self.what, self.remedy),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<wasmparser::BinaryReaderError> for Refusal {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        let (what, at) = (error.message(), error.offset());
        Self::new(
            format!("is not valid WebAssembly, at byte {at}: {what}"),
            "build it again for wasm32-unknown-unknown",
        )
    }
}
