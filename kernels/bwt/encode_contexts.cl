// Finds the contexts of runs from the histories of their symbols, and counts each token in each context
// (`codec/bwt/segments.rs`).
//
// @pz_cost {
//   threads: N/8192*256+256
//   passes: 2
//   buffers: jobs=32, sort_high_a=N*4, sort_low_a=N*4, encode_state=256, encode_segments=N/8192*32+32,
//            encode_lists=N/8192*256+256, encode_counts=N/8192*24576+24576
//   local_mem: 24580
//   note: 16-bit counts of all tokens in all contexts, for each segment
// }

// @pz_import team
// @pz_import bwt_encode

// One team per segment. The low halves of histories hold averages of ranks, the high halves averages of lengths.
__kernel void contexts(
    __global const uint *jobs, __global const uint *begins, __global uint *infos, __global const uint *state,
    __global const uint *segments, __global const uint *lists, uint slot, uint parts)
{
    TEAM_START(team);
    SHARED uint histories[TEAMS * 256u];
    uint block = (uint)get_group_id(0) / parts;
    state += block * ENCODE_STATE;
    uint len = jobs[block * 8u];
    uint runs = state[ENCODE_RUNS];
    uint segment_count = state[ENCODE_SEGMENTS];
    begins += (size_t)block * slot;
    infos += (size_t)block * slot;
    segments += SEGMENTS_AT(block, slot);
    lists += LISTS_AT(block, slot);
    __local uint *own = histories + team.index * 256u;
    for (uint s = (uint)get_group_id(0) % parts * TEAMS + team.index; s < segment_count; s += parts * TEAMS) {
        uint first = segments[s * SEGMENT_WORDS + SEGMENT_RUN];
        uint end = s + 1 < segment_count ? segments[(s + 1) * SEGMENT_WORDS + SEGMENT_RUN] : runs;
        for (uint i = team.lane; i < 256; i += 32) {
            uint symbol = lists[s * 64u + (i >> 2)] >> (8u * (i & 3u)) & 255u;
            own[symbol] = log_scale(i + 1) << 8 | 8u << 24;
        }
        team_sync(team);
        uint all = 24u << 8 | 10u << 24;
        for (uint begin = first; begin < end; begin += 32) {
            uint run = begin + team.lane;
            bool valid = run < end;
            uint info = valid ? infos[run] : 0;
            uint length = 1;
            if (valid) length = (run + 1 < runs ? begins[run + 1] : len) - begins[run];
            uint symbol = info & 255u;
            uint rank = max(info >> 8 & 255u, 1u);
            uint step = log_scale(rank) << 5 | log_scale(length) << 21;
            uint global_before = 0;
            for (uint k = 0; k < 32; k++) {
                uint other = team_shuffle(team, step, k);
                if (team.lane == k) global_before = all;
                all = all - (all >> 3 & 0x1fff1fffu) + other;
            }
            // Runs of the same symbol take turns.
            uint same = team_match(team, valid ? symbol : 256u + team.lane, 9);
            uint turn = popcount(same & team_before(team));
            uint turns = team_max(team, turn);
            uint history = 0;
            for (uint k = 0; k <= turns; k++) {
                if (valid && turn == k) {
                    history = own[symbol];
                    own[symbol] = history - (history >> 3 & 0x1fff1fffu) + step;
                }
                team_sync(team);
            }
            uint h = history & 0xffffu;
            uint g = global_before & 0xffffu;
            uint rank_context = min((h * 6 + g * 2) >> 13, 31u) * 4 + min(g >> 13, 3u);
            uint run_context = min(((history >> 16) * 7 + (global_before >> 16)) >> 12, 31u) * 8 + min(h >> 11, 7u);
            if (valid) infos[run] = info | rank_context << 16 | run_context << 24;
        }
        team_sync(team);
    }
}

// Counts the tokens of each segment. One workgroup per segment.
__kernel void count(
    __global const uint *jobs, __global const uint *begins, __global const uint *infos, __global const uint *state,
    __global uint *segments, __global uint *counts, uint slot, uint parts)
{
    SHARED uint bins[CELLS / 2];
    SHARED uint cells;
    uint block = (uint)get_group_id(0) / parts;
    uint index = (uint)get_local_id(0);
    state += block * ENCODE_STATE;
    uint len = jobs[block * 8u];
    uint runs = state[ENCODE_RUNS];
    uint segment_count = state[ENCODE_SEGMENTS];
    begins += (size_t)block * slot;
    infos += (size_t)block * slot;
    segments += SEGMENTS_AT(block, slot);
    counts += COUNTS_AT(block, slot);
    for (uint s = (uint)get_group_id(0) % parts; s < segment_count; s += parts) {
        __global uint *segment = segments + s * SEGMENT_WORDS;
        uint first = segment[SEGMENT_RUN];
        uint end = s + 1 < segment_count ? segment[SEGMENT_WORDS + SEGMENT_RUN] : runs;
        for (uint i = index; i < CELLS / 2; i += THREADS) bins[i] = 0;
        if (index == 0) cells = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint run = first + index; run < end; run += THREADS) {
            uint info = infos[run];
            uint length = (run + 1 < runs ? begins[run + 1] : len) - begins[run];
            uint a = (info >> 16 & 255u) * 32u + rank_token(info >> 8 & 255u).token;
            uint b = (RANK_CONTEXTS + (info >> 24)) * 32u + run_token(length).token;
            atomic_add(&bins[a >> 1], 1u << (16u * (a & 1u)));
            atomic_add(&bins[b >> 1], 1u << (16u * (b & 1u)));
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        uint mine = 0;
        for (uint i = index; i < CELLS / 2; i += THREADS) {
            uint v = bins[i];
            counts[(size_t)s * (CELLS / 2) + i] = v;
            mine += ((v & 0xffffu) != 0 ? 1u : 0u) + (v >> 16 != 0 ? 1u : 0u);
        }
        atomic_add(&cells, mine);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (index == 0) {
            uint bytes = (s + 1 < segment_count ? segment[SEGMENT_WORDS + SEGMENT_BEGIN] : len) - segment[SEGMENT_BEGIN];
            segment[SEGMENT_CELLS] = cells;
            segment[SEGMENT_DENSITY] = ((end - first) << 16) / bytes;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
