// Undoes differences between rows of a few bytes, such as pixels or samples of several channels: each element becomes
// the sum, or the exclusive or, of itself and the same element of all earlier rows.
//
// A period is the fewest rows that fill whole words: PERIOD words. One workgroup of 256 per unit, which goes from tile
// to tile. In a tile, each work item holds WORDS words, whole periods, in registers. A period hands its last row on to
// the next, repeated to the length of a period.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 36
//   buffers: jobs=32, contents=N
//   local_mem: 16384
// }
// @pz_import filter

// Adds the elements of a period to those of another, or combines them by exclusive or. `high` has the elements' highest
// bits; wide ones have two words.
inline void join(uint *to, const uint *from, uint high, bool is_xor, bool is_wide) {
    uint carry = 0;
    #pragma unroll
    for (uint i = 0; i < PERIOD; i++) {
        uint a = to[i], b = from[i];
        uint v = is_xor ? a ^ b : (((a & ~high) + (b & ~high)) ^ ((a ^ b) & high)) + carry;
        carry = is_wide && (i & 1) == 0 && v < b ? 1u : 0u;
        to[i] = v;
    }
}

// Joins each row of a period with the row `bytes` before it.
inline void join_moved(uint *words, uint bytes, uint high, bool is_xor) {
    uint moved[PERIOD];
    uint whole = bytes / 4, bits = 8 * (bytes & 3);
    #pragma unroll
    for (uint i = 0; i < PERIOD; i++) {
        moved[i] = i >= whole ? words[i - whole] << bits : 0u;
        if (bits != 0 && i > whole) moved[i] |= words[i - whole - 1] >> (32 - bits);
    }
    join(words, moved, high, is_xor, false);
}

// Joins each row of a period, of `row` bytes, with all earlier rows.
inline void join_rows(uint *words, uint row, uint high, bool is_xor) {
    // The distances are constant, so that words stay in registers.
// @pz_if IS_SPLIT
// @pz_if IN_THREES
    if (row == 3) join_moved(words, 3, high, is_xor);
    if (row <= 6) join_moved(words, 6, high, is_xor);
// @pz_else
    if (row == 1) join_moved(words, 1, high, is_xor);
    if (row <= 2) join_moved(words, 2, high, is_xor);
// @pz_end
// @pz_end
}

// The last row of a period, repeated to the length of a period.
inline void spread(uint *to, const uint *words, uint row) {
    #pragma unroll
    for (uint i = 0; i < PERIOD; i++) to[i] = words[i];
// @pz_if IS_SPLIT
// @pz_if IN_THREES
    if (row == 3) {
        uint last = words[2] >> 8;
        to[0] = last | last << 24;
        to[1] = last >> 8 | last << 16;
        to[2] = last >> 16 | last << 8;
    } else if (row == 6) {
        uint low = words[1] >> 16 | words[2] << 16, rest = words[2] >> 16;
        to[0] = low;
        to[1] = rest | low << 16;
        to[2] = low >> 16 | rest << 16;
    }
// @pz_else
    if (row == 1) to[0] = (words[0] >> 24) * 0x01010101u;
    else if (row == 2) to[0] = (words[0] >> 16) * 0x00010001u;
// @pz_end
// @pz_end
}

// `count` workgroups per block, enough for units of 2^18 bytes. With longer units, some have nothing to do.
__kernel void row_sums(__global const Job *jobs, __global uint4 *contents, uint blocks, uint slot, uint count, uint stage,
    uint turn) {
    // The period that each work item hands on, later the sum of all up to it. Two copies: one to read, one to write.
    SHARED uint sums[2 * PERIOD * THREADS];
    uint lane = (uint)get_local_id(0);
    uint block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage];
    bool is_xor = FILTER_ID(word) == FILTER_XOR;
    if (row_period(word) != PERIOD || turn >= (is_xor ? 1u : FILTER_ORDER(word))) return;
    uint content_len = min(jobs[block].content_len, slot);
    uint unit_log = UNIT_LOG(jobs[block]), number = (uint)get_group_id(0) % count;
    if (number >= (content_len + (1u << unit_log) - 1) >> unit_log) return;
    uint start = number << unit_log;
    uint width = FILTER_WIDTH(word), row = width * max(FILTER_PARAMETER(word), 1u);
    uint bits = min(8 * width, 32u);
    uint high = 0xffffffffu / (0xffffffffu >> (32 - bits)) << (bits - 1);
    bool is_wide = width == 8 && !is_xor;
    // An incomplete last element stays as it is.
    uint len = min(content_len - start, 1u << unit_log) / width * width;
    __global uint4 *unit = contents + (ulong)block * (slot / 16) + start / 16;
    uint carried[PERIOD], before[PERIOD], total[PERIOD], words[WORDS];
    #pragma unroll
    for (uint i = 0; i < PERIOD; i++) carried[i] = 0;
    uint from = 0;
    for (uint tile = 0; tile < len; tile += 4 * WORDS * THREADS) {
        uint at = tile + 4 * WORDS * lane;
        #pragma unroll
        for (uint i = 0; i < WORDS; i += 4) {
            uint4 v = UINT4(0, 0, 0, 0);
            // The load is within the slot, which is a multiple of 256 bytes.
            if (at + 4 * i < len) v = unit[at / 16 + i / 4];
            words[i] = v.x;
            words[i + 1] = v.y;
            words[i + 2] = v.z;
            words[i + 3] = v.w;
        }
        #pragma unroll
        for (uint i = 0; i < WORDS; i += PERIOD) {
            join_rows(words + i, row, high, is_xor);
            if (i > 0) join(words + i, total, high, is_xor, is_wide);
            spread(total, words + i, row);
        }
        from = PERIOD * THREADS - from;
        #pragma unroll
        for (uint i = 0; i < PERIOD; i++) sums[from + i * THREADS + lane] = total[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint by = 1; by < THREADS; by *= 4) {
            for (uint k = 1; k < 4; k++) {
                if (lane < k * by) continue;
                #pragma unroll
                for (uint i = 0; i < PERIOD; i++) before[i] = sums[from + i * THREADS + lane - k * by];
                join(total, before, high, is_xor, is_wide);
            }
            from = PERIOD * THREADS - from;
            #pragma unroll
            for (uint i = 0; i < PERIOD; i++) sums[from + i * THREADS + lane] = total[i];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        #pragma unroll
        for (uint i = 0; i < PERIOD; i++) {
            before[i] = lane > 0 ? sums[from + i * THREADS + lane - 1] : 0u;
            total[i] = sums[from + i * THREADS + THREADS - 1];
        }
        join(before, carried, high, is_xor, is_wide);
        join(carried, total, high, is_xor, is_wide);
        #pragma unroll
        for (uint i = 0; i < WORDS; i += PERIOD) join(words + i, before, high, is_xor, is_wide);
        #pragma unroll
        for (uint i = 0; i < WORDS; i += 4) {
            uint place = at + 4 * i;
            if (place >= len) continue;
            uint4 v = UINT4(words[i], words[i + 1], words[i + 2], words[i + 3]);
            if (place + 16 > len) {
                uint4 old = unit[place / 16];
                v = UINT4(within(place, len, v.x, old.x), within(place + 4, len, v.y, old.y),
                    within(place + 8, len, v.z, old.z), within(place + 12, len, v.w, old.w));
            }
            unit[place / 16] = v;
        }
    }
}
