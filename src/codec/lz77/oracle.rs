//! A decoder written from `src/format/lz77.md` alone, in its order and its words, for clarity rather than speed.
//!
//! It shares no code with the codec, so it shows whether the text describes the codec. It returns `None` where the text
//! requires a decoder to reject.

use std::collections::VecDeque;

type Bits = VecDeque<bool>;

fn number(bits: &mut Bits, count: usize) -> Option<usize> {
    let mut value = 0;
    for _ in 0..count {
        value = 2 * value + usize::from(bits.pop_front()?);
    }
    Some(value)
}

fn log2(v: usize) -> usize {
    v.ilog2() as usize
}

const PREFIX: &str = "
0 6 6 5 4 5 4 5 4 4 2 2 3
1 7 6 7 6 5 6 5 5 5 3 3 4
1 3 5 3 3 5 6 7 7 7 7 7 7
4 2 2 2 4 4 6 7 7 7 7 7 7
3 5 4 3 4 1 6 5 6 7 7 7 7
6 5 4 4 1 3 3 5 6 7 7 7 7
4 7 7 2 1 4 5 6 7 5 7 7 7
5 7 7 3 1 4 4 4 4 5 5 7 7
4 7 7 3 1 3 4 4 6 7 7 7 7
6 7 7 6 2 1 3 6 6 6 6 7 7
4 7 7 6 2 2 2 4 5 6 5 7 7
6 7 7 7 4 2 1 4 5 5 7 7 7
4 7 7 7 5 3 1 3 4 5 6 6 7
5 7 7 7 5 3 2 2 3 4 4 5 7
5 7 7 7 5 4 4 1 3 4 4 5 7
5 7 7 7 5 4 3 2 2 3 4 5 7
4 7 7 6 6 5 4 4 1 3 4 5 6
4 7 7 7 7 5 5 3 3 2 2 4 5
3 7 7 7 7 6 5 5 4 1 3 4 6
4 7 7 7 7 6 6 5 4 3 1 3 5
3 7 7 7 7 7 7 5 5 3 1 3 6
3 7 7 7 7 6 6 5 5 4 3 1 4
2 7 7 7 7 7 7 6 5 5 4 1 4
3 7 7 7 7 6 6 5 5 4 4 3 1
2 7 7 7 7 6 6 6 6 5 4 4 1";

/// A canonical code: pairs of a word, as number of bits and code, and the symbol that it stands for.
type Canonical = Vec<((usize, usize), usize)>;

fn canonical(lengths: &[usize]) -> Canonical {
    let mut codes = Vec::new();
    let (mut next, mut at) = (0, 0);
    for bits in 1..=12 {
        for (symbol, _) in lengths.iter().enumerate().filter(|(_, l)| **l == bits) {
            next <<= bits - at;
            at = bits;
            codes.push(((bits, next), symbol));
            next += 1;
        }
    }
    codes
}

fn decode_code(code: &Canonical, bits: &mut Bits) -> Option<usize> {
    let (mut count, mut value) = (0, 0);
    loop {
        value = 2 * value + usize::from(bits.pop_front()?);
        count += 1;
        if let Ok(i) = code.binary_search_by_key(&(count, value), |c| c.0) {
            return Some(code[i].1);
        }
    }
}

/// The code lengths of `symbols` symbols. `take` returns whether the description is now complete.
fn code_lengths(
    bits: &mut Bits,
    symbols: usize,
    mut take: impl FnMut(usize, usize, &mut Bits) -> Option<bool>,
) -> Option<()> {
    let codes: Vec<Canonical> = PREFIX
        .trim()
        .lines()
        .map(|line| canonical(&line.split(' ').map(|b| b.parse().unwrap()).collect::<Vec<_>>()))
        .collect();
    let (mut p, mut q, mut symbol) = (0, 0, 0);
    loop {
        if (p, q) == (0, 0) {
            let mut z = 0;
            while !bits.pop_front()? {
                z += 1;
            }
            if z > 8 {
                return None;
            }
            symbol += (1 << z) + number(bits, z)? - 1;
        }
        if symbol >= symbols {
            return None;
        }
        let k = match (p, q) {
            (0, 0) => 0,
            (0, _) => 1,
            (p, 0) => 2 * p,
            (p, q) => p + q,
        };
        let length = decode_code(&codes[k], bits)?;
        if length != 0 && take(symbol, length, bits)? {
            return Some(());
        }
        symbol += 1;
        (q, p) = (p, length);
    }
}

enum Model {
    Constant(usize),
    Raw(usize),
    Huffman(Canonical),
    /// `table_log`, and for each state its symbol, number of bits, and the base that they are added to.
    Fse(usize, Vec<(usize, usize, usize)>),
}

fn huffman(bits: &mut Bits, symbols: usize, longest: usize) -> Option<Model> {
    let (mut lengths, mut space) = (vec![0; symbols], 0);
    code_lengths(bits, symbols, |symbol, length, _| {
        lengths[symbol] = length;
        space += 4096 >> length;
        (length <= longest && space <= 4096).then_some(space == 4096)
    })?;
    Some(Model::Huffman(canonical(&lengths)))
}

