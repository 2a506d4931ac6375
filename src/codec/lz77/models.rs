//! The models of a group of chunks: how each of its three streams codes its symbols.

use super::spec::{Coded, OFFSET_BITS, OFFSETS, SYMBOL_BITS, TOKENS};
use crate::bits::{BitReader, BitWriter};
use crate::codec::huffman;
use crate::codec::Malformed;

/// The symbols of a group, chunk after chunk.
#[derive(Default)]
pub(crate) struct Streams {
    pub literals: Vec<u8>,
    pub tokens: Vec<Coded>,
    pub offsets: Vec<Coded>,
}

impl Streams {
    pub(crate) fn clear(&mut self) {
        self.literals.clear();
        self.tokens.clear();
        self.offsets.clear();
    }
}

/// How a stream's symbols are written. The numbers are those on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Every symbol is the same and takes no bits.
    Constant = 0,
    /// Symbols as they are: 8 bits, offsets 6.
    Raw = 1,
    /// A canonical Huffman code.
    Huffman = 2,
    /// Tabled asymmetric numeral system.
    Fse = 3,
}

/// A stream's alphabet.
#[derive(Debug, Clone, Copy)]
struct Alphabet {
    symbols: usize,
    raw_bits: u8,
    huffman_bits: u8,
}

const LITERAL: Alphabet =
    Alphabet { symbols: 256, raw_bits: 8, huffman_bits: SYMBOL_BITS };
const TOKEN: Alphabet = Alphabet { symbols: TOKENS, raw_bits: 8, huffman_bits: SYMBOL_BITS };
const OFFSET: Alphabet = Alphabet { symbols: OFFSETS, raw_bits: 6, huffman_bits: OFFSET_BITS };
const ALPHABETS: [Alphabet; 3] = [LITERAL, TOKEN, OFFSET];

/// A stream's model, for encoding.
pub(crate) struct Model {
    mode: Mode,
    /// The symbol of a constant stream.
    constant: u8,
    lengths: [u8; 256],
    /// Each symbol's code from the top bit down, and its length in the low five bits.
    pub codes: [u32; 256],
}

impl Model {
    fn choose(counts: &[u32; 256], alphabet: Alphabet) -> Self {
        let mut lengths = [0; 256];
        let mut present = counts.iter().enumerate().filter(|&(_, &n)| n > 0).map(|(s, _)| s);
        let first = present.next().unwrap_or(0) as u8;
        let mode = if present.next().is_none() {
            Mode::Constant
        } else {
            let lengths = &mut lengths[..alphabet.symbols];
            huffman::code_lengths(&counts[..alphabet.symbols], alphabet.huffman_bits, lengths);
            let total: u64 = counts.iter().map(|&n| u64::from(n)).sum();
            let coded = huffman::coded_bits(counts, lengths).expect("every symbol has a code");
            // A description takes about 4 bits for each symbol that occurs.
            let description = 4 * lengths.iter().filter(|&&l| l > 0).count() as u64;
            if coded + description < total * u64::from(alphabet.raw_bits) {
                Mode::Huffman
            } else {
                lengths.fill(alphabet.raw_bits);
                Mode::Raw
            }
        };
        let mut codes = [0; 256];
        if mode != Mode::Constant {
            let mut canonical = [0; 256];
            huffman::assign_codes(&lengths, &mut canonical);
            for (code, (&c, &len)) in codes.iter_mut().zip(canonical.iter().zip(&lengths)) {
                if len > 0 {
                    *code = u32::from(c) << (32 - len) | u32::from(len);
                }
            }
        }
        Self { mode, constant: first, lengths, codes }
    }
}

/// The models of literals, tokens and offsets.
pub(crate) struct Models {
    pub literals: Model,
    pub tokens: Model,
    pub offsets: Model,
}

impl Models {
    /// The cheapest model of each stream.
    pub(crate) fn choose(streams: &Streams, _chunks: usize, _fse: bool) -> Self {
        let mut literals = [[0u32; 256]; 4];
        let (quads, rest) = streams.literals.as_chunks::<4>();
        for quad in quads {
            for (counts, &symbol) in literals.iter_mut().zip(quad) {
                counts[usize::from(symbol)] += 1;
            }
        }
        for &symbol in rest {
            literals[0][usize::from(symbol)] += 1;
        }
        let [mut counts, others @ ..] = literals;
        for other in &others {
            for (n, m) in counts.iter_mut().zip(other) {
                *n += m;
            }
        }
        let (mut tokens, mut offsets) = ([0; 256], [0; 256]);
        for (t, o) in streams.tokens.iter().zip(&streams.offsets) {
            tokens[usize::from(t.symbol)] += 1;
            offsets[usize::from(o.symbol)] += 1;
        }
        Self {
            literals: Model::choose(&counts, LITERAL),
            tokens: Model::choose(&tokens, TOKEN),
            offsets: Model::choose(&offsets, OFFSET),
        }
    }

