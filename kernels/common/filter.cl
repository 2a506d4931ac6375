// The filters of blocks, as jobs state them.

typedef struct {
    // `position` is where the block begins in the contents of its frame, in units of 2^16 bytes. `undo` holds the
    // stages as in a block's header, in the order in which to undo them; 0 where there is none.
    uint content_len, payload_len, payload_start, unit_log, undo[3], position;
} Job;

#define FILTER_TRANSPOSE 1u
#define FILTER_BIT_TRANSPOSE 2u
#define FILTER_DELTA 3u
#define FILTER_ZIGZAG 4u
#define FILTER_ROTATE 5u
#define FILTER_XOR 6u
#define FILTER_DICTIONARY 8u
#define FILTER_CALLS 9u
#define FILTER_MODULE 15u

#define FILTER_ID(word) ((word) & 15u)
#define FILTER_ORDER(word) ((word) >> 4 & 3u)
// Whether zigzag comes after differences.
#define FILTER_HAS_ZIGZAG(word) (FILTER_ID(word) == FILTER_DELTA && ((word) >> 6 & 1u) != 0)
// Even for an invalid job, FILTER_BYTES is not 0, and FILTER_WIDTH is 1, 2, 4 or 8.
#define FILTER_BYTES(word) max((word) >> 8 & 255u, 1u)
#define FILTER_WIDTH(word) (1u << min(31u - clz(FILTER_BYTES(word)), 3u))
#define FILTER_PARAMETER(word) ((word) >> 16)
// Base-2 logarithm of a unit's bytes.
#define UNIT_LOG(job) clamp((job).unit_log, 18u, 20u)
// Whether sums are over adjacent elements that fit in a word: filter/adjacent_sums computes these.
#define SUMS_ARE_ADJACENT(word) \
    (FILTER_ID(word) == FILTER_DELTA && FILTER_PARAMETER(word) <= 1 && FILTER_WIDTH(word) <= 4)

// A bit for each length of rows in bytes, except 32, whose differences filter/row_sums undoes.
#define ROWS 0x0101115eu

// The number of words that whole rows fill, if filter/row_sums computes the sums; otherwise 0.
inline uint row_period(uint word) {
    bool is_sum = FILTER_ID(word) == FILTER_DELTA || FILTER_ID(word) == FILTER_XOR;
    uint row = FILTER_WIDTH(word) * max(FILTER_PARAMETER(word), 1u);
    if (!is_sum || SUMS_ARE_ADJACENT(word) || row > 32 || (row < 32 && (ROWS >> row & 1) == 0)) return 0;
    return max(row / 4, row % 3 == 0 ? 3u : 1u);
}

// Units of fewer bytes have no list of values.
#define MIN_LISTED 65536u
// In a list of values: bytes of an element, and of its index.
#define LIST_WIDTH(word) max(FILTER_WIDTH(word), 4u)
#define LIST_INDEX(word) (FILTER_PARAMETER(word) == 1 ? 1u : 2u)

// Where the list begins in a unit of `elements` elements, counted in elements: behind their indices.
inline uint list_start(uint word, uint elements) {
    uint width = LIST_WIDTH(word);
    return (elements * LIST_INDEX(word) + width - 1) / width;
}

// The most values that the list may have.
inline uint list_capacity(uint word, uint elements) {
    return min(elements - list_start(word, elements), 1u << 8 * LIST_INDEX(word));
}

// The word to write at byte `at` of a unit of `len` bytes: bytes after its end stay as they are.
inline uint within(uint at, uint len, uint new_word, uint old) {
    uint bytes = min(max(len, at) - at, 4u);
    uint mask = bytes == 4 ? 0xffffffffu : (1u << 8 * bytes) - 1;
    return (new_word & mask) | (old & ~mask);
}
