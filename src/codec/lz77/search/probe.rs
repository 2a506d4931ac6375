//! Hashes many positions at a time, and compares many positions, or many matches of one position, at a time.

use super::candidates::{LOOKAHEAD, common_length, following, product, read32, read64, shifted};

/// Positions hashed, or distances compared, at a time.
pub(crate) const BATCH: usize = 32;

/// Bytes that hashing a batch reads.
pub(crate) const BATCH_BYTES: usize = BATCH + LOOKAHEAD - 1;

/// An implementation of the hashes and comparisons. All give the same results.
pub(crate) trait Probe {
    /// Positions that [`repeats`](Self::repeats) compares at a time.
    const FOURS: usize;

    /// The hashes of `BYTES` (5 to 8) bytes of the first [`BATCH`] positions, as [`hash`] gives them.
    fn hashes<const BYTES: u32>(bytes: &[u8; BATCH_BYTES]) -> [u32; BATCH];

    /// Calls [`exchange`] for each of the [`BATCH`] positions from `pos` on, in order, and writes its results to the
    /// position's row, from column `C` on.
    fn exchange<const K: usize, const BITS: u32, const N: usize, const C: usize>(
        slots: &mut [[u32; K]],
        hashes: &[u32; BATCH],
        pos: u32,
        rows: &mut [[u32; N]; BATCH],
    );

    /// Prefetches a value, if the processor has an instruction for that.
    fn prefetch<T>(value: &T);

    /// Rates the candidates in a group: its entries that have the tag of `entry`, the position's own, and are in reach.
    /// All entries are of earlier positions. Returns the greatest [`key`] of the candidates with fewer than eight equal
    /// bytes (0 if none is worth taking), and a bit for each candidate with eight.
    fn rate(here: &RatedPosition<'_>, entry: u32, group: &Group) -> (u32, u32);

    /// A bit for each entry of a group that is a candidate, as for [`rate`](Self::rate), and whose four bytes from the
    /// `at`-th on equal those of the position.
    fn equal_fours(here: &RatedPosition<'_>, entry: u32, group: &Group, at: usize) -> u32;

    /// Which distances, of `N` for each position, stay within the window: those up to the position's distance from the
    /// window's start. `reach` is that distance for the first position.
    fn in_reach<const N: usize>(distances: &[u32; BATCH], reach: usize) -> u32;

    /// The first of the positions from `pos` on, counted from there, whose four bytes equal those `recent` before it;
    /// at least `limit` if it is not among that many positions or `recent` is 0. `limit` is at most
    /// [`FOURS`](Self::FOURS).
    fn repeats(data: &[u8], pos: usize, recent: usize, limit: usize) -> usize;

    /// The numbers of equal bytes up to `end`, from `pos` on and from `recent` before it, and from `pos` on and from
    /// each of the distances before it. 0 for a `recent` of 0, and for a distance above `reach`.
    fn lengths<const N: usize>(
        data: &[u8],
        pos: usize,
        recent: usize,
        distances: &[u32; N],
        reach: usize,
        end: usize,
    ) -> (usize, [usize; N]);
}

/// Entries of a group.
pub(crate) const ENTRIES: usize = 16;

/// Entries of earlier positions that may be candidates. They fill one cache line.
///
/// The lower 24 bits of an entry are a position, and the upper eight are a *tag*: bits of the hash of the bytes there.
/// Positions with different tags cannot match. The difference of two entries is the distance of their positions if the
/// tags are equal, and otherwise more than any reach. So candidates are recognised without fetching any bytes. An empty
/// entry is 0.
#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Group(pub [u32; ENTRIES]);

/// A position whose candidates are rated.
pub(crate) struct RatedPosition<'a> {
    pub data: &'a [u8],
    pub pos: usize,
    /// The farthest that a candidate may be: at most `pos`, and less than 2^24.
    pub reach: u32,
    /// Where matches end, counted from here: at least 1.
    pub limit: usize,
}

/// A match of four bytes is only taken at a distance less than this.
pub(crate) const FOUR_REACH: u32 = 1 << 13;

/// Roughly what a match saves, in quarters of a byte.
#[inline(always)]
pub(crate) fn gain(length: u32, distance: u32) -> u32 {
    (4 * length).saturating_sub((distance + 3).ilog2())
}

/// Orders matches by gain, then by distance. 0 if the match is not worth taking.
#[inline(always)]
fn key(length: u32, distance: u32) -> u32 {
    if length < 4 || (length == 4 && distance >= FOUR_REACH) {
        return 0;
    }
    let gain = gain(length, distance);
    if gain == 0 { 0 } else { gain << 24 | (MAX_DISTANCE - distance) }
}

/// The greatest distance that fits in a [`key`].
pub(crate) const MAX_DISTANCE: u32 = (1 << 24) - 1;

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
    /// Only constructed where [`super::probe_avx2::is_available`].
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    Avx2,
}

impl Backend {
    /// The implementation that every processor has.
    pub(crate) const PORTABLE: Self = Self(Choice::Portable);

    /// The fastest implementation that this processor has.
    pub(crate) fn detect() -> Self {
        #[cfg(all(feature = "simd", target_arch = "x86_64"))]
        if super::probe_avx2::is_available() {
            return Self(Choice::Avx2);
        }
        Self::PORTABLE
    }

