// Undoes what filters do to calls in programs: puts distances instead of places into them.
//
// A work item has a page of 1,024 bytes.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 3
//   buffers: jobs=32, contents=N
//   local_mem: 0
// }
// @pz_import filter_calls

// `count` workgroups for each block, each for 2^18 bytes, which lie in one unit.
__kernel void calls(__global const Job *jobs, __global uint4 *contents, uint blocks, uint slot, uint count, uint stage) {
    uint block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage];
    if (FILTER_ID(word) != FILTER_CALLS) return;
    uint content_len = min(jobs[block].content_len, slot), unit_log = UNIT_LOG(jobs[block]);
    uint at = ((uint)get_group_id(0) % count * 256 + (uint)get_local_id(0)) * CALLS_PAGE;
    if (at >= content_len) return;
    uint unit = at >> unit_log << unit_log;
    contents += (ulong)block * (slot / 16) + unit / 16;
    change_page(contents, contents, at - unit, min(content_len - unit, 1u << unit_log), word, false);
}
