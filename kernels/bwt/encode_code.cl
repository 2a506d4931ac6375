// Writes the words of each segment of a payload (`codec/bwt/segments.rs`).
//
// @pz_cost {
//   threads: (N/8192+1)/32*32
//   passes: 1
//   buffers: jobs=32, sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4, encode_state=256,
//            encode_segments=N/8192*32+32, encode_starts=393216
//   local_mem: 0
//   note: a lane for each segment; sort_position_a holds its words, at most as many as it has bytes
// }

// @pz_import bwt_encode

// x / d and the remainder, where x has 64 bits and d is less than 2^13.
inline ulong divide(ulong x, uint d, uint *rest) {
    uint high = (uint)(x >> 32);
    uint q = high / d;
    uint r = high - q * d;
    uint middle = r << 16 | ((uint)x >> 16);
    uint q1 = middle / d;
    r = middle - q1 * d;
    uint low = r << 16 | ((uint)x & 0xffffu);
    uint q0 = low / d;
    *rest = low - q0 * d;
    return (ulong)q << 32 | q1 << 16 | q0;
}

inline ulong put(ulong x, uint start, uint freq) {
    uint rest;
    ulong quotient = divide(x, freq, &rest);
    return (quotient << 12) + rest + start;
}

// Each lane codes a segment and writes its words backward, from the end of the segment's space.
__kernel void code(
    __global const uint *jobs, __global const uint *begins, __global const uint *infos, __global const uint *intervals,
    __global uint *state, __global uint *segments, __global uint *words, uint slot, uint parts)
{
    uint block = (uint)get_group_id(0) / parts;
    uint s = (uint)get_group_id(0) % parts * THREADS + (uint)get_local_id(0);
    state += block * ENCODE_STATE;
    uint segment_count = state[ENCODE_SEGMENTS];
    if (s >= segment_count) return;
    uint len = jobs[block * 8u];
    uint runs = state[ENCODE_RUNS];
    begins += (size_t)block * slot;
    infos += (size_t)block * slot;
    words += (size_t)block * slot;
    __global uint *segment = segments + SEGMENTS_AT(block, slot) + s * SEGMENT_WORDS;
    intervals += ((size_t)block * SETS + segment[SEGMENT_SET]) * CELLS;
    uint first = segment[SEGMENT_RUN];
    uint end = s + 1 < segment_count ? segment[SEGMENT_WORDS + SEGMENT_RUN] : runs;
    uint least = segment[SEGMENT_BEGIN];
    uint most = s + 1 < segment_count ? segment[SEGMENT_WORDS + SEGMENT_BEGIN] : len;
    uint to = most;
    bool full = false;
    ulong x = 1;
    // Load a run's data two runs ahead, and its intervals one run ahead.
    uint begin = begins[end - 1];
    uint info = infos[end - 1];
    Token next_rank = rank_token(info >> 8 & 255u);
    Token next_lasts = run_token(most - begin);
    uint next_rank_interval = intervals[(info >> 16 & 255u) * 32u + next_rank.token];
    uint next_run_interval = intervals[(RANK_CONTEXTS + (info >> 24)) * 32u + next_lasts.token];
    uint behind = begin;
    begin = begins[max(end, first + 2) - 2];
    info = infos[max(end, first + 2) - 2];
    for (uint run = end; run-- > first;) {
        Token rank = next_rank;
        Token lasts = next_lasts;
        uint rank_interval = next_rank_interval;
        uint run_interval = next_run_interval;
        next_rank = rank_token(info >> 8 & 255u);
        next_lasts = run_token(behind - begin);
        next_rank_interval = intervals[(info >> 16 & 255u) * 32u + next_rank.token];
        next_run_interval = intervals[(RANK_CONTEXTS + (info >> 24)) * 32u + next_lasts.token];
        behind = begin;
        begin = begins[max(run, first + 2) - 2];
        info = infos[max(run, first + 2) - 2];
        uint rank_freq = rank_interval >> 16;
        uint run_freq = run_interval >> 16;
        if (lasts.bits > 0) {
            if (x >> (64u - lasts.bits) != 0) {
                if (to > least) words[--to] = (uint)x;
                else full = true;
                x >>= 32;
            }
            x = x << lasts.bits | lasts.raw;
        }
        if (x >> (40u - rank.bits) >= rank_freq * run_freq) {
            if (to > least) words[--to] = (uint)x;
            else full = true;
            x >>= 32;
        }
        x = put(x, run_interval & 0xffffu, run_freq);
        x = x << rank.bits | rank.raw;
        x = put(x, rank_interval & 0xffffu, rank_freq);
    }
    if (to > least) words[--to] = (uint)x;
    else full = true;
    if (x >> 32 != 0) {
        if (to > least) words[--to] = (uint)(x >> 32);
        else full = true;
    }
    segment[SEGMENT_CODED] = most - to;
    if (full) atomic_or(&state[ENCODE_FULL], 1u);
}
