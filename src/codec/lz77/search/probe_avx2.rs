//! Hashes and comparisons with AVX2.

use super::candidates::{common_length, factor, read32, read64};
use super::probe::{
    BATCH, BATCH_BYTES, FOUR_REACH, Group, MAX_DISTANCE, Portable, Probe, RatedPosition, Task,
    entry,
};
use core::arch::x86_64::*;
use core::hint::select_unpredictable;

/// Whether this processor has the features that [`Avx2`] needs: the same as for the lanes in AVX2.
pub(crate) use crate::codec::lanes::avx2::is_available;

/// Runs a task compiled for these instructions.
///
/// # Safety
/// Call this only where [`is_available`] returns true.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) unsafe fn run(task: impl Task) {
    task.run::<Avx2>();
}

/// Use its operations only inside a function that enables the target features of [`is_available`], and only where that
/// returns true. Every `unsafe` below rests on that; each says what memory it touches, if any.
pub(crate) struct Avx2;

/// Lanes of a register.
const LANES: usize = 8;

/// One bit for each pair of equal bytes.
#[inline(always)]
fn equal(a: &[u8; 32], b: &[u8; 32]) -> u32 {
    // SAFETY: see `Avx2`; the loads cover exactly the arrays.
    unsafe {
        let (a, b) = (_mm256_loadu_si256(a.as_ptr().cast()), _mm256_loadu_si256(b.as_ptr().cast()));
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)) as u32
    }
}

/// For each half of a group's entries: their distances from `entry`, and a mask of the entries with its tag, no farther
/// than `reach`. `None` if there are none.
#[inline(always)]
fn distances(group: &Group, entry: u32, reach: u32) -> Option<[(__m256i, __m256i); 2]> {
    // SAFETY: see `Avx2`; the loads cover exactly the array.
    unsafe {
        let entry = _mm256_set1_epi32(entry as i32);
        let reach = _mm256_set1_epi32(reach as i32);
        let group = group.0.as_ptr().cast();
        macro_rules! half {
            ($entries:expr) => {{
                let distance = _mm256_sub_epi32(entry, _mm256_load_si256($entries));
                (distance, _mm256_cmpeq_epi32(_mm256_min_epu32(distance, reach), distance))
            }};
        }
        let (first, second) = (half!(group), half!(group.add(1)));
        let any = _mm256_or_si256(first.1, second.1);
        (_mm256_testz_si256(any, any) == 0).then_some([first, second])
    }
}

/// Puts `entry` in front of a slot of two or four entries, drops the slot's last one, and returns the differences of
/// `entry` from those that were there.
#[inline(always)]
fn exchange_slot<const K: usize>(slot: &mut [u32; K], entry: u32) -> [u32; K] {
    // Slots are written and read whole: a read of bytes just written in parts would stall.
    let mut distances = [0; K];
    let (slot_at, distances_at) = (slot.as_mut_ptr(), distances.as_mut_ptr());
    // SAFETY: see `Avx2`; loads and stores cover exactly the `K` elements of the two arrays.
    unsafe {
        let first = _mm_cvtsi32_si128(entry as i32);
        let entries = _mm_shuffle_epi32::<0>(first);
        match K {
            2 => {
                let before = _mm_loadl_epi64(slot_at.cast());
                _mm_storel_epi64(slot_at.cast(), _mm_unpacklo_epi32(first, before));
                _mm_storel_epi64(distances_at.cast(), _mm_sub_epi32(entries, before));
            }
            4 => {
                let before = _mm_loadu_si128(slot_at.cast());
                let after = _mm_or_si128(_mm_slli_si128::<4>(before), first);
                _mm_storeu_si128(slot_at.cast(), after);
                _mm_storeu_si128(distances_at.cast(), _mm_sub_epi32(entries, before));
            }
            _ => unreachable!("a slot of {K} entries"),
        }
    }
    distances
}

