// Applies a stage of filters, from one buffer to another, and with it zigzag or rotation before a transposition, and
// zigzag after differences. Calls of programs get absolute targets. Blocks without such a stage are copied.
//
// @pz_cost {
//   threads: N/16384*256
//   passes: 3
//   buffers: jobs=32, contents=N, filtered=N, payload=N+256
//   local_mem: 0
// }
// @pz_import filter_calls

// Further changes of elements: bits of the stage's word beside its order.
#define HAS_ZIGZAG(word) ((word) >> 6 & 1u)
#define HAS_ROTATION(word) ((word) >> 7 & 1u)

// Zigzag, or rotation to the left by `by`, of the elements of a word; they have at most 4 bytes.
inline uint changed_word(bool is_zigzag, uint width, uint by, uint v) {
    // `ones` has a 1 in each element.
    uint bits = 8 * width, full = 0xffffffffu >> (32 - bits), ones = 0xffffffffu / full;
    if (is_zigzag) return (v << 1 & ~ones) ^ (v >> (bits - 1) & ones) * full;
    by &= bits - 1;
    uint low = ((1u << by) - 1) * ones;
    return (v << by & ~low) | (v >> (bits - by & 31) & low);
}

inline ulong changed_long(bool is_zigzag, uint by, uint low, uint high) {
    ulong v = (ulong)high << 32 | low;
    by &= 63;
    return is_zigzag ? v << 1 ^ ((ulong)0 - (v >> 63)) : v << by | v >> (64 - by & 63);
}

// Changes the elements of `count` words, an even number.
inline void change(uint *words, uint count, bool is_zigzag, uint width, uint by) {
    for (uint i = 0; i < count; i += 2) {
        if (width == 8) {
            ulong v = changed_long(is_zigzag, by, words[i], words[i + 1]);
            words[i] = (uint)v;
            words[i + 1] = (uint)(v >> 32);
        } else {
            words[i] = changed_word(is_zigzag, width, by, words[i]);
            words[i + 1] = changed_word(is_zigzag, width, by, words[i + 1]);
        }
    }
}

// Four bytes from byte `at` of a unit, which lie before a word that exists; 0 for those before the unit.
inline uint word_before(__global const uint *unit, int at) {
    if (at <= -4) return 0;
    if (at < 0) return unit[0] << 8 * (uint)-at;
    uint shift = 8 * ((uint)at & 3);
    uint low = unit[at / 4];
    return shift == 0 ? low : low >> shift | unit[at / 4 + 1] << (32 - shift);
}

// Subtracts `low` and `high` from the elements of two words, or combines them by exclusive or.
inline void subtract(uint *words, uint low, uint high, bool is_xor, uint width) {
    if (is_xor) {
        words[0] ^= low;
        words[1] ^= high;
    } else if (width == 8) {
        ulong v = ((ulong)words[1] << 32 | words[0]) - ((ulong)high << 32 | low);
        words[0] = (uint)v;
        words[1] = (uint)(v >> 32);
    } else {
        uint bits = 8 * width, top = 0xffffffffu / (0xffffffffu >> (32 - bits)) << (bits - 1);
        words[0] = ((words[0] | top) - (low & ~top)) ^ ((words[0] ^ ~low) & top);
        words[1] = ((words[1] | top) - (high & ~top)) ^ ((words[1] ^ ~high) & top);
    }
}

