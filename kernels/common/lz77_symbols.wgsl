// Decodes the literals and sequences of LZ77 chunks from the words of their lanes. The kernel declares `contents` and
// `lz77_tables`.
// @pz_import lanes
// @pz_import lz77_chunks

// Each team of a workgroup has its own arrays, as few and small as possible: workgroup memory limits how many teams a
// processor runs at once, and so its speed. The tables stay in device memory, which processors cache.

// Bytes that a team reads or writes at a time: each lane has a word.
const GROUP: u32 = 128u;
const MAX_LITERALS: u32 = 511u;
const MAX_MATCH: u32 = 512u;
const RECENT: u32 = 3u; // explicit offsets from before a batch that it can name

// Explicit offsets, by number, while a batch's are looked up; then the sources of a group's bytes.
var<workgroup> scratch: array<u32, TEAMS * GROUP>;

// ---- Symbols --------------------------------------------------------------------------------------------------------

// The states of the three streams, and whether they have states.
var<private> literal_state: u32;
var<private> token_state: u32;
var<private> offset_state: u32;
var<private> token_fse: bool;
var<private> offset_fse: bool;
var<private> literal_fse: bool;

// @pz_if FSE
fn entry_bits(entry: u32) -> u32 {
    return (entry >> 8u) & 15u;
}

// The next state, with the first bits of `bits`.
fn advanced(entry: u32, bits: u32) -> u32 {
    return (entry >> 12u) + first_bits(bits, entry_bits(entry));
}

// An entry of the table that begins at `table` and has room for this many states: `symbol | bits << 8 | base << 12`.
fn table_entry(table: u32, states: u32, index: u32) -> u32 {
    let half = (lz77_tables[table + (index >> 1u)] >> (16u * (index & 1u))) & 0xffffu;
    let symbol = (lz77_tables[table + states / 2u + (index >> 2u)] >> (8u * (index & 3u))) & 255u;
    return symbol | half << 8u;
}
// @pz_else
fn entry_bits(entry: u32) -> u32 {
    return entry >> 8u;
}

// An entry of the table that begins at `table`: `symbol | bits << 8`.
fn table_entry(table: u32, index: u32) -> u32 {
    return (lz77_tables[table + (index >> 1u)] >> (16u * (index & 1u))) & 0xffffu;
}
// @pz_end

// Where the tables begin in device memory: that of literals, later of tokens; and that of offsets.
var<private> symbol_table: u32;
var<private> offset_table: u32;

// The entry of a literal or a token: of the stream's state, if it has states, or of the prefix of `bits`.
fn symbol_entry(bits: u32, fse: bool, state: u32) -> u32 {
// @pz_if FSE
    let index = select(bits >> (32u - PREFIX_LOG), state & (SYMBOL_STATES - 1u), fse);
    return table_entry(symbol_table, SYMBOL_STATES, index);
// @pz_else
    return table_entry(symbol_table, bits >> (32u - PREFIX_LOG));
// @pz_end
}

fn offset_entry(bits: u32) -> u32 {
// @pz_if FSE
    let index = select(bits >> (32u - OFFSET_LOG), offset_state & (OFFSET_STATES - 1u), offset_fse);
    return table_entry(offset_table, OFFSET_STATES, index);
// @pz_else
    return table_entry(offset_table, bits >> (32u - OFFSET_LOG));
// @pz_end
}

// ---- Literals -------------------------------------------------------------------------------------------------------

// Reads two literals of a row into 16 bits, at `place` and after it, if they are in [first, end).
fn literal_pair(place: u32, first: u32, end: u32) -> u32 {
    lanes_refill();
    var bits = in_high;
    let e0 = symbol_entry(bits, literal_fse, literal_state);
    let has0 = place >= first && place < end;
    let n0 = select(0u, entry_bits(e0), has0);
// @pz_if FSE
    literal_state = select(literal_state, advanced(e0, bits), has0);
// @pz_end
    bits <<= n0;
    let e1 = symbol_entry(bits, literal_fse, literal_state);
    let has1 = place + 1u >= first && place + 1u < end;
    let n1 = select(0u, entry_bits(e1), has1);
// @pz_if FSE
    literal_state = select(literal_state, advanced(e1, bits), has1);
// @pz_end
    lanes_skip(n0 + n1);
    return (e0 & 255u) | (e1 & 255u) << 8u;
}

// Reads all literals into the words from `grid` on. They begin at byte `first`.
fn read_literals(grid: u32, first: u32, end: u32) {
    for (var row = 0u; row < end; row += GROUP) {
        let place = row + 4u * lane;
// @pz_if TEAM_SUBGROUP
        let low = literal_pair(place, first, end);
        let high = literal_pair(place + 2u, first, end);
        let word = low | high << 16u;
// @pz_else
        // Barriers take long to compile, so this uses as few as possible.
        var word = 0u;
        for (var half = 0u; half < 2u; half++) {
            word |= literal_pair(place + 2u * half, first, end) << (16u * half);
        }
// @pz_end
        // Whole words are written, so bytes next to the literals are written too. Those before are not decoded yet;
        // those after are beyond the block's end, and the slot has whole words.
        if place < end {
            contents[grid + place / 4u] = word;
        }
    }
    team_sync();
}

// ---- Sequences ------------------------------------------------------------------------------------------------------

struct Sequence {
    literals: u32,
    length: u32,
    offset: u32, // or number of a recent one
    recent: bool,
    bad: bool,
}

