// Changes the targets in calls of programs from distances to absolute places, or back.
//
// @pz_import filter

// Bytes of a page. Pages are independent of each other.
#define CALLS_PAGE 1024u

// Adds `by` to a number, or subtracts it.
inline uint moved_number(uint number, uint by, bool forward) {
    return forward ? number + by : number - by;
}

// Changes the 16 bytes at `at` of a unit, whose page ends at `end`. `words` holds them and, fifth, the next word.
// `busy` is how many of the next bytes belong to an earlier instruction.
inline void change_calls(uint *words, uint *busy, uint at, uint end, uint word, bool forward) {
    bool is_arm = FILTER_WIDTH(word) == 4;
    #pragma unroll
    for (uint k = 0; k < 4; k++) {
        uint v = words[k];
        if (is_arm) {
            uint number = moved_number(v, at / 4 + k, forward) & 0x03ffffff;
            if (v >> 26 == 0x25 && at + 4 * k + 4 <= end) words[k] = (v & 0xfc000000) | number;
            continue;
        }
        // Most words have no opcode.
        uint other = (v & 0xfefefefe) ^ 0xe8e8e8e8;
        if ((other - 0x01010101 & ~other & 0x80808080) == 0) {
            *busy = max(*busy, 4u) - 4;
            continue;
        }
        for (uint b = 0; b < 4; b++) {
            uint place = at + 4 * k + b + 5, shift = 8 * b, sign = words[k + 1] >> shift & 255;
            bool is_free = *busy == 0;
            *busy -= is_free ? 0 : 1;
            if (!is_free || (words[k] >> shift & 254) != 0xe8) continue;
            if ((sign + 1 & 255) > 1 || place > end) {
                // Skip three bytes: if the filter changed one of them, it might look like an instruction.
                *busy = 3;
                continue;
            }
            uint high = b == 3 ? words[k + 1] : words[k + 1] << (24 - shift);
            uint low = b == 3 ? 0 : words[k] >> (shift + 8);
            // The sign fills all bits from the 24th on.
            uint number = (uint)((int)(moved_number(low | high, place, forward) << 7) >> 7);
            if (b == 3) {
                words[k + 1] = number;
            } else {
                uint kept = 0xffffffff << (shift + 8);
                words[k] = (words[k] & ~kept) | number << (shift + 8);
                words[k + 1] = (words[k + 1] & kept) | number >> (24 - shift);
            }
            *busy = 4;
        }
    }
}
