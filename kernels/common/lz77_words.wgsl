// Reads the bytes of a block, four at a time. A file that imports this binds `contents`.

// The index of the block's first word in the contents, and its number of words.
var<private> from_word: u32;
var<private> block_words: u32;

// The four bytes that begin `shift` bits into `word` and end in the word after it.
fn bytes_of(word: u32, next: u32, shift: u32) -> u32 {
    return word >> shift | next << 1u << (31u - shift);
}

// The number of equal bytes at the beginning of two words with the exclusive or `differ`; 4 if it is 0.
fn equal_first(differ: u32) -> u32 {
    return countTrailingZeros(differ) >> 3u;
}

// The four bytes from `at` on. Bytes behind the slot have any value.
fn read32(at: u32) -> u32 {
    let word = at >> 2u;
    let next = min(word + 1u, block_words - 1u);
    return bytes_of(contents[from_word + word], contents[from_word + next], (at & 3u) * 8u);
}
