// The greedy parse of LZ77: the matches of a segment, by a team for each segment. It takes the first match found; the rules
// are those of the module codec::lz77::greedy, and `found` is what lz77_latest makes. Candidates are verified here.
// Thirty-two positions are looked at at once for one that may have a match.
//
// @pz_cost {
//   threads_per_element: 0.004
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, matches=N*2, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment

// Lanes that compare what follows; the rest compare what comes before.
#define FORWARD 24u

__kernel void greedy(__global const uint *jobs, __global const uint *contents, __global const uint *found,
                     __global uint2 *matches, __global uint *match_counts, uint slot, uint segments,
                     uint blocks, uint window_log) {
    SEGMENT_START;
    while (pos < last) {
        uint mine = min(pos + team.lane, last - 1);
        uint bytes = read32(s.contents, s.words, mine);
        uint offset = own_found[mine];
        if (recent != 0 && read32(s.contents, s.words, mine - recent) == bytes) offset = recent;
        if (pos == anchor && second != 0 && team.lane == 0 && read32(s.contents, s.words, pos - second) == bytes)
            offset = second;
        uint hits = team_ballot(team, offset != 0 && pos + team.lane < last);
        if (hits == 0) {
            pos += 32;
            continue;
        }
        uint lead = trailing_zeros(hits);
        uint at = pos + lead;
        offset = team_broadcast(team, offset, lead);

        uint room = s.end - at;
        uint room_back = min(at - offset - s.window_start, at - anchor);
        uint differ = 0x80000001u;
        uint n = 0;
        if (team.lane < FORWARD) {
            uint p = at + 4u * team.lane;
            if (p < s.end) differ = read32(s.contents, s.words, p) ^ read32(s.contents, s.words, p - offset);
            n = differ != 0 ? trailing_zeros(differ) >> 3 : 0;
        } else {
            uint back = 4u * (team.lane - FORWARD);
            int p = (int)(at - back) - 4;
            if (back < room_back) differ = read32_before(s.contents, p) ^ read32_before(s.contents, p - (int)offset);
            n = clz(differ) >> 3;
        }
        uint ends = team_ballot(team, differ != 0);
        uint length = 4u * FORWARD;
        if (ends << (32u - FORWARD) != 0) {
            uint end_lane = trailing_zeros(ends);
            length = min(4u * end_lane + team_broadcast(team, n, end_lane), room);
        } else {
            length = extended(team, s, at, offset, length);
        }
        if (length < 4) {
            pos = at + 1;
            continue;
        }
        uint before = 4u * (32u - FORWARD);
        if (ends >> FORWARD != 0) {
            uint end_lane = trailing_zeros(ends >> FORWARD);
            before = min(4u * end_lane + team_broadcast(team, n, FORWARD + end_lane), room_back);
        } else {
            before = extended_back(team, s, at, offset, room_back, before);
        }
        TAKE(before, at, length, offset);
    }
    SEGMENT_END;
}
