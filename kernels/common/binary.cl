// Decodes binary coded numbers, for one work item. A model is a word: fast | slow << 16.

#define MODEL_NEW 0x80008000u
#define NUMBER_MODELS 61u // length[0..30], high[1..31]

typedef struct {
    __global const uint *words; // the payload
    uint end;                   // zeros follow from this byte on
    uint range;
    uint code;
    ulong ahead; // the next bytes, the first on top
    uint held;   // number of bits in `ahead`, more than 32
    uint coming; // the next word, loaded long before it is needed
    uint loaded; // words of the payload loaded so far
} Binary;

inline uint binary_word(Binary *d) {
    uint at = 4u * d->loaded;
    uint word = at < d->end ? d->words[d->loaded] : 0u;
    if (d->end - at < 4u && at < d->end) word &= (1u << (8u * (d->end - at))) - 1u;
    d->loaded += 1u;
    return word << 24 | (word << 8 & 0xff0000u) | (word >> 8 & 0xff00u) | word >> 24;
}

// Continues at byte `at`.
inline void binary_open(Binary *d, __global const uint *words, uint at, uint end) {
    d->words = words;
    d->end = end;
    d->loaded = at >> 2;
    ulong first = binary_word(d);
    d->ahead = (first << 32 | binary_word(d)) << (8u * (at & 3u));
    d->held = 64u - 8u * (at & 3u);
    d->coming = binary_word(d);
}

// The index of the next byte.
inline uint binary_at(const Binary *d) {
    return 4u * (d->loaded - 1u) - d->held / 8u;
}

inline void binary_skip(Binary *d, uint bits) {
    d->ahead <<= bits;
    d->held -= bits;
    if (d->held <= 32u) {
        d->ahead |= (ulong)d->coming << (32u - d->held);
        d->held += 32u;
        d->coming = binary_word(d);
    }
}

inline void binary_start(Binary *d) {
    d->range = 0xffffffffu;
    d->code = (uint)(d->ahead >> 32);
    binary_skip(d, 32u);
}

inline void binary_normalise(Binary *d) {
    uint bits = (d->range < 0x1000000u ? 8u : 0u) + (d->range < 0x10000u ? 8u : 0u);
    d->range <<= bits;
    d->code = d->code << bits | (uint)((d->ahead >> 32) >> (32u - bits));
    binary_skip(d, bits);
}

inline uint binary_bit(Binary *d, __local uint *model) {
    uint both = *model;
    uint bound = (d->range >> 16) * (((both & 0xffffu) + (both >> 16)) >> 1);
    bool bit = d->code >= bound;
    d->code -= bit ? bound : 0u;
    d->range = bit ? d->range - bound : bound;
    // A bit 1 moves `fast` by a 16th and `slow` by a 64th of their values towards 0; a bit 0 moves them likewise
    // towards 65535.
    uint left = bit ? both : ~both;
    uint step = (left >> 4 & 0xfffu) | (left >> 6 & 0x3ff0000u);
    *model = bit ? both - step : both + step;
    // A model stays between 39 and 65496, so a range of at least 2^24 shrinks to more than 2^13 at worst, and two bytes
    // refill it.
    binary_normalise(d);
    return bit ? 1u : 0u;
}

inline uint binary_raw(Binary *d, uint count) {
    uint value = 0u;
    for (uint i = 0u; i < count; i++) {
        d->range >>= 1;
        bool bit = d->code >= d->range;
        d->code -= bit ? d->range : 0u;
        value = value << 1 | (bit ? 1u : 0u);
        binary_normalise(d);
    }
    return value;
}

inline uint binary_number(Binary *d, __local uint *models) {
    uint length = 0u;
    while (length < 30u && binary_bit(d, models + length) != 0u) length += 1u;
    if (length == 0u) return 0u;
    uint high = binary_bit(d, models + 30u + length);
    uint low = binary_raw(d, length - 1u);
    return ((2u | high) << (length - 1u) | low) - 1u;
}
