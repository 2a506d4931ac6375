//! Entropy-coded bits, dealt to 32 lanes.
//!
//! A decoder of a single bit stream is bound by the latency of one chain of table lookups. Here 32 lanes together read
//! one stream of 32-bit words, and each has bits of its own: a vector unit, or 32 work items of a GPU, decode 32
//! symbols at a time.
//!
//! # The rule
//! Work goes in *rows*. In a row each lane consumes 0 to 31 bits, most significant first. Before a row, every lane
//! that holds fewer than 32 bits takes the next word of the stream, in lane order, and appends it to its bits: one
//! ballot and one coalesced (or expanding) load serve all of them. A lane starts with no bits, so the first row takes
//! 32 words. Words past the end of the stream are zero, and an encoder leaves out zero words at the end.
//!
//! The encoder follows the same rule. It must place a lane's next word when the decoder would take that word, before
//! the word's last bits are known.
//!
//! The algorithms are written once, over [`Vector`]. The backends differ in speed only.

#[cfg(all(feature = "simd", target_arch = "x86_64"))]
pub(crate) mod avx2;
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
pub(crate) mod avx512;
pub(crate) mod portable;

/// Which implementation of [`Vector`] to run on. All of them give the same results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backend(Choice);

#[derive(Debug, Clone, Copy)]
enum Choice {
    Portable,
    /// Only constructed where [`avx2::is_available`].
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    Avx2,
    /// Only constructed where [`avx512::is_available`].
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    Avx512,
}

/// Code over lanes that runs on a [`Backend`].
pub(crate) trait Kernel {
    type Output;
    /// Must be `#[inline(always)]`, and so must everything it calls with a `V`: only then is it compiled for the
    /// backend's instructions.
    fn run<V: Vector>(self) -> Self::Output;
    /// The same on any processor.
    fn run_portable(self) -> Self::Output
    where
        Self: Sized,
    {
        self.run::<portable::Portable>()
    }
}

impl Backend {
    /// The backend that every processor has.
    pub(crate) const PORTABLE: Self = Self(Choice::Portable);

    /// The fastest backend that this processor has.
    pub(crate) fn detect() -> Self {
        Self::all().next().unwrap_or(Self::PORTABLE)
    }

    /// The backends that this processor has, fastest first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        const ALL: &[Choice] = &[
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            Choice::Avx512,
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            Choice::Avx2,
            Choice::Portable,
        ];
        let is_available = |choice: &Choice| match choice {
            Choice::Portable => true,
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            Choice::Avx2 => avx2::is_available(),
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            Choice::Avx512 => avx512::is_available(),
        };
        ALL.iter().copied().filter(is_available).map(Self)
    }

    /// The name shown to users.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            Choice::Portable => "portable",
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            Choice::Avx2 => "AVX2",
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            Choice::Avx512 => "AVX-512",
        }
    }

    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Choice::Portable => kernel.run_portable(),
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            // SAFETY: the choice is made only where the processor has the instructions.
            Choice::Avx2 => unsafe { avx2::run(kernel) },
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            // SAFETY: the choice is made only where the processor has the instructions.
            Choice::Avx512 => unsafe { avx512::run(kernel) },
        }
    }
}

/// Lanes of every entropy-coded stream.
pub(crate) const LANES: usize = 32;

/// The most bits a lane may consume in one row.
#[cfg(test)]
pub(crate) const MAX_ROW_BITS: u32 = 31;

/// The operations on 32 unsigned 32-bit lanes that lane streams need.
///
/// Shifts by 32 or more give 0. Masks have lane `l` in bit `l`.
pub(crate) trait Vector: Copy {
    fn splat(x: u32) -> Self;
    fn load(a: &[u32; LANES]) -> Self;
    /// Loads 128 bytes as 32 little-endian words.
    fn load_bytes(a: &[u8; 4 * LANES]) -> Self;
    /// Loads one word for each lane set in the mask, in lane order; the other lanes get 0.
    #[inline(always)]
    fn load_expanded(a: &[u8; 4 * LANES], mask: u32) -> Self {
        Self::load_bytes(a).expand(mask)
    }
    /// Loads the first and the second words of 32 pairs.
    fn load_pairs(a: &[[u32; 2]; LANES]) -> (Self, Self);
    fn store(self, a: &mut [u32; LANES]);
    /// Stores 32 little-endian words.
    fn store_bytes(self, a: &mut [u8; 4 * LANES]);
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn and(self, o: Self) -> Self;
    fn or(self, o: Self) -> Self;
    fn shl(self, n: Self) -> Self;
    fn shr(self, n: Self) -> Self;
    fn shl_by<const N: u32>(self) -> Self;
    fn shr_by<const N: u32>(self) -> Self;
    /// The upper words of the 64-bit lanes `hi:lo` after a left shift by `n`, which is 0 to 31.
    fn funnel_shl(hi: Self, lo: Self, n: Self) -> Self;
    /// Lanes where `self < o`.
    fn lt(self, o: Self) -> u32;
    /// Lanes of `a` where the mask is set, of `b` elsewhere.
    fn select(mask: u32, a: Self, b: Self) -> Self;
    /// Lanes set in the mask get `words[0]`, `words[1]`, … in lane order, the others 0.
    fn expand(self, mask: u32) -> Self;
    /// `table[index mod N]`; `N` is a power of two.
    fn gather<const N: usize>(table: &[u32; N], index: Self) -> Self;
    /// `table[index mod 32]`.
    fn lookup(table: &[u32; 32], index: Self) -> Self;
    /// Writes the lanes set in the mask to `out[index]`. These places must exist.
    fn scatter(self, mask: u32, index: Self, out: &mut [u32]);
}

