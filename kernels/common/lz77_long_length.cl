// Finds the length of a match, eight bytes at a time.
// @pz_import lz77_words

// The number of equal bytes at `pos` and `offset` before it, at most `room`. The first `known`, a multiple of 4, are
// known to be equal.
inline uint long_length(__global const uint *contents, uint words, uint pos, uint offset, uint known, uint room) {
    uint a = (pos + known) >> 2, b = (pos - offset + known) >> 2, most = words - 1u;
    uint shift_a = (pos & 3u) * 8u, shift_b = ((pos - offset) & 3u) * 8u;
    uint n = known;
    ulong differ = 0;
    uint word_a = contents[min(a, most)], word_b = contents[min(b, most)];
    while (differ == 0 && n < room) {
        uint next_a = contents[min(a + 1u, most)], next_b = contents[min(b + 1u, most)];
        uint last_a = contents[min(a + 2u, most)], last_b = contents[min(b + 2u, most)];
        uint x = bytes_of(word_a, next_a, shift_a) ^ bytes_of(word_b, next_b, shift_b);
        uint y = bytes_of(next_a, last_a, shift_a) ^ bytes_of(next_b, last_b, shift_b);
        differ = (ulong)y << 32 | x;
        word_a = last_a;
        word_b = last_b;
        a += 2u;
        b += 2u;
        n += 8u;
    }
    if (differ != 0) {
        uint low = (uint)differ;
        n -= 8u;
        n += (low != 0 ? trailing_zeros(low) : 32u + trailing_zeros((uint)(differ >> 32))) >> 3;
    }
    return min(n, room);
}
