//! Decimal numbers stored as floats, turned into integers.
//!
//! Prices, lengths and temperatures are often decimal numbers with few digits, stored as binary floats whose low bits
//! look random. Such a float x is the one nearest to q / 10^d for a small integer q, and q says the same in fewer bits.
//! Integers below a limit take the place of x; their bit patterns are those of floats that data rarely has
//! (subnormal ones and some that are not numbers). All other floats stay as they are, so no list of exceptions is
//! needed, and each element is decoded by itself.
//!
//! q / 10^d is rounded as IEEE 754 divides; both operands are exact in the float's format.
//!
//! Programs that read decimal numbers fast, such as pandas' default parser, often miss the nearest float by one. So an
//! integer can also stand for floats of 8 bytes near such a number: it is 4 q + e, where e, from -1 to 2, is the
//! difference of the float's bits from those of the nearest float.

/// Digits after the point that floats of `width` bytes may have: 10^d must be exact in the format.
pub(super) const fn max_digits(width: u8) -> Option<u8> {
    match width {
        4 => Some(10),
        8 => Some(15),
        _ => None,
    }
}

/// Integers in place of floats of 4 bytes, and of 8 bytes, lie between minus this and this, both excluded.
const LIMIT_32: i32 = 1 << 22;
/// See [`LIMIT_32`].
const LIMIT_64: i64 = 1 << 51;

const POWERS: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

fn power(digits: u8) -> f64 {
    POWERS[usize::from(digits) % POWERS.len()]
}

/// The bits of the float for `code`.
#[inline(always)]
pub(super) fn to_f32(code: u32, digits: u8) -> u32 {
    let integer = code as i32;
    let float = integer as f32 / power(digits) as f32;
    if integer > -LIMIT_32 && integer < LIMIT_32 { float.to_bits() } else { code }
}

/// The bits of the float for `code`.
#[inline(always)]
pub(super) fn to_f64(code: u64, digits: u8) -> u64 {
    let integer = code as i64;
    let float = integer as f64 / power(digits);
    if integer > -LIMIT_64 && integer < LIMIT_64 { float.to_bits() } else { code }
}

/// The bits of the float near a decimal number for `code`.
#[inline(always)]
pub(super) fn to_near(code: u64, digits: u8) -> u64 {
    let integer = code as i64;
    let q = integer.wrapping_add(1) >> 2;
    let excess = integer.wrapping_sub(q << 2);
    let bits = (q as f64 / power(digits)).to_bits().wrapping_add_signed(excess);
    if integer > -LIMIT_64 && integer < LIMIT_64 { bits } else { code }
}

/// Adding it to a smaller float rounds that to an integer, ties to even.
const ROUND: f64 = 1.5 * (1_u64 << 52) as f64;

/// The code of the float with these bits; `None` if its own bits are the code of another.
#[inline(always)]
pub(super) fn of_f32(bits: u32, digits: u8) -> Option<u32> {
    let scaled = f64::from(f32::from_bits(bits)) * power(digits);
    let code = (scaled + ROUND - ROUND) as i32 as u32;
    let code = if to_f32(code, digits) == bits { code } else { bits };
    (to_f32(code, digits) == bits).then_some(code)
}

/// The code of the float with these bits; `None` if its own bits are the code of another.
#[inline(always)]
pub(super) fn of_f64(bits: u64, digits: u8) -> Option<u64> {
    let scaled = f64::from_bits(bits) * power(digits);
    let code = (scaled + ROUND - ROUND) as i64 as u64;
    let code = if to_f64(code, digits) == bits { code } else { bits };
    (to_f64(code, digits) == bits).then_some(code)
}

/// Like [`of_f64`], with codes for floats near decimal numbers.
#[inline(always)]
pub(super) fn of_near(bits: u64, digits: u8) -> Option<u64> {
    let q = f64::from_bits(bits) * power(digits) + ROUND - ROUND;
    let excess = bits.wrapping_sub((q / power(digits)).to_bits());
    let code = ((q as i64) << 2).wrapping_add_unsigned(excess) as u64;
    let is_near = excess.wrapping_add(1) < 4;
    let code = if is_near && to_near(code, digits) == bits { code } else { bits };
    (to_near(code, digits) == bits).then_some(code)
}
