// The greedy parse of LZ77: takes the first match found in a segment, by the rules of the module codec::lz77::greedy.
// `found` comes from lz77/latest; this kernel verifies the candidates. Each lane of a segment checks one position for a
// possible match. Then they compare its bytes, most of them forward and the rest backward.
//
// @pz_cost {
//   threads: N/262144*128
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment

// The number of lanes that compare forward; the rest compare backward.
#define FORWARD (LANES / 4u * 3u)

__kernel void greedy(__global const uint *restrict jobs, __global const uint *restrict contents,
                     __global const uint *restrict found, __global uint2 *restrict matches,
                     __global uint *restrict match_counts, uint slot, uint segments, uint blocks, uint window_log,
                     uint segment_log) {
    TEAM_START(team);
    Segment s = segment_start(team, jobs, contents, matches, slot, segments, blocks, window_log, segment_log);
    PARSE_STATE(s);
    found += (size_t)s.block * slot;

    while (team_any(team, pos < s.last)) {
        bool active = pos < s.last;
        uint mine = active ? min(pos + s.lane, s.last - 1u) : 0u;
        uint bytes = bytes_at(s, (int)mine);
        uint offset = found[mine];
        if (active && recent != 0u && bytes_at(s, (int)(mine - recent)) == bytes) offset = recent;
        bool is_first = active && pos == anchor && s.lane == 0u;
        if (is_first && second != 0u && bytes_at(s, (int)(pos - second)) == bytes) offset = second;
        uint hits = part_ballot(team, s, active && offset != 0u && pos + s.lane < s.last);
        bool has = hits != 0u;
        uint lead = has ? trailing_zeros(hits) : 0u;
        uint at = pos + lead;
        offset = part_shuffle(team, s, offset, lead);

        uint room_back = has ? min(at - offset - s.window_start, at - anchor) : 0u;
        bool is_forward = s.lane < FORWARD;
        uint back = 4u * (s.lane - FORWARD);
        int p = is_forward ? (int)(at + 4u * s.lane) : (int)(at - back) - 4;
        // Bytes after the end, or before the first byte that the match may take, count as different.
        uint differ = 0x80000001u;
        if (is_forward ? has && (uint)p < s.end : back < room_back) differ = difference(s, p, offset);
        uint n = is_forward && differ != 0u ? trailing_zeros(differ) >> 3 : clz(differ) >> 3;
        uint ends = part_ballot(team, s, differ != 0u);
        uint ends_ahead = ends & ((1u << FORWARD) - 1u), ends_back = ends >> FORWARD;

        uint end_lane = ends_ahead != 0u ? trailing_zeros(ends_ahead) : FORWARD - 1u;
        uint length = 4u * end_lane + part_shuffle(team, s, n, end_lane);
        length = extended(team, s, at, offset, length, has && ends_ahead == 0u);
        bool takes = has && length >= 4u;
        end_lane = ends_back != 0u ? trailing_zeros(ends_back) : LANES - FORWARD - 1u;
        uint before = 4u * end_lane + part_shuffle(team, s, n, FORWARD + end_lane);
        before = extended_back(team, s, at, offset, room_back, before, takes && ends_back == 0u);

        TAKE(s, takes, at, before, length, offset);
        // With `anchor` for `at + length`, PoCL 3.1 mixes up the segments of a team.
        pos = takes ? at + length : has ? at + 1u : pos + LANES;
    }
    segment_end(s, count, match_counts, slot);
}
