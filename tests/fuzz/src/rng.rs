//! Pseudo-random numbers that are the same on every machine.

/// Marsaglia's xorshift64.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Any 64 bits, except all zeros.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() >> 16) as usize % limit.max(1)
    }

    /// Changes `data` in one to four places: flips bits, changes bytes, overwrites runs, truncates, moves parts.
    pub fn mutate(&mut self, data: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(data.len());
            let len = self.below(16.min(data.len() - at));
            match self.below(8) {
                _ if data.is_empty() => data.push(self.bits() as u8),
                0 | 1 => data[at] ^= 1 << self.below(8),
                2 => data[at] = [0, 1, 0x7F, 0x80, 0xFE, 0xFF][self.below(6)],
                3 => data[at] = self.bits() as u8,
                4 => data[at..at + len].fill_with(|| self.bits() as u8),
                5 => drop(data.drain(at..at + len)),
                6 => {
                    let to = self.below(data.len() - len);
                    data.copy_within(at..at + len, to);
                }
                _ if self.below(8) == 0 => data.truncate(at),
                _ => data.insert(at, self.bits() as u8),
            }
        }
    }
}
