// Candidates of LZ77 where a position has one: the latest earlier position of its window whose bytes have the same hash.
//
// The entries of a block are ordered by a digit, the upper bits of the hash, and then by position: one pass of lz77_find.
// A team has those of a digit and a window. It goes through them in order with a table of the latest entry for each value
// of the hash's other bits, as a processor would, 32 at a time: what is the latest among those themselves their match
// tells. `found` gets the distance for each position, 0 where the candidate has another tag, or is none.
//
// Constants: HASH_BITS; DIGIT_BITS, of them; TILE, positions that a count of `histogram` is of.
//
// @pz_cost {
//   threads_per_element: 0.25
//   passes: 1
//   buffers: jobs=32, sort_histogram=N+2048, sort_digits=2048, entries_first=N*8, found=N*4
//   local_mem: 33028
// }
// @pz_import team

#define RADIX (1u << DIGIT_BITS)
#define SLOTS (1u << (HASH_BITS - DIGIT_BITS))

// Rows of 32 entries that are loaded ahead.
#if TEAM_PTX
#define AHEAD 4u
#else
#define AHEAD 1u
#endif

__kernel void latest(__global const uint *histogram, __global const uint *digits, __global const uint2 *restrict entries,
                     __global uint *restrict found, uint slot, uint tiles, uint blocks, uint window_log) {
    TEAM_START(team);
    __local uint tables[TEAMS * SLOTS];
    __local uint *table = tables + team.index * SLOTS;
    uint windows = ((slot - 1u) >> window_log) + 1u, index = (uint)get_group_id(0) * TEAMS + team.index;
    uint digit = index % RADIX, window = index / RADIX % windows, block = index / RADIX / windows;
    if (block >= blocks) return;
    // Where the digit's entries begin, and among them those of the window.
    __global const uint *totals = digits + (size_t)block * RADIX;
    uint before = 0;
    for (uint d = team.lane; d < RADIX; d += 32u) before += d < digit ? totals[d] : 0u;
    before = team_sum(team, before);
    __global const uint *counts = histogram + ((size_t)block * RADIX + digit) * tiles;
    uint tile = (window << window_log) / TILE, next_tile = tile + (1u << window_log) / TILE;
    uint begin = team_uniform(team, counts[tile]);
    uint end = team_uniform(team, next_tile < tiles ? counts[next_tile] : totals[digit]);
    if (begin >= end) return;
    for (uint i = team.lane; i < SLOTS; i += 32u) table[i] = 0u;
    team_sync(team);

    entries += (size_t)block * slot + before;
    found += (size_t)block * slot;
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
            same[i] = team_match(team, valid ? place : SLOTS, HASH_BITS - DIGIT_BITS + 1u);
        }
#if TEAM_PTX
#pragma unroll
#endif
        for (uint i = 0; i < AHEAD; i++) {
            bool valid = at + 32u * i + team.lane < end;
            uint place = now[i].x >> (32u - HASH_BITS) & (SLOTS - 1u), pos = now[i].y;
            // The tag above the position. Of equal tags the difference is the distance; of others, or to no entry, it is
            // more than any.
            uint entry = (now[i].x << 24) + pos + 1u;
            uint latest = table[place];
            team_sync(team);
            if (valid && same[i] >> team.lane == 1u) table[place] = entry;
            team_sync(team);
            uint earlier = same[i] & team_before(team);
            uint other = team_shuffle(team, entry, 31u - clz(earlier | 1u));
            uint distance = entry - (earlier != 0u ? other : latest);
            if (valid) found[pos] = distance <= (pos & ((1u << window_log) - 1u)) ? distance : 0u;
        }
        at += 32u * AHEAD;
    } while (at < end);
}