fn read_sequence(is_active: bool) -> Sequence {
    lanes_refill();
    var bits = in_high;
    var entry = symbol_entry(bits, token_fse, token_state);
    var used = entry_bits(entry);
// @pz_if FSE
    token_state = select(token_state, advanced(entry, bits), is_active);
// @pz_end
    bits <<= used;
    var literals = (entry >> 5u) & 7u;
    let code = entry & 31u;
    var length = select(code + 2u, 0u, code == 0u);
    if literals == 7u {
        let e = bits >> 29u;
        bits <<= 3u;
        let k = select(e, 9u, e == 7u);
        literals = 6u + (1u << e) + first_bits(bits, k);
        bits <<= k;
        used += 3u + k;
    }
    if code >= 20u {
        let k = select(0u, code - 17u, code < 26u);
        length = select(MAX_MATCH, 14u + (1u << k) + first_bits(bits, k), code < 26u);
        used += k;
    }
    lanes_skip(select(0u, used, is_active));

    lanes_refill();
    bits = in_high;
    entry = offset_entry(bits);
    used = entry_bits(entry);
// @pz_if FSE
    offset_state = select(offset_state, advanced(entry, bits), is_active);
// @pz_end
    bits <<= used;
    let symbol = entry & 255u;
    let y = symbol - 3u;
    let k = ((y >> 1u) + 1u) & 31u;
    let offset = ((2u | (y & 1u)) << k) + first_bits(bits, k) - 3u;
    used += select(k, 0u, symbol < 3u);
    lanes_skip(select(0u, used, is_active));

    var q: Sequence;
    q.recent = symbol < 3u || !is_active;
    q.offset = select(offset, symbol, symbol < 3u);
    q.bad = is_active && (code > 26u || literals > MAX_LITERALS || length > MAX_MATCH
        || (length == 0u && (symbol != 0u || literals == 0u)));
    q.literals = select(0u, literals, is_active);
    q.length = select(0u, length, is_active);
    return q;
}

// The most recent explicit offsets, in the first lanes, the latest last.
var<private> recent: u32;

// Numbers the explicit offsets of a batch, and looks up recent ones by number.
fn resolve_offsets(even: ptr<function, Sequence>, odd: ptr<function, Sequence>) {
    let explicit0 = team_ballot(!(*even).recent);
    let explicit1 = team_ballot(!(*odd).recent);
    let number0 = RECENT + countOneBits(explicit0 & team_before()) + countOneBits(explicit1 & team_before());
    let number1 = number0 + select(1u, 0u, (*even).recent);
    let first = team_index * GROUP;
    if lane < RECENT {
        scratch[first + lane] = recent;
    }
    if !(*even).recent {
        scratch[first + (number0 & (GROUP - 1u))] = (*even).offset;
    }
    if !(*odd).recent {
        scratch[first + (number1 & (GROUP - 1u))] = (*odd).offset;
    }
    team_sync();
    if (*even).recent {
        (*even).offset = scratch[first + ((number0 - 1u - (*even).offset) & (GROUP - 1u))];
    }
    if (*odd).recent {
        (*odd).offset = scratch[first + ((number1 - 1u - (*odd).offset) & (GROUP - 1u))];
    }
    recent = scratch[first + ((lane + countOneBits(explicit0) + countOneBits(explicit1)) & (GROUP - 1u))];
}

// ---- Batches --------------------------------------------------------------------------------------------------------

// Positions count from the start of the window, which is at word `base` of `contents`.
var<private> base: u32;
// The positions of the next byte and the next literal, and the end of the chunk.
var<private> position: u32;
var<private> literal: u32;
var<private> chunk_end: u32;
// The places of a batch's sequences: `total`, `literals` and `bad` are uniform; the rest describes the lane's two
// sequences.
struct Batch {
    start0: u32,    // from the batch's start on
    start1: u32,
    literals0: u32, // of the batch, before them
    literals1: u32,
    match0: u32,    // their matches, in the window
    match1: u32,
    total: u32,     // bytes of the batch, 0 if it is bad
    literals: u32,  // likewise
    bad: bool,      // whether a rule is broken
}

fn batch_places(even: Sequence, odd: Sequence) -> Batch {
    // Sums of a batch fit in 16 bits.
    let size0 = even.literals | (even.literals + even.length) << 16u;
    let size = size0 + (odd.literals | (odd.literals + odd.length) << 16u);
    let sum = team_scan(size);
    let all_ = team_max(sum);
    let sum0 = sum - size;
    let sum1 = sum0 + size0;
    var b: Batch;
    b.total = all_ >> 16u;
    b.literals = all_ & 0xffffu;
    b.start0 = sum0 >> 16u;
    b.start1 = sum1 >> 16u;
    b.literals0 = sum0 & 0xffffu;
    b.literals1 = sum1 & 0xffffu;
    b.match0 = position + b.start0 + even.literals;
    b.match1 = position + b.start1 + odd.literals;
    var bad = even.bad || odd.bad;
    bad = bad || (even.length != 0u && even.offset - 1u >= b.match0);
    bad = bad || (odd.length != 0u && odd.offset - 1u >= b.match1);
    // Each remaining literal becomes a byte, so the output cannot be past them. This check also keeps the output in
    // the chunk.
    bad = bad || position + b.total > literal + b.literals || literal + b.literals > chunk_end;
    b.bad = team_any(bad);
    if b.bad {
        b.total = 0u;
        b.literals = 0u;
    }
    return b;
}
