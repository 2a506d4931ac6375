// Shared by the kernels that code LZ77 sequences: layouts of their buffers, and the codes of lengths and offsets.
//
// A chunk has CHUNK_WORDS words in `lz77_streams`. A group has three models (literals, tokens, offsets), of
// MODEL_WORDS words each in `lz77_models` and COUNT_WORDS each in `lz77_counts`.
#define CHUNK_WORDS 256u
#define CHUNK_LITERALS 0u    // number of literals
#define CHUNK_SEQUENCES 1u   // number of sequences
#define CHUNK_STREAM 2u      // words of its stream
#define CHUNK_RECORD 3u      // where its record begins in the payload, in words
#define CHUNK_TABLES 4u      // words of the tables at the start of its record
#define CHUNK_STATES 32u     // for each model, the 32 states that decoding begins with

#define COUNT_WORDS 256u

#define MODEL_WORDS 1376u
#define MODEL_MODE 0u         // one of the modes
#define MODEL_CONSTANT 1u     // the symbol of mode 0
#define MODEL_LOG 2u          // of the table of mode 3
#define MODEL_BITS 3u         // of the description
#define MODEL_SIZE 4u         // bits of the group's symbols and the description
#define MODEL_DESCRIPTION 5u  // bits from the top of each word down, then zeros
#define MODEL_CODES 96u       // a word for each symbol; before that, its code length or norm
#define MODEL_NEXT 352u       // for mode 3: the states of each symbol, two in a word

#define MODE_CONSTANT 0u
#define MODE_RAW 1u
#define MODE_HUFFMAN 2u
#define MODE_FSE 3u

#define MAX_LITERALS 511u
#define MAX_MATCH 512u
#define MIN_MATCH 3u

inline uint log2_floor(uint x) {
    return 31u - clz(x);
}

// The most sequences in a chunk of this many bytes, rounded up to whole batches: all but the last take at least 3
// bytes.
inline uint sequence_room(uint chunk_len) {
    return ((chunk_len + 2u) / 3u + 63u) & ~63u;
}

// The most words that the stream of a chunk of this many bytes takes. A match of 3 bytes takes at most 11 bits for its
// token and 30 for its offset, which is less than 14 bits a byte; longer runs and matches more than make up for their
// extra bits. A literal takes at most 11 bits. A last sequence of one literal, the states and the lanes' unfinished
// words take less than 256 words.
inline uint stream_room(uint chunk_len) {
    return (chunk_len >> 4) * 7u + 256u;
}

// The token's symbol for a run of literals and a match.
inline uint token_symbol(uint literals, uint length) {
    uint run = min(literals, 7u) << 5;
    uint m = length < 22u ? max(length, 2u) - 2u : length < MAX_MATCH ? 17u + log2_floor(length - 14u) : 26u;
    return run | m;
}

// The token's extra bits: their number, and their value.
inline uint token_extra(uint literals, uint length, uint *value) {
    uint bits = 0, v = 0;
    if (literals >= 7u) {
        uint row = min(log2_floor(literals - 6u), 7u);
        bits = row < 7u ? row : 9u;
        v = (row << bits) | (literals - 6u - (1u << row));
        bits += 3u;
    }
    if (length >= 22u && length < MAX_MATCH) {
        uint more = log2_floor(length - 14u);
        v = (v << more) | (length - 14u - (1u << more));
        bits += more;
    }
    *value = v;
    return bits;
}

// The number of extra bits after an offset's symbol.
inline uint offset_bits(uint symbol) {
    return symbol < 3u ? 0u : ((symbol - 3u) >> 1) + 1u;
}
