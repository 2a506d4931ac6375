//! Where a position's matches may come from.
//!
//! The candidates of a position are the K most recent earlier positions of its window with the same hash of the bytes
//! that follow. Every position of a block is entered, whatever the parse does with it: so the candidates depend on
//! the data alone, and a GPU finds the same ones by sorting positions by (hash, position).
//!
//! A window begins at a multiple of its length and ends a window length later; a position whose following
//! [`LOOKAHEAD`] bytes reach past the end of the block has no candidates and is not one.

/// Bytes that must follow a position for it to take part in matching.
pub(crate) const LOOKAHEAD: usize = 8;

/// The 8 bytes from `pos`, little-endian.
#[inline(always)]
pub(crate) fn read64(data: &[u8], pos: usize) -> u64 {
    u64::from_le_bytes(data[pos..][..8].try_into().unwrap())
}

/// The 4 bytes from `pos`, little-endian.
#[inline(always)]
pub(crate) fn read32(data: &[u8], pos: usize) -> u32 {
    u32::from_le_bytes(data[pos..][..4].try_into().unwrap())
}

/// The number of equal bytes from `a` and from `b` on, where `a < b`, up to `end` of `b`'s.
#[inline(always)]
pub(crate) fn common_length(data: &[u8], a: usize, b: usize, end: usize) -> usize {
    debug_assert!(a < b && b <= end && end <= data.len());
    let max = end - b;
    let (earlier, later) = (&data[a..a + max], &data[b..b + max]);
    let mut n = 0;
    while let (Some(x), Some(y)) = (
        earlier.get(n..).and_then(|s| s.first_chunk::<8>()),
        later.get(n..).and_then(|s| s.first_chunk::<8>()),
    ) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return n + difference.trailing_zeros() as usize / 8;
        }
        n += 8;
    }
    while n < max && earlier[n] == later[n] {
        n += 1;
    }
    n
}

/// The hash of the lowest `bytes` (3 to 8) bytes of `x`, in `bits` bits.
#[inline(always)]
fn hash(x: u64, bytes: u32, bits: u32) -> usize {
    const PRIME: u64 = 0x9e37_79b1_85eb_ca87;
    ((x << (64 - 8 * bytes)).wrapping_mul(PRIME) >> (64 - bits)) as usize
}

/// The K most recent positions of each hash of `BYTES` bytes.
///
/// Positions are kept with an origin added that grows from block to block, so that what is left of earlier blocks is
/// out of range instead of having to be cleared.
pub(crate) struct Table<const K: usize, const BYTES: u32> {
    slots: Vec<[u32; K]>,
    bits: u32,
    origin: u32,
}

impl<const K: usize, const BYTES: u32> Table<K, BYTES> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), bits: 0, origin: 0 }
    }

    /// Forgets everything and gets ready for a block of `len` bytes with hashes of `bits` bits.
    pub(crate) fn start(&mut self, bits: u32, len: usize) {
        let len = len as u32;
        if self.bits != bits || self.origin > u32::MAX - 2 * len - 2 {
            self.bits = bits;
            self.slots.clear();
            self.slots.resize(1 << bits, [0; K]);
            self.origin = 1;
        }
    }

    /// Ends the block begun by [`start`](Self::start): its positions are out of range from here on.
    pub(crate) fn finish(&mut self, len: usize) {
        self.origin += len as u32;
    }

    #[inline(always)]
    fn slot(&mut self, data: &[u8], pos: usize) -> &mut [u32; K] {
        let index = hash(read64(data, pos), BYTES, self.bits);
        &mut self.slots[index]
    }

    /// Enters a position: each once, in order.
    #[inline(always)]
    pub(crate) fn enter(&mut self, data: &[u8], pos: usize) {
        let entry = self.origin + pos as u32;
        let slot = self.slot(data, pos);
        slot.copy_within(0..K - 1, 1);
        slot[0] = entry;
    }

    /// Enters a position and returns the ones that were there before, the most recent first, as distances back from
    /// it. Those that are 0 or larger than the position has bytes before it in its window are no candidates.
    #[inline(always)]
    pub(crate) fn exchange(&mut self, data: &[u8], pos: usize) -> [u32; K] {
        let entry = self.origin + pos as u32;
        let slot = self.slot(data, pos);
        let before = *slot;
        slot.copy_within(0..K - 1, 1);
        slot[0] = entry;
        before.map(|e| entry.wrapping_sub(e))
    }
}
