// The layout of `lz77_chunks`: for each block a head, then a descriptor for each chunk, each of four words.
#define CHUNK_WORDS 4u

// Words of the head: number of chunks, 0 if the block is rejected; chunk_log, window_log and group_log in a byte each;
// length of the block.
#define BLOCK_CHUNKS 0u
#define BLOCK_LOGS 1u
#define BLOCK_LEN 2u

// Words of a chunk's descriptor: index of its record's first word in `payload`, number of its words, of its literals
// and sequences.
#define CHUNK_START 0u
#define CHUNK_RECORD 1u
#define CHUNK_LITERALS 2u
#define CHUNK_SEQUENCES 3u

// The layout of a group in `lz77_tables`: a head of eight words, then the tables of literals, tokens and offsets. The
// table of a prefix code is indexed by the next 10 bits (offsets: 8) with entries of 16 bits, `symbol | bits << 8`.
// Where streams may be FSE coded, entries have 32 bits, `symbol | bits << 8 | base << 16`, and there is room for the
// largest tables. Where chunks have only literals (LITERALS), entries are `bits | symbol << 8 | next << 20`: with FSE,
// `next` is the next state before its bits are appended, and n states are numbered n to 2 n - 1.
#define TABLES_STATUS 0u  // 0, or why the group is rejected
#define TABLES_WORDS 1u   // length of the description in words
#define TABLES_MODES 2u   // of literals in bits 0 and 1, tokens in 2 and 3, offsets in 4 and 5
#define TABLES_LOGS 3u    // a byte each: of the FSE tables
#define TABLES_HEAD 8u
#define PREFIX_LOG 10u
#define OFFSET_LOG 8u
#if FSE
#define SYMBOL_TABLE 2048u // words
#define OFFSET_TABLE 256u
#else
#define SYMBOL_TABLE 512u // words
#define OFFSET_TABLE 128u
#endif
#define GROUP_WORDS (TABLES_HEAD + 2u * SYMBOL_TABLE + OFFSET_TABLE)
