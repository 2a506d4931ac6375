// Undoes differences of adjacent elements of 1, 2 or 4 bytes: each becomes the sum of itself and all before it.
//
// One workgroup of 256 per unit, which goes from tile to tile. In a tile, each work item holds 32 bytes in registers.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 6
//   buffers: jobs=32, contents=N
//   local_mem: 2048
// }
// @pz_import filter

// Words per work item.
#define WORDS 8u

// Adds each element of a word to one of another; `high` has the elements' highest bits.
inline uint added(uint a, uint b, uint high) {
    return ((a & ~high) + (b & ~high)) ^ ((a ^ b) & high);
}

// `count` workgroups per block, enough for units of 2^18 bytes. With longer units, some have nothing to do.
__kernel void adjacent_sums(__global const Job *jobs, __global uint4 *contents, uint blocks, uint slot, uint count,
    uint stage, uint turn) {
    // Sums of work items, later prefix sums. Two copies: one to read, one to write.
    SHARED uint sums[2 * THREADS];
    uint lane = (uint)get_local_id(0);
    uint block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage];
    if (!SUMS_ARE_ADJACENT(word) || turn >= FILTER_ORDER(word)) return;
    uint content_len = min(jobs[block].content_len, slot);
    uint unit_log = UNIT_LOG(jobs[block]), number = (uint)get_group_id(0) % count;
    if (number >= (content_len + (1u << unit_log) - 1) >> unit_log) return;
    uint start = number << unit_log;
    uint width = FILTER_WIDTH(word), bits = 8 * width;
    uint full = 0xffffffffu >> (32 - bits), ones = 0xffffffffu / full, high = ones << (bits - 1);
    // An incomplete last element stays as it is.
    uint len = min(content_len - start, 1u << unit_log) / width * width;
    __global uint4 *unit = contents + (ulong)block * (slot / 16) + start / 16;
    uint carried = 0, from = 0;
    for (uint tile = 0; tile < len; tile += 4 * WORDS * THREADS) {
        uint at = tile + 4 * WORDS * lane;
        uint4 low = UINT4(0, 0, 0, 0), rest = low;
        if (at < len) {
            // The load is within the slot, which is a multiple of 256 bytes.
            low = unit[at / 16];
            rest = unit[at / 16 + 1];
        }
        uint words[WORDS] = {low.x, low.y, low.z, low.w, rest.x, rest.y, rest.z, rest.w};
        uint total = 0;
        #pragma unroll
        for (uint i = 0; i < WORDS; i++) {
            uint w = words[i];
            if (width == 1) w = added(w, w << 8, high);
            if (width <= 2) w = added(w, w << 16, high);
            words[i] = w;
            total += w >> (32 - bits);
        }
        from = THREADS - from;
        sums[from + lane] = total;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint by = 1; by < THREADS; by *= 4) {
            for (uint k = 1; k < 4; k++) {
                if (lane >= k * by) total += sums[from + lane - k * by];
            }
            from = THREADS - from;
            sums[from + lane] = total;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        uint before = carried;
        if (lane > 0) before += sums[from + lane - 1];
        carried += sums[from + THREADS - 1];
        #pragma unroll
        for (uint i = 0; i < WORDS; i++) {
            words[i] = added(words[i], (before & full) * ones, high);
            before = words[i] >> (32 - bits);
        }
        if (at >= len) continue;
        if (at + 4 * WORDS > len) {
            words[0] = within(at, len, words[0], low.x);
            words[1] = within(at + 4, len, words[1], low.y);
            words[2] = within(at + 8, len, words[2], low.z);
            words[3] = within(at + 12, len, words[3], low.w);
            words[4] = within(at + 16, len, words[4], rest.x);
            words[5] = within(at + 20, len, words[5], rest.y);
            words[6] = within(at + 24, len, words[6], rest.z);
            words[7] = within(at + 28, len, words[7], rest.w);
        }
        unit[at / 16] = UINT4(words[0], words[1], words[2], words[3]);
        unit[at / 16 + 1] = UINT4(words[4], words[5], words[6], words[7]);
    }
}
