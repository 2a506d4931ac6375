// Prologue and epilogue of a module that filters: where a lane's windows lie in a batch of blocks.
// @pz_import filter

#define RESULT_WORDS 8u

// Begins a work item. Returns whether it runs a lane; sets the arguments.
inline bool begin(Lane *lane, ulong *arguments, __global const Job *jobs, __global const uchar *before,
    __global uchar *after, __global uint *results, uint item, uint blocks, uint slot, uint lanes, uint stage, uint number,
    uint fuel, uint lane_log) {
    uint block = item / lanes;
    if (block >= blocks) return false;
    uint word = jobs[block].undo[stage];
    if (FILTER_ID(word) != FILTER_MODULE || (word >> 8 & 255u) != number) return false;
    uint content_len = min(jobs[block].content_len, slot), unit_log = UNIT_LOG(jobs[block]);
    lane_log = min(lane_log, 20u);
    uint per_unit = 1u << (max(unit_log, lane_log) - lane_log);
    uint start = item % lanes / per_unit << unit_log;
    if (start >= content_len) return false;
    uint len = min(content_len - start, 1u << unit_log);
    uint own = item % lanes % per_unit, count = (len + (1u << lane_log) - 1u) >> lane_log;
    if (own >= count) return false;
    lane->trap = 0;
    // The last lane may stand for few bytes.
    uint share = min(len - (own << lane_log), 1u << lane_log);
    lane->fuel = min(fuel, 65536u + 256u * share);
    lane->number = own;
    lane->input_len = len;
    lane->output_len = len;
    // Filters have neither state nor picture.
    lane->state_len = 0;
    lane->pixels_len = 0;
    lane->width = 0;
    lane->time = 0;
    lane->input = before + (ulong)block * slot + start;
    lane->output = after + (ulong)block * slot + start;
    lane->state = results;
    lane->pixels = results;
    arguments[0] = own;
    arguments[1] = count;
    arguments[2] = len;
    arguments[3] = len;
    arguments[4] = word >> 16;
    // A block begins at a multiple of 2^16 bytes.
    arguments[5] = ((ulong)jobs[block].position << 16) + start;
    arguments[6] = 0;
    arguments[7] = 0;
    return true;
}

// Ends a work item. After a trap, the block's status reports it.
inline void end(Lane *lane, __global uint *results, uint item, uint lanes) {
    if (lane->trap != 0) results[item / lanes * RESULT_WORDS] = 256u + lane->trap;
}
