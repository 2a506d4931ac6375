// Compares bytes of a block with earlier ones, several words at once. Constant: COMPARED, words: 1, 2 or 4.
// @pz_import lz77_words

// The number of equal bytes at `pos` and `offset` before it, at most 4 * COMPARED. Bytes after the slot, of `words`
// words, have any value.
inline uint common_length(__global const uint *contents, uint words, uint pos, uint offset) {
    uint a = pos >> 2, b = (pos - offset) >> 2, n = 0;
    uint shift_a = (pos & 3u) * 8u, shift_b = ((pos - offset) & 3u) * 8u;
    // Reads each word once.
    uint x[COMPARED + 1], y[COMPARED + 1];
    if (a + COMPARED < words) {
#pragma unroll
        for (uint w = 0; w <= COMPARED; w++) {
            x[w] = contents[a + w];
            y[w] = contents[b + w];
        }
    } else {
#pragma unroll
        for (uint w = 0; w <= COMPARED; w++) {
            x[w] = contents[min(a + w, words - 1u)];
            y[w] = contents[min(b + w, words - 1u)];
        }
    }
#pragma unroll
    for (uint i = 0; i < COMPARED; i++) {
        uint w = COMPARED - 1u - i;
        uint differ = bytes_of(x[w], x[w + 1u], shift_a) ^ bytes_of(y[w], y[w + 1u], shift_b);
        n = differ != 0u ? trailing_zeros(differ) >> 3 : n + 4u;
    }
    return n;
}
