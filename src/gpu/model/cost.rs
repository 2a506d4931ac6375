//! The cost that a kernel file states.
//!
//! Before its code, each kernel file has a comment block:
//!
//! ```text
//! // @pz_cost {
//! //   threads: max(N/32, 64)
//! //   passes: 3 + 2*log2(N/8)
//! //   buffers: contents=N, sizes=4,
//! //            matches=N*4+64
//! //   local_mem: 8192
//! //   note: free text
//! // }
//! ```
//!
//! In a file with [variants](super::kernel), each variant has a block, which begins with `// @pz_cost NAME {`.
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `threads` | formula | work items of the largest dispatch for one block of N bytes |
//! | `passes` | formula | the most dispatches of this file in a plan for one block |
//! | `buffers` | `name=formula, …` | bytes of device memory for one block; may span several lines |
//! | `local_mem` | integer | the most bytes of workgroup memory that an entry point uses |
//! | `note` | text | for readers; optional |
//!
//! `threads`, `passes` and `local_mem` state the worst case over all levels, payloads, both languages and all kinds of
//! GPU. A software device that limits the length of a dispatch may need more passes. Tests compare every figure with
//! what plans launch, compilers report and kernels write.
//!
//! A formula consists of integers, `N`, `+`, `*`, `/` by an integer, parentheses, `min(a, b)`, `max(a, b)`, and
//! `log2(a)`. Division and logarithm round up. All arithmetic is checked for overflow.

use std::fmt;

/// The cost of a kernel file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCost {
    /// Work items of the largest dispatch for one block.
    pub threads: Formula,
    /// The most dispatches in a plan for one block.
    pub passes: Formula,
    /// Device memory for one block, by name.
    pub buffers: Vec<(String, Formula)>,
    /// The most bytes of workgroup memory that an entry point uses.
    pub local_mem: u32,
}

/// A number that depends on N, the bytes of a block.
#[derive(Debug, Clone)]
pub struct Formula {
    text: String,
    /// Instructions for a stack machine: each pushes a number, or replaces the top one or two by a result.
    ops: Vec<Op>,
}

/// Formulas are equal if they have the same instructions, however they are written.
impl PartialEq for Formula {
    fn eq(&self, other: &Self) -> bool {
        self.ops == other.ops
    }
}

impl Eq for Formula {}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Number(u64),
    N,
    Add,
    Times,
    Over,
    Min,
    Max,
    Log2,
}

/// An error in a cost block, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostError {
    /// The file, or the kernel's stem.
    pub file: String,
    /// Line, from 1; 0 if the error is not in the text.
    pub line: usize,
    /// Column in characters, from 1; 0 if the error is not in the text.
    pub column: usize,
    /// The description of the error.
    pub what: String,
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}", self.file, self.what)
        } else {
            write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.what)
        }
    }
}

impl std::error::Error for CostError {}

impl CostError {
    fn of(file: &str, what: impl Into<String>) -> Self {
        Self { file: file.into(), line: 0, column: 0, what: what.into() }
    }

    pub(crate) fn overflow(name: &str) -> Self {
        Self::of(name, "its size does not fit into 64 bits")
    }

    pub(crate) fn differs(stem: &str, what: &str) -> Self {
        Self::of(stem, format!("its files in OpenCL C and in WGSL differ in '{what}'"))
    }

    pub(crate) fn disagrees(stem: &str, name: &str) -> Self {
        Self::of(stem, format!("buffer '{name}' has another size in a kernel before it"))
    }
}

impl Formula {
    /// The value for a block of `n` bytes.
    ///
    /// # Errors
    /// Fails if the value does not fit in 64 bits.
    pub fn eval(&self, n: u64) -> Result<u64, CostError> {
        let mut stack: Vec<u64> = Vec::new();
        for op in &self.ops {
            let value = match *op {
                Op::Number(number) => Some(number),
                Op::N => Some(n),
                _ => Self::apply(*op, &mut stack),
            };
            stack.push(value.ok_or_else(|| CostError::overflow("formula"))?);
        }
        stack.pop().ok_or_else(|| CostError::overflow("formula"))
    }

