//! Base-2 logarithms in fixed point, with integers only.
//!
//! Prices decide an encoder's output, so they must be the same on every machine and device. Floating-point logarithms
//! are not.

/// Bits of fraction in [`log2`]'s results.
pub const FRACTION_BITS: u32 = 16;

/// `log2(1 + i / 256)` rounded down to [`FRACTION_BITS`] bits of fraction.
const MANTISSA: [u32; 257] = mantissa_table();

const fn mantissa_table() -> [u32; 257] {
    let mut table = [0; 257];
    let mut i = 0;
    while i < 256 {
        // Squaring a number doubles its logarithm: each time the square passes 2, a bit is set.
        let mut x = (256 + i as u64) << 22;
        let mut log = 0;
        let mut bit = 0;
        while bit < FRACTION_BITS {
            x = (x * x) >> 30;
            log <<= 1;
            if x >= 2 << 30 {
                x >>= 1;
                log |= 1;
            }
            bit += 1;
        }
        table[i] = log;
        i += 1;
    }
    table[256] = 1 << FRACTION_BITS;
    table
}

/// The base 2 logarithm of `x` with [`FRACTION_BITS`] bits of fraction, within 2^-14 of the true value
/// and never falling as `x` grows; 0 for 0.
#[inline]
pub fn log2(x: u32) -> u32 {
    if x == 0 {
        return 0;
    }
    let exponent = x.ilog2();
    let mantissa = x << (31 - exponent);
    let index = (mantissa >> 23) as usize & 0xff;
    let below = MANTISSA[index];
    let step = MANTISSA[index + 1] - below;
    (exponent << FRACTION_BITS) + below + ((step * ((mantissa >> 7) & 0xffff)) >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_the_logarithm_and_monotone() {
        let mut previous = 0;
        let near_powers = (2..32).flat_map(|e| [(1u32 << e) - 1, 1 << e, (1 << e) + 1]);
        let values = (1..100_000).chain(near_powers.filter(|&x| x >= 100_000)).chain([u32::MAX]);
        for x in values {
            let log = log2(x);
            assert!(log >= previous, "falls at {x}");
            previous = log;
            let error = f64::from(log) / 65536.0 - f64::from(x).log2();
            assert!(error.abs() < 1.0 / 16384.0, "{x}: off by {error}");
        }
        for e in 0..32 {
            assert_eq!(log2(1 << e), e << FRACTION_BITS);
        }
        assert_eq!(log2(0), 0);
    }
}
