// The layout of `lz77_chunks`: for each block a head, then a descriptor for each chunk, each of four words.
const CHUNK_WORDS: u32 = 4u;

// Words of the head: number of chunks, 0 if the block is rejected; chunk_log, window_log and group_log in a byte each;
// length of the block.
const BLOCK_CHUNKS: u32 = 0u;
const BLOCK_LOGS: u32 = 1u;
const BLOCK_LEN: u32 = 2u;

// Words of a chunk's descriptor: index of its record's first word in `payload`, number of its words, of its literals
// and sequences.
const CHUNK_START: u32 = 0u;
const CHUNK_RECORD: u32 = 1u;
const CHUNK_LITERALS: u32 = 2u;
const CHUNK_SEQUENCES: u32 = 3u;

// The layout of a group in `lz77_tables`: a head of eight words, then the tables of literals, tokens and offsets. The
// table of a prefix code is indexed by the next 10 bits (offsets: 8) with entries of 16 bits, `symbol | bits << 8`.
// Where streams may be FSE coded, there is room for the largest tables, and each is in two parts: 16 bits of each
// entry, `bits | base << 4`, then its symbol, 8 bits. Where chunks have only literals (LITERALS), entries are `bits |
// symbol << 8 | next << 20`: with FSE, `next` is the next state before its bits are appended, and n states are
// numbered n to 2 n - 1.
const TABLES_STATUS: u32 = 0u; // 0, or why the group is rejected
const TABLES_WORDS: u32 = 1u;  // length of the description in words
const TABLES_MODES: u32 = 2u;  // of literals in bits 0 and 1, tokens in 2 and 3, offsets in 4 and 5
const TABLES_LOGS: u32 = 3u;   // a byte each: of the FSE tables
const TABLES_HEAD: u32 = 8u;
const PREFIX_LOG: u32 = 10u;
const OFFSET_LOG: u32 = 8u;
// @pz_if FSE
// @pz_if LITERALS
const SYMBOL_TABLE: u32 = 2048u; // words
const OFFSET_TABLE: u32 = 256u;
// @pz_else
const SYMBOL_TABLE: u32 = 1536u; // words
const OFFSET_TABLE: u32 = 192u;
// @pz_end
const SYMBOL_STATES: u32 = 2048u;
const OFFSET_STATES: u32 = 256u;
// @pz_else
const SYMBOL_TABLE: u32 = 512u; // words
const OFFSET_TABLE: u32 = 128u;
// @pz_end
const GROUP_WORDS: u32 = TABLES_HEAD + 2u * SYMBOL_TABLE + OFFSET_TABLE;
