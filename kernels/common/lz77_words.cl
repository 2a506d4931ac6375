// Reads the bytes of a block, four at a time.

// The number of zeros after the lowest 1 of a number, which is not 0.
inline uint trailing_zeros(uint x) {
    return 31u - clz(x & -x);
}

// The four bytes that begin `shift` bits into `word` and end in the word after it.
inline uint bytes_of(uint word, uint next, uint shift) {
    return (uint)(((ulong)next << 32 | word) >> shift);
}

// The four bytes from `pos` on. Bytes behind the slot, of `words` words, have any value.
inline uint read32(__global const uint *contents, uint words, uint pos) {
    uint word = pos >> 2;
    return bytes_of(contents[word], contents[min(word + 1, words - 1)], (pos & 3u) * 8u);
}
