//! Long pieces of fresh memory that share a mapping.
//!
//! Before the kernel adds or removes a mapping, it waits until the page faults that it serves for the process are done,
//! and it serves no others meanwhile. A fault in a huge page is long: the page is cleared first. So threads that all
//! make mappings of their own get their memory one after another: when 16 threads began to decode a file of 64 MB, that
//! took 5 of 17 ms. They get parts of one mapping side by side.

use std::ops::{Deref, DerefMut, Range};
use std::slice;
use std::sync::{Arc, Weak};

use memmap2::{MmapMut, MmapRaw, UncheckedAdvice};

use crate::pages::{HUGE_PAGE, advise_huge_pages};
use crate::sync::Lock;

/// Lengths of parts are rounded up to this: half a huge page, so that short parts need not have one each.
const UNIT: usize = 1 << 20;

/// The number of parts, each as long as the first, that a mapping has room for. Unused room takes addresses, but no
/// memory.
const PARTS: usize = 16;

/// The mapping that parts are taken from.
static NEWEST: Lock<Newest> = Lock::new();

#[derive(Default)]
struct Newest {
    /// It lives while one of its parts does.
    mapping: Weak<MmapRaw>,
    /// Its room for more parts begins here.
    taken: usize,
}

/// Part of a mapping. No other part shares bytes with it.
#[derive(Debug)]
pub(super) struct SlabPart {
    mapping: Arc<MmapRaw>,
    range: Range<usize>,
}

impl SlabPart {
    /// `len` zero bytes, in huge pages if the system has them. The system allocates a page when it is first touched.
    /// `None` if the system refuses, and for short lengths, which the heap serves well.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        if len < UNIT {
            return None;
        }
        let room = len.checked_next_multiple_of(UNIT)?;
        let mut newest = NEWEST.lock();
        let (mapping, start) = match newest.mapping.upgrade() {
            Some(mapping) if mapping.len() - newest.taken >= room => (mapping, newest.taken),
            _ => {
                let all = room.checked_mul(PARTS)?.checked_add(HUGE_PAGE)?;
                let mut mapping = MmapMut::map_anon(all).ok()?;
                advise_huge_pages(&mut mapping);
                let start = mapping.as_ptr().align_offset(HUGE_PAGE);
                (Arc::new(MmapRaw::from(mapping)), start)
            }
        };
        *newest = Newest { mapping: Arc::downgrade(&mapping), taken: start + room };
        Some(Self { mapping, range: start..start + len })
    }
}

impl Deref for SlabPart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the part keeps the mapping alive, and the mapping contains these bytes, all initialised. No other
        // part refers to them, and this one is borrowed as long as the slice is.
        unsafe {
            slice::from_raw_parts(self.mapping.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

impl DerefMut for SlabPart {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Range { start, .. } = self.range;
        // SAFETY: as above; the part is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.mapping.as_mut_ptr().add(start), self.range.len()) }
    }
}

impl Drop for SlabPart {
    fn drop(&mut self) {
        // Otherwise the mapping goes with its last part.
        if Arc::strong_count(&self.mapping) > 1 {
            let room = self.range.len().next_multiple_of(UNIT);
            // SAFETY: nobody refers to these bytes any more, and no later part has them.
            let _ = unsafe {
                self.mapping.unchecked_advise_range(
                    UncheckedAdvice::DontNeed,
                    self.range.start,
                    room,
                )
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zeros_that_nobody_else_has() {
        let lens = [UNIT, UNIT + 1, HUGE_PAGE, 3 * HUGE_PAGE];
        let mut parts: Vec<SlabPart> = Vec::new();
        for (i, len) in (0..3 * PARTS).map(|i| (i, lens[i % lens.len()])) {
            let mut part = SlabPart::zeroed(len).unwrap();
            assert!(part.len() == len && part.iter().all(|&byte| byte == 0));
            part.fill(i as u8 + 1);
            parts.push(part);
            // Some go back early; those after them are zeros all the same.
            if i % 3 == 2 {
                parts.remove(i / 3);
            }
        }
        for part in parts {
            assert!(part[0] > 0 && part.iter().all(|&byte| byte == part[0]));
        }
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for len in [usize::MAX, isize::MAX as usize, usize::MAX / PARTS] {
            assert!(SlabPart::zeroed(len).is_none(), "{len}");
        }
    }
}
