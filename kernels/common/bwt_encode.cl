// Layouts that the kernels of the BWT encoder share.

// Indices of words in a block's state.
#define ENCODE_STATE 64u
#define ENCODE_RUNS 0u
#define ENCODE_SEGMENTS 1u
#define ENCODE_SETS 2u
#define ENCODE_WORDS 3u     // of all segments
#define ENCODE_HEADER 4u    // bytes before the words
#define ENCODE_LENGTHS 5u   // bytes of the three descriptions
#define ENCODE_USED 8u      // bits of the symbols that occur, eight words
#define ENCODE_FULL 16u     // whether something had no room

// A segment's words.
#define SEGMENT_WORDS 8u
#define SEGMENT_RUN 0u
#define SEGMENT_BEGIN 1u
#define SEGMENT_CODED 2u    // words
#define SEGMENT_SET 3u
#define SEGMENT_KEPT 4u     // whether its counts take part in the choice of sets
#define SEGMENT_CELLS 5u    // counts that are not 0
#define SEGMENT_DENSITY 6u  // runs per 64 KiB
#define SEGMENT_BEFORE 7u   // words of the segments before

#define ENCODE_SEGMENT_RUNS 8192u
// The most segments of a block.
#define SEGMENTS(slot) ((slot + 8191u) / 8192u + 1u)

#define CHUNK 1024u         // runs that are ranked together
#define GROUP_CHUNKS 128u          // chunks of a group
#define CONTEXTS 384u
#define RANK_CONTEXTS 128u
#define CELLS (CONTEXTS * 32u)
#define SETS 8u

// Where a block's segments, their lists of symbols and their counts begin, in words.
#define SEGMENTS_AT(block, slot) ((size_t)(block) * SEGMENTS(slot) * SEGMENT_WORDS)
#define LISTS_AT(block, slot) ((size_t)(block) * SEGMENTS(slot) * 64u)
#define COUNTS_AT(block, slot) ((size_t)(block) * SEGMENTS(slot) * (CELLS / 2))

inline uint low_bits(uint v, uint bits) {
    return v & ((1u << bits) - 1u);
}

typedef struct {
    uint token;
    uint bits;
    uint raw;
} Token;

inline Token rank_token(uint rank) {
    uint v = rank - 1;
    Token t = {v, 0, 0};
    if (v >= 8) {
        uint e = 31u - clz(v);
        t.bits = e - 2;
        t.token = 8 + 4 * (e - 3) + (v >> t.bits & 3u);
        t.raw = low_bits(v, t.bits);
    }
    return t;
}

inline Token run_token(uint run) {
    uint v = run - 1;
    Token t = {v, 0, 0};
    if (v >= 8192) {
        t.token = 28;
        t.bits = 32;
        t.raw = v;
    } else if (v >= 8) {
        uint e = 31u - clz(v);
        t.bits = e - 1;
        t.token = 8 + 2 * (e - 3) + (v >> t.bits & 1u);
        t.raw = low_bits(v, t.bits);
    }
    return t;
}

// A logarithm with 16 steps to an octave, for values of at least 1.
inline uint log_scale(uint value) {
    if (value >= 255) return 127;
    uint e = 31u - clz(value);
    return 16 * e + ((value << (7 - e) & 127u) >> 3);
}

// Room for the descriptions of the directory, and of the tables of ranks and lengths, in this order.
#define DIRECTORY_ROOM(slot) ((slot) / 64u + 1024u)
#define RANKS_ROOM 98304u
#define RUNS_ROOM 163840u
#define DESCRIBED_ROOM(slot) (DIRECTORY_ROOM(slot) + RANKS_ROOM + RUNS_ROOM)
