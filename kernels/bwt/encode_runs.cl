// Cuts the transform of each block into runs, and the runs into segments (`codec/bwt/runs.rs`).
//
// sort_high_a: where each run begins. sort_low_a: the run's symbol; later also rank << 8 | rank context << 16 | length
// context << 24. A segment has eight words: its first run, its first byte, and words that later kernels add.
//
// @pz_cost {
//   threads: max(min(N/1024*256, 65536), N/1024*32)
//   passes: 4
//   buffers: jobs=32, transform=N, sort_counts=N/4+1024, sort_high_a=N*4, sort_low_a=N*4,
//            encode_state=256, encode_segments=N/8192*32+32
//   local_mem: 292
//   note: reuses the arrays of the sort
// }

// @pz_import team
// @pz_import tile_scan
// @pz_import bwt_encode

#define TILE 1024u
#define ROWS 32u

// Whether a run begins at position p.
inline bool is_start(__global const uchar *bytes, uint len, uint p) {
    return p < len && (p == 0 || bytes[p] != bytes[p - 1]);
}

// Counts the runs that begin in each tile, and notes which symbols occur.
__kernel void count_runs(
    __global const uint *jobs, __global const uint *transform, __global uint *counts, __global uint *state,
    uint slot, uint parts)
{
    TEAM_START(team);
    SHARED uint sum;
    SHARED uint used[8];
    uint block = (uint)get_group_id(0) / parts;
    uint index = (uint)get_local_id(0);
    uint len = jobs[block * 8u];
    uint tiles = (len + TILE - 1) / TILE;
    __global const uchar *bytes = (__global const uchar *)(transform + (size_t)block * slot / 4);
    counts += (size_t)block * (slot / 16 + 256);
    state += block * ENCODE_STATE;
    for (uint tile = (uint)get_group_id(0) % parts; tile < tiles; tile += parts) {
        if (index == 0) sum = 0;
        for (uint i = index; i < 8; i += THREADS) used[i] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint r = 0; r < ROWS; r += TEAMS) {
            uint p = (tile * ROWS + r + team.index) * 32u + team.lane;
            bool starts = is_start(bytes, len, p);
            uint bits = team_ballot(team, starts);
            if (team.lane == 0) atomic_add(&sum, popcount(bits));
            if (starts) {
                uint c = bytes[p];
                atomic_or(&used[c >> 5], 1u << (c & 31u));
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (index == 0) counts[tile] = sum;
        for (uint i = index; i < 8; i += THREADS) {
            if (used[i] != 0) atomic_or(&state[ENCODE_USED + i], used[i]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

// Sums up the counts. One team per block.
__kernel void scan_runs(__global const uint *jobs, __global uint *counts, __global uint *state, uint slot) {
    TEAM_START(team);
    uint block = (uint)get_group_id(0);
    uint tiles = (jobs[block * 8u] + TILE - 1) / TILE;
    uint total = scan_tiles(team, counts + (size_t)block * (slot / 16 + 256), tiles);
    if (team.lane == 0) state[block * ENCODE_STATE + ENCODE_RUNS] = total;
}

// Writes the beginnings of runs, and their symbols.
__kernel void write_runs(
    __global const uint *jobs, __global const uint *transform, __global const uint *counts, __global uint *begins,
    __global uint *infos, uint slot, uint parts)
{
    TEAM_START(team);
    uint block = (uint)get_group_id(0) / parts;
    uint len = jobs[block * 8u];
    uint tiles = (len + TILE - 1) / TILE;
    __global const uchar *bytes = (__global const uchar *)(transform + (size_t)block * slot / 4);
    counts += (size_t)block * (slot / 16 + 256);
    begins += (size_t)block * slot;
    infos += (size_t)block * slot;
    for (uint tile = (uint)get_group_id(0) % parts; tile < tiles; tile += parts) {
        // Every team looks at all rows, and each lane keeps the bits of the row with its own number.
        uint mine = 0;
        for (uint row = 0; row < ROWS; row++) {
            uint p = (tile * ROWS + row) * 32u + team.lane;
            uint bits = team_ballot(team, is_start(bytes, len, p));
            mine = team.lane == row ? bits : mine;
        }
        uint of_row = popcount(mine);
        uint before = counts[tile] + team_scan(team, of_row) - of_row;
        for (uint r = 0; r < ROWS; r += TEAMS) {
            uint row = r + team.index;
            uint first = team_shuffle(team, before, row);
            uint bits = team_shuffle(team, mine, row);
            if ((bits >> team.lane & 1u) != 0) {
                uint to = first + popcount(bits & team_before(team));
                uint p = (tile * ROWS + row) * 32u + team.lane;
                begins[to] = p;
                infos[to] = bytes[p];
            }
        }
    }
}

// Cuts the runs into segments: at the first run that begins at least 1 << segment_log bytes on, or after
// ENCODE_SEGMENT_RUNS runs. One team per block, which looks at 32 runs at a time.
__kernel void cut(
    __global const uint *begins, __global uint *state, __global uint *segments, uint slot, uint parts, uint segment_log)
{
    TEAM_START(team);
    uint block = (uint)get_group_id(0);
    state += block * ENCODE_STATE;
    segments += SEGMENTS_AT(block, slot);
    begins += (size_t)block * slot;
    uint runs = state[ENCODE_RUNS];
    uint run = 0;
    uint count = 0;
    while (run < runs && count < SEGMENTS(slot)) {
        uint begin = begins[run];
        if (team.lane == 0) {
            segments[count * SEGMENT_WORDS + SEGMENT_RUN] = run;
            segments[count * SEGMENT_WORDS + SEGMENT_BEGIN] = begin;
        }
        count++;
        // Find the first run in `low` to `high` that begins at or after the end.
        uint end = begin + (1u << segment_log);
        uint low = run + 1;
        uint high = min(run + ENCODE_SEGMENT_RUNS, runs);
        for (uint i = 0; i < 8 && low < high; i++) {
            uint step = (high - low + 31u) / 32u;
            uint at = low + team.lane * step;
            uint reached = team_ballot(team, at >= high || begins[at] >= end);
            if (reached == 0) {
                low += 31u * step + 1;
            } else {
                uint lane = 31u - clz(reached & (0u - reached));
                high = min(high, low + lane * step);
                if (lane > 0) low += (lane - 1) * step + 1;
            }
        }
        run = high;
    }
    if (team.lane == 0) state[ENCODE_SEGMENTS] = count;
}
