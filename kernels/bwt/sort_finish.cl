// Writes the transform and the stored rows, once every suffix of a block has its rank.
//
// The suffix with rank k is in row k + 1, because row 0 belongs to the empty suffix. The transform omits the row of the
// whole block.
//
// @pz_cost {
//   threads: min(N/4096*256, 262144)
//   passes: 2
//   buffers: jobs=32, contents=N, sort_rank=N*4, sort_low_b=N*4, transform=N, start_rows=N/64+4
//   local_mem: 0
//   note: WGSL stores no bytes, so there sort_low_b holds a word for each byte of the transform until they are packed
// }

#define ITEMS 4u

// Moves each byte to its place in the transform.
__kernel void place(
    __global const uint *jobs, __global const uint *contents, __global const uint *rank, __global uint *transform,
    uint slot, uint parts)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint len = jobs[block * 8u];
    size_t base = (size_t)block * slot;
    __global const uchar *text = (__global const uchar *)(contents + base / 4);
    __global uchar *to = (__global uchar *)(transform + base / 4);
    rank += base;
    uint whole = rank[0];
    for (uint first = part * THREADS * ITEMS; first < len; first += parts * THREADS * ITEMS) {
        uint p = first + (uint)get_local_id(0);
        // Start all loads before waiting for the first.
        uint ranks[ITEMS];
        uint bytes[ITEMS];
        #pragma unroll
        for (uint i = 0; i < ITEMS; i++) {
            uint at = min(p + i * THREADS, len - 1);
            ranks[i] = rank[at];
            bytes[i] = text[at == 0 ? len - 1 : at - 1];
        }
        #pragma unroll
        for (uint i = 0; i < ITEMS; i++) {
            uint at = p + i * THREADS;
            uint r = ranks[i];
            if (at < len) to[at == 0 ? 0 : r < whole ? r + 1 : r] = bytes[i];
        }
    }
}

// Stores the row of every (1 << start_log)-th suffix.
__kernel void start_rows(
    __global const uint *jobs, __global const uint *rank, __global uint *rows, uint slot, uint parts, uint start_log)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint len = jobs[block * 8u];
    uint count = ((len - 1) >> start_log) + 1;
    if (len == 0) return;
    rank += (size_t)block * slot;
    rows += (size_t)block * ((slot + 63) / 64 + 4) / 4;
    for (uint i = part * THREADS + (uint)get_local_id(0); i < count; i += parts * THREADS) rows[i] = rank[i << start_log] + 1;
}
