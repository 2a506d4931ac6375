// Undoes the filters that change each element by itself: rotation and zigzag, including zigzag after differences.
//
// @pz_import filter

inline bool undoes_zigzag(uint word) {
    return FILTER_ID(word) == FILTER_ZIGZAG || FILTER_HAS_ZIGZAG(word);
}

inline bool changes_words(uint word) {
    return undoes_zigzag(word) || FILTER_ID(word) == FILTER_ROTATE;
}

// Whether the kernel that undoes the transposition `moved` also undoes stage `word`, while elements are in registers.
inline bool is_undone_while_moving(uint moved, uint word) {
    return FILTER_ID(moved) == FILTER_TRANSPOSE && changes_words(word) && FILTER_BYTES(moved) == FILTER_WIDTH(word);
}

inline ulong undone_long(bool is_zigzag, uint low, uint high, uint by) {
    ulong v = (ulong)high << 32 | low;
    return is_zigzag ? (v >> 1) ^ ((ulong)0 - (v & 1)) : v >> by | v << (64 - by & 63);
}

// The undone elements of 16 bytes, of which the first `valid` exist. An incomplete last element stays as it is.
inline uint4 undone_words(uint word, uint4 v, uint valid) {
    bool is_zigzag = undoes_zigzag(word);
    uint width = FILTER_WIDTH(word), bits = 8 * width, by = FILTER_PARAMETER(word) & (bits - 1);
    uint4 changed;
    if (width == 8) {
        ulong first = undone_long(is_zigzag, v.x, v.y, by), second = undone_long(is_zigzag, v.z, v.w, by);
        changed = UINT4((uint)first, (uint)(first >> 32), (uint)second, (uint)(second >> 32));
    } else {
        // All elements of a word at once: `ones` has a 1 in each.
        uint full = 0xffffffffu >> (32 - bits), ones = 0xffffffffu / full;
        if (is_zigzag) {
            uint rest = ~(ones << (bits - 1));
            changed.x = (v.x >> 1 & rest) ^ (v.x & ones) * full;
            changed.y = (v.y >> 1 & rest) ^ (v.y & ones) * full;
            changed.z = (v.z >> 1 & rest) ^ (v.z & ones) * full;
            changed.w = (v.w >> 1 & rest) ^ (v.w & ones) * full;
        } else {
            uint low = (full >> by) * ones, left = bits - by & 31;
            changed.x = (v.x >> by & low) | (v.x << left & ~low);
            changed.y = (v.y >> by & low) | (v.y << left & ~low);
            changed.z = (v.z >> by & low) | (v.z << left & ~low);
            changed.w = (v.w >> by & low) | (v.w << left & ~low);
        }
    }
    if (valid >= 16) return changed;
    uint end = valid / width * width;
    uint old[4] = {v.x, v.y, v.z, v.w}, words[4] = {changed.x, changed.y, changed.z, changed.w};
    for (uint i = 0; i < 4; i++) {
        uint bytes = min(max(end, 4 * i) - 4 * i, 4u);
        uint mask = bytes == 4 ? 0xffffffffu : (1u << 8 * bytes) - 1;
        words[i] = (words[i] & mask) | (old[i] & ~mask);
    }
    return UINT4(words[0], words[1], words[2], words[3]);
}