    #[inline]
    pub(crate) fn run(self, task: impl Task) {
        match self.0 {
            Choice::Portable => task.run::<Portable>(),
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            // SAFETY: the choice is made only where the processor has the instructions.
            Choice::Avx2 => unsafe { super::probe_avx2::run(task) },
        }
    }
}

/// The implementation for every processor.
pub(crate) struct Portable;

impl Probe for Portable {
    const FOURS: usize = 64;

    #[inline(always)]
    fn hashes<const BYTES: u32>(bytes: &[u8; BATCH_BYTES]) -> [u32; BATCH] {
        let mut hashes = [0; BATCH];
        for (hash, bytes) in hashes.iter_mut().zip(following(bytes)) {
            *hash = self::hash::<BYTES>(bytes);
        }
        hashes
    }

    #[inline(always)]
    fn exchange<const K: usize, const BITS: u32, const N: usize, const C: usize>(
        slots: &mut [[u32; K]],
        hashes: &[u32; BATCH],
        pos: u32,
        rows: &mut [[u32; N]; BATCH],
    ) {
        for ((row, &hash), pos) in rows.iter_mut().zip(hashes).zip(pos..) {
            row[C..C + K].copy_from_slice(&exchange::<K, BITS>(slots, hash, pos));
        }
    }

    #[inline(always)]
    fn prefetch<T>(_: &T) {}

    #[inline(always)]
    fn rate(here: &RatedPosition<'_>, entry: u32, group: &Group) -> (u32, u32) {
        let bytes = read64(here.data, here.pos);
        let (mut best, mut long) = (0, 0);
        for (i, distance) in in_reach(here, entry, group) {
            let difference = read64(here.data, here.pos - distance as usize) ^ bytes;
            let length = (difference.trailing_zeros() / 8).min(here.limit as u32);
            long |= u32::from(length == 8) << i;
            best = best.max(if length < 8 { key(length, distance) } else { 0 });
        }
        (best, long)
    }

    #[inline(always)]
    fn equal_fours(here: &RatedPosition<'_>, entry: u32, group: &Group, at: usize) -> u32 {
        let pos = here.pos + at;
        let bytes = read32(here.data, pos);
        in_reach(here, entry, group).fold(0, |equal, (i, distance)| {
            equal | u32::from(read32(here.data, pos - distance as usize) == bytes) << i
        })
    }

    #[inline(always)]
    fn in_reach<const N: usize>(distances: &[u32; BATCH], reach: usize) -> u32 {
        let mut mask = 0;
        for (i, &distance) in distances.iter().enumerate() {
            mask |= u32::from(distance <= (reach + i / N) as u32) << i;
        }
        mask
    }

    #[inline(always)]
    fn repeats(data: &[u8], pos: usize, recent: usize, limit: usize) -> usize {
        if recent == 0 {
            return limit;
        }
        let repeats = |&i: &usize| read32(data, pos + i) == read32(data, pos + i - recent);
        (0..limit).find(repeats).unwrap_or(limit)
    }

    #[inline(always)]
    fn lengths<const N: usize>(
        data: &[u8],
        pos: usize,
        recent: usize,
        distances: &[u32; N],
        reach: usize,
        end: usize,
    ) -> (usize, [usize; N]) {
        let length = |distance: usize, is_valid| {
            if is_valid { common_length(data, pos - distance, pos, end) } else { 0 }
        };
        let lengths = distances.map(|d| length(d as usize, d as usize <= reach));
        (length(recent, recent != 0), lengths)
    }
}

/// The entry of position `pos`, origin included, where bytes with this hash stand: the position, and above it a tag,
/// the lowest eight bits of the hash. In the difference of two entries, equal tags cancel out. Unequal tags leave more
/// than a block's length, and entries of earlier blocks more than the position in this block.
#[inline(always)]
pub(crate) fn entry(hash: u32, pos: u32) -> u32 {
    (hash << 24).wrapping_add(pos)
}

/// Puts the [`entry`] of a position in front of its slot, given by the upper `BITS` bits of the hash, and drops the
/// slot's last entry. Returns the differences of the new entry from those that were there, modulo 2^32.
#[inline(always)]
pub(crate) fn exchange<const K: usize, const BITS: u32>(
    slots: &mut [[u32; K]],
    hash: u32,
    pos: u32,
) -> [u32; K] {
    let slot = &mut slots[(hash >> (32 - BITS)) as usize];
    let (before, entry) = (*slot, entry(hash, pos));
    *slot = shifted(before, entry);
    before.map(|before| entry.wrapping_sub(before))
}

/// Index and distance of each of a group's entries that has the tag of `entry` and is in reach.
#[inline(always)]
fn in_reach(
    here: &RatedPosition<'_>,
    entry: u32,
    group: &Group,
) -> impl Iterator<Item = (usize, u32)> {
    let distances = group.0.map(|before| entry.wrapping_sub(before));
    let mut bits = 0;
    for (i, &distance) in distances.iter().enumerate() {
        bits |= u32::from(distance <= here.reach) << i;
    }
    core::iter::from_fn(move || {
        let i = (bits != 0).then_some(bits.trailing_zeros() as usize % ENTRIES)?;
        bits &= bits - 1;
        Some((i, distances[i]))
    })
}

/// The hash of the first `BYTES` bytes: the upper half of [`product`].
#[inline(always)]
pub(crate) fn hash<const BYTES: u32>(bytes: &[u8; LOOKAHEAD]) -> u32 {
    (product::<BYTES>(u64::from_le_bytes(*bytes)) >> 32) as u32
}
