// Undoes the filter of calls in programs: turns absolute targets back into distances.
//
// One workgroup per 256 pages, one work item per page. The workgroup copies 64 bytes of each page at a time to
// workgroup memory, so that adjacent work items load adjacent bytes.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 3
//   buffers: jobs=32, contents=N
//   local_mem: 17408
// }
// @pz_import filter_calls

// Bytes of a page in workgroup memory at a time.
#define PART 64u
// The words of these, and the next one. The number is odd, so that work items use different banks.
#define PART_WORDS 17u

// `count` workgroups for each block, each for 2^18 bytes, which lie in one unit.
__kernel void calls(__global const Job *jobs, __global uint4 *contents, uint blocks, uint slot, uint count, uint stage) {
    SHARED uint parts[PART_WORDS * THREADS];
    uint lane = (uint)get_local_id(0), block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage];
    if (FILTER_ID(word) != FILTER_CALLS) return;
    uint content_len = min(jobs[block].content_len, slot), unit_log = UNIT_LOG(jobs[block]);
    uint first = (uint)get_group_id(0) % count * CALLS_PAGE * THREADS;
    if (first >= content_len) return;
    uint unit = first >> unit_log << unit_log;
    uint len = min(content_len - unit, 1u << unit_log);
    first -= unit;
    contents += (ulong)block * (slot / 16) + unit / 16;
    uint page = first + lane * CALLS_PAGE, end = min(len, page + CALLS_PAGE);
    uint busy = 0, carried = 0;
    for (uint part = 0; part < CALLS_PAGE; part += PART) {
        for (uint i = lane; i < PART / 16 * THREADS; i += THREADS) {
            uint at = first + i / 4 * CALLS_PAGE + part + i % 4 * 16, to = i / 4 * PART_WORDS + i % 4 * 4;
            if (at >= len) continue;
            uint4 v = contents[at / 16];
            parts[to] = v.x;
            parts[to + 1] = v.y;
            parts[to + 2] = v.z;
            parts[to + 3] = v.w;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        uint from = lane * PART_WORDS, at = page + part;
        if (at < end) {
            if (part > 0) parts[from] = carried;
            parts[from + 16] = at + PART < end ? contents[(at + PART) / 16].x : 0;
            for (uint k = 0; k < 16; k += 4) {
                uint words[5];
                for (uint i = 0; i < 5; i++) words[i] = parts[from + k + i];
                change_calls(words, &busy, at + 4 * k, end, word, false);
                for (uint i = 0; i < 5; i++) parts[from + k + i] = words[i];
            }
            carried = parts[from + 16];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = lane; i < PART / 16 * THREADS; i += THREADS) {
            uint to = first + i / 4 * CALLS_PAGE + part + i % 4 * 16, four = i / 4 * PART_WORDS + i % 4 * 4;
            if (to < len) contents[to / 16] = UINT4(parts[four], parts[four + 1], parts[four + 2], parts[four + 3]);
        }
    }
}