    fn each(&self) -> [&Model; 3] {
        [&self.literals, &self.tokens, &self.offsets]
    }

    /// Appends the description of the models.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let models = self.each();
        out.push(models.iter().enumerate().fold(0, |b, (i, m)| b | (m.mode as u8) << (2 * i)));
        out.extend(models.iter().filter(|m| m.mode == Mode::Constant).map(|m| m.constant));
        let mut lengths: Vec<&[u8]> = Vec::with_capacity(3);
        for (model, alphabet) in models.iter().zip(ALPHABETS) {
            if model.mode == Mode::Huffman {
                lengths.push(&model.lengths[..alphabet.symbols]);
            }
        }
        let mut bits = BitWriter::new(out);
        if !lengths.is_empty() {
            huffman::write_lengths(&lengths, &mut bits);
        }
        bits.finish();
    }
}

/// Entries of a decoding table.
pub(crate) const TABLE: usize = 1 << 11;

/// A stream's decoding table: entries are `symbol << 8 | bits`, indexed by the next `log` bits.
pub(crate) struct Decoding {
    pub mode: Mode,
    pub log: u8,
    pub table: Box<[u32; TABLE]>,
}

impl Decoding {
    fn new() -> Self {
        Self { mode: Mode::Constant, log: 0, table: vec![0; TABLE].try_into().unwrap() }
    }

    fn set_constant(&mut self, symbol: u8) {
        self.log = 1;
        self.table[..2].fill(u32::from(symbol) << 8);
    }

    fn set_raw(&mut self, bits: u8) {
        self.log = bits;
        for (symbol, entry) in self.table[..1 << bits].iter_mut().enumerate() {
            *entry = (symbol as u32) << 8 | u32::from(bits);
        }
    }

    fn set_huffman(&mut self, lengths: &[u8], log: u8) -> Result<(), Malformed> {
        let mut narrow = [0; 1 << SYMBOL_BITS];
        huffman::build_table(lengths, log, &mut narrow)?;
        self.log = log;
        for (entry, &e) in self.table.iter_mut().zip(&narrow[..1 << log]) {
            *entry = u32::from(e >> 4) << 8 | u32::from(e & 15);
        }
        Ok(())
    }
}

/// The decoding tables of literals, tokens and offsets.
pub(crate) struct Tables([Decoding; 3]);

impl Tables {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| Decoding::new()))
    }

    pub(crate) fn literals(&self) -> &Decoding {
        &self.0[0]
    }

    pub(crate) fn tokens(&self) -> &Decoding {
        &self.0[1]
    }

    pub(crate) fn offsets(&self) -> &Decoding {
        &self.0[2]
    }

    /// Reads the description at the start of a record and returns its length in bytes, a multiple of 4.
    pub(crate) fn read(&mut self, record: &[u8]) -> Result<usize, Malformed> {
        let short = Malformed("a group's tables are cut short");
        let (&modes, mut rest) = record.split_first().ok_or(short)?;
        if modes >> 6 != 0 {
            return Err(Malformed("reserved bits of a group's tables are set"));
        }
        let mut lengths = [[0u8; 256]; 3];
        let mut described: Vec<&mut [u8]> = Vec::with_capacity(3);
        let mut limit = 0;
        for (i, (decoding, lengths)) in self.0.iter_mut().zip(&mut lengths).enumerate() {
            decoding.mode = match modes >> (2 * i) & 3 {
                0 => Mode::Constant,
                1 => Mode::Raw,
                2 => Mode::Huffman,
                _ => Mode::Fse,
            };
            match decoding.mode {
                Mode::Constant => {
                    let (&symbol, after) = rest.split_first().ok_or(short)?;
                    if usize::from(symbol) >= ALPHABETS[i].symbols {
                        return Err(Malformed("a constant symbol is outside its alphabet"));
                    }
                    decoding.set_constant(symbol);
                    rest = after;
                }
                Mode::Raw => decoding.set_raw(ALPHABETS[i].raw_bits),
                Mode::Huffman => {
                    limit = limit.max(ALPHABETS[i].huffman_bits);
                    described.push(&mut lengths[..ALPHABETS[i].symbols]);
                }
                Mode::Fse => return Err(Malformed("FSE tables are not supported here")),
            }
        }
        let mut bits = BitReader::new(rest);
        if !described.is_empty() {
            huffman::read_lengths(&mut bits, limit, &mut described)?;
        }
        let used = record.len() - rest.len() + bits.finish().ok_or(short)?;
        for (i, decoding) in self.0.iter_mut().enumerate() {
            if decoding.mode == Mode::Huffman {
                let alphabet = ALPHABETS[i];
                decoding.set_huffman(&lengths[i][..alphabet.symbols], alphabet.huffman_bits)?;
            }
        }
        let padded = used.next_multiple_of(4);
        match record.get(used..padded) {
            Some(padding) if padding.iter().all(|&b| b == 0) => Ok(padded),
            Some(_) => Err(Malformed("padding after a group's tables is not zero")),
            None => Err(short),
        }
    }
}
