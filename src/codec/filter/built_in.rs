//! Chains without modules, for benchmarks.

use super::{Context, FilterChain, forward, inverse};

/// Writes the filtered `contents` to `filtered`. Returns false if the chain does not fit them.
pub fn apply(
    chain: &FilterChain,
    contents: &[u8],
    filtered: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) -> bool {
    matches!(forward::apply_built_in(chain, contents, filtered, scratch), Ok(true))
}

/// Undoes the chain. Returns whether it could.
pub fn invert(chain: &FilterChain, contents: &mut [u8], scratch: &mut Vec<u8>) -> bool {
    inverse::invert(chain, contents, scratch, Context::default()).is_ok()
}
