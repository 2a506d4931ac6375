// Writes payloads: copies all their parts, one directly after another.
//
// @pz_cost {
//   threads: N/8192*256+256
//   passes: 2
//   buffers: jobs=32, sort_position_a=N*4, encode_state=256, encode_segments=N/8192*32+32, encode_lists=N/8192*256+256,
//            encode_described=N/64+263168, start_rows=N/64+4, payload=N+256, results=32
//   local_mem: 0
//   note: measure has a lane for each block; in assemble, all lanes copy
// }

// @pz_import bwt_encode

inline uint row_bits(uint len) {
    return len > 1 ? 32u - clz(len - 1) : 0;
}

inline uint symbols_of(__global const uint *state) {
    uint symbols = 0;
    for (uint i = 0; i < 8; i++) symbols += popcount(state[ENCODE_USED + i]);
    return symbols;
}

// Computes the place of each part. One work item per block.
__kernel void measure(
    __global const uint *jobs, __global uint *state, __global uint *segments, __global uint *results,
    uint slot, uint blocks, uint start_log)
{
    uint block = (uint)get_group_id(0) * THREADS + (uint)get_local_id(0);
    if (block >= blocks) return;
    state += block * ENCODE_STATE;
    segments += SEGMENTS_AT(block, slot);
    uint len = jobs[block * 8u];
    uint words = 0;
    for (uint s = 0; s < state[ENCODE_SEGMENTS]; s++) {
        segments[s * SEGMENT_WORDS + SEGMENT_BEFORE] = words;
        words += segments[s * SEGMENT_WORDS + SEGMENT_CODED];
    }
    uint rows = ((len - 1) >> start_log) + 1;
    uint header = 3 + symbols_of(state) + (rows * row_bits(len) + 7) / 8 + 9;
    for (uint i = 0; i < 3; i++) header += state[ENCODE_LENGTHS + i];
    header = (header + 3) & ~3u;
    state[ENCODE_HEADER] = header;
    state[ENCODE_WORDS] = words;
    bool fits = state[ENCODE_FULL] == 0 && header + 4 * words <= slot + 256;
    results[block * 8u] = fits ? 0 : 1;
    results[block * 8u + 1] = fits ? header + 4 * words : 0;
}

// Writes the payloads of the blocks that fit.
__kernel void assemble(
    __global const uint *jobs, __global const uint *state, __global const uint *segments, __global const uint *lists,
    __global const uint *described, __global const uint *rows, __global const uint *words, __global uint *payload,
    uint slot, uint parts, uint start_log, uint segment_log)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    state += block * ENCODE_STATE;
    uint len = jobs[block * 8u];
    uint header = state[ENCODE_HEADER];
    if (state[ENCODE_FULL] != 0 || header + 4 * state[ENCODE_WORDS] > slot + 256) return;
    segments += SEGMENTS_AT(block, slot);
    lists += LISTS_AT(block, slot);
    rows += (size_t)block * (slot / 256 + 1);
    words += (size_t)block * slot;
    payload += (size_t)block * (slot / 4 + 64);
    __global const uchar *text = (__global const uchar *)described + (size_t)block * DESCRIBED_ROOM(slot);

    uint symbols = symbols_of(state);
    uint bits = row_bits(len);
    uint row_count = ((len - 1) >> start_log) + 1;
    uint rows_at = 3 + symbols;
    uint lengths_at = rows_at + (row_count * bits + 7) / 8;
    uint directory_at = lengths_at + 9;
    uint ranks_at = directory_at + state[ENCODE_LENGTHS];
    uint runs_at = ranks_at + state[ENCODE_LENGTHS + 1];
    uint end = runs_at + state[ENCODE_LENGTHS + 2];
    for (uint i = part * THREADS + index; i < header / 4; i += parts * THREADS) {
        uint v = 0;
        for (uint k = 0; k < 4; k++) {
            uint at = i * 4 + k;
            uint byte = 0;
            if (at >= end) {
                byte = 0;
            } else if (at >= runs_at) {
                byte = text[DIRECTORY_ROOM(slot) + RANKS_ROOM + at - runs_at];
            } else if (at >= ranks_at) {
                byte = text[DIRECTORY_ROOM(slot) + at - ranks_at];
            } else if (at >= directory_at) {
                byte = text[at - directory_at];
            } else if (at >= lengths_at) {
                uint j = at - lengths_at;
                byte = state[ENCODE_LENGTHS + j / 3] >> (8 * (j % 3));
            } else if (at >= rows_at) {
                // Take all rows that have bits in this byte.
                uint from = (at - rows_at) * 8;
                for (uint r = from / bits; r < row_count && r * bits < from + 8; r++) {
                    uint row = rows[r] - 1;
                    uint begin = r * bits;
                    byte |= begin >= from ? row << (begin - from) : row >> (from - begin);
                }
            } else if (at >= 3) {
                byte = lists[(at - 3) >> 2] >> (8 * ((at - 3) & 3u));
            } else {
                byte = at == 0 ? (segment_log - 10) | (start_log - 8) << 4
                    : at == 1 ? state[ENCODE_SETS] - 1 : symbols - 1;
            }
            v |= (byte & 255u) << (8 * k);
        }
        payload[i] = v;
    }
    uint segment_count = state[ENCODE_SEGMENTS];
    for (uint s = part; s < segment_count; s += parts) {
        __global const uint *segment = segments + s * SEGMENT_WORDS;
        uint most = s + 1 < segment_count ? segment[SEGMENT_WORDS + SEGMENT_BEGIN] : len;
        uint coded = segment[SEGMENT_CODED];
        uint to = header / 4 + segment[SEGMENT_BEFORE];
        for (uint i = index; i < coded; i += THREADS) payload[to + i] = words[most - coded + i];
    }
}
