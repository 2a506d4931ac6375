// Computes the ranks of runs: how many other symbols occur before a run's symbol occurs again (`codec/bwt/runs.rs`).
//
// Each chunk of 1024 runs is ranked from right to left, with a list of all symbols in the order of their next
// occurrence. A segment's list is the list at its first run.
//
// The list at the end of a chunk follows from each symbol's first occurrence after it. Four buffers serve to find
// those: the first occurrences in each chunk (`firsts`) and in each group of chunks (`group_firsts`), and the next
// occurrences after each group (`group_next`) and after each chunk (`next`). Symbols that do not occur again come last:
// first those that the block uses, ascending, then the rest.
//
// @pz_cost {
//   threads: max(N/1024*32, 256)
//   passes: 5
//   buffers: sort_low_a=N*4, sort_low_b=N*4, encode_groups=N/131072*1024, encode_state=256,
//            encode_segments=N/8192*32+32, encode_lists=N/8192*256+256
//   local_mem: 8192
//   note: sort_low_b holds 256 words for each chunk
// }

// @pz_import team
// @pz_import bwt_encode

#define NONE 0xffffffffu
// Words of `encode_groups` for a block: one for each symbol of each group.
#define GROUPS(slot) ((slot + CHUNK * GROUP_CHUNKS - 1u) / (CHUNK * GROUP_CHUNKS) * 256u)

// Finds the first occurrence of each symbol in each chunk.
__kernel void firsts(
    __global const uint *infos, __global uint *tables, __global const uint *state, uint slot, uint parts)
{
    TEAM_START(team);
    SHARED uint first[TEAMS * 256u];
    uint block = (uint)get_group_id(0) / parts;
    uint runs = state[block * ENCODE_STATE + ENCODE_RUNS];
    uint chunks = (runs + CHUNK - 1) / CHUNK;
    infos += (size_t)block * slot;
    tables += (size_t)block * slot;
    __local uint *own = first + team.index * 256u;
    for (uint chunk = (uint)get_group_id(0) % parts * TEAMS + team.index; chunk < chunks; chunk += parts * TEAMS) {
        for (uint s = team.lane; s < 256; s += 32) own[s] = NONE;
        team_sync(team);
        for (uint i = 0; i < CHUNK; i += 32) {
            uint run = chunk * CHUNK + i + team.lane;
            if (run < runs) atomic_min(&own[infos[run] & 255u], run);
        }
        team_sync(team);
        for (uint s = team.lane; s < 256; s += 32) tables[chunk * 256u + s] = own[s];
        team_sync(team);
    }
}

// Finds the first occurrence of each symbol in each group of chunks. One workgroup per group.
__kernel void group_firsts(
    __global const uint *tables, __global uint *groups, __global const uint *state, uint slot, uint parts)
{
    uint block = (uint)get_group_id(0) / parts;
    uint group = (uint)get_group_id(0) % parts;
    uint chunks = (state[block * ENCODE_STATE + ENCODE_RUNS] + CHUNK - 1) / CHUNK;
    tables += (size_t)block * slot;
    groups += (size_t)block * GROUPS(slot);
    for (uint s = (uint)get_local_id(0); s < 256; s += THREADS) {
        uint first = NONE;
        for (uint chunk = group * GROUP_CHUNKS; chunk < min(chunks, (group + 1) * GROUP_CHUNKS); chunk++) {
            first = min(first, tables[chunk * 256u + s]);
        }
        if (group * GROUP_CHUNKS < chunks) groups[group * 256u + s] = first;
    }
}

// Finds the first occurrence of each symbol after each group. One workgroup per block.
__kernel void group_next(__global uint *groups, __global const uint *state, uint slot) {
    uint block = (uint)get_group_id(0);
    uint chunks = (state[block * ENCODE_STATE + ENCODE_RUNS] + CHUNK - 1) / CHUNK;
    groups += (size_t)block * GROUPS(slot);
    for (uint s = (uint)get_local_id(0); s < 256; s += THREADS) {
        uint next = NONE;
        for (uint group = (chunks + GROUP_CHUNKS - 1) / GROUP_CHUNKS; group-- > 0;) {
            uint first = groups[group * 256u + s];
            groups[group * 256u + s] = next;
            next = min(next, first);
        }
    }
}

// Finds the first occurrence of each symbol after each chunk. One workgroup per group.
__kernel void next(
    __global uint *tables, __global const uint *groups, __global const uint *state, uint slot, uint parts)
{
    uint block = (uint)get_group_id(0) / parts;
    uint group = (uint)get_group_id(0) % parts;
    uint chunks = (state[block * ENCODE_STATE + ENCODE_RUNS] + CHUNK - 1) / CHUNK;
    if (group * GROUP_CHUNKS >= chunks) return;
    tables += (size_t)block * slot;
    groups += (size_t)block * GROUPS(slot);
    for (uint s = (uint)get_local_id(0); s < 256; s += THREADS) {
        uint next = groups[group * 256u + s];
        for (uint chunk = min(chunks, (group + 1) * GROUP_CHUNKS); chunk-- > group * GROUP_CHUNKS;) {
            uint first = tables[chunk * 256u + s];
            tables[chunk * 256u + s] = next;
            next = min(next, first);
        }
    }
}

