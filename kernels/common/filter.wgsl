// The filters of blocks, as jobs state them.

const JOB_WORDS = 8u;
// Base-2 logarithm of a unit's bytes.
const JOB_UNIT_LOG = 3u;
// The stages as in a block's header, in the order in which to undo them; 0 where there is none.
const JOB_UNDO = 4u;
// Where the block begins in the contents of its frame, in units of 2^16 bytes.
const JOB_POSITION = 7u;

const FILTER_TRANSPOSE = 1u;
const FILTER_BIT_TRANSPOSE = 2u;
const FILTER_DELTA = 3u;
const FILTER_ZIGZAG = 4u;
const FILTER_ROTATE = 5u;
const FILTER_XOR = 6u;
const FILTER_DICTIONARY = 8u;
const FILTER_CALLS = 9u;
const FILTER_MODULE = 15u;

fn filter_id(word: u32) -> u32 {
    return word & 15u;
}

fn filter_order(word: u32) -> u32 {
    return (word >> 4u) & 3u;
}

// Whether zigzag comes after differences.
fn filter_has_zigzag(word: u32) -> bool {
    return filter_id(word) == FILTER_DELTA && ((word >> 6u) & 1u) != 0u;
}

// Even for an invalid job, FILTER_BYTES is not 0, and FILTER_WIDTH is 1, 2, 4 or 8.
fn filter_bytes(word: u32) -> u32 {
    return max((word >> 8u) & 255u, 1u);
}

fn filter_width(word: u32) -> u32 {
    return 1u << min(firstLeadingBit(filter_bytes(word)), 3u);
}

fn filter_parameter(word: u32) -> u32 {
    return word >> 16u;
}

// Whether sums are over adjacent elements that fit in a word: filter/adjacent_sums computes these.
fn sums_are_adjacent(word: u32) -> bool {
    return filter_id(word) == FILTER_DELTA && filter_parameter(word) <= 1u && filter_width(word) <= 4u;
}

// A bit for each length of rows in bytes, except 32, whose differences filter/row_sums undoes.
const ROWS = 0x0101115eu;

// The number of words that whole rows fill, if filter/row_sums computes the sums; otherwise 0.
fn row_period(word: u32) -> u32 {
    let is_sum = filter_id(word) == FILTER_DELTA || filter_id(word) == FILTER_XOR;
    let row = filter_width(word) * max(filter_parameter(word), 1u);
    if !is_sum || sums_are_adjacent(word) || row > 32u || (row < 32u && ((ROWS >> row) & 1u) == 0u) {
        return 0u;
    }
    return max(row / 4u, select(1u, 3u, row % 3u == 0u));
}

// Units of fewer bytes have no list of values.
const MIN_LISTED = 65536u;

// Bytes of an element of a list of values.
fn list_width(word: u32) -> u32 {
    return max(filter_width(word), 4u);
}

// Bytes of an element's index in the list.
fn list_index(word: u32) -> u32 {
    return select(2u, 1u, filter_parameter(word) == 1u);
}

// Where the list begins in a unit of `elements` elements, counted in elements: behind their indices.
fn list_start(word: u32, elements: u32) -> u32 {
    let width = list_width(word);
    return (elements * list_index(word) + width - 1u) / width;
}

// The most values that the list may have.
fn list_capacity(word: u32, elements: u32) -> u32 {
    return min(elements - list_start(word, elements), 1u << (8u * list_index(word)));
}

// The word to write at byte `at` of a unit of `len` bytes: bytes after its end stay as they are.
fn within(at: u32, len: u32, new_word: u32, old: u32) -> u32 {
    let bytes = min(max(len, at) - at, 4u);
    if bytes == 4u {
        return new_word;
    }
    let mask = (1u << (8u * bytes)) - 1u;
    return (new_word & mask) | (old & ~mask);
}
