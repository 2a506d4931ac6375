//! A decoder written from `src/format/bwt.md` alone, in its order and its words, for clarity rather than speed.
//!
//! It shares no code with the codec, so it shows whether the text describes the codec. It returns `None` where the text
//! requires a decoder to reject.

struct Bits<'a> {
    bytes: &'a [u8],
    range: u64,
    code: u64,
}

#[derive(Clone, Copy)]
struct BitModel {
    fast: u64,
    slow: u64,
}

const NEW: BitModel = BitModel { fast: 32768, slow: 32768 };

#[derive(Clone)]
struct NumberModel {
    length: [BitModel; 30],
    high: [BitModel; 31],
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut bits = Self { bytes, range: (1 << 32) - 1, code: 0 };
        for _ in 0..4 {
            bits.code = bits.code * 256 + bits.byte();
        }
        bits
    }

    fn byte(&mut self) -> u64 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        u64::from(first)
    }

    fn step(&mut self) {
        self.range *= 256;
        self.code = (256 * self.code + self.byte()) % (1 << 32);
    }

    fn bit(&mut self, model: &mut BitModel) -> usize {
        let bound = self.range / 65536 * ((model.fast + model.slow) / 2);
        let bit = if self.code < bound {
            self.range = bound;
            model.fast += (65535 - model.fast) / 16;
            model.slow += (65535 - model.slow) / 64;
            0
        } else {
            self.code -= bound;
            self.range -= bound;
            model.fast -= model.fast / 16;
            model.slow -= model.slow / 64;
            1
        };
        while self.range < 1 << 24 {
            self.step();
        }
        bit
    }

    fn raw(&mut self, count: usize) -> usize {
        let mut value = 0;
        for _ in 0..count {
            self.range /= 2;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            if self.range < 1 << 24 {
                self.step();
            }
            value = 2 * value + usize::from(bit);
        }
        value
    }

    fn number(&mut self, model: &mut NumberModel) -> usize {
        let mut l = 0;
        while l < 30 && self.bit(&mut model.length[l]) == 1 {
            l += 1;
        }
        if l == 0 {
            return 0;
        }
        let h = self.bit(&mut model.high[l]);
        let v = self.raw(l - 1);
        (2 + h) * (1 << (l - 1)) + v - 1
    }
}

fn log2(v: usize) -> usize {
    v.ilog2() as usize
}

fn log_scale(v: usize) -> usize {
    match v {
        0 => 0,
        255.. => 127,
        _ => 16 * log2(v) + ((v << (7 - log2(v))) % 128) / 8,
    }
}

type Table = [i64; 29];

/// The exponents of all sets, as `[set][column][row]`.
fn tables(
    bytes: &[u8],
    sets: usize,
    columns: usize,
    tokens: usize,
) -> Option<Vec<Vec<Vec<Table>>>> {
    let mut bits = Bits::new(bytes);
    let (mut fresh_models, mut present) = ([NEW; 4], [NEW; 8]);
    let (mut zero, mut sign, mut more) = ([NEW; 15], [NEW; 15], [[NEW; 6]; 15]);
    let mut all = Vec::new();
    for _ in 0..sets {
        let mut set = vec![vec![[0; 29]; 32]; columns];
        let mut fresh = vec![[0; 32]; columns];
        for column in 0..columns {
            for row in 0..32 {
                let above = (row > 0).then(|| (set[column][row - 1], fresh[column][row - 1]));
                let left = (column > 0).then(|| (set[column - 1][row], fresh[column - 1][row]));
                let (a, l) = (above.map_or(0, |x| x.1), left.map_or(0, |x| x.1));
                fresh[column][row] = bits.bit(&mut fresh_models[2 * a + l]);
                if fresh[column][row] == 0 {
                    set[column][row] = above.or(left).map_or([0; 29], |x| x.0);
                    continue;
                }
                let table_a = above.or(left).map_or([0; 29], |x| x.0);
                let table_b = left.or(above).map_or([0; 29], |x| x.0);
                let (mut c, mut before) = (1, 0i64);
                for token in 0..tokens {
                    let (a, b): (i64, i64) = (table_a[token], table_b[token]);
                    let model = 4 * usize::from(a > 0) + 2 * usize::from(b > 0) + c;
                    c = bits.bit(&mut present[model]);
                    if c == 0 {
                        continue;
                    }
                    let (guess, kind) = if a != 0 && b != 0 {
                        ((a + b + 1) / 2, log2((a - b).unsigned_abs() as usize + 1).min(2))
                    } else if a != 0 || b != 0 {
                        (a.max(b), 3)
                    } else {
                        (4, 4)
                    };
                    let model = 3 * kind + before.unsigned_abs().min(2) as usize;
                    let mut d = 0;
                    if bits.bit(&mut zero[model]) == 1 {
                        let sign_model = 3 * kind + (before.signum() + 1) as usize;
                        let negative = bits.bit(&mut sign[sign_model]) == 1;
                        d = 1;
                        while d < 7 && bits.bit(&mut more[model][d as usize - 1]) == 1 {
                            d += 1;
                        }
                        if d == 7 {
                            d += bits.raw(6) as i64;
                        }
                        if negative {
                            d = -d;
                        }
                    }
                    before = d;
                    set[column][row][token] = guess + d;
                    if !(1..=37).contains(&(guess + d)) {
                        return None;
                    }
                }
            }
        }
        all.push(set);
    }
    Some(all)
}

