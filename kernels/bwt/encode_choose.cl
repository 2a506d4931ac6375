// Chooses which segments share a set of tables and which contexts of a set share a table, and builds the tables
// (`codec/bwt/choose.rs` and `tables.rs`).
//
// encode_tables: the cost of each token in each context of each set, in 1/256 bit; finally the exponents.
// encode_starts: each token's interval, start | frequency << 16.
// encode_fresh: the contexts that begin a table.
//
// @pz_cost {
//   threads: max(6144, N/8192*256+256)
//   passes: 18
//   buffers: jobs=32, encode_state=256, encode_segments=N/8192*32+32, encode_counts=N/8192*24576+24576,
//            encode_sums=393216, encode_tables=393216, encode_starts=393216, encode_fresh=12288
//   local_mem: 17424
//   note: eight sets of tables for each block, however short
// }

// @pz_import team
// @pz_import bwt_encode

// log2 of x, at least 1, in units of 1/65536, from its first 13 bits.
inline uint log2_of(uint x) {
    uint e = 31u - clz(x);
    uint mantissa = e >= 12 ? x >> (e - 12) : x << (12 - e);
    ulong y = (ulong)mantissa << 19;
    uint log = 0;
    for (uint bit = 16; bit-- > 0;) {
        y = (y * y) >> 31;
        if (y >> 32 != 0) {
            log |= 1u << bit;
            y >>= 1;
        }
    }
    return e << 16 | log;
}