/// [`Probe::exchange`] for slots of one entry. A position's cost is mainly its stores, so the distances of eight
/// positions are stored at once.
#[inline(always)]
fn exchange_ones<const BITS: u32>(
    slots: &mut [u32],
    hashes: &[u32; BATCH],
    pos: u32,
    distances: &mut [u32; BATCH],
) {
    let eights = hashes.as_chunks::<LANES>().0.iter().zip(distances.as_chunks_mut::<LANES>().0);
    for ((hashes, distances), pos) in eights.zip((pos..).step_by(LANES)) {
        let (mut places, mut entries) = ([0; LANES], [0; LANES]);
        // A macro, because a closure would not be compiled for these instructions.
        macro_rules! exchange {
            ($i:expr) => {
                core::mem::replace(&mut slots[places[$i] as usize], entries[$i]) as i32
            };
        }
        // SAFETY: see `Avx2`; loads and stores cover exactly the arrays.
        unsafe {
            let hash = _mm256_loadu_si256(hashes.as_ptr().cast());
            let iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let pos = _mm256_add_epi32(_mm256_set1_epi32(pos as i32), iota);
            let entry = _mm256_add_epi32(_mm256_slli_epi32::<24>(hash), pos);
            let place = _mm256_srl_epi32(hash, _mm_cvtsi32_si128(32 - BITS as i32));
            _mm256_storeu_si256(entries.as_mut_ptr().cast(), entry);
            _mm256_storeu_si256(places.as_mut_ptr().cast(), place);
            macro_rules! four {
                ($i:expr) => {{
                    let before = _mm_cvtsi32_si128(exchange!($i));
                    let before = _mm_insert_epi32::<1>(before, exchange!($i + 1));
                    let before = _mm_insert_epi32::<2>(before, exchange!($i + 2));
                    _mm_insert_epi32::<3>(before, exchange!($i + 3))
                }};
            }
            let (low, high) = (four!(0), four!(4));
            let distance = _mm256_sub_epi32(entry, _mm256_set_m128i(high, low));
            _mm256_storeu_si256(distances.as_mut_ptr().cast(), distance);
        }
    }
}

impl Probe for Avx2 {
    const FOURS: usize = 29;

