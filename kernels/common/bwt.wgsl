// Shared by the kernels that decode BWT payloads: the layout of a block's state.

// Indices of words in a block's part of `bwt_blocks`.
const BLOCK_WORDS = 128u;
const BLOCK_SEGMENTS = 1u;    // number of segments
const BLOCK_SETS = 2u;        // sets of tables
const BLOCK_START_LOG = 3u;   // log2 of the distance of stored rows
const BLOCK_STARTS = 4u;      // number of stored rows
const BLOCK_SEGMENT_LOG = 5u; // log2 of the usual length of a segment
const BLOCK_WORDS_AT = 6u;    // where the words of segments begin, in words of the payload
const BLOCK_PAYLOAD = 7u;     // where the payload begins, in units of 16 bytes
const BLOCK_PARTS = 8u;       // begin and length in bytes: directory, tables of ranks, tables of runs
const BLOCK_SET_SIZES = 16u;  // number of segments that use each set
const BLOCK_LIST = 64u;       // 256 bytes: the list at the start of the block

// Words of one of the three resumable tasks of a block in `bwt_state`.
const STATE_WORDS = 320u;
const STATE_MODELS = 32u;

// A segment's four words in `bwt_segments`: where it begins and ends in the transform, its first word counted from the
// first of all segments (later its number of runs), and its number of words | set << 16.
const SEGMENT_WORDS = 4u;

fn segments_of(slot: u32) -> u32 {
    return slot / 1024u + 1u;
}

// After a block's segments comes the order in which to decode them.
fn segments_at(block: u32, slot: u32) -> u32 {
    return block * segments_of(slot) * (SEGMENT_WORDS + 1u);
}

fn order_at(slot: u32) -> u32 {
    return segments_of(slot) * SEGMENT_WORDS;
}

const MAX_SETS = 8u;
const CONTEXTS = 384u;
const RANK_CONTEXTS = 128u;
const RUN_CONTEXTS = 256u;
const TABLE_WORDS = 16u;
// After a block's tables comes a word for each of them: its number among the distinct tables of its set, with rank
// tables and run tables counted separately, and in bit 16 whether it is the first with that number.
const TABLES_OF = MAX_SETS * CONTEXTS * (TABLE_WORDS + 1u);
const NUMBERS_AT = MAX_SETS * CONTEXTS * TABLE_WORDS;
const NUMBER_IS_FIRST = 0x10000u;
const MAX_RUNS = 8192u;

// Entries of a block in `bwt_links`. They first hold the runs of its segments, each segment's from a multiple of four
// on, and later one link for each row.
fn links_of(slot: u32) -> u32 {
    return slot + slot / 64u + 16u;
}

fn runs_at(begin: u32, segment: u32) -> u32 {
    return ((begin + 3u) & ~3u) + 4u * segment;
}

// Words of a job and of a result.
const JOB_WORDS = 8u;
const RESULT_WORDS = 8u;
