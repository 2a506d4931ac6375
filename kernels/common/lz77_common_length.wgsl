// Compares bytes of a block with earlier ones, several words at once. Constant: COMPARED, words: 1, 2 or 4.
// @pz_import lz77_words

// The number of equal bytes at `p` and `offset` before it, at most 4 * COMPARED. Bytes after the slot have any value.
fn common_length(p: u32, offset: u32) -> u32 {
    let q = p - offset;
    // Reads each word once.
    let word = vec2(p >> 2u, q >> 2u);
    let most = vec2(block_words - 1u);
    let shift_p = (p & 3u) * 8u;
    let shift_q = (q & 3u) * 8u;
    let at_0 = min(word, most) + from_word;
    let at_1 = min(word + 1u, most) + from_word;
    let a_0 = contents[at_0.x];
    let b_0 = contents[at_0.y];
    let a_1 = contents[at_1.x];
    let b_1 = contents[at_1.y];
    let first = equal_first(bytes_of(a_0, a_1, shift_p) ^ bytes_of(b_0, b_1, shift_q));
    if COMPARED == 1u {
        return first;
    }
    let at_2 = min(word + 2u, most) + from_word;
    let a_2 = contents[at_2.x];
    let b_2 = contents[at_2.y];
    let second = equal_first(bytes_of(a_1, a_2, shift_p) ^ bytes_of(b_1, b_2, shift_q));
    let both = select(first, 4u + second, first == 4u);
    if COMPARED == 2u {
        return both;
    }
    let at_3 = min(word + 3u, most) + from_word;
    let at_4 = min(word + 4u, most) + from_word;
    let a_3 = contents[at_3.x];
    let b_3 = contents[at_3.y];
    let a_4 = contents[at_4.x];
    let b_4 = contents[at_4.y];
    let third = equal_first(bytes_of(a_2, a_3, shift_p) ^ bytes_of(b_2, b_3, shift_q));
    let fourth = equal_first(bytes_of(a_3, a_4, shift_p) ^ bytes_of(b_3, b_4, shift_q));
    return select(both, 8u + select(third, 4u + fourth, third == 4u), both == 8u);
}
