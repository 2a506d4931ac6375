// Writes the transform and the stored rows of blocks whose suffixes have their ranks.
//
// The row of the suffix with rank k is k + 1, for row 0 is that of the empty suffix; the transform leaves out the row of
// the whole block.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 2
//   buffers: jobs=32, contents=N, sort_rank=N*4, sort_low_b=N*4, transform=N, start_rows=N/64+4
//   local_mem: 0
//   note: sort_low_b holds the transform's bytes, a word each, until they are packed
// }

// Each byte to its place in the transform.
__kernel void place(
    __global const uint *jobs, __global const uint *contents, __global const uint *rank, __global uint *wide,
    uint slot, uint parts)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint len = jobs[block * 8u];
    size_t base = (size_t)block * slot;
    __global const uchar *text = (__global const uchar *)(contents + base / 4);
    rank += base;
    wide += base;
    uint whole = rank[0];
    for (uint p = part * THREADS + (uint)get_local_id(0); p < len; p += parts * THREADS) {
        uint r = rank[p];
        uint to = p == 0 ? 0 : r < whole ? r + 1 : r;
        wide[to] = text[p == 0 ? len - 1 : p - 1];
    }
}

// The bytes together, and the rows of every (1 << start_log)-th suffix.
__kernel void pack(
    __global const uint *jobs, __global const uint *rank, __global const uint *wide, __global uint *transform,
    __global uint *rows, uint slot, uint parts, uint start_log)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint len = jobs[block * 8u];
    size_t base = (size_t)block * slot;
    rank += base;
    wide += base;
    transform += base / 4;
    rows += (size_t)block * ((slot + 63) / 64 + 4) / 4;
    for (uint i = part * THREADS + (uint)get_local_id(0); i * 4 < len; i += parts * THREADS) {
        uint v = 0;
        for (uint k = 0; k < 4; k++) {
            if (i * 4 + k < len) v |= (wide[i * 4 + k] & 255u) << (8u * k);
        }
        transform[i] = v;
        if (i << start_log < len && i << start_log >> start_log == i) rows[i] = rank[i << start_log] + 1;
    }
}
