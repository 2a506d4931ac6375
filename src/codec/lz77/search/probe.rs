//! Looking at many positions, and at many matches of one, at once.

use super::candidates::{LOOKAHEAD, common_length, read32};

/// Ways to look. All give the same results.
pub(crate) trait Probe {
    /// The first of some positions from `pos` on that has four bytes like those `recent` before, if that is not 0, or
    /// a candidate in the window; if none has, the position to go on from, which may be past the end. `found` are the
    /// positions' distances to candidates, at least [`PADDING`](super::tagged::PADDING) of them.
    fn first<const N: usize>(
        data: &[u8],
        window_start: usize,
        pos: usize,
        found: &[[u32; N]],
        recent: usize,
    ) -> Result<usize, usize>;

    /// The number of equal bytes from `pos` on and from each offset before it on, up to `end`. For an offset of 0 it
    /// is 0.
    fn lengths<const N: usize>(
        data: &[u8],
        pos: usize,
        offsets: [usize; N],
        end: usize,
    ) -> [usize; N];
}

/// Work that a [`Probe`] is needed for.
pub(crate) trait Task {
    /// Must be `#[inline(always)]`, as must be what it calls with a `P`: only then is it compiled for the instructions
    /// that `P` needs.
    fn run<P: Probe>(self);
}

/// Which [`Probe`] to use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backend(Choice);

#[derive(Debug, Clone, Copy)]
enum Choice {
    Portable,
    /// Made only where [`super::probe_avx512::is_available`].
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    Avx512,
}

impl Backend {
    /// The one for every processor.
    pub(crate) const PORTABLE: Self = Self(Choice::Portable);

    /// The fastest one that this processor has.
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

/// For every processor.
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
        offsets.map(
            |offset| {
                if offset == 0 { 0 } else { common_length(data, pos - offset, pos, end) }
            },
        )
    }
}
