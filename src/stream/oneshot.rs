//! Whole slices at once.
use crate::error::{Error, Place};
use crate::{DecodeOptions, Options};

/// Compresses `input` into one frame.
pub fn compress(input: &[u8], options: &Options) -> Result<Vec<u8>, Error> {
    let _ = (input, options);
    Err(Error::Unsupported { what: "everything", place: Place::default() })
}

/// Decompresses `input`, which is one or more frames, one after another.
pub fn decompress(input: &[u8], options: &DecodeOptions) -> Result<Vec<u8>, Error> {
    let _ = (input, options);
    Err(Error::Unsupported { what: "everything", place: Place::default() })
}
