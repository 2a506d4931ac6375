//! What a kernel file says that it costs.
//!
//! Before its code, each kernel file has a comment block:
//!
//! ```text
//! // @pz_cost {
//! //   threads_per_element: 0.03125
//! //   passes: 3
//! //   buffers: contents=N, sizes=4,
//! //            matches=N*4+64
//! //   local_mem: 8192
//! //   note: free text
//! // }
//! ```
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `threads_per_element` | decimal number | work items launched per byte of a block |
//! | `passes` | integer | dispatches that one use of the file takes, one after another |
//! | `buffers` | `name=formula, …` | device memory for one block of N bytes; may go on over several lines |
//! | `local_mem` | integer | bytes of workgroup memory |
//! | `note` | text | for people; may be left out |
//!
//! A formula is a sum of terms: an integer, `N`, `N*k` or `N/k`, where k is an integer and division rounds up. It gives
//! bytes. All arithmetic is checked.

use std::fmt;

/// The cost of a kernel file.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelCost {
    /// Work items launched per byte of a block.
    pub threads_per_element: f64,
    /// Dispatches that one use of the file takes, one after another.
    pub passes: u32,
    /// Device memory for one block, by name.
    pub buffers: Vec<(String, BufferFormula)>,
    /// Bytes of workgroup memory.
    pub local_mem: u32,
}

/// Bytes of a buffer for one block of N bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferFormula(Vec<Term>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    Bytes(u64),
    Times(u64),
    Over(u64),
}

/// What is wrong with a cost, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostError {
    /// The file, or the kernel's stem.
    pub file: String,
    /// Line, from 1; 0 if the error is not in the text.
    pub line: usize,
    /// Column in characters, from 1; 0 if the error is not in the text.
    pub column: usize,
    /// What is wrong.
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

impl BufferFormula {
    /// Bytes for a block of `n` bytes.
    ///
    /// # Errors
    /// If they do not fit into 64 bits.
    pub fn eval(&self, n: u64) -> Result<u64, CostError> {
        let term = |term: &Term| match *term {
            Term::Bytes(bytes) => Some(bytes),
            Term::Times(k) => n.checked_mul(k),
            Term::Over(k) => Some(n.div_ceil(k)),
        };
        let sum = self.0.iter().try_fold(0u64, |sum, t| sum.checked_add(term(t)?));
        sum.ok_or_else(|| CostError::overflow("formula"))
    }
}

impl KernelCost {
    /// The formula of buffer `name`.
    ///
    /// # Errors
    /// If the kernel has none of that name.
    pub fn buffer(&self, name: &str) -> Result<&BufferFormula, CostError> {
        let found = self.buffers.iter().find(|(other, _)| other == name);
        found
            .map(|(_, formula)| formula)
            .ok_or_else(|| CostError::of(name, "no kernel's cost names this buffer"))
    }

    /// Bytes of all buffers for a block of `n` bytes.
    ///
    /// # Errors
    /// If they do not fit into 64 bits.
    pub fn memory_bytes(&self, n: u64) -> Result<u64, CostError> {
        self.buffers.iter().try_fold(0u64, |sum, (name, formula)| {
            sum.checked_add(formula.eval(n)?).ok_or_else(|| CostError::overflow(name))
        })
    }

    /// Work items for a block of `n` bytes, rounded up.
    pub fn total_threads(&self, n: u64) -> u64 {
        (self.threads_per_element * n as f64).ceil() as u64
    }

    /// The key of which another cost says something else.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let keys = [
            ("threads_per_element", self.threads_per_element == other.threads_per_element),
            ("passes", self.passes == other.passes),
            ("buffers", self.buffers == other.buffers),
            ("local_mem", self.local_mem == other.local_mem),
        ];
        keys.into_iter().find(|(_, is_same)| !is_same).map(|(key, _)| key)
    }

    /// Parses the cost block of the kernel file `file`, whose contents are `text`.
    ///
    /// # Errors
    /// If there is no block, or more than one, or it is not well-formed.
    pub fn parse(file: &str, text: &str) -> Result<Self, CostError> {
        Parser { file }.parse(text)
    }
}

/// A piece of a line, and where it stands.
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

    /// The pieces before and behind the first `separator`.
    fn split(self, separator: char) -> Option<(Self, Self)> {
        let (before, behind) = self.text.split_once(separator)?;
        let column = self.column + before.chars().count() + 1;
        Some((Self { text: before, ..self }, Self { text: behind, column, ..self }))
    }

    /// All pieces between separators.
    fn split_all(self, separator: char) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let piece = rest?;
            match piece.split(separator) {
                Some((before, behind)) => {
                    rest = Some(behind);
                    Some(before)
                }
                None => {
                    rest = None;
                    Some(piece)
                }
            }
        })
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
        const KEYS: [&str; 5] = ["threads_per_element", "passes", "buffers", "local_mem", "note"];
        let mut values: [Option<Vec<Piece<'_>>>; 5] = [const { None }; 5];
        let mut current: Option<usize> = None;
        for &line in lines {
            let keyed = line.split(':').map(|(key, value)| (key.trim(), value.trim()));
            match (keyed, current) {
                // Only lists of buffers and notes go on; neither has a colon in what goes on.
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
            threads_per_element: self.decimal(threads)?,
            passes: self.small(passes)?,
            buffers: self.buffers(buffers)?,
            local_mem: self.small(local_mem)?,
        })
    }

    fn decimal(&self, at: Piece<'_>) -> Result<f64, CostError> {
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        let (whole, part) = at.text.split_once('.').unwrap_or((at.text, "0"));
        match at.text.parse::<f64>() {
            Ok(number) if digits(whole) && digits(part) && number.is_finite() => Ok(number),
            _ => self.error(at, format!("'{}' is not a decimal number", at.text)),
        }
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

    fn buffers(&self, lines: &[Piece<'_>]) -> Result<Vec<(String, BufferFormula)>, CostError> {
        let mut buffers: Vec<(String, BufferFormula)> = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            let entries: Vec<_> = line.split_all(',').map(Piece::trim).collect();
            let is_last_line = i + 1 == lines.len();
            for (j, &entry) in entries.iter().enumerate() {
                if entry.text.is_empty() && j + 1 == entries.len() && j > 0 && !is_last_line {
                    continue; // The comma at the end of a line that goes on.
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

    fn formula(&self, formula: Piece<'_>) -> Result<BufferFormula, CostError> {
        let term = |term: Piece<'_>| {
            let factor = |k: Piece<'_>| match self.integer(k.trim())? {
                0 => self.error(k.trim(), "a factor of 0"),
                k => Ok(k),
            };
            match (term.split('*'), term.split('/')) {
                (Some((n, k)), _) if n.trim().text == "N" => Ok(Term::Times(factor(k)?)),
                (_, Some((n, k))) if n.trim().text == "N" => Ok(Term::Over(factor(k)?)),
                _ if term.text == "N" => Ok(Term::Times(1)),
                _ => Ok(Term::Bytes(self.integer(term)?)),
            }
        };
        formula
            .split_all('+')
            .map(|piece| term(piece.trim()))
            .collect::<Result<_, _>>()
            .map(BufferFormula)
    }
}