// 16 bytes from byte `at` of a unit of `len` bytes, whose elements stay in their places.
inline uint4 in_place(__global const uint *unit, uint at, uint len, uint word) {
    uint id = FILTER_ID(word), width = FILTER_WIDTH(word);
    uint old[4] = {unit[at / 4], unit[at / 4 + 1], unit[at / 4 + 2], unit[at / 4 + 3]};
    uint words[4] = {old[0], old[1], old[2], old[3]};
    bool is_xor = id == FILTER_XOR;
    if (is_xor || id == FILTER_DELTA) {
        int by = (int)(width * max(FILTER_PARAMETER(word), 1u));
        bool is_twice = !is_xor && (FILTER_ORDER(word) & 3) == 2;
        for (uint i = 0; i < 4; i += 2) {
            int from = (int)(at + 4 * i) - by;
            uint low = word_before(unit, from), high = word_before(unit, from + 4);
            subtract(words + i, low, high, is_xor, width);
            if (is_twice) {
                uint other[2] = {low, high};
                subtract(other, word_before(unit, from - by), word_before(unit, from - by + 4), false, width);
                subtract(words + i, other[0], other[1], false, width);
            }
        }
    }
    bool is_zigzag = id == FILTER_ZIGZAG || (id == FILTER_DELTA && HAS_ZIGZAG(word));
    if (is_zigzag || id == FILTER_ROTATE) change(words, 4, is_zigzag, width, FILTER_PARAMETER(word));
    // An incomplete last element stays as it is.
    uint end = len / width * width;
    for (uint i = 0; i < 4; i++) {
        uint bytes = min(max(end, at + 4 * i) - (at + 4 * i), 4u);
        uint mask = bytes == 4 ? 0xffffffffu : (1u << 8 * bytes) - 1;
        words[i] = (words[i] & mask) | (old[i] & ~mask);
    }
    return UINT4(words[0], words[1], words[2], words[3]);
}

// Byte `part` of element `element`, changed as the pass does before the move.
inline uint byte_of(__global const uchar *unit, uint element, uint part, uint width, uint word) {
    __global const uchar *bytes = unit + element * width;
    if (!HAS_ZIGZAG(word) && !HAS_ROTATION(word)) return bytes[part];
    ulong v = 0;
    for (uint b = 0; b < width && b < 8; b++) v |= (ulong)bytes[b] << 8 * b;
    bool is_zigzag = HAS_ZIGZAG(word);
    uint by = FILTER_PARAMETER(word);
    if (width == 8) v = changed_long(is_zigzag, by, (uint)v, (uint)(v >> 32));
    else v = changed_word(is_zigzag, width, by, (uint)v);
    return (uint)(v >> 8 * part) & 255;
}

// The four bytes from `at` of a unit of `len` bytes after the move, one by one: planes of `elements` bytes, or bits.
// Bytes after the planes stay in place.
inline uint gathered(__global const uchar *unit, uint at, uint len, uint word, bool of_bits, uint width, uint elements) {
    uint result = 0;
    uint plane_len = max(of_bits ? elements / 8 : elements, 1u);
    for (uint b = 0; b < 4 && at + b < len; b++) {
        uint to = at + b, plane = to / plane_len, place = to % plane_len;
        uint byte = 0;
        if (to >= elements * width) {
            byte = unit[to];
        } else if (of_bits) {
            for (uint bit = 0; bit < 8; bit++) {
                byte |= ((uint)unit[(8 * place + bit) * width + plane / 8] >> (plane & 7) & 1) << bit;
            }
        } else {
            byte = byte_of(unit, place, plane, width, word);
        }
        result |= byte << 8 * b;
    }
    return result;
}

// Byte `part` of each of four words.
inline uint parts_of(uint a, uint b, uint c, uint d, uint part) {
    uint shift = 8 * part;
    return (a >> shift & 255) | (b >> shift & 255) << 8 | (c >> shift & 255) << 16 | (d >> shift & 255) << 24;
}

// Bytes 0 and 2 of two words, in this order.
inline uint even(uint a, uint b) {
    return (a & 255) | (a >> 8 & 0xff00) | (b & 255) << 16 | (b & 0xff0000) << 8;
}

