// Undoes the transposition of bytes or bits, or looks elements up in lists of values, from one buffer to another.
// Blocks that a module will restore become zeros, and other blocks are copied. If the next stage to undo changes the
// elements that have moved, undoes that too.
//
// @pz_cost {
//   threads: N/16384*256
//   passes: 3
//   buffers: jobs=32, contents=N, filtered=N
//   local_mem: 0
// }
// @pz_import filter_words

// Four bytes of the planes, all of which exist.
inline uint word_at(__global const uint *planes, uint at) {
    uint shift = 8 * (at & 3);
    uint low = planes[at / 4];
    return shift == 0 ? low : low >> shift | planes[at / 4 + 1] << (32 - shift);
}

// Two bytes of the planes, both of which exist; more may follow them.
inline uint half_at(__global const uint *planes, uint at) {
    uint shift = 8 * (at & 3);
    uint low = planes[at / 4] >> shift;
    return (shift < 24 ? low : low | planes[at / 4 + 1] << 8) & 0xffff;
}

// Bytes a0, b0, a1, b1.
inline uint interleaved(uint a, uint b) {
    return (a & 255) | (a & 0xff00) << 8 | (b & 255) << 8 | (b & 0xff00) << 16;
}

// Bytes 0 and 2.
inline uint even(uint a) {
    return (a & 255) | (a >> 8 & 0xff00);
}

// 16 bytes of elements of 2, 4 or 8 bytes, beginning with number `element` of `elements`.
inline uint4 moved(__global const uint *planes, uint width, uint element, uint elements) {
    uint p = element;
    if (width == 2) {
        uint a = word_at(planes, p), b = word_at(planes, p + elements);
        uint c = word_at(planes, p + 4), d = word_at(planes, p + 4 + elements);
        return UINT4(interleaved(a, b), interleaved(a >> 16, b >> 16), interleaved(c, d), interleaved(c >> 16, d >> 16));
    }
    if (width == 4) {
        uint a = word_at(planes, p), b = word_at(planes, p + elements);
        uint c = word_at(planes, p + 2 * elements), d = word_at(planes, p + 3 * elements);
        uint ab = interleaved(a, b), cd = interleaved(c, d);
        uint ab2 = interleaved(a >> 16, b >> 16), cd2 = interleaved(c >> 16, d >> 16);
        return UINT4((ab & 0xffff) | cd << 16, ab >> 16 | (cd & 0xffff0000), (ab2 & 0xffff) | cd2 << 16,
            ab2 >> 16 | (cd2 & 0xffff0000));
    }
    uint pairs[4];
    for (uint k = 0; k < 4; k++) {
        uint plane = p + 2 * k * elements;
        pairs[k] = half_at(planes, plane) | half_at(planes, plane + elements) << 16;
    }
    return UINT4(even(pairs[0]) | even(pairs[1]) << 16, even(pairs[2]) | even(pairs[3]) << 16,
        even(pairs[0] >> 8) | even(pairs[1] >> 8) << 16, even(pairs[2] >> 8) | even(pairs[3] >> 8) << 16);
}

// The four bytes from `at` of a unit of `len` bytes, one by one. Bytes after the elements are in place.
inline uint gathered(__global const uchar *planes, uint at, uint len, bool of_bits, uint width, uint elements) {
    uint element = at / width, part = at % width;
    uint result = 0;
    for (uint b = 0; b < 4 && at + b < len; b++) {
        uint byte = 0;
        if (element >= elements) {
            byte = planes[at + b];
        } else if (of_bits) {
            for (uint bit = 0; bit < 8; bit++) {
                uint plane = planes[(8 * part + bit) * (elements / 8) + element / 8];
                byte |= (plane >> (element & 7) & 1) << bit;
            }
        } else {
            byte = planes[part * elements + element];
        }
        result |= byte << 8 * b;
        part++;
        if (part == width) {
            part = 0;
            element++;
        }
    }
    return result;
}

