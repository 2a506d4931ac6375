// Undoes the filters that change each element by itself: zigzag and rotation.
//
// @pz_cost {
//   threads: N/4096*256
//   passes: 3
//   buffers: jobs=32, contents=N
//   local_mem: 0
// }
// @pz_import filter

// `count` workgroups for each block, each for 4096 bytes. A work item has 8 bytes at a time.
__kernel void words(__global const Job *jobs, __global uint2 *contents, uint blocks, uint slot, uint count, uint stage) {
    uint block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage];
    uint id = FILTER_ID(word), width = FILTER_WIDTH(word), by = FILTER_PARAMETER(word);
    if (id != FILTER_ZIGZAG && id != FILTER_ROTATE) return;
    uint len = min(jobs[block].content_len, slot);
    uint bits = 8 * width;
    ulong mask = width < 8 ? ((ulong)1 << bits) - 1 : ~(ulong)0;
    contents += (ulong)block * (slot / 8);
    for (uint k = 0; k < 2; k++) {
        uint chunk = (uint)get_group_id(0) % count * 512 + k * 256 + (uint)get_local_id(0);
        uint at = 8 * chunk;
        if (at >= len) return;
        // Units are whole multiples of 8 bytes, but for the block's last: elements end where the block does.
        uint2 parts = contents[chunk];
        ulong old = (ulong)parts.y << 32 | parts.x;
        ulong changed = 0;
        for (uint i = 0; i < 8; i += width) {
            ulong v = old >> 8 * i & mask;
            if (at + i + width <= len) {
                v = id == FILTER_ZIGZAG ? (v >> 1) ^ ((ulong)0 - (v & 1)) : v >> by | v << (bits - by);
            }
            changed |= (v & mask) << 8 * i;
        }
        contents[chunk] = UINT2((uint)changed, (uint)(changed >> 32));
    }
}
