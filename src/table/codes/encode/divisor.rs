//! Exact division by a common factor, without division.

/// Divides by a constant (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994,
/// section 9): a product with the inverse modulo 2^64 is the quotient exactly if there is no remainder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Divisor {
    inverse: u64,
    shift: u32,
    greatest: u64,
}

impl Divisor {
    /// `factor` is not 0.
    pub(super) fn new(factor: u64) -> Self {
        let shift = factor.trailing_zeros();
        let odd = factor >> shift;
        // Each round doubles the number of right bits; the first three are right.
        let inverse = (0..5).fold(odd, |inverse: u64, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)))
        });
        Self { inverse, shift, greatest: u64::MAX / factor }
    }

    /// The quotient; `None` if there is a remainder.
    #[inline(always)]
    pub(super) fn divide(self, x: u64) -> Option<u64> {
        let quotient = x.wrapping_mul(self.inverse).rotate_right(self.shift);
        (quotient <= self.greatest).then_some(quotient)
    }
}

/// The greatest common divisor; that with 0 is the other number.
pub(super) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_those_of_division() {
        for factor in [1, 2, 3, 6, 10, 100, 1 << 40, 86_400_000_000_000, u64::MAX, 1 << 63] {
            let divisor = Divisor::new(factor);
            for i in 0..1000_u64 {
                for x in [i, u64::MAX - i, factor.wrapping_mul(i), factor.wrapping_mul(i) ^ 1] {
                    let expected = (x % factor == 0).then_some(x / factor);
                    assert_eq!(divisor.divide(x), expected, "{x} / {factor}");
                }
            }
        }
        assert_eq!([gcd(0, 7), gcd(12, 18), gcd(5, 0)], [7, 6, 5]);
    }
}
