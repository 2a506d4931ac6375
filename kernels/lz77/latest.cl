// Finds LZ77 candidates: for each position, the CANDIDATES latest earlier positions of its window with the same hash.
//
// One pass of lz77/sort has ordered the entries of a block by a digit, which is the upper bits of the hash, and then by
// position. A team handles the entries of one digit in one window. It visits them in order, 32 at a time, with a table
// of the latest entries for each value of the hash's other bits, as a CPU would. Matches between lanes show which of
// the 32 are candidates of one another.
//
// An entry gets a row of distances, nearest candidate first; a distance is 0 if the candidate has another tag or does
// not exist. Rows are written in the entries' order, and a row of two replaces its entry. Then `gather` uses the sorted
// index of each position: it moves rows of one or two distances into the order of positions; for rows of four, it sets
// bit 24 in the indices of rows that are not empty. So all writes are sequential.
//
// Constants: CANDIDATES, 1, 2 or 4; TWO, whether there are at least two; FOUR, whether there are four; HASH_BITS;
// DIGIT_BITS, the number of its upper bits in the digit; TILE, the positions that one count of `histogram` covers.
//
// @pz_cost one {
//   threads: max(N/2048*256, 8192)
//   passes: 2
//   buffers: jobs=32, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4, rows_one=N*4
//   local_mem: 4096
// }
//
// @pz_cost two {
//   threads: max(N/2048*256, 8192)
//   passes: 2
//   buffers: jobs=32, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4, found_two=N*8
//   local_mem: 16384
// }
//
// @pz_cost four {
//   threads: max(N/2048*256, 8192)
//   passes: 4
//   buffers: jobs=32, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4, rows_four=N*16
//   local_mem: 32768
// }
// @pz_import team

#define RADIX (1u << DIGIT_BITS)
#define SLOTS (1u << (HASH_BITS - DIGIT_BITS))

// A row of candidates or of distances, and the row with another one put in front.
#if FOUR
typedef uint4 Row;
#define ROW(v) UINT4(v)
#define PUSHED(row, first) UINT4(first, (row).x, (row).y, (row).z)
#define DISTANCES(entry, row, reach) ((entry) - (row) & as_uint4((entry) - (row) <= UINT4(reach)))
#elif TWO
typedef uint2 Row;
#define ROW(v) UINT2(v)
#define PUSHED(row, first) UINT2(first, (row).x)
#define DISTANCES(entry, row, reach) ((entry) - (row) & as_uint2((entry) - (row) <= UINT2(reach)))
#else
typedef uint Row;
#define ROW(v) (v)
#define PUSHED(row, first) (first)
#define DISTANCES(entry, row, reach) ((entry) - (row) <= (reach) ? (entry) - (row) : 0u)
#endif

// `lanes` without the highest one.
inline uint without_last(uint lanes) {
    return lanes & ~(0x80000000u >> clz(lanes | 1u));
}

// The row with the entry of the highest of `lanes` in front, if there is such a lane.
inline Row pushed(Team t, Row row, uint entry, uint lanes) {
    uint other = team_shuffle(t, entry, 31u - clz(lanes | 1u));
    return lanes != 0u ? PUSHED(row, other) : row;
}

// Blocks of 32 entries to load ahead.
#if TEAM_PTX
#define AHEAD 4u
#else
#define AHEAD 1u
#endif

