//! A payload's header: what stands before the segments' words. The normative text is `src/format/bwt.md`.

use super::binary::{Bit, Coder, NumberModel, Reader, Writer};
use super::segments::MAX_SEGMENT_WORDS;
use super::spec::{
    MAX_SEGMENT_RUNS, RANK_COLUMNS, RANK_CONTEXTS, RANK_TOKENS, RUN_COLUMNS, RUN_CONTEXTS,
    RUN_TOKENS,
};
use super::tables::{self, Counts, Exponents, Shape, WIDTH};
use super::{Malformed, Params};

/// Shape of the ranks' tables.
pub const RANK_SHAPE: Shape = Shape { tokens: RANK_TOKENS, columns: RANK_COLUMNS };
/// Shape of the run lengths' tables.
pub const RUN_SHAPE: Shape = Shape { tokens: RUN_TOKENS, columns: RUN_COLUMNS };

/// A segment in the directory: bytes of the transform, and words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub len: usize,
    pub words: usize,
}

/// Chooses tables for these counts and appends their description. Returns the exponents as a decoder sees them.
pub fn choose_tables(shape: Shape, counts: &[Counts], description: &mut Vec<u8>) -> Vec<Exponents> {
    let mut exponents = vec![[0; WIDTH]; counts.len()];
    let mut fresh = vec![false; counts.len()];
    tables::choose(shape, counts, &mut exponents, &mut fresh);
    let mut writer = Writer::new(description);
    tables::describe(&mut writer, shape, &mut exponents, &mut fresh)
        .expect("tables that were chosen are valid");
    writer.finish();
    exponents
}

fn read_tables(shape: Shape, contexts: usize, bytes: &[u8]) -> Result<Vec<Exponents>, Malformed> {
    let mut exponents = vec![[0; WIDTH]; contexts];
    let mut fresh = vec![false; contexts];
    tables::describe(&mut Reader::new(bytes), shape, &mut exponents, &mut fresh)?;
    Ok(exponents)
}

/// Models of the directory.
struct Models {
    short: Bit,
    more: NumberModel,
    less: NumberModel,
    words: NumberModel,
}

/// The least bytes that a segment has, unless it is the last.
fn least_len(segment_log: u8) -> usize {
    (1 << segment_log).min(MAX_SEGMENT_RUNS)
}

/// Writes or reads one segment of a block of which `rest` bytes are left.
fn describe_entry<C: Coder>(
    coder: &mut C,
    models: &mut Models,
    segment_log: u8,
    rest: usize,
    entry: Entry,
) -> Entry {
    let usual = 1usize << segment_log;
    let len = if rest <= least_len(segment_log) {
        rest
    } else if coder.bit(&mut models.short, entry.len < usual) {
        let less = coder.number(&mut models.less, usual.wrapping_sub(entry.len) as u32 & 0xffff);
        usual.saturating_sub(less as usize)
    } else {
        usual + coder.number(&mut models.more, entry.len.saturating_sub(usual) as u32) as usize
    };
    let words = coder.number(&mut models.words, entry.words as u32) as usize;
    Entry { len, words }
}

const fn models() -> Models {
    Models {
        short: Bit::NEW,
        more: NumberModel::NEW,
        less: NumberModel::NEW,
        words: NumberModel::NEW,
    }
}

/// Everything before the words.
#[derive(Debug)]
pub struct Layout<'a> {
    pub params: Params,
    /// The symbols that occur, as the first segment's list has them.
    pub list: &'a [u8],
    pub rows: &'a [u32],
    pub directory: &'a [Entry],
    pub rank_tables: &'a [u8],
    pub run_tables: &'a [u8],
}

/// Bits of a row less one, in a block of `len` bytes.
fn row_bits(len: usize) -> u32 {
    usize::BITS - (len - 1).leading_zeros()
}

impl Layout<'_> {
    /// Appends the header of a block of `len` bytes.
    pub fn write(&self, len: usize, out: &mut Vec<u8>) {
        let begin = out.len();
        out.push((self.params.segment_log - 10) | (self.params.start_log - 8) << 4);
        out.push((self.list.len() - 1) as u8);
        out.extend_from_slice(self.list);

        let bits = row_bits(len);
        let (mut pending, mut filled) = (0u64, 0);
        for &row in self.rows {
            pending |= u64::from(row - 1) << filled;
            filled += bits;
            while filled >= 8 {
                out.push(pending as u8);
                pending >>= 8;
                filled -= 8;
            }
        }
        if filled > 0 {
            out.push(pending as u8);
        }

        let mut directory = Vec::new();
        let mut writer = Writer::new(&mut directory);
        let mut models = models();
        let mut rest = len;
        for &entry in self.directory {
            let same =
                describe_entry(&mut writer, &mut models, self.params.segment_log, rest, entry);
            debug_assert_eq!(same, entry);
            rest -= entry.len;
        }
        writer.finish();
        let descriptions = [&directory[..], self.rank_tables, self.run_tables];
        for description in descriptions {
            out.extend_from_slice(&(description.len() as u32).to_le_bytes()[..3]);
        }
        for description in descriptions {
            out.extend_from_slice(description);
        }
        out.resize(begin + (out.len() - begin).next_multiple_of(4), 0);
    }
}

