// Finds the length of a match, eight bytes at a time. A file that imports this binds `contents`.
// @pz_import lz77_words

// The number of equal bytes at `pos` and `offset` before it, at most `room`. The first `known`, a multiple of 4, are
// known to be equal.
fn long_length(pos: u32, offset: u32, known: u32, room: u32) -> u32 {
    let most = block_words - 1u;
    var a = pos + known >> 2u;
    var b = pos - offset + known >> 2u;
    let shift_a = (pos & 3u) * 8u;
    let shift_b = (pos - offset & 3u) * 8u;
    var n = known;
    var word_a = contents[from_word + min(a, most)];
    var word_b = contents[from_word + min(b, most)];
    var x = 0u;
    var y = 0u;
    while (x | y) == 0u && n < room {
        let next_a = contents[from_word + min(a + 1u, most)];
        let next_b = contents[from_word + min(b + 1u, most)];
        let last_a = contents[from_word + min(a + 2u, most)];
        let last_b = contents[from_word + min(b + 2u, most)];
        x = bytes_of(word_a, next_a, shift_a) ^ bytes_of(word_b, next_b, shift_b);
        y = bytes_of(next_a, last_a, shift_a) ^ bytes_of(next_b, last_b, shift_b);
        word_a = last_a;
        word_b = last_b;
        a += 2u;
        b += 2u;
        n += 8u;
    }
    if x != 0u {
        n = n - 8u + (countTrailingZeros(x) >> 3u);
    } else if y != 0u {
        n = n - 4u + (countTrailingZeros(y) >> 3u);
    }
    return min(n, room);
}
