// Compares bytes of a block with earlier ones, several words at once. Constant: COMPARED, words: 1, 2 or 4. A file
// that imports this binds `contents`, and has the index of the block's first word there in `from_word`.

// The four bytes at `p`, which words a and b have.
fn shifted(a: u32, b: u32, p: u32) -> u32 {
    let shift = (p & 3u) * 8u;
    return a >> shift | b << 1u << (31u - shift);
}

// The first equal bytes of words: 4 where they are the same.
fn equal_of(a: u32, b: u32) -> u32 {
    return countTrailingZeros(a ^ b) >> 3u;
}

// The number of equal bytes at `p` and `offset` before it, at most 4 * COMPARED. Bytes after the slot have any value.
fn common_length(p: u32, offset: u32) -> u32 {
    let q = p - offset;
    // Each word once.
    let word = vec2(p >> 2u, q >> 2u);
    let most = vec2((args.slot >> 2u) - 1u);
    let at_0 = min(word, most) + from_word;
    let at_1 = min(word + 1u, most) + from_word;
    let a_0 = contents[at_0.x];
    let b_0 = contents[at_0.y];
    let a_1 = contents[at_1.x];
    let b_1 = contents[at_1.y];
    let first = equal_of(shifted(a_0, a_1, p), shifted(b_0, b_1, q));
    if COMPARED == 1u {
        return first;
    }
    let at_2 = min(word + 2u, most) + from_word;
    let a_2 = contents[at_2.x];
    let b_2 = contents[at_2.y];
    let second = equal_of(shifted(a_1, a_2, p), shifted(b_1, b_2, q));
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
    let third = equal_of(shifted(a_2, a_3, p), shifted(b_2, b_3, q));
    let fourth = equal_of(shifted(a_3, a_4, p), shifted(b_3, b_4, q));
    return select(both, 8u + select(third, 4u + fourth, third == 4u), both == 8u);
}
