// Candidates of LZ77 from entries sorted by (hash, position): those before an entry are the most recent earlier positions of
// the same hash. A position gets a row of distances, the nearest candidate first, 0 where a candidate has another tag, or
// there is none: the same rows as those of lz77_table.
//
// Constants: CANDIDATES, 1, 2 or 4; TWO, whether there are at least two; FOUR, whether there are four; SAME, the bits of an
// entry's first word that are the same in candidates: hash and tag.

#if FOUR
typedef uint4 Row;
#elif TWO
typedef uint2 Row;
#else
typedef uint Row;
#endif

// The distance to the entry `k` places before, if it is a candidate; `reach` is the farthest that may be.
inline uint distance_to(__global const uint2 *own, uint2 entry, uint index, uint k, uint reach) {
    if (index < k) return 0u;
    uint2 other = own[index - k];
    uint distance = entry.y - other.y;
    return ((other.x ^ entry.x) & SAME) == 0u && distance <= reach ? distance : 0u;
}

// A work item for each entry.
__kernel void link_rows(__global const uint *jobs, __global const uint2 *restrict entries, __global Row *restrict found,
                        uint slot, uint blocks, uint window_log) {
    uint group = get_group_id(0), groups = (slot + THREADS - 1u) / THREADS;
    uint block = group / groups;
    uint index = group % groups * THREADS + get_local_id(0);
    if (block >= blocks) return;
    uint len = jobs[(size_t)block * 8];
    if (index >= (len < 8u ? 0u : len - 7u)) return;
    __global const uint2 *own = entries + (size_t)block * slot;
    uint2 entry = own[index];
    uint reach = entry.y & ((1u << window_log) - 1u);
    Row row;
#if FOUR
    row.x = distance_to(own, entry, index, 1u, reach);
    row.y = distance_to(own, entry, index, 2u, reach);
    row.z = distance_to(own, entry, index, 3u, reach);
    row.w = distance_to(own, entry, index, 4u, reach);
#elif TWO
    row.x = distance_to(own, entry, index, 1u, reach);
    row.y = distance_to(own, entry, index, 2u, reach);
#else
    row = distance_to(own, entry, index, 1u, reach);
#endif
    found[(size_t)block * slot + entry.y] = row;
}