/// The starts of a table's tokens, then 4096.
fn starts(table: &Table) -> [u64; 30] {
    let weight = |q: i64| match q {
        0 => 0,
        q => [65536, 82570, 104032][(q - 1) as usize % 3] << ((q - 1) / 3),
    };
    let sum: i64 = table.iter().map(|&q| weight(q)).sum();
    let mut frequencies = table.map(|q| match q {
        0 => 0,
        q => ((4096 * weight(q) + sum / 2) / sum).max(1),
    });
    let largest = (0..29).rev().max_by_key(|&t| frequencies[t]).unwrap();
    frequencies[largest] += 4096 - frequencies.iter().sum::<i64>();
    let mut starts = [0; 30];
    for t in 0..29 {
        starts[t + 1] = starts[t] + frequencies[t] as u64;
    }
    starts
}

struct RansState<'a> {
    x: u64,
    words: &'a [[u8; 4]],
}

impl RansState<'_> {
    fn refill(&mut self) {
        if self.x < 1 << 32
            && let Some((word, rest)) = self.words.split_first()
        {
            self.x = (self.x << 32) + u64::from(u32::from_le_bytes(*word));
            self.words = rest;
        }
    }

    fn token(&mut self, table: &Table) -> usize {
        let starts = starts(table);
        let v = self.x % 4096;
        let t = (0..29).find(|&t| starts[t] <= v && v < starts[t + 1]).unwrap();
        self.x = self.x / 4096 * (starts[t + 1] - starts[t]) + v - starts[t];
        t
    }

    fn raw(&mut self, count: usize) -> usize {
        let value = self.x % (1 << count);
        self.x >>= count;
        value as usize
    }
}

