// The greedy parse of LZ77: the matches of a segment. It takes the first match found; the rules are those of the module
// codec::lz77::greedy, and `found` is what lz77_latest makes. Candidates are verified here.
//
// A team has several segments, each of which LANES lanes go through together: they look at as many positions at once for
// one that may have a match, and compare the bytes of that, most of them forward and the rest backward. All segments of a
// team take their steps at the same time.
//
// Constants: SEGMENT_LOG, at most 15; LANES, 8, 16 or 32.
//
// @pz_cost {
//   threads_per_element: 0.004
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import team

// Lanes that compare what follows; the rest compare what comes before.
#define FORWARD (LANES / 4u * 3u)
#define FIRST_LANE(team) ((team).lane & ~(LANES - 1u))

// Of a number that is not 0.
inline uint trailing_zeros(uint x) {
    return 31u - clz(x & -x);
}

// Of the lanes of a segment alone.
inline uint part_ballot(Team t, bool p) {
    return team_ballot(t, p) >> FIRST_LANE(t) & (0xffffffffu >> (32u - LANES));
}

inline uint part_shuffle(Team t, uint v, uint from) {
    return team_shuffle(t, v, FIRST_LANE(t) | from);
}

// The four bytes from `pos` on, which may be up to three before the block, or behind its slot of `words` words: bytes there
// read as any.
inline uint read32(__global const uint *contents, uint words, int pos) {
    int word = pos >> 2;
    ulong both = (ulong)contents[min(word + 1, (int)words - 1)] << 32 | contents[max(word, 0)];
    return (uint)(both >> (((uint)pos & 3u) * 8u));
}

// How the bytes at `pos` differ from those `offset` before.
#define DIFFER(pos, offset) (read32(contents, words, pos) ^ read32(contents, words, (int)(pos) - (int)(offset)))

__kernel void greedy(__global const uint *restrict jobs, __global const uint *restrict contents,
                     __global const uint *restrict found, __global uint2 *restrict matches,
                     __global uint *restrict match_counts, uint slot, uint segments, uint blocks, uint window_log) {
    TEAM_START(team);
    uint lane = team.lane & (LANES - 1u);
    uint index = ((uint)get_group_id(0) * TEAMS + team.index) * (32u / LANES) + team.lane / LANES;
    bool exists = index < blocks * segments;
    uint block = exists ? index / segments : 0u, number = exists ? index % segments : 0u;
    uint len = jobs[(size_t)block * 8], words = slot >> 2;
    contents += (size_t)block * words;
    found += (size_t)block * slot;
    matches += ((size_t)block * (slot >> 3) + ((size_t)number << (SEGMENT_LOG - 3))) * 3;
    uint start = number << SEGMENT_LOG, end = min(start + (1u << SEGMENT_LOG), len);
    uint window_start = start >> window_log << window_log;
    uint last = exists ? min(end, len < 8u ? 0u : len - 7u) : 0u;
    uint count = 0, pos = start, anchor = start;
    // The offsets of the last two different matches, the last one first.
    uint recent = 0, second = 0;

    while (team_any(team, pos < last)) {
        bool active = pos < last;
        uint mine = active ? min(pos + lane, last - 1u) : 0u;
        uint bytes = read32(contents, words, (int)mine);
        uint offset = found[mine];
        if (active && recent != 0u && read32(contents, words, (int)(mine - recent)) == bytes) offset = recent;
        if (active && pos == anchor && second != 0u && lane == 0u && read32(contents, words, (int)(pos - second)) == bytes)
            offset = second;
        uint hits = part_ballot(team, active && offset != 0u && pos + lane < last);
        bool has = hits != 0u;
        uint lead = has ? trailing_zeros(hits) : 0u;
        uint at = pos + lead;
        offset = part_shuffle(team, offset, lead);

        uint room_back = has ? min(at - offset - window_start, at - anchor) : 0u;
        bool is_forward = lane < FORWARD;
        uint back = 4u * (lane - FORWARD);
        int p = is_forward ? (int)(at + 4u * lane) : (int)(at - back) - 4;
        // Behind the end, and before what may be taken, nothing is equal.
        uint differ = 0x80000001u;
        if (is_forward ? has && (uint)p < end : back < room_back) differ = DIFFER(p, offset);
        uint n = is_forward && differ != 0u ? trailing_zeros(differ) >> 3 : clz(differ) >> 3;
        uint ends = part_ballot(team, differ != 0u);
        uint ends_ahead = ends & ((1u << FORWARD) - 1u), ends_back = ends >> FORWARD;

        uint end_lane = ends_ahead != 0u ? trailing_zeros(ends_ahead) : FORWARD - 1u;
        uint length = 4u * end_lane + part_shuffle(team, n, end_lane);
        bool open = has && ends_ahead == 0u;
        while (team_any(team, open)) {
            uint q = at + length + 4u * lane;
            differ = 1u;
            if (open && q < end) differ = DIFFER((int)q, offset);
            ends = part_ballot(team, differ != 0u);
            end_lane = ends != 0u ? trailing_zeros(ends) : LANES - 1u;
            uint more = 4u * end_lane + part_shuffle(team, differ != 0u ? trailing_zeros(differ) >> 3 : 4u, end_lane);
            length += open ? more : 0u;
            open = open && ends == 0u;
        }
        length = min(length, end - at);
        bool takes = has && length >= 4u;

        end_lane = ends_back != 0u ? trailing_zeros(ends_back) : LANES - FORWARD - 1u;
        uint before = 4u * end_lane + part_shuffle(team, n, FORWARD + end_lane);
        open = takes && ends_back == 0u;
        while (team_any(team, open)) {
            uint q = before + 4u * lane;
            differ = 0x80000000u;
            if (open && q < room_back) differ = DIFFER((int)(at - q) - 4, offset);
            ends = part_ballot(team, differ != 0u);
            end_lane = ends != 0u ? trailing_zeros(ends) : LANES - 1u;
            uint more = 4u * end_lane + part_shuffle(team, clz(differ) >> 3, end_lane);
            before += open ? more : 0u;
            open = open && ends == 0u;
        }
        before = min(before, room_back);

        if (takes && lane == 0u) matches[count] = (uint2)(at - before - start | (before + length) << 16, offset);
        if (takes) {
            count++;
            second = offset != recent ? recent : second;
            recent = offset;
            anchor = at + length;
        }
        pos = takes ? at + length : has ? at + 1u : pos + LANES;
    }
    if (exists && lane == 0u) match_counts[(size_t)block * (slot >> 8) + number] = count;
}
