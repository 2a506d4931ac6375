// Shared by the kernels that decode BWT payloads: the layout of a block's state.

// Indices of words in a block's part of `bwt_blocks`.
#define BLOCK_WORDS 128u
#define BLOCK_SEGMENTS 1u    // number of segments
#define BLOCK_SETS 2u        // sets of tables
#define BLOCK_START_LOG 3u   // log2 of the distance of stored rows
#define BLOCK_STARTS 4u      // number of stored rows
#define BLOCK_SEGMENT_LOG 5u // log2 of the usual length of a segment
#define BLOCK_WORDS_AT 6u    // where the words of segments begin, in words of the payload
#define BLOCK_PAYLOAD 7u     // where the payload begins, in units of 16 bytes
#define BLOCK_PARTS 8u       // begin and length in bytes: directory, tables of ranks, tables of runs
#define BLOCK_SET_SIZES 16u  // number of segments that use each set
#define BLOCK_LIST 64u       // 256 bytes: the list at the start of the block

// Words of one of the three resumable tasks of a block in `bwt_state`.
#define STATE_WORDS 320u
#define STATE_MODELS 32u

// A segment's four words in `bwt_segments`: where it begins and ends in the transform, its first word counted from the
// first of all segments (later its number of runs), and its number of words | set << 16.
#define SEGMENT_WORDS 4u
#define SEGMENTS_OF(slot) ((slot) / 1024u + 1u)
// After a block's segments comes the order in which to decode them.
#define SEGMENTS_AT(block, slot) ((size_t)(block) * SEGMENTS_OF(slot) * (SEGMENT_WORDS + 1u))
#define ORDER_AT(slot) (SEGMENTS_OF(slot) * SEGMENT_WORDS)

#define MAX_SETS 8u
#define CONTEXTS 384u
#define RANK_CONTEXTS 128u
#define RUN_CONTEXTS 256u
#define TABLE_WORDS 16u
// After a block's tables comes a word for each of them: its number among the distinct tables of its set, with rank
// tables and run tables counted separately, and in bit 16 whether it is the first with that number.
#define TABLES_OF (MAX_SETS * CONTEXTS * (TABLE_WORDS + 1u))
#define NUMBERS_AT (MAX_SETS * CONTEXTS * TABLE_WORDS)
#define NUMBER_IS_FIRST 0x10000u
#define MAX_RUNS 8192u

// Entries of a block in `bwt_links`. They first hold the runs of its segments, each segment's from a multiple of four
// on, and later one link for each row.
#define LINKS_OF(slot) ((size_t)(slot) + (slot) / 64u + 16u)
#define RUNS_AT(begin, segment) ((((begin) + 3u) & ~3u) + 4u * (segment))

// Words of a job and of a result.
#define JOB_WORDS 8u
#define RESULT_WORDS 8u

inline __global const uint *payload_of(__global const uint *payload, __global const uint *jobs, uint block) {
    return payload + (size_t)jobs[block * JOB_WORDS + 2u] * 4u;
}

inline uint byte_of(__global const uint *words, uint at) {
    return words[at >> 2] >> (8u * (at & 3u)) & 255u;
}

inline uint byte_of_list(__local const uint *list, uint at) {
    return list[at >> 2] >> (8u * (at & 3u)) & 255u;
}
