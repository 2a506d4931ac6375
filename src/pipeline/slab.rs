//! Long pieces of fresh memory that share a mapping.
//!
//! To add or remove a mapping, the kernel waits until all page faults of the process have been served, and the faults
//! that come meanwhile wait for it. A fault that gets a huge page clears 2 MiB. So threads that all begin with mappings of
//! their own, as those that decode a file do, get their memory one after another. In one mapping they get it side by side.

use std::ops::{Deref, DerefMut, Range};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::thread;

use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};

/// The usual length of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// What the length of a part is rounded up to: half a huge page, so that short parts need not have one each.
const UNIT: usize = 1 << 20;

/// How many parts as long as the first a mapping has room for. What is not used takes addresses, and no memory.
const PARTS: usize = 16;

/// How often to try to lock [`NEWEST`].
const MOST_TRIES: u32 = 10_000;

/// The mapping that has room for more parts, and where that begins.
static NEWEST: Mutex<(Weak<MmapRaw>, usize)> = Mutex::new((Weak::new(), 0));

/// Part of a mapping, which nobody else has.
#[derive(Debug)]
pub(super) struct Part {
    mapping: Arc<MmapRaw>,
    range: Range<usize>,
}

impl Part {
    /// `len` zero bytes, in huge pages if the system has them, which it gives when they are first touched. `None` if it
    /// refuses, and for short lengths, which the heap serves well.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        if len < UNIT {
            return None;
        }
        let room = len.checked_next_multiple_of(UNIT)?;
        let mut newest = newest()?;
        let (mapping, start) = match newest.0.upgrade() {
            Some(mapping) if mapping.len() - newest.1 >= room => (mapping, newest.1),
            _ => {
                let all = room.checked_mul(PARTS)?.checked_add(HUGE_PAGE)?;
                let mapping = MmapRaw::from(MmapMut::map_anon(all).ok()?);
                // The system may ignore this.
                let _ = mapping.advise(Advice::HugePage);
                let start = mapping.as_ptr().align_offset(HUGE_PAGE);
                (Arc::new(mapping), start)
            }
        };
        *newest = (Arc::downgrade(&mapping), start + room);
        Some(Self { mapping, range: start..start + len })
    }
}

/// Locks [`NEWEST`]; `None` if that does not succeed for long. Another thread needs it for a few microseconds, but in the
/// child of a fork that thread does not exist.
fn newest() -> Option<MutexGuard<'static, (Weak<MmapRaw>, usize)>> {
    (0..MOST_TRIES).find_map(|_| match NEWEST.try_lock() {
        Ok(newest) => Some(newest),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            thread::yield_now();
            None
        }
    })
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has these bytes, which are initialised, for as long as it is borrowed. Only this part refers
        // to them, which is borrowed too.
        unsafe {
            slice::from_raw_parts(self.mapping.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Range { start, .. } = self.range;
        // SAFETY: as above; the part is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.mapping.as_mut_ptr().add(start), self.range.len()) }
    }
}

impl Drop for Part {
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
        let mut parts: Vec<Part> = Vec::new();
        for (i, len) in (0..3 * PARTS).map(|i| (i, lens[i % lens.len()])) {
            let mut part = Part::zeroed(len).unwrap();
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
            assert!(Part::zeroed(len).is_none(), "{len}");
        }
    }
}