// 16 bytes from byte `at` of a unit of `len` bytes that has a list of values.
inline uint4 looked_up(__global const uint *unit, uint at, uint len, uint word) {
    uint width = LIST_WIDTH(word), index = LIST_INDEX(word), elements = len / width;
    uint list = list_start(word, elements) * (width / 4);
    uint entries = list_capacity(word, elements), mask = (1u << 8 * index) - 1;
    uint words[4];
    for (uint i = 0; i < 4; i++) {
        uint element = (at + 4 * i) / width, part = width == 8 ? i & 1 : 0;
        // An incomplete last element stays as it is.
        if (element >= elements) {
            words[i] = unit[at / 4 + i];
            continue;
        }
        uint from = element * index;
        uint place = unit[from / 4] >> 8 * (from & 3) & mask;
        words[i] = place < entries ? unit[list + place * (width / 4) + part] : 0;
    }
    return UINT4(words[0], words[1], words[2], words[3]);
}

// Moves the 16,384 bytes from `first` of a unit, where all bytes belong to moved elements. A constant `width` avoids
// divisions.
inline void move_piece(__global const uint *planes, __global uint4 *after, uint width, uint first, uint elements, uint next,
    bool changes) {
    // All loads come before the first store: compilers must assume that the store changes their data.
    uint4 pieces[4];
    #pragma unroll
    for (uint k = 0; k < 4; k++) {
        uint at = first + 16 * (k * 256 + (uint)get_local_id(0));
        pieces[k] = moved(planes, width, at / width, elements);
    }
    // If `next` is undone here, it has the same width.
    next = (next & ~0xff00u) | width << 8;
    #pragma unroll
    for (uint k = 0; k < 4; k++) {
        uint place = first / 16 + k * 256 + (uint)get_local_id(0);
        after[place] = changes ? undone_words(next, pieces[k], 16) : pieces[k];
    }
}

// `count` workgroups for each block, each for 16,384 bytes. A work item handles 16 bytes at a time.
__kernel void unshuffle(__global const Job *jobs, __global const uint4 *before, __global uint4 *after, uint blocks,
    uint slot, uint count, uint stage) {
    uint block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage], next = stage < 2 ? jobs[block].undo[stage + 1] : 0u;
    bool of_bits = FILTER_ID(word) == FILTER_BIT_TRANSPOSE;
    bool moves = of_bits || FILTER_ID(word) == FILTER_TRANSPOSE;
    bool changes = is_undone_while_moving(word, next);
    uint width = of_bits ? FILTER_WIDTH(word) : FILTER_BYTES(word);
    bool is_usual = !of_bits && moves && (width == 2 || width == 4 || width == 8);
    uint content_len = min(jobs[block].content_len, slot), unit_log = UNIT_LOG(jobs[block]);
    uint first = (uint)get_group_id(0) % count * 16384;
    if (first >= content_len) return;
    uint unit = first >> unit_log << unit_log;
    uint len = min(content_len - unit, 1u << unit_log);
    first -= unit;
    before += (ulong)block * (slot / 16) + unit / 16;
    after += (ulong)block * (slot / 16) + unit / 16;
    // Elements; if bits move, a multiple of eight.
    uint elements = of_bits ? len / (8 * width) * 8 : len / width;
    __global const uint *planes = (__global const uint *)before;
    // All workgroups of a unit except the last take this way.
    if (is_usual && first + 16384 <= elements * width) {
        if (width == 2) move_piece(planes, after, 2, first, elements, next, changes);
        else if (width == 4) move_piece(planes, after, 4, first, elements, next, changes);
        else move_piece(planes, after, 8, first, elements, next, changes);
        return;
    }
    for (uint k = 0; k < 4; k++) {
        uint at = first + 16 * (k * 256 + (uint)get_local_id(0));
        if (at >= len) return;
        uint4 v;
        if (FILTER_ID(word) == FILTER_MODULE) {
            v = UINT4(0, 0, 0, 0);
        } else if (FILTER_ID(word) == FILTER_DICTIONARY && len >= MIN_LISTED) {
            v = looked_up(planes, at, len, word);
        } else if (!moves) {
            v = before[at / 16];
        } else if (is_usual && at + 16 <= elements * width) {
            v = moved(planes, width, at / width, elements);
        } else {
            uint four[4];
            for (uint b = 0; b < 4; b++) {
                four[b] = gathered((__global const uchar *)planes, at + 4 * b, len, of_bits, width, elements);
            }
            v = UINT4(four[0], four[1], four[2], four[3]);
        }
        after[at / 16] = changes ? undone_words(next, v, len - at) : v;
    }
}