__kernel void latest(__global const uint *restrict histogram, __global const uint *restrict digits,
#if TWO && !FOUR
                     __global uint2 *entries,
#else
                     __global const uint2 *restrict entries, __global Row *restrict rows,
#endif
                     uint slot, uint tiles, uint blocks, uint window_log) {
    TEAM_START(team);
    SHARED Row tables[TEAMS * SLOTS];
    __local Row *table = tables + team.index * SLOTS;
    uint windows = ((slot - 1u) >> window_log) + 1u, index = (uint)get_group_id(0) * TEAMS + team.index;
    uint digit = index % RADIX, window = index / RADIX % windows, block = index / RADIX / windows;
    if (block >= blocks) return;
    // Finds where the digit's entries begin, and where those of the window begin and end among them.
    __global const uint *totals = digits + (size_t)block * RADIX;
    uint before = 0;
    for (uint d = team.lane; d < RADIX; d += 32u) before += d < digit ? totals[d] : 0u;
    before = team_sum(team, before);
    __global const uint *counts = histogram + ((size_t)block * RADIX + digit) * tiles;
    uint tile = (window << window_log) / TILE, next_tile = tile + (1u << window_log) / TILE;
    uint begin = team_uniform(team, counts[tile]);
    uint end = team_uniform(team, next_tile < tiles ? counts[next_tile] : totals[digit]);
    if (begin >= end) return;
    for (uint i = team.lane; i < SLOTS; i += 32u) table[i] = ROW(0u);
    team_sync(team);

    entries += (size_t)block * slot + before;
#if TWO && !FOUR
    __global Row *rows = entries;
#else
    rows += (size_t)block * slot + before;
#endif
    uint2 ahead[AHEAD];
#if TEAM_PTX
#pragma unroll
#endif
    for (uint i = 0; i < AHEAD; i++) ahead[i] = entries[min(begin + 32u * i + team.lane, end - 1u)];
    uint at = begin;
    do {
        uint2 now[AHEAD];
        uint same[AHEAD];
#if TEAM_PTX
#pragma unroll
#endif
        for (uint i = 0; i < AHEAD; i++) {
            now[i] = ahead[i];
            ahead[i] = entries[min(at + 32u * (AHEAD + i) + team.lane, end - 1u)];
        }
#if TEAM_PTX
#pragma unroll
#endif
        for (uint i = 0; i < AHEAD; i++) {
            bool valid = at + 32u * i + team.lane < end;
            uint place = now[i].x >> (32u - HASH_BITS) & (SLOTS - 1u);
            same[i] = team_match_digit(team, valid ? place : SLOTS, HASH_BITS - DIGIT_BITS + 1u);
        }
#if TEAM_PTX
#pragma unroll
#endif
        for (uint i = 0; i < AHEAD; i++) {
            bool valid = at + 32u * i + team.lane < end;
            uint place = now[i].x >> (32u - HASH_BITS) & (SLOTS - 1u), pos = now[i].y;
            // The tag above the position. If two tags are equal, their difference is the distance. If they differ, or
            // there is no entry, it is larger than any distance.
            uint entry = (now[i].x << 24) + pos + 1u;
            Row row = table[place];
            uint lanes = same[i] & team_before(team);
#if FOUR
            uint third = without_last(without_last(lanes));
            row = pushed(team, row, entry, without_last(third));
            row = pushed(team, row, entry, third);
#endif
#if TWO
            row = pushed(team, row, entry, without_last(lanes));
#endif
            row = pushed(team, row, entry, lanes);
            team_sync(team);
            if (valid && same[i] >> team.lane == 1u) table[place] = PUSHED(row, entry);
            team_sync(team);
            uint reach = pos & ((1u << window_log) - 1u);
            if (valid) rows[at + 32u * i + team.lane] = DISTANCES(entry, row, reach);
        }
        at += 32u * AHEAD;
    } while (at < end);
}

// Positions that a work item handles.
#define GATHERED 8u

// A workgroup for each THREADS * GATHERED positions of each block.
__kernel void gather(__global const uint *restrict jobs, __global const Row *restrict rows,
                     __global uint *restrict places,
#if TWO && !FOUR
                     __global Row *restrict found,
#endif
                     uint slot, uint tiles, uint blocks, uint window_log) {
    uint group = get_group_id(0), groups = (slot + THREADS * GATHERED - 1u) / (THREADS * GATHERED);
    uint block = group / groups, first = group % groups * THREADS * GATHERED + get_local_id(0);
    if (block >= blocks) return;
    uint len = jobs[(size_t)block * 8], count = len < 8u ? 0u : len - 7u;
    rows += (size_t)block * slot;
    places += (size_t)block * slot;
#if TWO && !FOUR
    found += (size_t)block * slot;
#endif
    uint place[GATHERED];
    Row row[GATHERED];
#pragma unroll
    for (uint i = 0; i < GATHERED; i++) place[i] = first + THREADS * i < count ? places[first + THREADS * i] : 0u;
#pragma unroll
    for (uint i = 0; i < GATHERED; i++) row[i] = rows[place[i]];
#pragma unroll
    for (uint i = 0; i < GATHERED; i++) {
        uint pos = first + THREADS * i;
        if (pos < count) {
#if FOUR
            places[pos] = place[i] | ((row[i].x | row[i].y | row[i].z | row[i].w) != 0u ? 1u << 24 : 0u);
#elif TWO
            found[pos] = row[i];
#else
            places[pos] = row[i];
#endif
        }
    }
}
