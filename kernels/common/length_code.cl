// The prefix codes that describe code lengths: see src/format/lz77.md.
//
// The workgroup builds a table of 25 codes with 128 entries each, `length << 3 | bits`, before it uses them.
#define LENGTH_CODES 25u
#define LENGTH_SYMBOLS 13u

// Bits of each length in each code; 0: the length is not in the code.
__constant uchar length_code_bits[LENGTH_CODES * LENGTH_SYMBOLS] = {
    0, 6, 6, 5, 4, 5, 4, 5, 4, 4, 2, 2, 3,
    1, 7, 6, 7, 6, 5, 6, 5, 5, 5, 3, 3, 4,
    1, 3, 5, 3, 3, 5, 6, 7, 7, 7, 7, 7, 7,
    4, 2, 2, 2, 4, 4, 6, 7, 7, 7, 7, 7, 7,
    3, 5, 4, 3, 4, 1, 6, 5, 6, 7, 7, 7, 7,
    6, 5, 4, 4, 1, 3, 3, 5, 6, 7, 7, 7, 7,
    4, 7, 7, 2, 1, 4, 5, 6, 7, 5, 7, 7, 7,
    5, 7, 7, 3, 1, 4, 4, 4, 4, 5, 5, 7, 7,
    4, 7, 7, 3, 1, 3, 4, 4, 6, 7, 7, 7, 7,
    6, 7, 7, 6, 2, 1, 3, 6, 6, 6, 6, 7, 7,
    4, 7, 7, 6, 2, 2, 2, 4, 5, 6, 5, 7, 7,
    6, 7, 7, 7, 4, 2, 1, 4, 5, 5, 7, 7, 7,
    4, 7, 7, 7, 5, 3, 1, 3, 4, 5, 6, 6, 7,
    5, 7, 7, 7, 5, 3, 2, 2, 3, 4, 4, 5, 7,
    5, 7, 7, 7, 5, 4, 4, 1, 3, 4, 4, 5, 7,
    5, 7, 7, 7, 5, 4, 3, 2, 2, 3, 4, 5, 7,
    4, 7, 7, 6, 6, 5, 4, 4, 1, 3, 4, 5, 6,
    4, 7, 7, 7, 7, 5, 5, 3, 3, 2, 2, 4, 5,
    3, 7, 7, 7, 7, 6, 5, 5, 4, 1, 3, 4, 6,
    4, 7, 7, 7, 7, 6, 6, 5, 4, 3, 1, 3, 5,
    3, 7, 7, 7, 7, 7, 7, 5, 5, 3, 1, 3, 6,
    3, 7, 7, 7, 7, 6, 6, 5, 5, 4, 3, 1, 4,
    2, 7, 7, 7, 7, 7, 7, 6, 5, 5, 4, 1, 4,
    3, 7, 7, 7, 7, 6, 6, 5, 5, 4, 4, 3, 1,
    2, 7, 7, 7, 7, 6, 6, 6, 6, 5, 4, 4, 1,
};

// All work items of the workgroup call this, and then need a barrier.
static inline void length_code_build(__local uchar *table, uint index) {
    for (uint i = index; i < LENGTH_CODES * LENGTH_SYMBOLS; i += THREADS) {
        uint code = i / LENGTH_SYMBOLS;
        uint length = i % LENGTH_SYMBOLS;
        uint bits = length_code_bits[i];
        if (bits == 0u) continue;
        // In a canonical code, shorter codes come first, and among codes of equal length the smaller values.
        uint start = 0u;
        for (uint other = 0u; other < LENGTH_SYMBOLS; other++) {
            uint b = length_code_bits[code * LENGTH_SYMBOLS + other];
            bool first = b < bits || (b == bits && other < length);
            if (b != 0u && first) start += 128u >> b;
        }
        for (uint j = 0u; j < 128u >> bits; j++) {
            table[code * 128u + start + j] = (uchar)(length << 3 | bits);
        }
    }
}

// Reads the bits of a description on one lane, from the top of each byte down.
typedef struct {
    __global const uint *words;
    uint count;      // number of words
    uint index;      // of the word in `w0`
    uint w0, w1, w2; // with the first byte on top; 0 after the last
    uint position;   // in bits
} Description;

static inline uint description_word(Description *d, uint i) {
    if (i >= d->count) return 0u;
    uint v = d->words[i];
    return v << 24 | (v & 0xff00u) << 8 | (v >> 8 & 0xff00u) | v >> 24;
}

static inline void description_start(Description *d, __global const uint *words, uint count) {
    d->words = words;
    d->count = count;
    d->index = 0u;
    d->position = 0u;
    d->w0 = description_word(d, 0u);
    d->w1 = description_word(d, 1u);
    d->w2 = description_word(d, 2u);
}

// The next 32 bits; 0 where there are none.
static inline uint description_peek(Description *d) {
    uint used = d->position & 31u;
    return used == 0u ? d->w0 : d->w0 << used | d->w1 >> (32u - used);
}

// Takes at most 32 bits.
static inline void description_skip(Description *d, uint count) {
    d->position += count;
    if (d->position >> 5 != d->index) {
        d->index++;
        d->w0 = d->w1;
        d->w1 = d->w2;
        d->w2 = description_word(d, d->index + 2u);
    }
}

static inline uint description_read(Description *d, uint count) {
    uint v = count == 0u ? 0u : description_peek(d) >> (32u - count);
    description_skip(d, count);
    return v;
}

static inline bool description_is_short(Description *d) {
    return d->position > 32u * d->count;
}

// Reads the code lengths of `size` symbols, at most `most`, if `log` is 0; otherwise their norms for a table of 2^log
// states. Values other than 0 go to `out`. Returns 0 or a status.
static inline uint description_lengths(Description *d, __local const uchar *table, uint size, uint most, uint log, __local ushort *out) {
    uint near = 0u;
    uint far = 0u;
    uint place = 0u;
    uint space = log != 0u ? 1u << log : 4096u;
    for (uint i = 0u; i <= size; i++) {
        uint next = description_peek(d);
        uint used = 0u;
        if ((near | far) == 0u) {
            uint zeros = clz(next);
            if (zeros > 8u) return 20u;
            used = 2u * zeros + 1u;
            place += (next >> (32u - used)) - 1u;
        }
        if (place >= size) return 21u;
        uint code = near == 0u ? (far == 0u ? 0u : 1u) : (far == 0u ? 2u * near : near + far);
        uint entry = table[code * 128u + (next << used >> 25)];
        uint length = entry >> 3;
        description_skip(d, used + (entry & 7u));
        if (length != 0u) {
            uint share, value;
            if (log != 0u) {
                if (length > log) return 22u;
                value = description_read(d, log - length) | 1u << (log - length);
                share = value;
            } else {
                if (length > most) return 23u;
                value = length;
                share = 4096u >> length;
            }
            if (share > space) return 24u;
            out[place] = (ushort)value;
            space -= share;
            if (space == 0u) return description_is_short(d) ? 25u : 0u;
        }
        far = near;
        near = length;
        place++;
    }
    return 26u;
}
