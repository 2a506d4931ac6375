// Undoes zigzag and rotation that no transposition undoes along the way.
//
// @pz_cost {
//   threads: N/16384*256
//   passes: 3
//   buffers: jobs=32, contents=N
//   local_mem: 0
// }
// @pz_import filter_words

// `count` workgroups for each block, each for 16,384 bytes. A work item handles 16 bytes at a time.
__kernel void words(__global const Job *jobs, __global uint4 *contents, uint blocks, uint slot, uint count, uint stage) {
    uint block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage];
    if (!changes_words(word)) return;
    if (stage > 0 && is_undone_while_moving(jobs[block].undo[stage - 1], word)) return;
    uint len = min(jobs[block].content_len, slot);
    contents += (ulong)block * (slot / 16);
    for (uint k = 0; k < 4; k++) {
        uint i = (uint)get_group_id(0) % count * 1024 + k * 256 + (uint)get_local_id(0);
        if (16 * i >= len) return;
        // Units are multiples of 16 bytes, except the block's last one, where the elements end with the block.
        contents[i] = undone_words(word, contents[i], len - 16 * i);
    }
}
