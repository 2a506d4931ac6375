// Layouts that the kernels of the BWT encoder share.

// Indices of words in a block's state.
const ENCODE_STATE = 64u;
const ENCODE_RUNS = 0u;
const ENCODE_SEGMENTS = 1u;
const ENCODE_SETS = 2u;
const ENCODE_WORDS = 3u;   // of all segments
const ENCODE_HEADER = 4u;  // bytes before the words
const ENCODE_LENGTHS = 5u; // bytes of the three descriptions
const ENCODE_USED = 8u;    // bits of the symbols that occur, eight words
const ENCODE_FULL = 16u;   // whether something had no room

// A segment's words.
const SEGMENT_WORDS = 8u;
const SEGMENT_RUN = 0u;
const SEGMENT_BEGIN = 1u;
const SEGMENT_CODED = 2u;   // words
const SEGMENT_SET = 3u;
const SEGMENT_KEPT = 4u;    // whether its counts take part in the choice of sets
const SEGMENT_CELLS = 5u;   // counts that are not 0
const SEGMENT_DENSITY = 6u; // runs per 64 KiB
const SEGMENT_BEFORE = 7u;  // words of the segments before

const ENCODE_SEGMENT_RUNS = 8192u;
const CHUNK = 1024u; // runs that are ranked together
const GROUP_CHUNKS = 128u; // chunks of a group
const CONTEXTS = 384u;
const RANK_CONTEXTS = 128u;
const CELLS = CONTEXTS * 32u;
const SETS = 8u;

// The most segments of a block.
fn most_segments(slot: u32) -> u32 {
    return (slot + 8191u) / 8192u + 1u;
}

// Where a block's segments, their lists of symbols and their counts begin, in words.

fn segments_at(block: u32, slot: u32) -> u32 {
    return block * most_segments(slot) * SEGMENT_WORDS;
}

fn lists_at(block: u32, slot: u32) -> u32 {
    return block * most_segments(slot) * 64u;
}

fn counts_at(block: u32, slot: u32) -> u32 {
    return block * most_segments(slot) * (CELLS / 2u);
}

fn low_bits(v: u32, bits: u32) -> u32 {
    return v & ((1u << bits) - 1u);
}

struct Token {
    token: u32,
    bits: u32,
    raw: u32,
}

fn rank_token(rank: u32) -> Token {
    let v = rank - 1u;
    if v < 8u {
        return Token(v, 0u, 0u);
    }
    let e = firstLeadingBit(v);
    let bits = e - 2u;
    return Token(8u + 4u * (e - 3u) + (v >> bits & 3u), bits, low_bits(v, bits));
}

fn run_token(run: u32) -> Token {
    let v = run - 1u;
    if v < 8u {
        return Token(v, 0u, 0u);
    }
    if v >= 8192u {
        return Token(28u, 32u, v);
    }
    let e = firstLeadingBit(v);
    let bits = e - 1u;
    return Token(8u + 2u * (e - 3u) + (v >> bits & 1u), bits, low_bits(v, bits));
}

// A logarithm with 16 steps to an octave, for values of at least 1.
fn log_scale(value: u32) -> u32 {
    if value >= 255u {
        return 127u;
    }
    let e = firstLeadingBit(value);
    return 16u * e + ((value << (7u - e) & 127u) >> 3u);
}

// Numbers of 64 bits: the low half, then the high one.

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn less64(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// a << n, where n is below 32.
fn shl64(a: vec2<u32>, n: u32) -> vec2<u32> {
    if n == 0u {
        return a;
    }
    return vec2(a.x << n, a.y << n | a.x >> (32u - n));
}

fn mul64(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let one = (a >> 16u) * (b & 0xffffu);
    let two = (a & 0xffffu) * (b >> 16u);
    let middle = (low >> 16u) + (one & 0xffffu) + (two & 0xffffu);
    let high = (a >> 16u) * (b >> 16u) + (one >> 16u) + (two >> 16u) + (middle >> 16u);
    return vec2(middle << 16u | (low & 0xffffu), high);
}

// Room for the descriptions of the directory, and of the tables of ranks and lengths, in this order.
const RANKS_ROOM = 98304u;
const RUNS_ROOM = 163840u;

fn directory_room(slot: u32) -> u32 {
    return slot / 64u + 1024u;
}

fn described_room(slot: u32) -> u32 {
    return directory_room(slot) + RANKS_ROOM + RUNS_ROOM;
}
