// Reads the bytes of a block, four at a time. A file that imports this binds `contents`.

// The index of the block's first word in the contents, and its number of words.
var<private> from_word: u32;
var<private> block_words: u32;

// The four bytes from `at` on. Bytes behind the slot read as any.
fn read32(at: u32) -> u32 {
    let word = at >> 2u;
    let shift = (at & 3u) * 8u;
    let next = min(word + 1u, block_words - 1u);
    return contents[from_word + word] >> shift | contents[from_word + next] << 1u << (31u - shift);
}

// Four bytes that begin in a word and end in the next one.
fn bytes_of(word: u32, next: u32, shift: u32) -> u32 {
    return word >> shift | next << 1u << (31u - shift);
}
