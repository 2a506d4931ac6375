//! Looks up many candidates for each position, cheaply where they do not match. For the levels that search long.

use super::candidates::{product, read64};
use super::probe::{ENTRIES, Group, MAX_DISTANCE, Probe, RatedPosition};
use super::tagged::MAX_END;
use crate::codec::{OutOfMemory, reserve, reserve_huge};

/// The bits of an entry that hold its position.
const POSITION: u32 = (1 << 24) - 1;

/// The most recent positions for each hash of `BYTES` bytes in `BITS` bits: a ring of `G` groups.
#[derive(Default)]
pub(crate) struct Buckets<const G: usize, const BYTES: u32, const BITS: u32> {
    groups: Vec<[Group; G]>,
    /// Index of each bucket's most recent entry.
    heads: Vec<u8>,
    /// The origin of the present block: at least 1.
    origin: usize,
    /// The origin of the next block.
    end: usize,
}

impl<const G: usize, const BYTES: u32, const BITS: u32> Buckets<G, BYTES, BITS> {
    /// The table's size in bytes.
    pub(crate) const MEMORY: u64 = (size_of::<[Group; G]>() as u64 + 1) << BITS;

    /// Allocates the table.
    pub(crate) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        reserve_huge(&mut self.groups, 1 << BITS)?;
        reserve(&mut self.heads, 1 << BITS)
    }

    /// Prepares for a block of `len` bytes.
    pub(crate) fn start(&mut self, len: usize) {
        if self.heads.is_empty() || self.end + len > MAX_END {
            self.groups.clear();
            self.groups.resize(1 << BITS, bytemuck::Zeroable::zeroed());
            self.heads.clear();
            self.heads.resize(1 << BITS, 0);
            self.end = 1;
        }
        self.origin = self.end;
        self.end += len;
    }

    /// The buckets, for the present block.
    #[inline(always)]
    pub(crate) fn open(&mut self) -> Rings<'_, G, BYTES, BITS> {
        Rings {
            buckets: &mut self.groups[..1 << BITS],
            heads: &mut self.heads[..1 << BITS],
            origin: self.origin as u32,
        }
    }
}

/// The buckets of [`Buckets`].
pub(crate) struct Rings<'a, const G: usize, const BYTES: u32, const BITS: u32> {
    buckets: &'a mut [[Group; G]],
    heads: &'a mut [u8],
    origin: u32,
}

impl<const G: usize, const BYTES: u32, const BITS: u32> Rings<'_, G, BYTES, BITS> {
    /// Entries of a bucket.
    const K: usize = G * ENTRIES;

    /// The bucket of `pos`, where `bytes` stand, and its entry there.
    #[inline(always)]
    fn place(&self, bytes: u64, pos: usize) -> (usize, u32) {
        let tag = (product::<BYTES>(bytes) >> (32 - BITS)) as u32 & !POSITION;
        (Self::bucket(bytes), tag.wrapping_add(self.origin + pos as u32))
    }

    /// The bucket of a position where `bytes` stand.
    #[inline(always)]
    fn bucket(bytes: u64) -> usize {
        (product::<BYTES>(bytes) >> (64 - BITS)) as usize
    }

    /// Enters `pos`, where `bytes` stand.
    #[inline(always)]
    pub(crate) fn enter(&mut self, bytes: u64, pos: usize) {
        const { assert!(Self::K.is_power_of_two() && Self::K <= 64) }
        let (bucket, entry) = self.place(bytes, pos);
        let head = &mut self.heads[bucket];
        *head = head.wrapping_sub(1);
        let i = usize::from(*head) % Self::K;
        self.buckets[bucket][i / ENTRIES].0[i % ENTRIES] = entry;
    }

    /// Prefetches the places that [`enter`](Self::enter) will write for these bytes.
    #[inline(always)]
    pub(crate) fn prefetch_head<P: Probe>(&self, bytes: u64) {
        let bucket = Self::bucket(bytes);
        let i = usize::from(self.heads[bucket].wrapping_sub(1)) % Self::K;
        P::prefetch(&self.buckets[bucket][i / ENTRIES]);
    }

    /// Prefetches the whole bucket for these bytes.
    #[inline(always)]
    pub(crate) fn prefetch<P: Probe>(&self, bytes: u64) {
        for group in &self.buckets[Self::bucket(bytes)] {
            P::prefetch(group);
        }
    }

    /// The entries of a bucket with these bits, the most recent first.
    #[inline(always)]
    fn in_order(&self, bucket: usize, bits: u64) -> Entries<'_, G> {
        // Rotate the bits so that bit i is the i-th most recent position.
        let head = u32::from(self.heads[bucket]) % Self::K as u32;
        let turned =
            (bits >> head | bits << ((Self::K as u32 - head) % 64)) & (u64::MAX >> (64 - Self::K));
        Entries { groups: &self.buckets[bucket], bits: turned, head, origin: self.origin }
    }

    /// Rates the candidates of a position that has not been entered. Returns gain and distance of the best candidate
    /// with fewer than eight equal bytes, if any is worth taking, and all candidates with eight, the most recent first.
    #[inline(always)]
    pub(crate) fn rate<P: Probe>(
        &self,
        here: &RatedPosition<'_>,
    ) -> (Option<(u32, u32)>, Entries<'_, G>) {
        let (bucket, entry) = self.place(read64(here.data, here.pos), here.pos);
        let (mut best, mut long) = (0, 0);
        for (g, group) in self.buckets[bucket].iter().enumerate() {
            let (key, bits) = P::rate(here, entry, group);
            best = best.max(key);
            long |= u64::from(bits) << (g * ENTRIES);
        }
        let shorter = (best != 0).then(|| (best >> 24, MAX_DISTANCE - (best & MAX_DISTANCE)));
        (shorter, self.in_order(bucket, long))
    }

    /// Of a position that has not been entered, the candidates in reach whose four bytes from the `at`-th on equal the
    /// position's, the most recent first. None if these bytes reach past the limit.
    #[inline(always)]
    pub(crate) fn with_equal<P: Probe>(
        &self,
        here: &RatedPosition<'_>,
        at: usize,
    ) -> Entries<'_, G> {
        let (bucket, entry) = self.place(read64(here.data, here.pos), here.pos);
        let mut equal = 0;
        if at + 4 <= here.limit {
            for (g, group) in self.buckets[bucket].iter().enumerate() {
                equal |= u64::from(P::equal_fours(here, entry, group, at)) << (g * ENTRIES);
            }
        }
        self.in_order(bucket, equal)
    }
}

