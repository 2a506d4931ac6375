//! An adaptive binary range coder for the directory and the tables of a payload.
//!
//! A block has a few thousand binary decisions, so size matters more than speed. The coder propagates carries like that
//! of LZMA (Igor Pavlov, LZMA specification); here a probability has 16 bits and is the mean of a fast and a slow
//! estimate.

/// The estimated probability of a zero bit, as two estimates.
#[derive(Debug, Clone, Copy)]
pub struct Bit {
    fast: u16,
    slow: u16,
}

impl Bit {
    /// Even odds.
    pub const NEW: Self = Self { fast: 1 << 15, slow: 1 << 15 };

    /// The probability in 1/65536, never 0 and never 65536.
    #[inline]
    fn zero(self) -> u32 {
        (u32::from(self.fast) + u32::from(self.slow)) >> 1
    }

    #[inline]
    fn update(&mut self, bit: bool) {
        if bit {
            self.fast -= self.fast >> 4;
            self.slow -= self.slow >> 6;
        } else {
            self.fast += (u16::MAX - self.fast) >> 4;
            self.slow += (u16::MAX - self.slow) >> 6;
        }
    }
}

const TOP: u32 = 1 << 24;

/// One interface for both directions. A description is written as code over this trait once.
///
/// Reading returns the written values, and ignores the values passed in.
pub trait Coder {
    fn bit(&mut self, model: &mut Bit, bit: bool) -> bool;
    /// The low `count` bits of `value`, at even odds, highest first.
    fn raw(&mut self, count: u32, value: u32) -> u32;

    /// A number below 2^31: the length of `value + 1` in unary, then its bits below the top one, the first of them
    /// modelled.
    fn number(&mut self, model: &mut NumberModel, value: u32) -> u32 {
        let target = value + 1;
        let mut length = 0;
        while length < 30 && self.bit(&mut model.length[length as usize], target.ilog2() > length) {
            length += 1;
        }
        if length == 0 {
            return 0;
        }
        let high = (target >> (length - 1)) & 1 == 1;
        let high = u32::from(self.bit(&mut model.high[length as usize], high));
        let low = self.raw(length - 1, target & ((1 << (length - 1)) - 1));
        ((2 | high) << (length - 1) | low) - 1
    }
}

/// Models of [`Coder::number`].
#[derive(Debug, Clone)]
pub struct NumberModel {
    length: [Bit; 30],
    high: [Bit; 31],
}

impl NumberModel {
    pub const NEW: Self = Self { length: [Bit::NEW; 30], high: [Bit::NEW; 31] };
}

/// Writes a description.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    low: u64,
    range: u32,
    /// The last byte that a carry may still change, and one plus the number of 0xff bytes after it.
    cache: u8,
    pending: u64,
    first: bool,
    start: usize,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, low: 0, range: u32::MAX, cache: 0, pending: 1, first: true, start }
    }

    fn shift(&mut self) {
        if self.low < 0xff00_0000 || self.low > 0xffff_ffff {
            let carry = (self.low >> 32) as u8;
            let mut byte = self.cache;
            for _ in 0..self.pending {
                // The very first byte is always 0 and is not written.
                if !core::mem::take(&mut self.first) {
                    self.out.push(byte.wrapping_add(carry));
                }
                byte = 0xff;
            }
            self.pending = 0;
            self.cache = (self.low >> 24) as u8;
        }
        self.pending += 1;
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    /// Flushes the coder. Drops trailing zero bytes, because a reader sees zeros past its end.
    pub fn finish(mut self) {
        // Any value in [low, low + range) will do. Take the one with the most trailing zeros.
        let high = self.low + u64::from(self.range) - 1;
        for bits in (0..32).rev() {
            let rounded = high >> bits << bits;
            if rounded >= self.low {
                self.low = rounded;
                break;
            }
        }
        for _ in 0..5 {
            self.shift();
        }
        while self.out.len() > self.start && self.out.last() == Some(&0) {
            self.out.pop();
        }
    }
}

impl Coder for Writer<'_> {
    fn bit(&mut self, model: &mut Bit, bit: bool) -> bool {
        let bound = (self.range >> 16) * model.zero();
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        model.update(bit);
        while self.range < TOP {
            self.range <<= 8;
            self.shift();
        }
        bit
    }

    fn raw(&mut self, count: u32, value: u32) -> u32 {
        for i in (0..count).rev() {
            self.range >>= 1;
            if (value >> i) & 1 == 1 {
                self.low += u64::from(self.range);
            }
            if self.range < TOP {
                self.range <<= 8;
                self.shift();
            }
        }
        value
    }
}

/// Reads a description. Past its bytes it reads zeros, so reading always succeeds.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: core::slice::Iter<'a, u8>,
    range: u32,
    code: u32,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut reader = Self { bytes: bytes.iter(), range: u32::MAX, code: 0 };
        for _ in 0..4 {
            reader.code = reader.code << 8 | reader.next();
        }
        reader
    }

    fn next(&mut self) -> u32 {
        u32::from(self.bytes.next().copied().unwrap_or(0))
    }
}

impl Coder for Reader<'_> {
    fn bit(&mut self, model: &mut Bit, _: bool) -> bool {
        let bound = (self.range >> 16) * model.zero();
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        model.update(bit);
        while self.range < TOP {
            self.range <<= 8;
            self.code = self.code << 8 | self.next();
        }
        bit
    }

    fn raw(&mut self, count: u32, _: u32) -> u32 {
        let mut value = 0;
        for _ in 0..count {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            value = value << 1 | u32::from(bit);
            if self.range < TOP {
                self.range <<= 8;
                self.code = self.code << 8 | self.next();
            }
        }
        value
    }
}
