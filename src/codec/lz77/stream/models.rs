//! The models of a group of chunks: how each of its three streams codes its symbols.

use super::spec::{Coded, NO_OFFSET, OFFSET_BITS, OFFSETS, SYMBOL_BITS, TOKENS};
use crate::bits::{BitReader, BitWriter};
use crate::codec::Malformed;
use crate::codec::fse::{self, EncodeTable};
use crate::codec::histogram::histogram;
use crate::codec::huffman::{self, Occurring};
use crate::codec::lanes::LANES;

/// The symbols of a group, chunk after chunk.
#[derive(Default)]
pub(crate) struct Streams {
    pub literals: Vec<u8>,
    pub tokens: CodedRows,
    pub offsets: CodedRows,
}

impl Streams {
    pub(crate) fn clear(&mut self) {
        self.literals.clear();
        self.tokens.clear();
        self.offsets.clear();
    }
}

/// Tokens or offsets in row order: each 64 of a chunk are the 32 even ones, then the 32 odd ones.
pub(crate) struct CodedRows {
    pub rows: Vec<[[Coded; LANES]; 2]>,
    counts: [u32; 256],
}

impl Default for CodedRows {
    fn default() -> Self {
        Self { rows: Vec::new(), counts: [0; 256] }
    }
}

impl CodedRows {
    fn clear(&mut self) {
        self.rows.clear();
        self.counts.fill(0);
    }

    /// Adds an empty batch. Returns it and the counts; the caller adds its symbols to both.
    #[inline(always)]
    pub(super) fn batch(&mut self) -> (&mut [[Coded; LANES]; 2], &mut [u32; 256]) {
        self.rows.push([[NO_OFFSET; LANES]; 2]);
        (self.rows.last_mut().expect("a batch was added"), &mut self.counts)
    }
}

/// How a stream's symbols are written, with the numbers used on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Every symbol is the same and takes no bits.
    Constant = 0,
    /// Symbols as they are: 8 bits each, 6 for offsets.
    Raw = 1,
    /// A canonical Huffman code.
    Huffman = 2,
    /// A tabled asymmetric numeral system.
    Fse = 3,
}

/// A stream's alphabet.
#[derive(Debug, Clone, Copy)]
struct Alphabet {
    symbols: usize,
    raw_bits: u8,
    /// The longest Huffman code.
    huffman_bits: u8,
    /// The largest FSE table. A symbol and its extra bits must take fewer than 32 bits to fit in a row.
    fse_log: u8,
}

const LITERAL: Alphabet =
    Alphabet { symbols: 256, raw_bits: 8, huffman_bits: SYMBOL_BITS, fse_log: 11 };
const TOKEN: Alphabet = Alphabet { symbols: TOKENS, ..LITERAL };
const OFFSET: Alphabet =
    Alphabet { symbols: OFFSETS, raw_bits: 6, huffman_bits: OFFSET_BITS, fse_log: 8 };
const ALPHABETS: [Alphabet; 3] = [LITERAL, TOKEN, OFFSET];

/// A stream's model, for encoding.
pub(crate) struct Model {
    mode: Mode,
    /// The symbol of a constant stream.
    constant: u8,
    /// The fewest bits that the symbols and their description take.
    min_bits: u64,
    lengths: [u8; 256],
    /// Each symbol's code, aligned to the top bit, and its length in the low five bits. Set by [`Self::assign_codes`];
    /// not used for FSE, nor for symbols that do not occur.
    pub codes: [u32; 256],
    pub fse: Option<FseModel>,
}

/// A stream's FSE tables, for encoding.
pub(crate) struct FseModel {
    pub log: u8,
    norm: [u16; 256],
    pub table: Box<EncodeTable>,
}

impl Model {
    fn new() -> Self {
        Self {
            mode: Mode::Constant,
            constant: 0,
            min_bits: 0,
            lengths: [0; 256],
            codes: [0; 256],
            fse: None,
        }
    }

    /// Becomes the cheapest model for a stream with these counts in `chunks` chunks.
    fn choose(&mut self, counts: &[u32; 256], alphabet: Alphabet, chunks: usize, fse: bool) {
        self.min_bits = 0;
        self.fse = None;
        let mut occurring = Occurring::new(counts);
        let (present, total) = (occurring.symbols(), occurring.total());
        if present < 2 {
            self.mode = Mode::Constant;
            self.constant = occurring.any();
            return;
        }
        let counts = &counts[..alphabet.symbols];
        let lengths = &mut self.lengths[..alphabet.symbols];
        let coded = occurring.code_lengths(alphabet.huffman_bits, lengths);
        let mut best = coded + huffman::description_bits(lengths);
        self.mode = Mode::Huffman;
        let raw = total * u64::from(alphabet.raw_bits);
        if raw <= best {
            best = raw;
            self.mode = Mode::Raw;
        }
        if fse {
            let log = (total.ilog2() as u8).clamp(fse::MIN_TABLE_LOG, alphabet.fse_log);
            let states = (chunks * LANES) as u64 * u64::from(log) + FSE_LOG_BITS;
            // A description has at least a bit for each symbol.
            let least = states + present as u64;
            if present < 1 << log && least < best {
                let mut norm = [0; 256];
                let norm_used = &mut norm[..alphabet.symbols];
                fse::normalize(counts, log, norm_used);
                let coded = fse::coded_bits(counts, norm_used, log);
                let size = coded.expect("every symbol has a state")
                    + fse::description_bits(norm_used, log)
                    + states;
                if size < best {
                    self.mode = Mode::Fse;
                    let mut table = Box::new(EncodeTable::new());
                    table.build(norm_used, log);
                    self.fse = Some(FseModel { log, norm, table });
                }
            }
        }
        // The size under FSE is an estimate.
        if self.mode != Mode::Fse {
            self.min_bits = best;
        }
    }

