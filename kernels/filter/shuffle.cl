// Undoes the transposition of bytes or bits: copies the contents to `filtered`, and back to their places.
//
// @pz_cost {
//   threads: N/4096*256
//   passes: 6
//   buffers: jobs=32, contents=N, filtered=N
//   local_mem: 0
// }
// @pz_import filter

inline bool is_shuffled(uint word) {
    return FILTER_ID(word) == FILTER_TRANSPOSE || FILTER_ID(word) == FILTER_BIT_TRANSPOSE;
}

// `count` workgroups for each block, each for 4096 bytes.
__kernel void save(__global const Job *jobs, __global const uint4 *contents, __global uint4 *filtered, uint blocks,
    uint slot, uint count, uint stage) {
    uint block = (uint)get_group_id(0) / count;
    if (block >= blocks || !is_shuffled(jobs[block].undo[stage])) return;
    uint i = (uint)get_group_id(0) % count * 256 + (uint)get_local_id(0);
    if (16 * i >= min(jobs[block].content_len, slot)) return;
    ulong at = (ulong)block * (slot / 16) + i;
    filtered[at] = contents[at];
}

// `count` workgroups for each block, each for 4096 bytes. A work item has a word at a time.
__kernel void restore(__global const Job *jobs, __global const uchar *filtered, __global uint *contents, uint blocks,
    uint slot, uint count, uint stage) {
    uint block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage];
    if (!is_shuffled(word)) return;
    bool of_bits = FILTER_ID(word) == FILTER_BIT_TRANSPOSE;
    uint width = of_bits ? FILTER_WIDTH(word) : FILTER_BYTES(word);
    uint content_len = min(jobs[block].content_len, slot), unit_log = UNIT_LOG(jobs[block]);
    for (uint k = 0; k < 4; k++) {
        uint i = (uint)get_group_id(0) % count * 1024 + k * 256 + (uint)get_local_id(0);
        if (4 * i >= content_len) return;
        uint unit = 4 * i >> unit_log << unit_log;
        uint len = min(content_len - unit, 1u << unit_log);
        // Elements, of which eight go together if bits move.
        uint elements = of_bits ? len / (8 * width) * 8 : len / width;
        __global const uchar *planes = filtered + (ulong)block * slot + unit;
        uint at = 4 * i - unit;
        uint element = at / width, part = at % width;
        uint result = 0;
        for (uint b = 0; b < 4 && at + b < len; b++) {
            uint byte = 0;
            if (element >= elements) {
                byte = planes[at + b];
            } else if (of_bits) {
                for (uint bit = 0; bit < 8; bit++) {
                    uint plane = planes[(8 * part + bit) * (elements / 8) + element / 8];
                    byte |= (plane >> (element & 7) & 1) << bit;
                }
            } else {
                byte = planes[part * elements + element];
            }
            result |= byte << 8 * b;
            part++;
            if (part == width) {
                part = 0;
                element++;
            }
        }
        contents[(ulong)block * (slot / 4) + i] = result;
    }
}
