// BWT payloads: reads the fixed fields, the list and the start rows, and finds the order in which to decode segments.
//
// @pz_cost {
//   threads: 32
//   passes: 2
//   buffers: jobs=32, payload=N+256, results=32,
//            bwt_blocks=512, bwt_state=3840, bwt_rows=N/64,
//            bwt_segments=N/1024*20+20
//   local_mem: 2304
//   note: a team for each block
// }
// @pz_import team
// @pz_import bwt

// Reads the fixed fields, the list and the rows, and finds the parts. Sets the status of each block.
__kernel void header(__global const uint *jobs, __global const uint *payload, __global uint *results,
                     __global uint *bwt_blocks, __global uint *bwt_state, __global uint *bwt_rows, uint slot,
                     uint blocks) {
    TEAM_START(team);
    SHARED uint used[8];
    SHARED uint list[256];
    uint block = (uint)get_group_id(0);
    if (block >= blocks) return;
    __global const uint *bytes = payload_of(payload, jobs, block);
    __global uint *info = bwt_blocks + block * BLOCK_WORDS;
    uint n = jobs[block * JOB_WORDS];
    uint size = jobs[block * JOB_WORDS + 1u];
    uint lane = team.lane;

    uint bad = n == 0u || n > slot || size < 3u ? 1u : 0u;
    uint first = bad != 0u ? 0u : byte_of(bytes, 0u);
    uint sets = bad != 0u ? 1u : byte_of(bytes, 1u) + 1u;
    uint symbols = bad != 0u ? 1u : byte_of(bytes, 2u) + 1u;
    uint segment_log = 10u + (first & 15u);
    uint start_log = 8u + (first >> 4);
    if (segment_log > 16u) bad = 2u;
    if (sets > MAX_SETS) bad = 3u;
    if (bad == 0u && 3u + symbols > size) bad = 4u;

    // The list: the listed symbols, each once, then the missing ones in order.
    if (lane < 8u) used[lane] = 0u;
    team_sync(team);
    uint twice = 0u;
    if (bad == 0u) {
        for (uint i = lane; i < symbols; i += 32u) {
            uint symbol = byte_of(bytes, 3u + i);
            uint bit = 1u << (symbol & 31u);
            uint before = atomic_or(&used[symbol >> 5], bit);
            if ((before & bit) != 0u) twice = 1u;
            list[i] = symbol;
        }
    }
    if (team_any(team, twice != 0u)) bad = 5u;
    team_sync(team);
    if (bad == 0u) {
        uint place = symbols;
        for (uint word = 0u; word < 8u; word++) {
            uint others = ~used[word];
            if ((others >> lane & 1u) != 0u) list[place + popcount(others & team_before(team))] = word * 32u + lane;
            place += popcount(others);
        }
    }
    team_sync(team);
    if (bad == 0u) {
        for (uint i = lane; i < 64u; i += 32u) {
            info[BLOCK_LIST + i] = list[4u * i] | list[4u * i + 1u] << 8 | list[4u * i + 2u] << 16 | list[4u * i + 3u] << 24;
        }
    }

    // Rows.
    uint at = 3u + symbols;
    uint starts = bad != 0u ? 0u : ((n - 1u) >> start_log) + 1u;
    uint width = n <= 1u ? 0u : 32u - clz(n - 1u);
    uint packed_end = at + (starts * width + 7u) / 8u;
    if (bad == 0u && packed_end + 9u > size) bad = 6u;
    uint outside = 0u;
    if (bad == 0u) {
        for (uint i = lane; i < starts; i += 32u) {
            uint bit = i * width;
            uint p = at + (bit >> 3);
            uint field = 0u;
            for (uint k = 0u; k < 4u; k++) field |= p + k < packed_end ? byte_of(bytes, p + k) << (8u * k) : 0u;
            uint row = field >> (bit & 7u) & ((1u << width) - 1u);
            if (row >= n) outside = 1u;
            bwt_rows[(size_t)block * (slot / 256u) + i] = row + 1u;
        }
        uint filled = starts * width & 7u;
        if (filled != 0u && byte_of(bytes, packed_end - 1u) >> filled != 0u) outside = 1u;
    }
    if (team_any(team, outside != 0u)) bad = 7u;

    // The parts, followed by zeros up to the words.
    at = packed_end + 9u;
    for (uint part = 0u; part < 3u; part++) {
        uint len = 0u;
        if (bad == 0u) {
            for (uint k = 0u; k < 3u; k++) len |= byte_of(bytes, packed_end + 3u * part + k) << (8u * k);
            if (len > size - at) {
                bad = 8u;
                len = 0u;
            }
        }
        if (lane == 0u) {
            __global uint *state = bwt_state + ((size_t)block * 3u + part) * STATE_WORDS;
            state[0] = 0u;
            info[BLOCK_PARTS + 2u * part] = at;
            info[BLOCK_PARTS + 2u * part + 1u] = len;
        }
        at += len;
    }
    uint words_at = (at + 3u) & ~3u;
    if (bad == 0u && words_at > size) bad = 9u;
    if (bad == 0u) {
        for (uint p = at; p < words_at; p++) {
            if (byte_of(bytes, p) != 0u) bad = 10u;
        }
    }
    if (lane == 0u) {
        info[0] = n;
        info[BLOCK_PAYLOAD] = jobs[block * JOB_WORDS + 2u];
        info[BLOCK_SEGMENTS] = 0u;
        info[BLOCK_SETS] = sets;
        info[BLOCK_START_LOG] = start_log;
        info[BLOCK_STARTS] = starts;
        info[BLOCK_SEGMENT_LOG] = segment_log;
        info[BLOCK_WORDS_AT] = words_at / 4u;
        results[block * RESULT_WORDS] = bad;
    }
    if (lane < MAX_SETS) info[BLOCK_SET_SIZES + lane] = 0u;
}