/// Decodes a payload of a block of `n` bytes, at least 1. One long function, because it follows the text from section
/// to section, from the structure to the transform.
pub fn decode(payload: &[u8], n: usize) -> Option<Vec<u8>> {
    let mut rest = payload;
    let mut take = |count: usize| rest.split_off(..count);
    let first = take(1)?[0];
    let (segment_log, start_log) = (10 + (first & 15), 8 + (first >> 4));
    let sets = usize::from(take(1)?[0]) + 1;
    if segment_log > 16 || sets > 8 {
        return None;
    }
    let symbols = usize::from(take(1)?[0]) + 1;
    let mut list = take(symbols)?.to_vec();
    list.extend((0..=255).filter(|c| !list.contains(c)).collect::<Vec<u8>>());
    if list.len() != 256 {
        return None;
    }
    let r = 1usize << start_log;
    let (k, w) = (n.div_ceil(r), (usize::BITS - (n - 1).leading_zeros()) as usize);
    let packed = take((k * w).div_ceil(8))?;
    let bit = |i: usize| usize::from(packed[i / 8] >> (i % 8) & 1);
    let rows: Vec<usize> =
        (0..k).map(|i| 1 + (0..w).map(|j| bit(i * w + j) << j).sum::<usize>()).collect();
    if rows.iter().any(|&row| row > n) || (k * w..packed.len() * 8).any(|i| bit(i) == 1) {
        return None;
    }
    let sizes = take(9)?;
    let size = |i: usize| u32::from_le_bytes([sizes[i], sizes[i + 1], sizes[i + 2], 0]) as usize;
    let directory = take(size(0))?;
    let rank_tables = tables(take(size(3))?, sets, 4, 28)?;
    let run_tables = tables(take(size(6))?, sets, 8, 29)?;
    let position = 3 + symbols + packed.len() + 9 + size(0) + size(3) + size(6);
    let padding = take(position.next_multiple_of(4) - position)?;
    let (mut words, odd) = rest.as_chunks::<4>();
    if padding.iter().any(|&b| b != 0) || !odd.is_empty() {
        return None;
    }

    let mut bits = Bits::new(directory);
    let number = NumberModel { length: [NEW; 30], high: [NEW; 31] };
    let (mut short, mut more, mut less) = (NEW, number.clone(), number.clone());
    let (mut word_count, mut set_models, mut set) = (number, [[NEW; 8]; 8], 0);
    let mut segments = Vec::new();
    let mut left = n;
    while left > 0 {
        let s = 1usize << segment_log;
        let least = s.min(8192);
        let len = if left <= least {
            left
        } else if bits.bit(&mut short) == 0 {
            s + bits.number(&mut more)
        } else {
            s.checked_sub(bits.number(&mut less))?
        };
        let count = bits.number(&mut word_count);
        let mut node = 1;
        for _ in 0..3 {
            node = 2 * node + bits.bit(&mut set_models[set][node]);
        }
        set = node - 8;
        if len < least.min(left) || len > left || count > 16386 || set >= sets {
            return None;
        }
        segments.push((len, words.split_off(..count)?, set));
        left -= len;
    }
    if !words.is_empty() {
        return None;
    }

    let mut transform = Vec::new();
    for (len, words, set) in segments {
        let end = transform.len() + len;
        let mut history = [(0, 0); 256];
        for (i, &c) in list.iter().enumerate() {
            history[usize::from(c)] = (256 * log_scale(i + 1), 2048);
        }
        let (mut g, mut f) = (6144, 2560);
        let mut state = RansState { x: 0, words };
        state.refill();
        state.refill();
        let mut runs = 0;
        while transform.len() < end {
            let c = list[0];
            let (h, j) = history[usize::from(c)];
            let (row, column) = (((6 * h + 2 * g) / 8192).min(31), (g / 8192).min(3));
            let mut v = state.token(&rank_tables[set][column][row]);
            if v >= 8 {
                let (a, b) = ((v - 8) / 4, (v - 8) % 4);
                v = ((4 + b) << (a + 1)) + state.raw(a + 1);
            }
            let rank = (v + 1) % 256;
            let (row, column) = (((7 * j + f) / 4096).min(31), (h / 2048).min(7));
            let mut v = state.token(&run_tables[set][column][row]);
            state.refill();
            if v >= 8 {
                if v == 28 {
                    v = state.raw(32);
                    if v < 8192 {
                        return None;
                    }
                } else {
                    let (a, b) = ((v - 8) / 2, (v - 8) % 2);
                    v = ((2 + b) << (a + 2)) + state.raw(a + 2);
                }
                state.refill();
            }
            let length = v + 1;
            runs += 1;
            if transform.len() + length > end || runs > 8192 {
                return None;
            }
            transform.resize(transform.len() + length, c);
            list[..=rank].rotate_left(1);
            let (x, y) = (log_scale(rank), log_scale(length));
            history[usize::from(c)] = (h - h / 8 + 32 * x, j - j / 8 + 32 * y);
            g = g - g / 8 + 32 * x;
            f = f - f / 8 + 32 * y;
        }
        if state.x != 1 || !state.words.is_empty() {
            return None;
        }
    }

    let whole = rows[0];
    let less = |c: u8| transform.iter().filter(|&&t| t < c).count();
    let less: Vec<usize> = (0..=255).map(less).collect();
    let mut before = [0; 256];
    let equal_before: Vec<usize> = transform
        .iter()
        .map(|&t| {
            let before = &mut before[usize::from(t)];
            *before += 1;
            *before - 1
        })
        .collect();
    let mut block = vec![0; n];
    for (i, &goal) in rows.iter().enumerate() {
        let mut row = rows.get(i + 1).copied().unwrap_or(0);
        for position in (i * r..n.min((i + 1) * r)).rev() {
            let q = match row {
                _ if row < whole => row,
                _ if row > whole => row - 1,
                _ => 0,
            };
            let t = transform[q];
            block[position] = t;
            row = 1 + less[usize::from(t)] + equal_before[q];
        }
        if row != goal {
            return None;
        }
    }
    Some(block)
}