    /// Makes the codes of the mode that [`Self::choose`] has chosen.
    fn assign_codes(&mut self, alphabet: Alphabet) {
        match self.mode {
            Mode::Fse => {}
            Mode::Constant => self.codes = [0; 256],
            Mode::Raw => {
                let len = u32::from(alphabet.raw_bits);
                for (symbol, code) in (0..).zip(&mut self.codes[..alphabet.symbols]) {
                    *code = symbol << (32 - len) | len;
                }
            }
            Mode::Huffman => {
                let Self { lengths, codes, .. } = self;
                huffman::each_code(lengths, |symbol, code, len| {
                    codes[symbol] = u32::from(code) << (32 - len) | u32::from(len);
                });
            }
        }
    }
}

/// Bits that record the logarithm of an FSE table.
const FSE_LOG_BITS: u64 = 4;

/// The models of literals, tokens and offsets.
pub(crate) struct Models {
    pub literals: Model,
    pub tokens: Model,
    pub offsets: Model,
}

impl Models {
    pub(crate) fn new() -> Self {
        Self { literals: Model::new(), tokens: Model::new(), offsets: Model::new() }
    }

    /// Chooses the cheapest model for each stream.
    #[inline(never)]
    pub(crate) fn choose(&mut self, streams: &Streams, chunks: usize, fse: bool) {
        self.literals.choose(&histogram(&streams.literals), LITERAL, chunks, fse);
        self.tokens.choose(&streams.tokens.counts, TOKEN, chunks, fse);
        self.offsets.choose(&streams.offsets.counts, OFFSET, chunks, fse);
    }

    /// The fewest bytes that a group with these models takes: offsets and lengths may have extra bits.
    pub(crate) fn min_len(&self) -> usize {
        let bits: u64 = self.each().iter().map(|model| model.min_bits).sum();
        (bits / 8) as usize
    }

    /// Makes the codes of all three.
    pub(crate) fn assign_codes(&mut self) {
        let models = [&mut self.literals, &mut self.tokens, &mut self.offsets];
        for (model, alphabet) in models.into_iter().zip(ALPHABETS) {
            model.assign_codes(alphabet);
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
        let mut bits = BitWriter::new(out);
        for (model, alphabet) in models.iter().zip(ALPHABETS) {
            if model.mode == Mode::Huffman {
                huffman::write_lengths(&[&model.lengths[..alphabet.symbols]], &mut bits);
            }
        }
        for (model, alphabet) in models.iter().zip(ALPHABETS) {
            if let Some(fse) = &model.fse {
                bits.write(u32::from(fse.log), FSE_LOG_BITS as u32);
                fse::write_norm(&fse.norm[..alphabet.symbols], fse.log, &mut bits);
            }
        }
        bits.finish();
    }
}

/// Entries of a decoding table.
pub(crate) const TABLE: usize = 1 << 11;

/// A stream's decoding table. Entries are `symbol | bits << 8`, indexed by the next `log` bits; for FSE they are
/// `symbol | bits << 8 | base << 16`, indexed by the state.
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
        self.table[..2].fill(u32::from(symbol));
    }

    fn set_raw(&mut self, alphabet: Alphabet) {
        let bits = alphabet.raw_bits;
        self.log = bits;
        for (i, entry) in self.table[..1 << bits].iter_mut().enumerate() {
            // The offset symbol past the alphabet reaches before every window, which rejects all invalid symbols.
            let symbol = i.min(alphabet.symbols);
            *entry = symbol as u32 | u32::from(bits) << 8;
        }
    }

    fn set_huffman(&mut self, lengths: &[u8], log: u8) -> Result<(), Malformed> {
        self.log = log;
        let entry = |symbol, len| u32::from(symbol) | u32::from(len) << 8;
        huffman::build_table_of(lengths, log, &mut self.table[..], entry)?;
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

    /// Reads the description at the start of a record. Returns its length in bytes, a multiple of 4.
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
                Mode::Raw => decoding.set_raw(ALPHABETS[i]),
                Mode::Huffman => {
                    limit = limit.max(ALPHABETS[i].huffman_bits);
                    described.push(&mut lengths[..ALPHABETS[i].symbols]);
                }
                Mode::Fse => {}
            }
        }
        let mut bits = BitReader::new(rest);
        if !described.is_empty() {
            huffman::read_lengths(&mut bits, limit, &mut described)?;
        }
        for (decoding, alphabet) in self.0.iter_mut().zip(ALPHABETS) {
            if decoding.mode == Mode::Fse {
                let log = bits.read(FSE_LOG_BITS as u32).ok_or(short)? as u8;
                if !(fse::MIN_TABLE_LOG..=alphabet.fse_log).contains(&log) {
                    return Err(Malformed("an FSE table is too large or too small"));
                }
                let norm = &mut [0; 256][..alphabet.symbols];
                fse::read_norm(&mut bits, log, norm)?;
                fse::build_decode_table(norm, log, &mut decoding.table[..])?;
                decoding.log = log;
            }
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