/// Reads a lane stream.
pub(crate) struct Reader<'a, V> {
    /// Each lane's bits; the next bit is the top bit of `hi`.
    hi: V,
    lo: V,
    /// Bits that each lane holds.
    count: V,
    words: &'a [u8],
    /// Bytes taken so far. May exceed the length of `words`.
    taken: usize,
}

impl<'a, V: Vector> Reader<'a, V> {
    /// A reader of little-endian words. The length of `words` is a multiple of 4.
    #[inline(always)]
    pub(crate) fn new(words: &'a [u8]) -> Self {
        let zero = V::splat(0);
        Self { hi: zero, lo: zero, count: zero, words, taken: 0 }
    }

    /// Begins a row: fills every lane to at least 32 bits.
    #[inline(always)]
    pub(crate) fn refill(&mut self) {
        let v32 = V::splat(32);
        let need = self.count.lt(v32);
        let fresh = match self.words.get(self.taken..).and_then(|w| w.first_chunk()) {
            Some(words) => V::load_expanded(words, need),
            None => V::load_expanded(&self.last_words(), need),
        };
        self.taken += 4 * need.count_ones() as usize;
        // In a lane that takes no word, `fresh` is 0. In one that does, `lo` is empty.
        self.hi = self.hi.or(fresh.shr(self.count));
        self.lo = self.lo.or(fresh.shl(v32.sub(self.count)));
        self.count = self.count.add(V::select(need, v32, V::splat(0)));
    }

    #[cold]
    fn last_words(&self) -> [u8; 4 * LANES] {
        let mut bytes = [0; 4 * LANES];
        if let Some(rest) = self.words.get(self.taken..) {
            let n = rest.len().min(bytes.len());
            bytes[..n].copy_from_slice(&rest[..n]);
        }
        bytes
    }

    /// The next 32 bits of each lane.
    #[inline(always)]
    pub(crate) fn peek(&self) -> V {
        self.hi
    }

    /// Consumes `n` of 0 to 31 bits in each lane.
    #[inline(always)]
    pub(crate) fn skip(&mut self, n: V) {
        self.hi = V::funnel_shl(self.hi, self.lo, n);
        self.lo = self.lo.shl(n);
        self.count = self.count.sub(n);
    }

    /// Whether every word has been taken.
    #[inline(always)]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.taken >= self.words.len()
    }

    /// Whether all bits still held are zero.
    #[inline(always)]
    pub(crate) fn is_zero(&self) -> bool {
        V::splat(0).lt(self.hi.or(self.lo)) == 0
    }
}

/// Writes a lane stream.
pub(crate) struct Writer<'a, V> {
    out: &'a mut Vec<u32>,
    /// Words of `out` that belong to earlier streams.
    base: usize,
    /// Words that the decoder has taken so far, counted from the start of `out`.
    len: usize,
    /// Each lane's unfinished word, filled from the top, and its number of bits.
    partial: V,
    filled: V,
    /// Where each lane's unfinished word goes, and its next word.
    place: V,
    next_place: V,
    /// Lanes whose `next_place` is known.
    ahead: u32,
}

impl<'a, V: Vector> Writer<'a, V> {
    /// A writer that appends to `out`.
    #[inline(always)]
    pub(crate) fn new(out: &'a mut Vec<u32>) -> Self {
        let (base, zero) = (out.len(), V::splat(0));
        Self {
            out,
            base,
            len: base,
            partial: zero,
            filled: zero,
            place: zero,
            next_place: zero,
            ahead: 0,
        }
    }

    /// Writes a row: from each lane, the top `len` (0 to 31) bits of `bits`. All other bits must be 0.
    #[inline(always)]
    pub(crate) fn row(&mut self, bits: V, len: V) {
        let zero = V::splat(0);
        if self.len == self.base {
            self.place = Self::places(self.len, u32::MAX);
            self.len += LANES;
        } else {
            let take = zero.lt(self.filled) & !self.ahead;
            self.next_place = V::select(take, Self::places(self.len, take), self.next_place);
            self.len += take.count_ones() as usize;
            self.ahead |= take;
        }
        if self.out.len() < self.len {
            // Grow by the stream's length so far, so that a short stream clears little.
            let more = (self.len - self.base).min(32 * LANES);
            self.out.resize(self.len + more, 0);
        }
        let v32 = V::splat(32);
        let word = self.partial.or(bits.shr(self.filled));
        let filled = self.filled.add(len);
        let full = V::splat(31).lt(filled);
        word.scatter(full, self.place, self.out);
        self.partial = V::select(full, bits.shl(v32.sub(self.filled)), word);
        self.filled = filled.and(V::splat(31));
        self.place = V::select(full, self.next_place, self.place);
        self.ahead &= !full;
    }

    #[inline(always)]
    fn places(first: usize, mask: u32) -> V {
        const IOTA: [u32; LANES] = {
            let mut a = [0; LANES];
            let mut i = 0;
            while i < LANES {
                a[i] = i as u32;
                i += 1;
            }
            a
        };
        V::load(&IOTA).add(V::splat(first as u32)).expand(mask)
    }

    /// Ends the stream.
    #[inline(always)]
    pub(crate) fn finish(self) {
        if self.len > self.base {
            self.partial.scatter(V::splat(0).lt(self.filled), self.place, self.out);
        }
        self.out.truncate(self.len);
        while self.out.len() > self.base && self.out.last() == Some(&0) {
            self.out.pop();
        }
    }
}
