// Finds LZ77 candidates in the order of suffixes, by the rule of codec::lz77::suffixes. bwt/sort has computed each
// position's rank in that order.
//
// A position's candidates are stored as distances back, the smallest first, padded with NONE. They are in `lz77_low`,
// where lz77/candidates puts the position's list afterwards. A position with fewer than eight bytes up to the block's
// end has none.
//
// @pz_cost {
//   threads: N
//   passes: 2
//   buffers: jobs=32, sort_rank=N*4, sort_position_a=N*4, lz77_low=N*16
//   local_mem: 0
// }

#define NONE 0xffffffffu
// The number of suffixes to look at on each side.
#define REACH 32u

// A work item for each position: puts the positions in the order of their suffixes.
__kernel void order(__global const uint *restrict jobs, __global const uint *restrict rank,
                    __global uint *restrict ordered, uint slot, uint blocks) {
    uint group = get_group_id(0), groups = (slot + THREADS - 1u) / THREADS;
    uint block = group / groups;
    uint pos = group % groups * THREADS + get_local_id(0);
    if (block >= blocks || pos >= jobs[(size_t)block * 8]) return;
    size_t start = (size_t)block * slot;
    ordered[start + rank[start + pos]] = pos;
}

// The distance to the first candidate on one side, in steps of `step` entries from place `at` on: a position before
// `pos` by at most `reach`. NONE if there is none.
inline uint nearest(__global const uint *ordered, uint at, uint step, uint count, uint pos, uint reach) {
    for (uint k = 0; k < count; k++) {
        at += step;
        uint distance = pos - ordered[at];
        if (distance - 1u < reach) return distance;
    }
    return NONE;
}

// A work item for each suffix.
__kernel void neighbours(__global const uint *restrict jobs, __global const uint *restrict ordered,
                         __global uint4 *restrict low, uint slot, uint blocks, uint window_log) {
    uint group = get_group_id(0), groups = (slot + THREADS - 1u) / THREADS;
    uint block = group / groups;
    uint place = group % groups * THREADS + get_local_id(0);
    if (block >= blocks) return;
    uint len = jobs[(size_t)block * 8];
    if (place >= len) return;
    ordered += (size_t)block * slot;
    uint pos = ordered[place];
    if (pos + 7u >= len) return;
    uint reach = pos & ((1u << window_log) - 1u);
    uint after = nearest(ordered, place, 1u, min(REACH, len - 1u - place), pos, reach);
    uint before = nearest(ordered, place, 0u - 1u, min(REACH, place), pos, reach);
    low[(size_t)block * slot + pos] = UINT4(min(after, before), max(after, before), NONE, NONE);
}