fn fse(bits: &mut Bits, symbols: usize, largest: usize) -> Option<Model> {
    let log = number(bits, 4)?;
    if log < 5 || log > largest {
        return None;
    }
    let (t, mut sum, mut norms) = (1 << log, 0, vec![0; symbols]);
    code_lengths(bits, symbols, |symbol, length, bits| {
        let rest = log.checked_sub(length)?;
        norms[symbol] = (1 << rest) + number(bits, rest)?;
        sum += norms[symbol];
        (sum <= t).then_some(sum == t)
    })?;
    let mut occurrences = Vec::new();
    for (symbol, &n) in norms.iter().enumerate().filter(|(_, n)| **n > 0) {
        let d = 65536 * t / n;
        for j in 0..n {
            let place = if n == 1 { t - 1 } else { (d / 2 + j * d) / 65536 };
            occurrences.push((place, symbol, j));
        }
    }
    occurrences.sort_unstable();
    let state = |&(_, symbol, j): &(usize, usize, usize)| {
        let x = norms[symbol] + j;
        let c = log - log2(x);
        (symbol, c, (x << c) - t)
    };
    Some(Model::Fse(log, occurrences.iter().map(state).collect()))
}

/// The models of a group, and the rest of the record after them.
fn models(record: &[u8]) -> Option<(Vec<Model>, &[u8])> {
    const ALPHABETS: [(usize, usize, usize, usize); 3] =
        [(256, 8, 10, 11), (256, 8, 10, 11), (48, 6, 8, 8)];
    let (&modes, mut rest) = record.split_first()?;
    let mode = |i: usize| modes >> (2 * i) & 3;
    if mode(3) != 0 {
        return None;
    }
    let mut models = [None, None, None];
    for (i, (symbols, width, ..)) in ALPHABETS.into_iter().enumerate() {
        if mode(i) == 0 {
            let symbol = usize::from(*rest.split_off_first()?);
            models[i] = Some(Model::Constant((symbol < symbols).then_some(symbol)?));
        } else if mode(i) == 1 {
            models[i] = Some(Model::Raw(width));
        }
    }
    let all: Bits = rest.iter().flat_map(|b| (0..8).rev().map(move |i| b >> i & 1 == 1)).collect();
    let mut bits = all.clone();
    for (i, (symbols, _, longest, _)) in ALPHABETS.into_iter().enumerate() {
        if mode(i) == 2 {
            models[i] = Some(huffman(&mut bits, symbols, longest)?);
        }
    }
    for (i, (symbols, _, _, largest)) in ALPHABETS.into_iter().enumerate() {
        if mode(i) == 3 {
            models[i] = Some(fse(&mut bits, symbols, largest)?);
        }
    }
    let used = record.len() * 8 - bits.len();
    let padding = number(&mut bits, used.next_multiple_of(32) - used)?;
    let rest = record.get(used.div_ceil(32) * 4..)?;
    (padding == 0).then_some((models.into_iter().flatten().collect(), rest))
}

struct Lanes<'a> {
    bits: Vec<Bits>,
    words: &'a [[u8; 4]],
}

impl Lanes<'_> {
    fn row(&mut self) {
        for bits in self.bits.iter_mut().filter(|bits| bits.len() < 32) {
            let word = self.words.split_off_first().map_or(0, |w| u32::from_le_bytes(*w));
            bits.extend((0..32).rev().map(|i| word >> i & 1 == 1));
        }
    }

    fn number(&mut self, lane: usize, count: usize) -> usize {
        number(&mut self.bits[lane], count).unwrap()
    }

    fn symbol(&mut self, model: &Model, lane: usize, states: &mut [usize]) -> usize {
        match model {
            Model::Constant(symbol) => *symbol,
            Model::Raw(width) => self.number(lane, *width),
            Model::Huffman(code) => decode_code(code, &mut self.bits[lane]).unwrap(),
            Model::Fse(_, table) => {
                let (symbol, c, base) = table[states[lane]];
                states[lane] = base + self.number(lane, c);
                symbol
            }
        }
    }

    /// A row that reads the states of those models that have states.
    fn states<const N: usize>(&mut self, models: [&Model; N]) -> [Vec<usize>; N] {
        if models.iter().any(|m| matches!(m, Model::Fse(..))) {
            self.row();
        }
        models.map(|m| {
            let Model::Fse(log, _) = m else { return Vec::new() };
            (0..32).map(|lane| self.number(lane, *log)).collect()
        })
    }
}