/// Some entries of a bucket: yields their positions. Those of earlier blocks are out of range.
pub(crate) struct Entries<'a, const G: usize> {
    groups: &'a [Group; G],
    bits: u64,
    head: u32,
    origin: u32,
}

impl<const G: usize> Iterator for Entries<'_, G> {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        if self.bits == 0 {
            return None;
        }
        let i = (self.bits.trailing_zeros() + self.head) as usize % (G * ENTRIES);
        self.bits &= self.bits - 1;
        let position = self.groups[i / ENTRIES].0[i % ENTRIES] & POSITION;
        Some(position.wrapping_sub(self.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::lz77::MAX_BLOCK;
    use crate::codec::lz77::search::candidates::{LOOKAHEAD, common_length, read32};
    use crate::codec::lz77::search::parse::tests::samples;
    use crate::codec::lz77::search::probe::{Backend, FOUR_REACH, Task};

    type Table<const G: usize> = Buckets<G, 5, 8>;

    /// The earlier positions with the same tag among the `k` most recent ones with the same bucket, by a search.
    fn by_search(data: &[u8], pos: usize, k: usize) -> Vec<u32> {
        let hash = |p| (product::<5>(read64(data, p)) >> 48) as u16;
        let same = (0..pos).rev().filter(|&p| hash(p) >> 8 == hash(pos) >> 8).take(k);
        same.filter(|&p| hash(p) == hash(pos)).map(|p| p as u32).collect()
    }

    struct Check<'a, const G: usize> {
        table: &'a mut Table<G>,
        data: &'a [u8],
        window_start: usize,
    }

    impl<const G: usize> Task for Check<'_, G> {
        #[inline(always)]
        fn run<P: Probe>(self) {
            let Self { table, data, window_start } = self;
            table.reserve().unwrap();
            table.start(data.len());
            let mut rings = table.open();
            for pos in 0..(data.len() + 1).saturating_sub(LOOKAHEAD) {
                let expected = by_search(data, pos, 16 * G);
                let bytes = read64(data, pos);
                if pos >= window_start {
                    let end = (pos | 255) + 1;
                    let (mut shorter, mut longer) = (None, Vec::new());
                    for &from in expected.iter().filter(|&&p| p as usize >= window_start) {
                        let length = common_length(data, from as usize, pos, end.min(data.len()));
                        let distance = pos as u32 - from;
                        let gain = (4 * length as u32).saturating_sub((distance + 3).ilog2());
                        if length >= 8 {
                            longer.push(from);
                        } else if gain > shorter.map_or(0, |(gain, _)| gain)
                            && (length > 4 || (length == 4 && distance < FOUR_REACH))
                        {
                            shorter = Some((gain, distance));
                        }
                    }
                    let reach = (pos - window_start) as u32;
                    let here = RatedPosition { data, pos, reach, limit: end.min(data.len()) - pos };
                    let found = rings.rate::<P>(&here);
                    assert_eq!((found.0, found.1.collect()), (shorter, longer), "{pos}");
                    let at = pos % 40;
                    let equal = |p: &u32| {
                        let p = *p as usize;
                        p >= window_start
                            && at + 4 <= here.limit
                            && read32(data, p + at) == read32(data, pos + at)
                    };
                    let expected = expected.iter().copied().filter(equal);
                    assert!(rings.with_equal::<P>(&here, at).eq(expected), "{pos}");
                }
                rings.enter(bytes, pos);
            }
        }
    }

    fn agree<const G: usize>() {
        for backend in [Backend::PORTABLE, Backend::detect()] {
            let mut table = Table::<G>::default();
            for data in samples() {
                let data = &data[..data.len().min(3000)];
                for window_start in [0, 512] {
                    backend.run(Check { table: &mut table, data, window_start });
                }
                // Use up the range of origins, so that they start over.
                table.start(MAX_BLOCK - 5000);
            }
        }
    }

    #[test]
    fn candidates_are_recent_positions_of_the_same_hash_and_are_rated_by_gain() {
        agree::<1>();
        agree::<2>();
        agree::<4>();
    }
}