// Moves 16 elements of 2, 4 or 8 bytes to their planes.
inline void move(__global const uint4 *from, __global uint4 *to, uint width, uint word, uint plane_units) {
    uint words[32];
    for (uint i = 0; i < width; i++) {
        uint4 v = from[i];
        words[4 * i] = v.x;
        words[4 * i + 1] = v.y;
        words[4 * i + 2] = v.z;
        words[4 * i + 3] = v.w;
    }
    if (HAS_ZIGZAG(word) || HAS_ROTATION(word)) {
        change(words, 4 * width, HAS_ZIGZAG(word), width, FILTER_PARAMETER(word));
    }
    for (uint plane = 0; plane < width; plane++) {
        uint planes[4];
        for (uint i = 0; i < 4; i++) {
            if (width == 2) {
                planes[i] = even(words[2 * i] >> 8 * plane, words[2 * i + 1] >> 8 * plane);
            } else {
                // The words from one element to the next, and the first element's word with this part.
                uint by = width / 4, at = 4 * by * i + plane / 4;
                planes[i] = parts_of(words[at], words[at + by], words[at + 2 * by], words[at + 3 * by], plane & 3);
            }
        }
        to[plane * plane_units] = UINT4(planes[0], planes[1], planes[2], planes[3]);
    }
}

// Changes the calls of the page that begins at byte `at` of a unit of `len` bytes, on its way from `before` to `after`.
inline void change_page(__global const uint4 *before, __global uint4 *after, uint at, uint len, uint word) {
    uint end = min(len, at + CALLS_PAGE), busy = 0;
    uint4 v = before[at / 16];
    uint words[5] = {v.x, v.y, v.z, v.w, 0};
    for (; at < end; at += 16) {
        uint4 next = before[(at + 16 < end ? at + 16 : at) / 16];
        words[4] = next.x;
        change_calls(words, &busy, at, end, word, true);
        after[at / 16] = UINT4(words[0], words[1], words[2], words[3]);
        words[0] = words[4];
        words[1] = next.y;
        words[2] = next.z;
        words[3] = next.w;
    }
}

// `count` workgroups for each block, each for 16,384 bytes.
__kernel void forward(__global const Job *jobs, __global const uint4 *before, __global uint4 *after, uint blocks,
    uint slot, uint count, uint stage) {
    uint lane = (uint)get_local_id(0), block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage];
    uint content_len = min(jobs[block].content_len, slot), unit_log = UNIT_LOG(jobs[block]);
    uint first = (uint)get_group_id(0) % count * 16384;
    if (first >= content_len) return;
    uint unit = first >> unit_log << unit_log;
    uint len = min(content_len - unit, 1u << unit_log);
    first -= unit;
    before += (ulong)block * (slot / 16) + unit / 16;
    after += (ulong)block * (slot / 16) + unit / 16;
    if (FILTER_ID(word) == FILTER_CALLS) {
        // Sixteen pages.
        uint at = first + lane * CALLS_PAGE;
        if (lane < 16 && at < len) change_page(before, after, at, len, word);
        return;
    }
    bool of_bits = FILTER_ID(word) == FILTER_BIT_TRANSPOSE;
    bool moves = of_bits || FILTER_ID(word) == FILTER_TRANSPOSE;
    uint width = of_bits ? FILTER_WIDTH(word) : FILTER_BYTES(word);
    // Elements; if bits move, a multiple of eight.
    uint elements = of_bits ? len / (8 * width) * 8 : len / width;
    // All workgroups of a unit take the same way.
    if (moves && !of_bits && (width == 2 || width == 4 || width == 8) && len % (16 * width) == 0) {
        before += first / 16;
        after += first / 16 / width;
        uint some = min(len - first, 16384u) / (16 * width);
        for (uint i = lane; i < some; i += 256) {
            // Calls with a constant width, so that words stay in registers.
            if (width == 2) move(before + 2 * i, after + i, 2, word, elements / 16);
            else if (width == 4) move(before + 4 * i, after + i, 4, word, elements / 16);
            else move(before + 8 * i, after + i, 8, word, elements / 16);
        }
        return;
    }
    for (uint k = 0; k < 4; k++) {
        uint at = first + 16 * (k * 256 + lane);
        if (at >= len) return;
        if (moves) {
            uint four[4];
            for (uint i = 0; i < 4; i++) {
                four[i] = gathered((__global const uchar *)before, at + 4 * i, len, word, of_bits, width, elements);
            }
            after[at / 16] = UINT4(four[0], four[1], four[2], four[3]);
        } else {
            after[at / 16] = in_place((__global const uint *)before, at, len, word);
        }
    }
}