// Classes of segments by the logarithm of their number of words, in quarters.
#define LENGTHS 64u

// A segment's set and length class, long segments first.
inline uint kind_of(uint packed) {
    uint words = max(packed & 0xffffu, 4u);
    uint log = 31u - clz(words);
    return min(packed >> 16, MAX_SETS - 1u) * LENGTHS + (LENGTHS - 1u) - (log * 4u + (words >> (log - 2u) & 3u));
}

// Finds the order in which to decode segments: by table set, with segments of about equal length together, so that the
// lanes of a team finish together. The order of segments of one kind is unspecified and irrelevant.
__kernel void arrange(__global const uint *results, __global const uint *bwt_blocks, __global uint *bwt_segments,
                      uint slot, uint blocks) {
    TEAM_START(team);
    SHARED uint next[MAX_SETS * LENGTHS];
    uint block = (uint)get_group_id(0);
    if (block >= blocks) return;
    __global const uint *info = bwt_blocks + block * BLOCK_WORDS;
    __global const uint *segments = bwt_segments + SEGMENTS_AT(block, slot);
    __global uint *order = bwt_segments + SEGMENTS_AT(block, slot) + ORDER_AT(slot);
    uint count = team_uniform(team, results[block * RESULT_WORDS] == 0u ? info[BLOCK_SEGMENTS] : 0u);
    for (uint i = team.lane; i < MAX_SETS * LENGTHS; i += 32u) next[i] = 0u;
    team_sync(team);
    for (uint segment = team.lane; segment < count; segment += 32u) {
        atomic_inc(&next[kind_of(segments[segment * SEGMENT_WORDS + 3u])]);
    }
    team_sync(team);
    uint before = 0u;
    for (uint i = 0u; i < MAX_SETS * LENGTHS; i += 32u) {
        uint own = next[i + team.lane];
        uint upto = team_scan(team, own);
        next[i + team.lane] = before + upto - own;
        before += team_broadcast(team, upto, 31u);
    }
    team_sync(team);
    for (uint segment = team.lane; segment < count; segment += 32u) {
        uint place = atomic_inc(&next[kind_of(segments[segment * SEGMENT_WORDS + 3u])]);
        order[min(place, count - 1u)] = segment;
    }
}