/// A header that has been read, and the words after it.
#[derive(Debug)]
pub struct Header<'a> {
    pub params: Params,
    pub list: [u8; 256],
    pub rank: Vec<Exponents>,
    pub run: Vec<Exponents>,
    pub words: &'a [u8],
}

/// Splits off the first `count` bytes.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    bytes.split_off(..count).ok_or(Malformed("payload ends in its header"))
}

/// Reads the header of a block of `len` bytes, `len` at least 1.
pub fn read<'a>(
    payload: &'a [u8],
    len: usize,
    rows: &mut Vec<u32>,
    directory: &mut Vec<Entry>,
) -> Result<Header<'a>, Malformed> {
    let mut rest = payload;
    let fixed = take(&mut rest, 2)?;
    let params = Params { segment_log: 10 + (fixed[0] & 15), start_log: 8 + (fixed[0] >> 4) };
    if params.segment_log > 16 {
        return Err(Malformed("segment size is reserved"));
    }
    let list = read_list(take(&mut rest, usize::from(fixed[1]) + 1)?)?;

    let count = ((len - 1) >> params.start_log) + 1;
    let bits = row_bits(len);
    let packed = take(&mut rest, (count * bits as usize).div_ceil(8))?;
    read_rows(packed, count, bits, len, rows)?;

    let sizes = take(&mut rest, 9)?;
    let mut description = |i: usize| {
        let size = &sizes[3 * i..3 * i + 3];
        let size = usize::from(size[0]) | usize::from(size[1]) << 8 | usize::from(size[2]) << 16;
        take(&mut rest, size)
    };
    let directory_bytes = description(0)?;
    let rank = read_tables(RANK_SHAPE, RANK_CONTEXTS, description(1)?)?;
    let run = read_tables(RUN_SHAPE, RUN_CONTEXTS, description(2)?)?;
    let used = payload.len() - rest.len();
    let padding = take(&mut rest, used.next_multiple_of(4) - used)?;
    if padding.iter().any(|&b| b != 0) {
        return Err(Malformed("padding is not zero"));
    }
    let words = read_directory(directory_bytes, params.segment_log, len, directory)?;
    if rest.len() != 4 * words {
        return Err(Malformed("payload does not have its directory's length"));
    }
    Ok(Header { params, list, rank, run, words: rest })
}

/// The symbols that occur, completed by all others, ascending.
fn read_list(symbols: &[u8]) -> Result<[u8; 256], Malformed> {
    let mut used = [false; 256];
    for &c in symbols {
        if core::mem::replace(&mut used[usize::from(c)], true) {
            return Err(Malformed("symbol listed twice"));
        }
    }
    let others = (0..=255u8).filter(|&c| !used[usize::from(c)]);
    let mut list = [0; 256];
    for (slot, c) in list.iter_mut().zip(symbols.iter().copied().chain(others)) {
        *slot = c;
    }
    Ok(list)
}

fn read_rows(
    packed: &[u8],
    count: usize,
    bits: u32,
    len: usize,
    rows: &mut Vec<u32>,
) -> Result<(), Malformed> {
    rows.clear();
    let mut bytes = packed.iter();
    let (mut pending, mut filled) = (0u64, 0);
    for _ in 0..count {
        while filled < bits {
            pending |= u64::from(*bytes.next().expect("packed has count * bits bits")) << filled;
            filled += 8;
        }
        let row = (pending & ((1 << bits) - 1)) as u32;
        if row as usize >= len {
            return Err(Malformed("row outside the block"));
        }
        rows.push(row + 1);
        pending >>= bits;
        filled -= bits;
    }
    if pending != 0 {
        return Err(Malformed("padding is not zero"));
    }
    Ok(())
}

/// Reads the directory of a block of `len` bytes. Returns the sum of its words.
fn read_directory(
    bytes: &[u8],
    segment_log: u8,
    len: usize,
    directory: &mut Vec<Entry>,
) -> Result<usize, Malformed> {
    directory.clear();
    let mut reader = Reader::new(bytes);
    let mut models = models();
    let (mut rest, mut words) = (len, 0);
    while rest > 0 {
        let none = Entry { len: 0, words: 0 };
        let entry = describe_entry(&mut reader, &mut models, segment_log, rest, none);
        if entry.len > rest || entry.len < least_len(segment_log).min(rest) {
            return Err(Malformed("segment length out of range"));
        }
        if entry.words > MAX_SEGMENT_WORDS {
            return Err(Malformed("segment has too many words"));
        }
        rest -= entry.len;
        words += entry.words;
        directory.push(entry);
    }
    Ok(words)
}
