// Finds LZ77 candidates from sorted entries: the entries before an entry are the latest earlier positions with the
// same hash.
//
// `found` has a word for each position: 0 if no candidate in its window has the same tag; otherwise the entry's
// sorted index, and bit 24.
//
// Constants: CANDIDATES; HASH_BITS; SAME, the bits of an entry's first word that candidates have in common: hash and
// tag.
//
// @pz_cost {
//   threads: N
//   passes: 1
//   buffers: jobs=32, entries=N*8, found=N*4
//   local_mem: 0
// }

inline uint entry_count(uint len) {
    return len < 8u ? 0u : len - 7u;
}

// A work item for each entry.
__kernel void link(__global const uint *jobs, __global const uint2 *entries, __global uint *found, uint slot,
                   uint blocks, uint window_log) {
    uint group = get_group_id(0), groups = (slot + THREADS - 1u) / THREADS;
    uint block = group / groups;
    uint index = group % groups * THREADS + get_local_id(0);
    if (block >= blocks || index >= entry_count(jobs[(size_t)block * 8])) return;
    __global const uint2 *own = entries + (size_t)block * slot;
    uint2 entry = own[index];
    uint pos = entry.y;
    uint reach = pos & ((1u << window_log) - 1u);
    uint result = 0;
    for (uint k = 0; k < min(CANDIDATES, index); k++) {
        uint2 other = own[index - 1 - k];
        // Entries of the same hash and window are adjacent, so there are no more.
        if ((other.x ^ entry.x) >> (32u - HASH_BITS) != 0u || pos - other.y > reach) break;
        if (((other.x ^ entry.x) & SAME) == 0) {
            result = 1u << 24 | index;
            break;
        }
    }
    found[(size_t)block * slot + pos] = result;
}