// Ranks the runs of each chunk. Each lane holds eight positions of the list.
__kernel void ranks(
    __global uint *infos, __global const uint *tables, __global const uint *state, __global const uint *segments,
    __global uint *lists, uint slot, uint parts)
{
    TEAM_START(team);
    SHARED uint2 keys[TEAMS * 128u];
    uint block = (uint)get_group_id(0) / parts;
    state += block * ENCODE_STATE;
    uint runs = state[ENCODE_RUNS];
    uint segment_count = state[ENCODE_SEGMENTS];
    uint chunks = (runs + CHUNK - 1) / CHUNK;
    infos += (size_t)block * slot;
    tables += (size_t)block * slot;
    segments += SEGMENTS_AT(block, slot);
    lists += LISTS_AT(block, slot);
    __local uint2 *found = keys + team.index * 128u;
    __local uint *own = (__local uint *)found;
    uint lane_bit = 1u << team.lane;
    for (uint chunk = (uint)get_group_id(0) % parts * TEAMS + team.index; chunk < chunks; chunk += parts * TEAMS) {
        // Symbols that occur again come first, then the block's other symbols, then the rest.
        for (uint s = team.lane; s < 256; s += 32) {
            uint at = tables[chunk * 256u + s];
            bool used = (state[ENCODE_USED + (s >> 5)] >> (s & 31u) & 1u) != 0;
            own[s] = at != NONE ? at : 0x80000000u + (used ? 0u : 256u) + s;
        }
        team_sync(team);
        uint places[8];
        uint mine[8];
        #pragma unroll
        for (uint k = 0; k < 8; k++) {
            mine[k] = own[k * 32u + team.lane];
            places[k] = 0;
        }
        for (uint s = 0; s < 256; s++) {
            uint other = own[s];
            #pragma unroll
            for (uint k = 0; k < 8; k++) places[k] += other < mine[k] ? 1u : 0u;
        }
        team_sync(team);
        #pragma unroll
        for (uint k = 0; k < 8; k++) own[places[k]] = k * 32u + team.lane;
        team_sync(team);
        __local uint *eight = own + team.lane * 8u;
        uint w0 = eight[0] | eight[1] << 8 | eight[2] << 16 | eight[3] << 24;
        uint w1 = eight[4] | eight[5] << 8 | eight[6] << 16 | eight[7] << 24;
        team_sync(team);

        // The last segment that begins before the end of the chunk.
        uint end = min(runs, (chunk + 1) * CHUNK);
        uint low = 0;
        uint high = segment_count;
        while (high - low > 1) {
            uint middle = (low + high) / 2;
            if (segments[middle * SEGMENT_WORDS + SEGMENT_RUN] < end) low = middle;
            else high = middle;
        }
        uint segment = low;
        uint boundary = segments[segment * SEGMENT_WORDS + SEGMENT_RUN];
        for (uint i = CHUNK; i > 0; i -= 32) {
            uint first = chunk * CHUNK + i - 32;
            if (first >= end) continue;
            uint info = first + team.lane < end ? infos[first + team.lane] : 0;
            uint letters = (info & 255u) * 0x01010101u;
            for (uint k = min(end - first, 32u); k-- > 0;) {
                uint all = team_shuffle(team, letters, k);
                uint x0 = w0 ^ all;
                uint x1 = w1 ^ all;
                // The lowest of these bits marks the zero byte. There is exactly one in all lanes.
                uint z0 = (x0 - 0x01010101u) & ~x0 & 0x80808080u;
                uint z1 = (x1 - 0x01010101u) & ~x1 & 0x80808080u;
                uint before = team_shuffle_up(team, w1, 1);
                if (team.lane == 0) before = all;
                bool holds = (z0 | z1) != 0;
                uint holder = team_ballot(team, holds);
                if (holds) found[k] = UINT2(z0, z1 | team.lane);
                // Move the bytes up to that one by a place, and all bytes of earlier lanes.
                uint moved0 = z0 ^ (z0 - 1u);
                uint moved1 = z0 != 0 ? 0 : z1 ^ (z1 - 1u);
                uint s0 = w0 << 8 | before >> 24;
                uint s1 = w1 << 8 | w0 >> 24;
                if (holder >= lane_bit) {
                    w0 = (s0 & moved0) | (w0 & ~moved0);
                    w1 = (s1 & moved1) | (w1 & ~moved1);
                }
                if (first + k == boundary) {
                    lists[segment * 64u + team.lane * 2u] = w0;
                    lists[segment * 64u + team.lane * 2u + 1] = w1;
                    if (segment > 0) {
                        segment--;
                        boundary = segments[segment * SEGMENT_WORDS + SEGMENT_RUN];
                    }
                }
            }
            team_sync(team);
            uint2 its = found[team.lane];
            uint bits = its.x != 0 ? its.x : its.y & 0x80808080u;
            uint byte = (31u - clz(bits & (0u - bits))) >> 3;
            uint rank = (its.y & 31u) * 8u + (its.x != 0 ? 0u : 4u) + byte;
            if (first + team.lane < end) infos[first + team.lane] = info | max(rank, 1u) << 8;
            team_sync(team);
        }
    }
}
