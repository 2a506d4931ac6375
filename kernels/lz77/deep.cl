// The deep lazy parse of LZ77: takes the best of many candidates, unless a position soon after has a better one. The
// rule is that of the module codec::lz77::deep; `entries` comes from lz77/sort, and `found` from lz77/link. First each
// lane checks one candidate, at the bytes that show soonest whether it can beat the best match so far, and compares it
// if so. Then all lanes continue matches of LANE_BYTES and more.
//
// Constants: CANDIDATES; LANES, which is 32; SAME, the bits of an entry's first word that candidates have in common.
//
// @pz_cost {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment
#define COMPARED 4u
// @pz_import lz77_common_length

// Bytes that a lane compares by itself.
#define LANE_BYTES 64u
// How many positions to try after one that has a match, the length from which on to try none, and the number of
// literals after which the step between positions grows by one.
#define LAZY 2u
#define LONG_ENOUGH 64u
#define SKIP_LOG 6

typedef struct {
    uint length, offset;
    int gain;
} Found;

// Whether to branch on values that all lanes agree on, where that saves work and compilers cope.
#if TEAM_PTX
#define IF_ANY(condition) (condition)
#else
#define IF_ANY(condition) true
#endif

// The best match of a position, if its gain is more than `least`; otherwise one whose gain is not. The offset `cheap`
// (0 for none) costs less than others.
inline Found best_at(Team team, Segment s, __global const uint2 *entries, __global const uint *found, uint at,
                     uint cheap, int least) {
    Found best = {0, 0, 0};
    uint row = team_uniform(team, found[at]);
    if (IF_ANY(cheap != 0)) {
        uint length = extended(team, s, at, cheap, 0, cheap != 0);
        if (length >= 4) {
            best.length = length;
            best.offset = cheap;
            best.gain = 4 * (int)length;
        }
    }
    uint index = row & 0xffffffu;
    uint hash = row != 0 ? entries[index].x : 0;
    bool more = row != 0;
    for (uint first = 0; first < CANDIDATES && more; first += 32) {
        uint k = first + team.lane;
        uint offset = 0;
        bool same = false;
        if (k < CANDIDATES && k < index) {
            uint2 other = entries[index - 1 - k];
            same = (other.x ^ hash) >> 16 == 0;
            uint distance = at - other.y;
            if (((other.x ^ hash) & SAME) == 0 && distance <= at - s.window_start) offset = distance;
        }
        // Entries of the same hash are adjacent.
        more = team_any(team, same && team.lane == 31);
        // The shortest length that gains more than the best so far; a match must be at least this long.
        uint bits = 31u - clz(offset + 3u);
        uint needed = max(((uint)max(best.gain, least) + bits) / 4u + 1u, 4u);
        bool open = offset != 0 && at + needed <= s.end;
        if (open) open = difference(s, (int)(at + needed) - 4, offset) == 0u;
        uint n = 0;
        bool is_close = open;
        while (open && n < LANE_BYTES) {
            uint equal = common_length(s.contents, s.words, at + n, offset);
            n += equal;
            open = equal == 16u && at + n < s.end;
        }
        uint length = is_close ? min(n, s.end - at) : 0;
        uint rest = team_ballot(team, open);
        while (rest != 0) {
            uint lead = trailing_zeros(rest);
            rest &= rest - 1u;
            uint whole = extended(team, s, at, team_broadcast(team, offset, lead), LANE_BYTES, true);
            if (team.lane == lead) length = whole;
        }
        uint key = 0;
        if (length >= 5 || (length == 4 && offset < 1u << 13)) {
            int gain = 4 * (int)length - (int)bits;
            if (gain > 0) key = (uint)gain << 7 | (127u - k);
        }
        uint most = team_max(team, key);
        if (IF_ANY((int)(most >> 7) > best.gain)) {
            uint lead = 127u - (most & 127u) - first;
            uint its_length = team_shuffle(team, length, lead);
            uint its_offset = team_shuffle(team, offset, lead);
            if ((int)(most >> 7) > best.gain) {
                best.gain = (int)(most >> 7);
                best.length = its_length;
                best.offset = its_offset;
            }
        }
    }
    return best;
}

__kernel void deep(__global const uint *jobs, __global const uint *contents, __global const uint2 *entries,
                   __global const uint *found, __global uint2 *matches, __global uint *match_counts, uint slot,
                   uint segments, uint blocks, uint window_log) {
    TEAM_START(team);
    Segment s = segment_start(team, jobs, contents, matches, slot, segments, blocks, window_log);
    PARSE_STATE(s);
    entries += (size_t)s.block * slot;
    found += (size_t)s.block * slot;
    while (pos < s.last) {
        // The positions that are next if none before them has a match.
        uint mine = pos;
        if (pos - anchor + 31 < 1u << SKIP_LOG) {
            mine += team.lane;
        } else {
            for (uint i = 0; i < 31; i++)
                if (i < team.lane) mine += 1 + ((mine - anchor) >> SKIP_LOG);
        }
        uint at = min(mine, s.last - 1);
        bool hit = found[at] != 0;
        uint cheap = at == anchor ? second : recent;
        if (cheap != 0) hit |= difference(s, (int)at, cheap) == 0u;
        uint hits = team_ballot(team, hit && mine < s.last);
        if (hits == 0) {
            pos = team_broadcast(team, mine + 1 + ((mine - anchor) >> SKIP_LOG), 31);
            continue;
        }
        pos = team_broadcast(team, mine, trailing_zeros(hits));
        Found best = {0, 0, 0};
        uint match_at = pos;
        for (uint tried = pos; tried == pos || (best.gain != 0 && tried <= match_at + LAZY && tried < s.last &&
                                                best.length < LONG_ENOUGH); tried++) {
            // Each position further on costs another literal.
            int least = tried == pos ? 0 : best.gain + 1 + 3 * (int)(tried - match_at);
            Found other = best_at(team, s, entries, found, tried, tried == anchor ? second : recent, least);
            if (other.gain > least) {
                best = other;
                match_at = tried;
            }
        }
        if (best.gain == 0) {
            pos += 1 + ((pos - anchor) >> SKIP_LOG);
            continue;
        }
        uint room = min(match_at - best.offset - s.window_start, match_at - anchor);
        uint before = extended_back(team, s, match_at, best.offset, room, 0, true);
        TAKE(s, true, match_at, before, best.length, best.offset);
        pos = anchor;
    }
    segment_end(s, count, match_counts, slot);
}
