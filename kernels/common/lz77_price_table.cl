// The prices of a chunk's symbols for the optimal parse, in the form that workgroup memory stores and its rings add:
// see lz77/optimal.
// @pz_import lz77_chunk_prices

// Units of the fields of words in rings.
#define ONE_PRICE 2048u
#define ONE_LENGTH 16u

// A chunk's table, in words: for each literal code of tokens a row with the prices of lengths 3 to 66 and their extra
// bits, in the rings' units, and four words of padding, so that rows are in different banks; literals, two a word;
// match codes from 22 on; offsets; literal codes.
#define LENGTHS_ROW 68u
#define TABLE_LITERALS 544u
#define LONG_CODES 672u
#define TABLE_OFFSETS 704u
#define TABLE_RUNS 752u
#define TABLE_WORDS 760u

inline uint log2_floor(uint x) {
    return 31u - clz(x);
}

// The match code of a length, and the price of its extra bits.
inline uint length_code(uint length) {
    return length < 22u ? length - 2u : 17u + log2_floor(length - 14u);
}

inline uint length_bits(uint length) {
    return length < 22u ? 0 : log2_floor(length - 14u) * BIT;
}

// The price of the extra bits of a run of literals.
inline uint run_bits(uint run) {
    uint log = log2_floor(max(run, 7u) - 6u);
    uint bits = log < 7u ? 3u + log : 12u;
    return run < 7u ? 0 : bits * BIT;
}

// The symbol of an offset that is not recent.
inline uint offset_symbol(uint offset) {
    uint x = offset + 3u, k = log2_floor(x) - 1u;
    return 3u + 2u * (k - 1u) + (x >> k & 1u);
}

inline uint half_of(uint word, uint number) {
    return word >> (number & 1u) * 16u & 0xffffu;
}

// A word of a chunk's table.
inline uint table_word(__global const uint *symbols, uint k) {
    if (k < TABLE_LITERALS) {
        uint row = TOKENS + 32u * (k / LENGTHS_ROW), length = 3u + k % LENGTHS_ROW;
        return (symbols[row + length_code(length)] + length_bits(length)) * ONE_PRICE + (127u - length) * ONE_LENGTH;
    }
    if (k < LONG_CODES) {
        uint two = LITERALS + 2u * (k - TABLE_LITERALS);
        return symbols[two] | symbols[two + 1u] << 16;
    }
    if (k < TABLE_OFFSETS) return symbols[TOKENS + 32u * ((k - LONG_CODES) >> 2) + 22u + ((k - LONG_CODES) & 3u)];
    if (k < TABLE_RUNS) return symbols[OFFSETS + k - TABLE_OFFSETS];
    return symbols[RUNS + k - TABLE_RUNS];
}

// The price, in the rings' units, of a token with a match of `length` after literals of code `row`.
inline uint token_price(__local const uint *table, uint row, uint length) {
    if (length < 67u) return table[LENGTHS_ROW * row + length - 3u] & ~(ONE_PRICE - 1u);
    return (table[LONG_CODES + 4u * row + length_code(length) - 22u] + length_bits(length)) * ONE_PRICE;
}