    /// Applies `op` to the stack's top and returns the result.
    fn apply(op: Op, stack: &mut Vec<u64>) -> Option<u64> {
        let last = stack.pop()?;
        if op == Op::Log2 {
            return Some(u64::from(u64::BITS - last.saturating_sub(1).leading_zeros()));
        }
        let first = stack.pop()?;
        match op {
            Op::Add => first.checked_add(last),
            Op::Times => first.checked_mul(last),
            // The parser rejects division by zero.
            Op::Over => (last > 0).then(|| first.div_ceil(last)),
            Op::Min => Some(first.min(last)),
            _ => Some(first.max(last)),
        }
    }
}

impl KernelCost {
    /// The formula of buffer `name`.
    ///
    /// # Errors
    /// Fails if the kernel has no buffer of that name.
    pub fn buffer(&self, name: &str) -> Result<&Formula, CostError> {
        let found = self.buffers.iter().find(|(other, _)| other == name);
        found
            .map(|(_, formula)| formula)
            .ok_or_else(|| CostError::of(name, "no kernel's cost names this buffer"))
    }

    /// Total size of all buffers for a block of `n` bytes.
    ///
    /// # Errors
    /// Fails if the sum does not fit in 64 bits.
    pub fn memory_bytes(&self, n: u64) -> Result<u64, CostError> {
        self.buffers.iter().try_fold(0u64, |sum, (name, formula)| {
            sum.checked_add(formula.eval(n)?).ok_or_else(|| CostError::overflow(name))
        })
    }

    /// First key on which two costs differ.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let keys = [
            ("threads", self.threads == other.threads),
            ("passes", self.passes == other.passes),
            ("buffers", self.buffers == other.buffers),
            ("local_mem", self.local_mem == other.local_mem),
        ];
        keys.into_iter().find(|(_, is_same)| !is_same).map(|(key, _)| key)
    }

    /// Parses the cost block in `text`, the contents of the kernel file `file`.
    ///
    /// # Errors
    /// Fails if there is no block, more than one, or a malformed one.
    pub fn parse(file: &str, text: &str) -> Result<Self, CostError> {
        Parser { file }.parse(text)
    }
}

/// A piece of a line, and its place.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    line: usize,
    column: usize,
}

impl<'a> Piece<'a> {
    fn trim(self) -> Self {
        let start = self.text.trim_start();
        let skipped = self.text[..self.text.len() - start.len()].chars().count();
        Self { text: start.trim_end(), column: self.column + skipped, ..self }
    }

    /// The pieces before and after the first `separator`.
    fn split(self, separator: char) -> Option<(Self, Self)> {
        let (before, behind) = self.text.split_once(separator)?;
        let column = self.column + before.chars().count() + 1;
        Some((Self { text: before, ..self }, Self { text: behind, column, ..self }))
    }

    /// The pieces between commas. Commas inside parentheses do not count.
    fn split_list(self) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let piece = rest?;
            let mut depth = 0usize;
            let end = piece.text.find(|c: char| {
                match c {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                c == ',' && depth == 0
            });
            let Some(end) = end else {
                rest = None;
                return Some(piece);
            };
            let (before, behind) = piece.split_at(end);
            rest = Some(behind.split_at(1).1);
            Some(before)
        })
    }

    /// The pieces before and from byte `at` on.
    fn split_at(self, at: usize) -> (Self, Self) {
        let (before, behind) = self.text.split_at(at);
        let column = self.column + before.chars().count();
        (Self { text: before, ..self }, Self { text: behind, column, ..self })
    }
}

struct Parser<'f> {
    file: &'f str,
}