    #[inline(always)]
    fn hashes<const BYTES: u32>(bytes: &[u8; BATCH_BYTES]) -> [u32; BATCH] {
        const { assert!(BYTES > 4) }
        let mut hashes = [0; BATCH];
        for (i, hashes) in hashes.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            // The 16 bytes from here on include those of eight positions, from the `skip`-th on.
            let from = (LANES * i).min(BATCH_BYTES - 16);
            let skip = (LANES * i - from) as i8;
            // SAFETY: see `Avx2`; the load ends at or before the last byte, the store covers exactly the array.
            unsafe {
                let bytes = _mm_loadu_si128(bytes.as_ptr().add(from).cast());
                let bytes = _mm256_broadcastsi128_si256(bytes);
                // The first four bytes of each position, and the four after them.
                let first = _mm256_setr_epi8(
                    0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6, //
                    4, 5, 6, 7, 5, 6, 7, 8, 6, 7, 8, 9, 7, 8, 9, 10,
                );
                let first = _mm256_add_epi8(first, _mm256_set1_epi8(skip));
                let low = _mm256_shuffle_epi8(bytes, first);
                let high = _mm256_shuffle_epi8(bytes, _mm256_add_epi8(first, _mm256_set1_epi8(4)));
                // The upper half of the lower 64 bits of the product.
                let low_factor = _mm256_set1_epi32(factor::<BYTES>() as i32);
                let high_factor = _mm256_set1_epi32((factor::<BYTES>() >> 32) as i32);
                let even = _mm256_srli_epi64::<32>(_mm256_mul_epu32(low, low_factor));
                let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(low), low_factor);
                let carried = _mm256_blend_epi32::<0b1010_1010>(even, odd);
                let crossed = _mm256_add_epi32(
                    _mm256_mullo_epi32(low, high_factor),
                    _mm256_mullo_epi32(high, low_factor),
                );
                let hash = _mm256_add_epi32(carried, crossed);
                _mm256_storeu_si256(hashes.as_mut_ptr().cast(), hash);
            }
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
        if let (1, Ok(distances)) = (K, rows.as_flattened_mut().try_into()) {
            return exchange_ones::<BITS>(slots.as_flattened_mut(), hashes, pos, distances);
        }
        if K != 2 && K != 4 {
            return Portable::exchange::<K, BITS, N, C>(slots, hashes, pos, rows);
        }
        // The compiler vectorises the making of entries here; it would not in the loop below.
        let mut entries = [0; BATCH];
        for ((entry, &hash), pos) in entries.iter_mut().zip(hashes).zip(pos..) {
            *entry = self::entry(hash, pos);
        }
        for ((row, hash), entry) in rows.iter_mut().zip(hashes).zip(entries) {
            let slot = &mut slots[(hash >> (32 - BITS)) as usize];
            row[C..C + K].copy_from_slice(&exchange_slot(slot, entry));
        }
    }

    #[inline(always)]
    fn prefetch<T>(value: &T) {
        // SAFETY: the instruction only affects the time of later loads.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast()) }
    }

    #[inline(always)]
    fn rate(here: &RatedPosition<'_>, entry: u32, group: &Group) -> (u32, u32) {
        let RatedPosition { data, pos, reach, limit } = *here;
        let bytes = read64(data, pos);
        assert!(pos <= i32::MAX as usize && reach as usize <= pos);
        let Some([first, second]) = distances(group, entry, reach) else { return (0, 0) };
        // SAFETY: see `Avx2`. The gather reads eight bytes up to `reach` before `pos`; those at `pos` exist.
        unsafe {
            // Macros, because closures would not be compiled for these instructions.
            macro_rules! all {
                ($x:expr) => {
                    _mm256_set1_epi32($x as i32)
                };
            }
            let (lower, upper) = (all!(bytes as u32), all!((bytes >> 32) as u32));
            let pos = all!(pos as u32);
            let (zero, limit) = (all!(0), all!(limit.min(8) as u32));
            let data = data.as_ptr();
            // Rates half of the entries.
            macro_rules! rate {
                ($half:expr) => {{
                    let (distance, valid) = $half;
                    let distance = _mm256_and_si256(distance, valid);
                    let from = _mm256_sub_epi32(pos, distance);
                    let a = _mm256_mask_i32gather_epi32::<1>(zero, data.cast(), from, valid);
                    let b = _mm256_mask_i32gather_epi32::<1>(zero, data.add(4).cast(), from, valid);
                    let valid = _mm256_and_si256(valid, _mm256_cmpeq_epi32(a, lower));
                    // Of the second four bytes, masks of whether the first one, two, three and four are equal.
                    let differ = _mm256_xor_si256(b, upper);
                    let one = _mm256_cmpeq_epi32(_mm256_and_si256(differ, all!(0xff)), zero);
                    let two = _mm256_cmpeq_epi32(_mm256_and_si256(differ, all!(0xffff)), zero);
                    let three = _mm256_cmpeq_epi32(_mm256_and_si256(differ, all!(0xff_ffff)), zero);
                    let four = _mm256_cmpeq_epi32(differ, zero);
                    let minus =
                        _mm256_add_epi32(_mm256_add_epi32(one, two), _mm256_add_epi32(three, four));
                    let length = _mm256_min_epi32(_mm256_sub_epi32(all!(4), minus), limit);
                    let long = _mm256_and_si256(valid, _mm256_cmpeq_epi32(length, all!(8)));
                    // The exponent of a float is the logarithm.
                    let number = _mm256_cvtepi32_ps(_mm256_add_epi32(distance, all!(3)));
                    let log = _mm256_srli_epi32::<23>(_mm256_castps_si256(number));
                    let log = _mm256_sub_epi32(log, all!(127));
                    let gain = _mm256_sub_epi32(_mm256_slli_epi32::<2>(length), log);
                    let key = _mm256_or_si256(
                        _mm256_slli_epi32::<24>(gain),
                        _mm256_sub_epi32(all!(MAX_DISTANCE), distance),
                    );
                    // Nearer than `FOUR_REACH`, four bytes are enough, farther away five.
                    let near = _mm256_cmpgt_epi32(all!(FOUR_REACH), distance);
                    let least = _mm256_add_epi32(all!(5), near);
                    let out = _mm256_or_si256(_mm256_cmpgt_epi32(least, length), long);
                    let worth = _mm256_andnot_si256(out, _mm256_cmpgt_epi32(gain, zero));
                    let key = _mm256_and_si256(key, _mm256_and_si256(worth, valid));
                    (key, _mm256_movemask_ps(_mm256_castsi256_ps(long)) as u32)
                }};
            }
            let (a, long_a) = rate!(first);
            let (b, long_b) = rate!(second);
            let most = _mm256_max_epi32(a, b);
            let most =
                _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256::<1>(most));
            let most = _mm_max_epi32(most, _mm_shuffle_epi32::<0b01_00_11_10>(most));
            let most = _mm_max_epi32(most, _mm_shuffle_epi32::<0b10_11_00_01>(most));
            (_mm_cvtsi128_si32(most) as u32, long_a | long_b << 8)
        }
    }

    #[inline(always)]
    fn equal_fours(here: &RatedPosition<'_>, entry: u32, group: &Group, at: usize) -> u32 {
        let RatedPosition { data, pos, reach, .. } = *here;
        let bytes = read32(data, pos + at);
        assert!(pos + at <= i32::MAX as usize && reach as usize <= pos);
        let Some([first, second]) = distances(group, entry, reach) else { return 0 };
        // SAFETY: see `Avx2`. The gather reads four bytes up to `reach` before `pos + at`; those there exist.
        unsafe {
            let (bytes, zero) = (_mm256_set1_epi32(bytes as i32), _mm256_setzero_si256());
            let pos = _mm256_set1_epi32((pos + at) as i32);
            let data = data.as_ptr();
            macro_rules! equal {
                ($half:expr) => {{
                    let (distance, valid) = $half;
                    let from = _mm256_sub_epi32(pos, distance);
                    let there = _mm256_mask_i32gather_epi32::<1>(zero, data.cast(), from, valid);
                    let equal = _mm256_and_si256(valid, _mm256_cmpeq_epi32(there, bytes));
                    _mm256_movemask_ps(_mm256_castsi256_ps(equal)) as u32
                }};
            }
            equal!(first) | equal!(second) << 8
        }
    }

    #[inline(always)]
    fn in_reach<const N: usize>(distances: &[u32; BATCH], reach: usize) -> u32 {
        const { assert!(N.is_power_of_two() && N <= LANES) };
        let mut mask = 0;
        for (i, distances) in distances.as_chunks::<LANES>().0.iter().enumerate() {
            // SAFETY: see `Avx2`; the load covers exactly the array.
            let valid = unsafe {
                let iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let iota = _mm256_srl_epi32(iota, _mm_cvtsi32_si128(N.ilog2() as i32));
                let first = (reach + i * LANES / N) as i32;
                let reach = _mm256_add_epi32(iota, _mm256_set1_epi32(first));
                let distances = _mm256_loadu_si256(distances.as_ptr().cast());
                let valid = _mm256_cmpeq_epi32(_mm256_min_epu32(distances, reach), distances);
                _mm256_movemask_ps(_mm256_castsi256_ps(valid)) as u32
            };
            mask |= valid << (i * LANES);
        }
        mask
    }

    #[inline(always)]
    fn repeats(data: &[u8], pos: usize, recent: usize, limit: usize) -> usize {
        let Some(here) = data.get(pos..).and_then(|d| d.first_chunk::<32>()) else {
            return Portable::repeats(data, pos, recent, limit);
        };
        let equal = equal(here, data[pos - recent..].first_chunk().unwrap());
        let pairs = equal & equal >> 1;
        let fours = select_unpredictable(recent == 0, 0, pairs & pairs >> 2);
        fours.trailing_zeros() as usize
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
        let Some(here) = data.get(pos..).and_then(|d| d.first_chunk::<32>()) else {
            return Portable::lengths(data, pos, recent, distances, reach, end);
        };
        // One bit for each byte before the end.
        let before_end = u32::MAX >> (32 - (end - pos).min(32));
        // A macro, because a closure would not be compiled for these instructions.
        macro_rules! length {
            ($distance:expr, $is_valid:expr) => {{
                let is_valid = $is_valid;
                let distance = select_unpredictable(is_valid, $distance, 0);
                let counted = select_unpredictable(is_valid, before_end, 0);
                let equal = equal(here, data[pos - distance..].first_chunk().unwrap());
                (equal & counted).trailing_ones() as usize
            }};
        }
        let mut length = length!(recent, recent != 0);
        let mut lengths = [0; N];
        let mut all = length;
        for (length, &distance) in lengths.iter_mut().zip(distances) {
            let distance = distance as usize;
            *length = length!(distance, distance <= reach);
            all |= *length;
        }
        if all >= 32 {
            let with_recent = lengths.iter_mut().zip(distances.iter().map(|&d| d as usize));
            for (length, distance) in with_recent.chain([(&mut length, recent)]) {
                if *length == 32 {
                    // SAFETY: see `Avx2`.
                    *length = unsafe { length_from_32(data, pos, distance, end) };
                }
            }
        }
        (length, lengths)
    }
}

/// The length of a match of at least 32 bytes.
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn length_from_32(data: &[u8], pos: usize, offset: usize, end: usize) -> usize {
    let mut b = pos + 32;
    while end - b >= 32 {
        let (Some(x), Some(y)) = (data[b - offset..].first_chunk(), data[b..].first_chunk()) else {
            break;
        };
        let equal = equal(x, y);
        if equal != u32::MAX {
            return b - pos + equal.trailing_ones() as usize;
        }
        b += 32;
    }
    b - pos + common_length(data, b - offset, b, end)
}
