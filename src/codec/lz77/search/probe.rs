//! Compares many positions, or many matches of one position, at a time.

use super::candidates::{LOOKAHEAD, common_length, read32};

/// An implementation of the comparisons. All give the same results.
pub(crate) trait Probe {
    /// Returns the first of the positions from `pos` on whose four bytes equal those `recent` before it (if that is not
    /// 0) or those of a candidate in the window. If there is none, returns where to continue, which may be past the
    /// end. `found` holds the positions' distances to candidates, at least [`PADDING`](super::tagged::PADDING) of them.
    fn first<const N: usize>(
        data: &[u8],
        window_start: usize,
        pos: usize,
        found: &[[u32; N]],
        recent: usize,
    ) -> Result<usize, usize>;

    /// For each offset, the number of equal bytes from `pos` and from `offset` before it, up to `end`. An offset of 0
    /// gives 0.
    fn lengths<const N: usize>(
        data: &[u8],
        pos: usize,
        offsets: [usize; N],
        end: usize,
    ) -> [usize; N];
}

/// Work that uses a [`Probe`].
pub(crate) trait Task {
    /// Must be `#[inline(always)]`, and so must everything it calls with a `P`: only then is it compiled for the
    /// instructions that `P` needs.
    fn run<P: Probe>(self);
}

/// Which [`Probe`] to use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backend(Choice);

#[derive(Debug, Clone, Copy)]
enum Choice {
    Portable,
    /// Only constructed where [`super::probe_avx512::is_available`].
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    Avx512,
}

impl Backend {
    /// The implementation that every processor has.
    pub(crate) const PORTABLE: Self = Self(Choice::Portable);

    /// The fastest implementation that this processor has.
    pub(crate) fn detect() -> Self {
        #[cfg(all(feature = "simd", target_arch = "x86_64"))]
        if super::probe_avx512::is_available() {
            return Self(Choice::Avx512);
        }
        Self::PORTABLE
    }

    #[inline]
    pub(crate) fn run(self, task: impl Task) {
        match self.0 {
            Choice::Portable => task.run::<Portable>(),
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            // SAFETY: the choice is made only where the processor has the instructions.
            Choice::Avx512 => unsafe { super::probe_avx512::run(task) },
        }
    }
}

/// The implementation for every processor.
pub(crate) struct Portable;

impl Probe for Portable {
    #[inline(always)]
    fn first<const N: usize>(
        data: &[u8],
        window_start: usize,
        pos: usize,
        found: &[[u32; N]],
        recent: usize,
    ) -> Result<usize, usize> {
        let end = data.len() - (LOOKAHEAD - 1);
        for (at, distances) in (pos..end).zip(found) {
            let repeats = recent != 0 && read32(data, at) == read32(data, at - recent);
            let reach = at - window_start;
            if repeats || distances.iter().any(|&distance| distance as usize <= reach) {
                return Ok(at);
            }
        }
        Err(end.min(pos + found.len()))
    }

    #[inline(always)]
    fn lengths<const N: usize>(
        data: &[u8],
        pos: usize,
        offsets: [usize; N],
        end: usize,
    ) -> [usize; N] {
        let mut lengths = [0; N];
        for (length, offset) in lengths.iter_mut().zip(offsets) {
            if offset != 0 {
                *length = common_length(data, pos - offset, pos, end);
            }
        }
        lengths
    }
}