/// Decodes a payload of a block of `n` bytes, at least 1.
pub fn decode(payload: &[u8], n: usize) -> Option<Vec<u8>> {
    let (&[chunk_log, window_log, group_log, reserved], rest) = payload.split_first_chunk()?;
    if !(16..=20).contains(&chunk_log)
        || !(chunk_log..=24).contains(&window_log)
        || group_log > 4
        || reserved != 0
    {
        return None;
    }
    let chunks = n.div_ceil(1 << chunk_log);
    let (directory, mut records) = rest.split_at_checked(8 * chunks)?;
    let (mut group, mut block) = (Vec::new(), Vec::new());
    for (i, entry) in directory.as_chunks().0.iter().enumerate() {
        let entry = u64::from_le_bytes(*entry) as usize;
        let (words, literals, sequences) =
            (entry & 0x3f_ffff, entry >> 22 & 0x1f_ffff, entry >> 43);
        let end = n.min((i + 1) << chunk_log);
        let len = end - block.len();
        if literals > len || sequences > len {
            return None;
        }
        let mut record = records.split_off(..4 * words)?;
        if i % (1 << group_log) == 0 {
            (group, record) = models(record)?;
        }
        let window = block.len() >> window_log << window_log;
        chunk(&group, record.as_chunks().0, literals, sequences, window, end, &mut block)?;
    }
    records.is_empty().then_some(block)
}

/// Decodes a chunk, which appends to the block up to `end`. One long function, because it follows the text from section
/// to section: lanes, tokens and offsets, contents.
fn chunk(
    models: &[Model],
    words: &[[u8; 4]],
    literals: usize,
    sequences: usize,
    window: usize,
    end: usize,
    block: &mut Vec<u8>,
) -> Option<()> {
    if words.last() == Some(&[0; 4]) {
        return None;
    }
    let mut lanes = Lanes { bits: vec![Bits::new(); 32], words };
    let s = (end - block.len() - literals) % 4;
    let e = s + literals;
    let mut grid = vec![0; e];
    if literals > 0 {
        let [mut states] = lanes.states([&models[0]]);
        for r in 0..e.div_ceil(128) {
            for first in [0, 2] {
                lanes.row();
                for lane in 0..32 {
                    for j in [first, first + 1] {
                        let place = 128 * r + 4 * lane + j;
                        if (s..e).contains(&place) {
                            grid[place] = lanes.symbol(&models[0], lane, &mut states) as u8;
                        }
                    }
                }
            }
        }
        if states.iter().any(|&state| state != 0) {
            return None;
        }
    }
    let mut list = vec![(0, 0, 0, 0); sequences];
    if sequences > 0 {
        let [mut token_states, mut offset_states] = lanes.states([&models[1], &models[2]]);
        for b in 0..sequences.div_ceil(64) {
            for odd in 0..2 {
                let at = |lane: usize| 64 * b + 2 * lane + odd;
                lanes.row();
                for lane in (0..32).filter(|&lane| at(lane) < sequences) {
                    let token = lanes.symbol(&models[1], lane, &mut token_states);
                    let mut run = token / 32;
                    if run == 7 {
                        let e = lanes.number(lane, 3);
                        let bits = [0, 1, 2, 3, 4, 5, 6, 9][e];
                        run = [7, 8, 10, 14, 22, 38, 70, 134][e] + lanes.number(lane, bits);
                    }
                    let length = match token % 32 {
                        0 => 0,
                        m @ 1..20 => m + 2,
                        m @ 20..26 => 14 + (1 << (m - 17)) + lanes.number(lane, m - 17),
                        26 => 512,
                        _ => return None,
                    };
                    if run > 511 || length > 512 || (run, length) == (0, 0) {
                        return None;
                    }
                    list[at(lane)] = (run, length, 0, 0);
                }
                lanes.row();
                for lane in (0..32).filter(|&lane| at(lane) < sequences) {
                    let symbol = lanes.symbol(&models[2], lane, &mut offset_states);
                    let mut offset = 0;
                    if symbol >= 48 || list[at(lane)].1 == 0 && symbol != 0 {
                        return None;
                    }
                    if let Some(y) = symbol.checked_sub(3) {
                        let k = y / 2 + 1;
                        offset = ((2 + y % 2) << k) + lanes.number(lane, k) - 3;
                    }
                    (list[at(lane)].2, list[at(lane)].3) = (symbol, offset);
                }
            }
        }
        if token_states.iter().chain(&offset_states).any(|&state| state != 0) {
            return None;
        }
    }
    if !lanes.words.is_empty() || lanes.bits.iter().flatten().any(|&bit| bit) {
        return None;
    }
    let mut literals = &grid[s..];
    let mut recent = vec![1, 4, 8];
    for (run, length, symbol, explicit) in list {
        if symbol >= 3 {
            recent.insert(0, explicit);
        }
        let offset = if symbol >= 3 { explicit } else { recent[symbol] };
        block.extend_from_slice(literals.split_off(..run)?);
        if block.len() + length > end || length > 0 && offset > block.len() - window {
            return None;
        }
        for _ in 0..length {
            block.push(block[block.len() - offset]);
        }
    }
    (block.len() == end && literals.is_empty()).then_some(())
}
