// Reads the bytes of a block, four at a time.

inline uint trailing_zeros(uint x) {
    return 31u - clz(x & -x);
}

// The four bytes from `pos` on. Bytes behind the slot, of `words` words, read as any.
inline uint read32(__global const uint *contents, uint words, uint pos) {
    uint word = pos >> 2;
    ulong both = (ulong)contents[min(word + 1, words - 1)] << 32 | contents[word];
    return (uint)(both >> ((pos & 3u) * 8u));
}
