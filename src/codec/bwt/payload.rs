//! A payload's header, which is everything before the segments' words. The normative text is `src/format/bwt.md`.

use super::binary::{Bit, Coder, NumberModel, Reader, Writer};
use super::segments::MAX_SEGMENT_WORDS;
use super::spec::MAX_SEGMENT_RUNS;
use super::tables::{self, MAX_SETS, RANKS, RUNS, Set};
use super::{Malformed, Params};

/// A segment in the directory: its length in bytes of the transform, its number of words, and its set of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentEntry {
    pub len: usize,
    pub words: usize,
    pub set: u8,
}

/// Models of the directory.
struct Models {
    short: Bit,
    more: NumberModel,
    less: NumberModel,
    words: NumberModel,
    /// A binary tree for each possible set of the segment before.
    set: [[Bit; MAX_SETS]; MAX_SETS],
    set_before: usize,
}

/// The least length of a segment, unless it is the last.
fn min_len(segment_log: u8) -> usize {
    (1 << segment_log).min(MAX_SEGMENT_RUNS)
}

/// Writes or reads the description of one segment; `rest` bytes of the block are left.
fn describe_entry<C: Coder>(
    coder: &mut C,
    models: &mut Models,
    segment_log: u8,
    rest: usize,
    entry: SegmentEntry,
) -> SegmentEntry {
    let usual = 1usize << segment_log;
    let len = if rest <= min_len(segment_log) {
        rest
    } else if coder.bit(&mut models.short, entry.len < usual) {
        let less = coder.number(&mut models.less, usual.wrapping_sub(entry.len) as u32 & 0xffff);
        usual.saturating_sub(less as usize)
    } else {
        usual + coder.number(&mut models.more, entry.len.saturating_sub(usual) as u32) as usize
    };
    let words = coder.number(&mut models.words, entry.words as u32) as usize;
    let mut node = 1;
    for bit in (0..MAX_SETS.ilog2()).rev() {
        let model = &mut models.set[models.set_before][node];
        node = (node << 1) | usize::from(coder.bit(model, (entry.set >> bit) & 1 == 1));
    }
    models.set_before = node - MAX_SETS;
    SegmentEntry { len, words, set: models.set_before as u8 }
}

const fn models() -> Models {
    Models {
        short: Bit::NEW,
        more: NumberModel::NEW,
        less: NumberModel::NEW,
        words: NumberModel::NEW,
        set: [[Bit::NEW; MAX_SETS]; MAX_SETS],
        set_before: 0,
    }
}

/// Everything before the words.
#[derive(Debug)]
pub struct Layout<'a> {
    pub params: Params,
    /// The symbols that occur, in the order of the first segment's list.
    pub list: &'a [u8],
    pub rows: &'a [u32],
    pub directory: &'a [SegmentEntry],
    /// The sets of tables that directory entries refer to.
    pub sets: &'a mut [Set],
}

/// Bits of a stored row number, which is less than the length `len` of the block.
fn row_bits(len: usize) -> u32 {
    usize::BITS - (len - 1).leading_zeros()
}

impl Layout<'_> {
    /// Appends the header of a block of `len` bytes. Completes `sets` to the tables that a decoder will restore.
    pub fn write(self, len: usize, out: &mut Vec<u8>) {
        let begin = out.len();
        out.push((self.params.segment_log - 10) | (self.params.start_log - 8) << 4);
        out.push((self.sets.len() - 1) as u8);
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
        let [ranks, runs] = [RANKS, RUNS].map(|shape| {
            let mut description = Vec::new();
            let mut writer = Writer::new(&mut description);
            tables::describe(&mut writer, shape, self.sets).expect("chosen tables are valid");
            writer.finish();
            description
        });
        let descriptions = [directory, ranks, runs];
        for description in &descriptions {
            out.extend_from_slice(&(description.len() as u32).to_le_bytes()[..3]);
        }
        for description in &descriptions {
            out.extend_from_slice(description);
        }
        out.resize(begin + (out.len() - begin).next_multiple_of(4), 0);
    }
}

/// A parsed header, and the words after it.
#[derive(Debug)]
pub struct Header<'a> {
    pub params: Params,
    pub list: [u8; 256],
    pub sets: Vec<Set>,
    pub words: &'a [u8],
}

/// Splits off the first `count` bytes.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    bytes.split_off(..count).ok_or(Malformed("payload ends in its header"))
}

/// Reads the header of a block of `len` bytes; `len` is at least 1.
pub fn read<'a>(
    payload: &'a [u8],
    len: usize,
    rows: &mut Vec<u32>,
    directory: &mut Vec<SegmentEntry>,
) -> Result<Header<'a>, Malformed> {
    let mut rest = payload;
    let fixed = take(&mut rest, 3)?;
    let params = Params { segment_log: 10 + (fixed[0] & 15), start_log: 8 + (fixed[0] >> 4) };
    if params.segment_log > 16 {
        return Err(Malformed("segment size is reserved"));
    }
    let mut sets = vec![Set::EMPTY; usize::from(fixed[1]) + 1];
    if sets.len() > MAX_SETS {
        return Err(Malformed("number of table sets is reserved"));
    }
    let list = read_list(take(&mut rest, usize::from(fixed[2]) + 1)?)?;

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
    tables::describe(&mut Reader::new(description(1)?), RANKS, &mut sets)?;
    tables::describe(&mut Reader::new(description(2)?), RUNS, &mut sets)?;
    let used = payload.len() - rest.len();
    let padding = take(&mut rest, used.next_multiple_of(4) - used)?;
    if padding.iter().any(|&b| b != 0) {
        return Err(Malformed("padding is not zero"));
    }
    let segment_log = params.segment_log;
    let words = read_directory(directory_bytes, segment_log, sets.len(), len, directory)?;
    if rest.len() != 4 * words {
        return Err(Malformed("payload does not have its directory's length"));
    }
    Ok(Header { params, list, sets, words: rest })
}

/// The symbols that occur, followed by all others in ascending order.
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

/// Reads the directory of a block of `len` bytes. Returns the total number of words.
fn read_directory(
    bytes: &[u8],
    segment_log: u8,
    sets: usize,
    len: usize,
    directory: &mut Vec<SegmentEntry>,
) -> Result<usize, Malformed> {
    directory.clear();
    let mut reader = Reader::new(bytes);
    let mut models = models();
    let (mut rest, mut words) = (len, 0);
    while rest > 0 {
        let none = SegmentEntry { len: 0, words: 0, set: 0 };
        let entry = describe_entry(&mut reader, &mut models, segment_log, rest, none);
        if entry.len > rest || entry.len < min_len(segment_log).min(rest) {
            return Err(Malformed("segment length out of range"));
        }
        if entry.words > MAX_SEGMENT_WORDS {
            return Err(Malformed("segment has too many words"));
        }
        if usize::from(entry.set) >= sets {
            return Err(Malformed("segment uses a set of tables that does not exist"));
        }
        rest -= entry.len;
        words += entry.words;
        directory.push(entry);
    }
    Ok(words)
}
