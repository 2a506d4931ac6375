// Decoder of binary coded numbers, for one work item. Models are words: fast | slow << 16.

#define MODEL_NEW 0x80008000u
#define NUMBER_MODELS 61u // length[0..30], high[1..31]

typedef struct {
    __global const uint *bytes; // the payload
    uint at;                    // the next byte
    uint end;                   // from here on there are zeros
    uint range;
    uint code;
} Binary;

inline uint binary_byte(Binary *d) {
    uint byte = 0u;
    if (d->at < d->end) {
        byte = byte_of(d->bytes, d->at);
        d->at += 1u;
    }
    return byte;
}

inline void binary_start(Binary *d) {
    d->range = 0xffffffffu;
    d->code = 0u;
    for (uint i = 0u; i < 4u; i++) d->code = d->code << 8 | binary_byte(d);
}

inline void binary_normalise(Binary *d) {
    if (d->range < 0x1000000u) {
        d->range <<= 8;
        d->code = d->code << 8 | binary_byte(d);
    }
}

inline uint binary_bit(Binary *d, __local uint *model) {
    uint fast = *model & 0xffffu;
    uint slow = *model >> 16;
    uint bound = (d->range >> 16) * ((fast + slow) >> 1);
    uint bit = d->code >= bound ? 1u : 0u;
    if (bit != 0u) {
        d->code -= bound;
        d->range -= bound;
        fast -= fast >> 4;
        slow -= slow >> 6;
    } else {
        d->range = bound;
        fast += (65535u - fast) >> 4;
        slow += (65535u - slow) >> 6;
    }
    *model = fast | slow << 16;
    // A model stays within 39 and 65496, so what is left of a range from 2^24 is more than 2^13: two steps do.
    binary_normalise(d);
    binary_normalise(d);
    return bit;
}

inline uint binary_raw(Binary *d, uint count) {
    uint value = 0u;
    for (uint i = 0u; i < count; i++) {
        d->range >>= 1;
        uint bit = d->code >= d->range ? 1u : 0u;
        if (bit != 0u) d->code -= d->range;
        value = value << 1 | bit;
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
