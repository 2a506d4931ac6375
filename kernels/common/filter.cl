// What the filters of blocks are, as jobs say it.

typedef struct {
    // `position` is where the block begins in the contents of its frame, in units of 2^16 bytes.
    // `undo` has the stages to undo, as in a block's header, the first to undo first; 0 where there is none.
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
// Whatever the job says, a width divides, and words have 1, 2, 4 or 8 bytes.
#define FILTER_BYTES(word) max((word) >> 8 & 255u, 1u)
#define FILTER_WIDTH(word) (1u << min(31u - clz(FILTER_BYTES(word)), 3u))
#define FILTER_PARAMETER(word) ((word) >> 16)
// Base-2 logarithm of a unit's bytes.
#define UNIT_LOG(job) clamp((job).unit_log, 18u, 20u)
// Whether sums are over adjacent elements that fit a word, which a kernel of its own does.
#define SUMS_ARE_ADJACENT(word) \
    (FILTER_ID(word) == FILTER_DELTA && FILTER_PARAMETER(word) <= 1 && FILTER_WIDTH(word) <= 4)

// Lengths of rows in bytes whose differences a kernel of their own undoes, but for 32: a bit for each.
#define ROWS 0x0101115eu

// The words that whole rows fill, where sums are over rows that a kernel of their own does; otherwise 0.
inline uint row_period(uint word) {
    bool is_sum = FILTER_ID(word) == FILTER_DELTA || FILTER_ID(word) == FILTER_XOR;
    uint row = FILTER_WIDTH(word) * max(FILTER_PARAMETER(word), 1u);
    if (!is_sum || SUMS_ARE_ADJACENT(word) || row > 32 || (row < 32 && (ROWS >> row & 1) == 0)) return 0;
    return max(row / 4, row % 3 == 0 ? 3u : 1u);
}

// Units of fewer bytes have no list of values.
#define MIN_LISTED 65536u
// Of a list of values: bytes of an element, and of its place in the list.
#define LIST_WIDTH(word) max(FILTER_WIDTH(word), 4u)
#define LIST_INDEX(word) (FILTER_PARAMETER(word) == 1 ? 1u : 2u)

// Where the list of a unit of so many elements begins, in elements: behind their places.
inline uint list_start(uint word, uint elements) {
    uint width = LIST_WIDTH(word);
    return (elements * LIST_INDEX(word) + width - 1) / width;
}

// Values that the list may have.
inline uint list_capacity(uint word, uint elements) {
    return min(elements - list_start(word, elements), 1u << 8 * LIST_INDEX(word));
}

// What to write to word `at` of a unit of `len` bytes: what follows its last element stays as it is.
inline uint within(uint at, uint len, uint new_word, uint old) {
    uint bytes = min(max(len, at) - at, 4u);
    uint mask = bytes == 4 ? 0xffffffffu : (1u << 8 * bytes) - 1;
    return (new_word & mask) | (old & ~mask);
}