// Chooses the number of sets, and makes the first grouping of segments, by the length of their runs. One workgroup per
// block.
__kernel void prepare(__global const uint *jobs, __global uint *state, __global uint *segments, uint slot) {
    uint block = (uint)get_group_id(0);
    uint index = (uint)get_local_id(0);
    SHARED uint set_count;
    state += block * ENCODE_STATE;
    segments += SEGMENTS_AT(block, slot);
    uint count = state[ENCODE_SEGMENTS];
    if (index == 0) {
        uint sets = clamp(count / 48u, 1u, SETS);
        // Keep a segment's counts while there is room for the most that it could have.
        uint limit = sets == 1 ? 0 : jobs[block * 8u] / 4;
        uint cells = 0;
        for (uint s = 0; s < count; s++) {
            bool kept = cells + CELLS <= limit;
            if (kept) cells += segments[s * SEGMENT_WORDS + SEGMENT_CELLS];
            segments[s * SEGMENT_WORDS + SEGMENT_KEPT] = kept ? 1 : 0;
        }
        state[ENCODE_SETS] = sets;
        set_count = sets;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    uint sets = set_count;
    for (uint s = index; s < count; s += THREADS) {
        uint density = segments[s * SEGMENT_WORDS + SEGMENT_DENSITY];
        uint place = 0;
        for (uint o = 0; o < count; o++) {
            uint other = segments[o * SEGMENT_WORDS + SEGMENT_DENSITY];
            place += other < density || (other == density && o < s) ? 1u : 0u;
        }
        bool kept = segments[s * SEGMENT_WORDS + SEGMENT_KEPT] != 0;
        segments[s * SEGMENT_WORDS + SEGMENT_SET] = kept ? place * sets / count : 0;
    }
}

// Sums the counts of each set's segments. Each work item sums two cells.
__kernel void sums(
    __global const uint *state, __global const uint *segments, __global const uint *counts, __global uint *sums,
    uint slot)
{
    uint parts = CELLS / 2 / THREADS;
    uint block = (uint)get_group_id(0) / parts;
    uint cell = (uint)get_group_id(0) % parts * THREADS + (uint)get_local_id(0);
    segments += SEGMENTS_AT(block, slot);
    counts += COUNTS_AT(block, slot);
    uint count = state[block * ENCODE_STATE + ENCODE_SEGMENTS];
    uint low[SETS];
    uint high[SETS];
    #pragma unroll
    for (uint k = 0; k < SETS; k++) low[k] = high[k] = 0;
    for (uint s = 0; s < count; s++) {
        uint set = segments[s * SEGMENT_WORDS + SEGMENT_SET];
        uint v = counts[(size_t)s * (CELLS / 2) + cell];
        #pragma unroll
        for (uint k = 0; k < SETS; k++) {
            low[k] += set == k ? v & 0xffffu : 0u;
            high[k] += set == k ? v >> 16 : 0u;
        }
    }
    #pragma unroll
    for (uint k = 0; k < SETS; k++) {
        sums[(size_t)block * SETS * CELLS + k * CELLS + cell * 2u] = low[k];
        sums[(size_t)block * SETS * CELLS + k * CELLS + cell * 2u + 1] = high[k];
    }
}

// Computes the cost of each token with the tables of each set, adding half a count to each token.
__kernel void costs(__global const uint *sums, __global uint *costs, __global const uint *state) {
    uint parts = SETS * CONTEXTS / THREADS;
    uint block = (uint)get_group_id(0) / parts;
    uint context = (uint)get_group_id(0) % parts * THREADS + (uint)get_local_id(0);
    if (context >= state[block * ENCODE_STATE + ENCODE_SETS] * CONTEXTS) return;
    sums += (size_t)block * SETS * CELLS + context * 32u;
    costs += (size_t)block * SETS * CELLS + context * 32u;
    uint total = 32;
    for (uint t = 0; t < 32; t++) total += 2 * sums[t];
    uint log = log2_of(total);
    for (uint t = 0; t < 32; t++) costs[t] = (log - log2_of(2 * sums[t] + 1)) >> 8;
}

// Gives each segment the cheapest set of tables; among equal ones, the first. One workgroup per segment.
__kernel void assign(
    __global const uint *state, __global uint *segments, __global const uint *counts, __global const uint *costs,
    uint slot, uint parts)
{
    SHARED uint sums[SETS];
    uint block = (uint)get_group_id(0) / parts;
    uint index = (uint)get_local_id(0);
    uint count = state[block * ENCODE_STATE + ENCODE_SEGMENTS];
    uint sets = state[block * ENCODE_STATE + ENCODE_SETS];
    if (sets == 1) return;
    segments += SEGMENTS_AT(block, slot);
    counts += COUNTS_AT(block, slot);
    costs += (size_t)block * SETS * CELLS;
    for (uint s = (uint)get_group_id(0) % parts; s < count; s += parts) {
        if (segments[s * SEGMENT_WORDS + SEGMENT_KEPT] == 0) continue;
        for (uint k = index; k < SETS; k += THREADS) sums[k] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        uint mine[SETS];
        #pragma unroll
        for (uint k = 0; k < SETS; k++) mine[k] = 0;
        for (uint i = index; i < CELLS / 2; i += THREADS) {
            uint v = counts[(size_t)s * (CELLS / 2) + i];
            if (v == 0) continue;
            #pragma unroll
            for (uint k = 0; k < SETS; k++) {
                if (k < sets) {
                    mine[k] += (v & 0xffffu) * costs[k * CELLS + i * 2u] + (v >> 16) * costs[k * CELLS + i * 2u + 1];
                }
            }
        }
        #pragma unroll
        for (uint k = 0; k < SETS; k++) {
            if (mine[k] != 0) atomic_add(&sums[k], mine[k]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (index == 0) {
            uint best = 0;
            for (uint k = 1; k < sets; k++) {
                if (sums[k] < sums[best]) best = k;
            }
            segments[s * SEGMENT_WORDS + SEGMENT_SET] = best;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

inline ulong team_sum_long(Team team, ulong v) {
    ulong low = team_sum(team, (uint)v & 0xffffffu);
    ulong middle = team_sum(team, (uint)(v >> 24) & 0xffffffu);
    ulong high = team_sum(team, (uint)(v >> 48));
    return low + (middle << 24) + (high << 48);
}

// Cuts a column of contexts into ranges that share a table, at the least cost, and builds the tables. One team per
// column of a set: there are four columns of ranks and eight of lengths. One lane per token.
__kernel void share(
    __global const uint *sums, __global uint *exponents, __global uint *intervals, __global uint *fresh,
    __global const uint *state, uint slot)
{
    TEAM_START(team);
    // At end * (end - 1) / 2 + begin: the cost of rows begin to end - 1 with one table.
    SHARED ulong costs[TEAMS * 528u];
    SHARED uint cuts[TEAMS * 33u];
    uint parts = SETS * 12u / TEAMS;
    uint block = (uint)get_group_id(0) / parts;
    uint at = (uint)get_group_id(0) % parts * TEAMS + team.index;
    uint set = at / 12u;
    uint column = at % 12u;
    uint columns = column < 4 ? 4 : 8;
    uint first = column < 4 ? column : RANK_CONTEXTS + column - 4;
    __local ulong *own = costs + team.index * 528u;
    __local uint *own_cuts = cuts + team.index * 33u;
    if (set >= state[block * ENCODE_STATE + ENCODE_SETS]) return;
    sums += (size_t)block * SETS * CELLS + set * CELLS;
    exponents += (size_t)block * SETS * CELLS + set * CELLS;
    intervals += (size_t)block * SETS * CELLS + set * CELLS;
    fresh += block * SETS * CONTEXTS + set * CONTEXTS;
    for (uint begin = 0; begin < 32; begin++) {
        uint count = 0;
        for (uint row = begin; row < 32; row++) {
            count += sums[(first + row * columns) * 32u + team.lane];
            uint total = team_sum(team, count);
            // total * log2(total), minus count * log2(count) for each token, plus eight bits for the table and four for
            // each of its tokens.
            ulong counted = count > 0 ? (ulong)count * log2_of(count) : 0;
            counted = team_sum_long(team, counted);
            uint tokens = popcount(team_ballot(team, count > 0));
            ulong cost = total > 0 ? (ulong)total * log2_of(total) - counted + ((ulong)(8 + 4 * tokens) << 16) : 0;
            if (team.lane == 0) own[(row + 1) * row / 2 + begin] = cost;
        }
    }
    team_sync(team);
    if (team.lane == 0) {
        ulong best[33];
        best[0] = 0;
        for (uint end = 1; end <= 32; end++) {
            best[end] = (ulong)-1;
            for (uint begin = end; begin-- > 0;) {
                ulong cost = best[begin] + own[end * (end - 1) / 2 + begin];
                if (cost <= best[end]) {
                    best[end] = cost;
                    own_cuts[end] = begin;
                }
            }
        }
    }
    team_sync(team);
    uint end = 32;
    for (uint i = 0; i < 32; i++) {
        if (end == 0) continue;
        uint begin = team_uniform(team, own_cuts[end]);
        uint count = 0;
        for (uint row = begin; row < end; row++) count += sums[(first + row * columns) * 32u + team.lane];
        uint total = team_sum(team, count);
        uint exponent = 0;
        if (count > 0) {
            uint log = log2_of(count) + (12u << 16);
            uint of_total = log2_of(total);
            log = log > of_total ? log - of_total : 0;
            exponent = 1 + ((log * 3 + (1u << 15)) >> 16);
        }
        // The frequencies that the exponents represent.
        ulong weight = 0;
        if (exponent > 0) {
            uint third = (exponent - 1) % 3;
            weight = (ulong)(third == 0 ? 65536u : third == 1 ? 82570u : 104032u) << (exponent - 1) / 3;
        }
        ulong sum = team_sum_long(team, weight);
        uint freq = exponent > 0 ? max((uint)(((weight << 12) + sum / 2) / sum), 1u) : 0u;
        uint rest = 4096u - team_sum(team, freq);
        uint most = team_max(team, freq);
        uint largest = team_ballot(team, freq == most);
        if (team.lane == 31u - clz(largest & (0u - largest))) freq += rest;
        uint start = team_scan(team, freq) - freq;
        for (uint row = begin; row < end; row++) {
            uint context = first + row * columns;
            exponents[context * 32u + team.lane] = exponent;
            intervals[context * 32u + team.lane] = start | freq << 16;
            if (team.lane == 0) fresh[context] = row == begin && total > 0 ? 1 : 0;
        }
        end = begin;
    }
}
