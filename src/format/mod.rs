//! What is on disk.

/// How one block is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// The contents as they are.
    Store,
    /// One byte, repeated.
    Fill,
    /// LZ77 and entropy coding.
    Lz77,
    /// Burrows-Wheeler transform and its second stage.
    Bwt,
}

impl Method {
    /// The name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Fill => "fill",
            Self::Lz77 => "lz77",
            Self::Bwt => "bwt",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
