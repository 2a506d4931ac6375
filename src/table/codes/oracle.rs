//! A decoder written from `CODES.md` alone, in its order and its words, for clarity rather than speed.
//!
//! It shares no code with the decoder, so it shows whether the text describes the decoder. It returns `None` where the
//! text requires a decoder to reject.

/// An integer below 2^256, as four words of 64 bits, the lowest first.
pub(super) type Number = [u64; 4];

fn number(x: u64) -> Number {
    [x, 0, 0, 0]
}

fn bit(x: Number, at: usize) -> u64 {
    x[at / 64] >> (at % 64) & 1
}

fn modulo(x: Number, n: usize) -> Number {
    let mut y = x;
    for (i, word) in y.iter_mut().enumerate() {
        let bits = n.saturating_sub(64 * i).min(64);
        *word = if bits == 0 { 0 } else { *word << (64 - bits) >> (64 - bits) };
    }
    y
}

fn add(x: Number, y: Number) -> Number {
    let (mut sum, mut carry) = ([0; 4], 0);
    for i in 0..4 {
        let word = u128::from(x[i]) + u128::from(y[i]) + carry;
        sum[i] = word as u64;
        carry = word >> 64;
    }
    sum
}

fn times(x: Number, y: u64) -> Number {
    let (mut product, mut carry) = ([0; 4], 0);
    for i in 0..4 {
        let word = u128::from(x[i]) * u128::from(y) + carry;
        product[i] = word as u64;
        carry = word >> 64;
    }
    product
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Type {
    Boolean,
    Unsigned(usize),
    Signed(usize),
    Float(usize),
}

impl Type {
    fn n(self) -> usize {
        match self {
            Self::Boolean => 1,
            Self::Unsigned(n) | Self::Signed(n) | Self::Float(n) => n,
        }
    }

    /// Bytes of a value as a field.
    fn bytes(self) -> usize {
        self.n().div_ceil(8)
    }

    fn is_less(self, a: Number, b: Number) -> bool {
        let top = self.n() - 1;
        let (high, low) = (bit(a, top), bit(b, top));
        let below = a.iter().rev().lt(b.iter().rev());
        match self {
            Self::Boolean | Self::Unsigned(_) => below,
            Self::Signed(_) if high != low => high == 1,
            Self::Signed(_) => below,
            Self::Float(_) if high != low => high == 1,
            // Both negative: the greater magnitude is less.
            Self::Float(_) if high == 1 => b.iter().rev().lt(a.iter().rev()),
            Self::Float(_) => below,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn field(&mut self, bytes: usize) -> Option<Number> {
        let field = self.take(bytes)?;
        let mut x = [0; 4];
        for (i, &byte) in field.iter().enumerate() {
            x[i / 8] |= u64::from(byte) << (8 * (i % 8));
        }
        Some(x)
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(bytes)?)?;
        self.at += bytes;
        Some(taken)
    }

    fn part(&mut self, bytes: usize) -> Option<&'a [u8]> {
        if bytes > 0 {
            self.at = self.at.div_ceil(64) * 64;
        }
        self.take(bytes)
    }
}

/// A node's fields.
struct Node {
    kind: u64,
    of: Type,
    m: usize,
    fields: Vec<Number>,
    children: Vec<Node>,
}

/// Reads a node and those below it. `above` are the kinds of the nodes above.
fn node(head: &mut Reader<'_>, of: Type, m: usize, above: &[u64]) -> Option<Node> {
    let kind = head.field(1)?[0];
    let n = of.n();
    let suits = match kind {
        0 | 2 | 3 | 4 => of != Type::Boolean,
        1 | 5 => true,
        6 => matches!(of, Type::Float(32 | 64)),
        7 => of != Type::Boolean && n <= 64,
        8 => of == Type::Boolean,
        _ => false,
    };
    if !suits || above.contains(&kind) || above.len() > 2 {
        return None;
    }
    let lens: &[usize] = match kind {
        1 => &[of.bytes()],
        2 | 3 => &[1, of.bytes(), 8, 4],
        4 | 5 => &[4],
        6 => &[1, 4],
        7 => &[1, 1],
        _ => &[],
    };
    let fields = lens.iter().map(|&len| head.field(len)).collect::<Option<Vec<_>>>()?;
    let above = [above, &[kind]].concat();
    let first = fields.first().map_or(0, |field| field[0]) as usize;
    let children: &[(Type, usize)] = match kind {
        1 if of == Type::Boolean && first > 1 => return None,
        4 if first == 0 || first > m.min(65_536) => return None,
        4 => &[(of, first), (Type::Unsigned(32), m)],
        5 if first == 0 || first > m / 2 => return None,
        5 => &[(of, first), (Type::Unsigned(32), first)],
        6 => &[(Type::Signed(n), m)],
        7 => &[(Type::Unsigned(n), m), (Type::Unsigned(n), m)],
        _ => &[],
    };
    let children = children.iter().map(|&(of, m)| node(head, of, m, &above));
    let children = children.collect::<Option<Vec<_>>>()?;
    Some(Node { kind, of, m, fields, children })
}

fn rows_of_vector(m: usize, v: usize) -> usize {
    (m - 1024 * v).min(1024)
}

fn packed(parts: &mut Reader<'_>, m: usize, w: usize) -> Option<Vec<Number>> {
    let planes: Vec<usize> = (0..w.div_ceil(32)).map(|p| (w - 32 * p).min(32)).collect();
    let words = |r: usize, b: usize| (r.div_ceil(32) * b).div_ceil(32);
    let v = m.div_ceil(1024);
    let len = |v| planes.iter().map(|&b| 128 * words(rows_of_vector(m, v), b)).sum::<usize>();
    let part = parts.part((0..v).map(len).sum())?;
    let mut codes = vec![[0; 4]; m];
    let mut plane_start = 0;
    for v in 0..v {
        let r = rows_of_vector(m, v);
        for (p, &b) in planes.iter().enumerate() {
            for j in 0..r {
                let (l, s) = (j % 32, j / 32);
                for k in 0..b {
                    let (word, of_word) = ((s * b + k) / 32, (s * b + k) % 32);
                    let byte = part[plane_start + 4 * (32 * word + l) + of_word / 8];
                    let x = u64::from(byte >> (of_word % 8) & 1);
                    codes[1024 * v + j][p / 2] |= x << (32 * (p % 2) + k);
                }
            }
            plane_start += 128 * words(r, b);
        }
    }
    Some(codes)
}

fn exceptions(
    parts: &mut Reader<'_>,
    words: usize,
    m: usize,
    n: usize,
) -> Option<Vec<(usize, Number)>> {
    let mut found = Vec::new();
    if words == 0 {
        return Some(found);
    }
    let v = m.div_ceil(1024);
    let part = parts.part(4 * (v + 1))?;
    let mut reader = Reader { bytes: part, at: 0 };
    let starts: Vec<usize> =
        (0..=v).map(|_| reader.field(4).map(|x| x[0] as usize)).collect::<Option<_>>()?;
    let part = parts.part(4 * words)?;
    if starts[0] != 0 || starts[v] != words || starts.windows(2).any(|pair| pair[0] > pair[1]) {
        return None;
    }
    for v in 0..v {
        let mut rounds = Reader { bytes: &part[..4 * starts[v + 1]], at: 4 * starts[v] };
        let mut mask_before = u32::MAX;
        let mut step_before = [-1; 32];
        while rounds.at < rounds.bytes.len() {
            let mask = rounds.field(4)?[0] as u32;
            if mask == 0 || mask & !mask_before != 0 {
                return None;
            }
            let k = mask.count_ones() as usize;
            let steps = rounds.take(4 * k.div_ceil(4))?;
            let values = rounds.take(4 * k * n.div_ceil(32))?;
            if steps[k..].iter().any(|&step| step != 0) {
                return None;
            }
            let lanes = (0..32).filter(|l| mask >> l & 1 == 1);
            for (i, l) in lanes.enumerate() {
                let mut value = [0; 4];
                for word in 0..n.div_ceil(32) {
                    let x = Reader { bytes: values, at: 4 * (word * k + i) }.field(4)?[0];
                    value[word / 2] |= x << (32 * (word % 2));
                }
                let row = usize::from(steps[i]) * 32 + l;
                let step = i32::from(steps[i]);
                if modulo(value, n) != value
                    || step <= step_before[l]
                    || row >= rows_of_vector(m, v)
                {
                    return None;
                }
                step_before[l] = step;
                found.push((1024 * v + row, value));
            }
            mask_before = mask;
        }
    }
    (found.len() <= m / 100).then_some(found)
}

fn float(of: Type, integer: Number, near: bool, p: u8) -> Number {
    if of.n() == 32 {
        let q = integer[0] as u32 as i32;
        let ten: f32 = format!("1e{p}").parse().unwrap();
        return number((q as f32 / ten).to_bits().into());
    }
    let c = integer[0] as i64;
    let ten: f64 = format!("1e{p}").parse().unwrap();
    if !near {
        return number((c as f64 / ten).to_bits());
    }
    let q = c.wrapping_add(1).div_euclid(4);
    let e = c.wrapping_sub(q.wrapping_mul(4));
    number((q as f64 / ten).to_bits().wrapping_add_signed(e))
}

/// The values of a node.
fn values(node: &Node, parts: &mut Reader<'_>) -> Option<Vec<Number>> {
    let (m, of, n) = (node.m, node.of, node.of.n());
    let v = m.div_ceil(1024);
    let field = |i: usize| node.fields[i][0] as usize;
    match node.kind {
        0 => {
            let part = parts.part(m * n / 8)?;
            let mut reader = Reader { bytes: part, at: 0 };
            (0..m).map(|_| reader.field(n / 8)).collect()
        }
        1 => Some(vec![node.fields[0]; m]),
        2 | 3 => {
            let (w, reference, factor) = (field(0), node.fields[1], node.fields[2][0]);
            if w > n || (factor != 1 || node.kind == 3) && w > 64 || factor == 0 {
                return None;
            }
            if n < 64 && factor > (1 << n) - 1 {
                return None;
            }
            let mut lines = Vec::new();
            if node.kind == 3 {
                let bases = parts.part(8 * v)?;
                let slopes = parts.part(8 * v)?;
                for v in 0..v {
                    let b = Reader { bytes: bases, at: 8 * v }.field(8)?[0];
                    let a = Reader { bytes: slopes, at: 8 * v }.field(8)?[0] as i64;
                    if a <= -(1 << 53) || a >= 1 << 53 {
                        return None;
                    }
                    lines.push((b, a));
                }
            }
            let codes = packed(parts, m, w)?;
            let exceptions = exceptions(parts, field(3), m, n)?;
            let mut all = Vec::new();
            for (row, code) in codes.into_iter().enumerate() {
                let q = match lines.get(row / 1024) {
                    None => code,
                    Some(&(b, a)) => {
                        let on_line = (i128::from(a) * (row % 1024) as i128).div_euclid(1024);
                        number(b.wrapping_add(on_line as u64).wrapping_add(code[0]))
                    }
                };
                all.push(modulo(add(reference, times(q, factor)), n));
            }
            for (row, value) in exceptions {
                all[row] = value;
            }
            Some(all)
        }
        4 => {
            let entries = values(&node.children[0], parts)?;
            if entries.windows(2).any(|pair| !of.is_less(pair[0], pair[1])) {
                return None;
            }
            let codes = values(&node.children[1], parts)?;
            codes.into_iter().map(|code| entries.get(code[0] as usize).copied()).collect()
        }
        5 => {
            let firsts = values(&node.children[0], parts)?;
            let ends = values(&node.children[1], parts)?;
            let mut all = Vec::new();
            for (value, end) in firsts.into_iter().zip(ends) {
                let end = end[0] as usize;
                if end <= all.len() || end > m {
                    return None;
                }
                all.resize(end, value);
            }
            (all.len() == m).then_some(all)
        }
        6 => {
            let near = match (field(0), n) {
                (0, _) => false,
                (1, 64) => true,
                _ => return None,
            };
            let digits = parts.part(v)?;
            if digits.iter().any(|&p| p > if n == 32 { 10 } else { 22 }) {
                return None;
            }
            let exceptions = exceptions(parts, field(1), m, n)?;
            let integers = values(&node.children[0], parts)?;
            let one = |(row, integer)| float(of, integer, near, digits[row / 1024]);
            let mut all: Vec<Number> = integers.into_iter().enumerate().map(one).collect();
            for (row, value) in exceptions {
                all[row] = value;
            }
            Some(all)
        }
        7 => {
            let (s, rotated) = (field(0), field(1));
            if s == 0 || s >= n || rotated > 1 {
                return None;
            }
            let high = values(&node.children[0], parts)?;
            let low = values(&node.children[1], parts)?;
            let join = |(h, l)| {
                let y = modulo(add(times(h, 1 << s), l), n);
                if rotated == 0 {
                    return y;
                }
                add(number(y[0] / 2), number(bit(y, 0) << (n - 1)))
            };
            Some(high.into_iter().zip(low).map(join).collect())
        }
        _ => {
            let part = parts.part(m.div_ceil(8))?;
            Some((0..m).map(|row| number(u64::from(part[row / 8] >> (row % 8) & 1))).collect())
        }
    }
}

/// A chunk's values and which of them are not null.
pub(super) fn decode(of: Type, r: usize, chunk: &[u8]) -> Option<(Vec<Number>, Vec<bool>)> {
    let mut head = Reader { bytes: chunk, at: 0 };
    let form = head.field(1)?[0];
    let mut nulls = None;
    if form == 2 {
        let count = head.field(4)?[0] as usize;
        nulls = Some((count, node(&mut head, Type::Boolean, r, &[])?));
    } else if form > 2 {
        return None;
    }
    let root = if form == 1 { None } else { Some(node(&mut head, of, r, &[])?) };
    let mut parts = head;
    let mut valid = vec![form != 1; r];
    if let Some((count, node)) = nulls {
        valid = values(&node, &mut parts)?.into_iter().map(|value| value[0] == 1).collect();
        if count == 0 || count == r || valid.iter().filter(|&&valid| !valid).count() != count {
            return None;
        }
    }
    let all = match root {
        Some(root) => values(&root, &mut parts)?,
        None => vec![[0; 4]; r],
    };
    if parts.at != chunk.len() {
        return None;
    }
    let all = all.into_iter().zip(&valid).map(|(value, &valid)| if valid { value } else { [0; 4] });
    Some((all.collect(), valid))
}