impl Parser<'_> {
    fn error<T>(&self, at: Piece<'_>, what: impl Into<String>) -> Result<T, CostError> {
        let Piece { line, column, .. } = at;
        Err(CostError { file: self.file.into(), line, column, what: what.into() })
    }

    fn parse(&self, text: &str) -> Result<KernelCost, CostError> {
        let mut block: Option<(Piece<'_>, Vec<Piece<'_>>)> = None;
        let mut open: Option<Piece<'_>> = None;
        let mut end = Piece { text: "", line: 1, column: 1 };
        for (i, line) in text.lines().enumerate() {
            let whole = Piece { text: line, line: i + 1, column: 1 }.trim();
            end = Piece { text: "", ..whole };
            let comment = whole.text.strip_prefix("//");
            let comment =
                comment.map(|text| Piece { text, column: whole.column + 2, ..whole }.trim());
            if let Some(start) = comment.filter(|c| c.text.starts_with("@pz_cost")) {
                if open.is_some() || block.is_some() {
                    return self.error(start, "a second cost block");
                }
                let rest = start.text["@pz_cost".len()..].trim();
                if rest != "{" {
                    return self.error(start, "'@pz_cost' is not followed by '{'");
                }
                open = Some(start);
                block = Some((start, Vec::new()));
            } else if let Some(start) = open {
                let Some(comment) = comment else {
                    return self.error(start, "the brace of this cost block is not closed");
                };
                if comment.text == "}" {
                    open = None;
                } else if let Some((_, lines)) = block.as_mut()
                    && !comment.text.is_empty()
                {
                    lines.push(comment);
                }
            }
        }
        if let Some(start) = open {
            return self.error(start, "the brace of this cost block is not closed");
        }
        match block {
            Some((start, lines)) => self.block(start, &lines),
            None => self.error(end, "there is no cost block"),
        }
    }

    fn block(&self, start: Piece<'_>, lines: &[Piece<'_>]) -> Result<KernelCost, CostError> {
        const KEYS: [&str; 5] = ["threads", "passes", "buffers", "local_mem", "note"];
        let mut values: [Option<Vec<Piece<'_>>>; 5] = [const { None }; 5];
        let mut current: Option<usize> = None;
        for &line in lines {
            let keyed = line.split(':').map(|(key, value)| (key.trim(), value.trim()));
            match (keyed, current) {
                // Only `buffers` and `note` may continue on another line, and neither has a colon in a continuation.
                (None, Some(at @ (2 | 4))) => values[at].get_or_insert_default().push(line),
                (None, _) => {
                    return self.error(line, "neither a key with ':' nor the rest of a list");
                }
                (Some((key, value)), _) => {
                    let Some(at) = KEYS.iter().position(|known| *known == key.text) else {
                        return self.error(key, format!("unknown key '{}'", key.text));
                    };
                    if values[at].is_some() {
                        return self.error(key, format!("key '{}' is repeated", key.text));
                    }
                    values[at] = Some(vec![value]);
                    current = Some(at);
                }
            }
        }
        let missing = |key: usize| self.error(start, format!("key '{}' is missing", KEYS[key]));
        let value = |key: usize| values[key].as_deref().and_then(<[_]>::first).copied();
        let Some(threads) = value(0) else { return missing(0) };
        let Some(passes) = value(1) else { return missing(1) };
        let Some(buffers) = values[2].as_deref() else { return missing(2) };
        let Some(local_mem) = value(3) else { return missing(3) };
        Ok(KernelCost {
            threads: self.formula(threads)?,
            passes: self.formula(passes)?,
            buffers: self.buffers(buffers)?,
            local_mem: self.small(local_mem)?,
        })
    }

    fn integer(&self, at: Piece<'_>) -> Result<u64, CostError> {
        let digits = !at.text.is_empty() && at.text.bytes().all(|b| b.is_ascii_digit());
        match at.text.parse() {
            Ok(number) if digits => Ok(number),
            _ => self.error(at, format!("'{}' is not an integer of 64 bits", at.text)),
        }
    }

    fn small(&self, at: Piece<'_>) -> Result<u32, CostError> {
        let Ok(number) = u32::try_from(self.integer(at)?) else {
            return self.error(at, format!("'{}' is not an integer of 32 bits", at.text));
        };
        Ok(number)
    }

    fn buffers(&self, lines: &[Piece<'_>]) -> Result<Vec<(String, Formula)>, CostError> {
        let mut buffers: Vec<(String, Formula)> = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            let entries: Vec<_> = line.split_list().map(Piece::trim).collect();
            let is_last_line = i + 1 == lines.len();
            for (j, &entry) in entries.iter().enumerate() {
                if entry.text.is_empty() && j + 1 == entries.len() && j > 0 && !is_last_line {
                    continue; // The comma at the end of a line that continues.
                }
                if j + 1 == entries.len() && !is_last_line {
                    return self.error(entry, "a list that goes on ends its lines with ','");
                }
                let Some((name, formula)) = entry.split('=') else {
                    return self.error(entry, format!("'{}' is not 'name=formula'", entry.text));
                };
                let (name, formula) = (name.trim(), formula.trim());
                let letter = |c: char| c.is_ascii_lowercase() || c == '_';
                if !name.text.starts_with(letter)
                    || !name.text.chars().all(|c| letter(c) || c.is_ascii_digit())
                {
                    return self.error(name, format!("'{}' is not a buffer's name", name.text));
                }
                if buffers.iter().any(|(other, _)| other == name.text) {
                    return self.error(name, format!("buffer '{}' is repeated", name.text));
                }
                buffers.push((name.text.into(), self.formula(formula)?));
            }
        }
        Ok(buffers)
    }

    fn formula(&self, formula: Piece<'_>) -> Result<Formula, CostError> {
        let mut rest = formula;
        let mut ops = Vec::new();
        self.sum(&mut rest, &mut ops, 0)?;
        match rest.text {
            "" => Ok(Formula { text: formula.text.into(), ops }),
            text => self.error(rest, format!("'{text}' is too much")),
        }
    }

    /// Parses terms joined by '+' at the start of `rest`, and leaves the remainder in `rest`.
    fn sum(&self, rest: &mut Piece<'_>, ops: &mut Vec<Op>, depth: usize) -> Result<(), CostError> {
        if depth > MAX_DEPTH {
            return self.error(*rest, "parentheses within too many others");
        }
        self.product(rest, ops, depth)?;
        while rest.take('+') {
            self.product(rest, ops, depth)?;
            ops.push(Op::Add);
        }
        Ok(())
    }

    /// Parses factors and divisors.
    fn product(
        &self,
        rest: &mut Piece<'_>,
        ops: &mut Vec<Op>,
        depth: usize,
    ) -> Result<(), CostError> {
        self.factor(rest, ops, depth)?;
        loop {
            let op = if rest.take('*') {
                Op::Times
            } else if rest.take('/') {
                Op::Over
            } else {
                return Ok(());
            };
            let at = rest.trim();
            if op == Op::Over {
                ops.push(Op::Number(self.integer(rest.atom())?));
            } else {
                self.factor(rest, ops, depth)?;
            }
            if ops.last() == Some(&Op::Number(0)) {
                return self.error(at, "a factor of 0");
            }
            ops.push(op);
        }
    }

    /// Parses a number, `N`, a sum in parentheses, or a function of sums.
    fn factor(
        &self,
        rest: &mut Piece<'_>,
        ops: &mut Vec<Op>,
        depth: usize,
    ) -> Result<(), CostError> {
        let atom = rest.atom();
        if !rest.take('(') {
            let op = if atom.text == "N" { Op::N } else { Op::Number(self.integer(atom)?) };
            ops.push(op);
            return Ok(());
        }
        let function = match atom.text {
            "" => None,
            "log2" => Some(Op::Log2),
            "min" => Some(Op::Min),
            "max" => Some(Op::Max),
            text => return self.error(atom, format!("unknown function '{text}'")),
        };
        self.sum(rest, ops, depth + 1)?;
        if matches!(function, Some(Op::Min | Op::Max)) {
            if !rest.take(',') {
                return self.error(*rest, format!("'{}' takes two values", atom.text));
            }
            self.sum(rest, ops, depth + 1)?;
        }
        ops.extend(function);
        if !rest.take(')') {
            return self.error(*rest, "a parenthesis is not closed");
        }
        Ok(())
    }
}

/// How deep parentheses may nest.
const MAX_DEPTH: usize = 16;

impl Piece<'_> {
    /// Removes `wanted` from the start of the piece, ignoring spaces. Returns whether it was there.
    fn take(&mut self, wanted: char) -> bool {
        let start = self.trim();
        let is_there = start.text.starts_with(wanted);
        if is_there {
            *self = start.split_at(wanted.len_utf8()).1;
        }
        is_there
    }

    /// Removes and returns everything before the next operator, parenthesis or comma.
    fn atom(&mut self) -> Self {
        let end = self.text.find(['+', '*', '/', '(', ')', ',']).unwrap_or(self.text.len());
        let (atom, rest) = self.split_at(end);
        *self = rest;
        atom.trim()
    }
}
