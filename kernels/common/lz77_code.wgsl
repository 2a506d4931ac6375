// Shared by the kernels that code LZ77 sequences: layouts of their buffers, and the codes of lengths and offsets.
//
// A chunk has CHUNK_WORDS words in `lz77_streams`. A group has three models (literals, tokens, offsets), of
// MODEL_WORDS words each in `lz77_models` and COUNT_WORDS each in `lz77_counts`.
const CHUNK_WORDS = 256u;
const CHUNK_LITERALS = 0u;  // number of literals
const CHUNK_SEQUENCES = 1u; // number of sequences
const CHUNK_STREAM = 2u;    // words of its stream
const CHUNK_RECORD = 3u;    // where its record begins in the payload, in words
const CHUNK_TABLES = 4u;    // words of the tables at the start of its record
const CHUNK_STATES = 32u;   // for each model, the 32 states that decoding begins with

const COUNT_WORDS = 256u;

const MODEL_WORDS = 1376u;
const MODEL_MODE = 0u;        // one of the modes
const MODEL_CONSTANT = 1u;    // the symbol of mode 0
const MODEL_LOG = 2u;         // of the table of mode 3
const MODEL_BITS = 3u;        // of the description
const MODEL_SIZE = 4u;        // bits of the group's symbols and the description
const MODEL_DESCRIPTION = 5u; // bits from the top of each word down, then zeros
const MODEL_CODES = 96u;      // a word for each symbol; before that, its code length or norm
const MODEL_NEXT = 352u;      // for mode 3: the states of each symbol, two in a word

const MODE_CONSTANT = 0u;
const MODE_RAW = 1u;
const MODE_HUFFMAN = 2u;
const MODE_FSE = 3u;

const MAX_LITERALS = 511u;
const MAX_MATCH = 512u;
const MIN_MATCH = 3u;

fn log2_floor(x: u32) -> u32 {
    return 31u - countLeadingZeros(x);
}

// The most sequences in a chunk of this many bytes, rounded up to whole batches: all but the last take at least 3
// bytes.
fn sequence_room(chunk_len: u32) -> u32 {
    return ((chunk_len + 2u) / 3u + 63u) & ~63u;
}

// The most words that the stream of a chunk of this many bytes takes. A match of 3 bytes takes at most 11 bits for its
// token and 30 for its offset, which is less than 14 bits a byte; longer runs and matches more than make up for their
// extra bits. A literal takes at most 11 bits. A last sequence of one literal, the states and the lanes' unfinished
// words take less than 256 words.
fn stream_room(chunk_len: u32) -> u32 {
    return (chunk_len >> 4u) * 7u + 256u;
}

// The token's symbol for a run of literals and a match.
fn token_symbol(literals: u32, length: u32) -> u32 {
    var m = 26u;
    if length < 22u {
        m = max(length, 2u) - 2u;
    } else if length < MAX_MATCH {
        m = 17u + log2_floor(length - 14u);
    }
    return min(literals, 7u) << 5u | m;
}

// The token's extra bits: their number, and their value.
fn token_extra(literals: u32, length: u32) -> vec2<u32> {
    var bits = 0u;
    var value = 0u;
    if literals >= 7u {
        let row = min(log2_floor(literals - 6u), 7u);
        bits = select(9u, row, row < 7u);
        value = row << bits | (literals - 6u - (1u << row));
        bits += 3u;
    }
    if length >= 22u && length < MAX_MATCH {
        let more = log2_floor(length - 14u);
        value = value << more | (length - 14u - (1u << more));
        bits += more;
    }
    return vec2(bits, value);
}

// The number of extra bits after an offset's symbol.
fn offset_bits(symbol: u32) -> u32 {
    return select(((symbol - 3u) >> 1u) + 1u, 0u, symbol < 3u);
}
