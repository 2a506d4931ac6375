// Base-2 logarithms in fixed point, equal to those of codec::log2.

// log2(1 + i / 256) with 16 bits of fraction. Squares repeatedly, and sets a bit whenever the square reaches 2.
inline uint log2_mantissa(uint i) {
    uint x = (256u + i) << 22, log = 0;
    if (i == 256u) return 1u << 16;
    for (uint bit = 0; bit < 16u; bit++) {
        x = mul_hi(x, x) << 2 | (x * x) >> 30;
        uint passed = x >> 31;
        x >>= passed;
        log = log << 1 | passed;
    }
    return log;
}

// log2(x) with 16 bits of fraction.
inline uint log2_fixed(uint x) {
    uint exponent = 31u - clz(x), mantissa = x << (31u - exponent), index = mantissa >> 23 & 255u;
    uint below = log2_mantissa(index), step = log2_mantissa(index + 1u) - below;
    return (exponent << 16) + below + (step * (mantissa >> 7 & 0xffffu) >> 16);
}
