// The deep lazy parse of LZ77: takes the best of many candidates, unless a position soon after has a better one. The
// rule is that of the module codec::lz77::deep; `entries` comes from lz77/sort, and `found` from lz77/link. Lanes first
// compare the bytes at the recent offsets, one offset per lane, then those at the position's candidates. A lane first
// checks the bytes that decide whether its match can beat the best so far, and only then compares the others. Then all
// lanes together continue matches of LANE_BYTES and more.
//
// The thorough variant also has `near`, from lz77/latest: the distance of each position's nearest candidate by a hash
// of three bytes, 0 for none.
//
// Constants: CANDIDATES; LANES, which is 32; SAME, the bits of an entry's first word that candidates have in common;
// THOROUGH, whether this is the thorough variant.
//
// @pz_cost quick {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
//
// @pz_cost thorough {
//   threads: N/65536*256
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, rows_one=N*4, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment
#define COMPARED 2u
// @pz_import lz77_common_length

// Bytes that a lane compares alone.
#define LANE_BYTES 64u
// The number of literals after which the step between positions grows by one, as a logarithm.
#define SKIP_LOG 6
// The shortest match, and the gain that makes up for a literal. PATIENCE is the number of positions to try after one
// with a match, from the bits of its offset and LITERAL_BITS, the assumed bits of a literal; none after a match of
// LONG_ENOUGH or more. Short matches by the near hash reach back at most NEAR_REACH.
#define MIN_MATCH 3u
#define LITERAL_GAIN 3
#if THOROUGH
#define LONG_ENOUGH 128u
#define LITERAL_BITS 7u
#else
#define LONG_ENOUGH 64u
#define LITERAL_BITS 9u
#endif
#define PATIENCE(f) ((4u * (f).length - (uint)(f).gain + 6u) / LITERAL_BITS)
#define NEAR_REACH (1u << 8)

typedef struct {
    uint length, offset;
    int gain;
} Found;

// Whether to branch on uniform values: it saves work where compilers cope.
#if TEAM_PTX
#define IF_ANY(condition) (condition)
#else
#define IF_ANY(condition) true
#endif

// The decoder's recent offsets; 0 for none.
typedef struct {
    uint offsets[3];
} Known;

// Whether `count` bytes, 3 or 4, at `at` equal those `offset` before; not if that is 0.
inline bool repeats(Segment s, uint at, uint offset, uint count) {
    return offset != 0 && difference(s, (int)at, offset) << (32u - 8u * count) == 0u;
}

// The better of `best` and the lanes' matches. Each lane tries the match `offset` bytes back, 0 for none, whose offset
// takes `bits` bits. The match counts if it has at least `shortest` bytes and gains more than `least`. Among equal
// gains, the first lane wins.
inline Found best_of_lanes(Team team, Segment s, uint at, uint offset, uint bits, uint shortest, Found best, int least) {
    // The shortest length that gains enough.
    uint needed = max(((uint)max(best.gain, least) + bits) / 4u + 1u, shortest);
    // The last four bytes of such a match, or all three.
    uint probed = min(needed, 4u);
    bool open = at + needed <= s.end && repeats(s, at + needed - probed, offset, probed);
    bool is_close = open;
    bool any = team_any(team, open);
    if (IF_ANY(any)) {
        uint n = 0;
        while (open && n < LANE_BYTES) {
            uint equal = common_length(s.contents, s.words, at + n, offset);
            n += equal;
            open = equal == 4u * COMPARED && at + n < s.end;
        }
        uint length = is_close ? min(n, s.end - at) : 0;
        uint rest = team_ballot(team, open);
        while (rest != 0) {
            uint lead = trailing_zeros(rest);
            rest &= rest - 1u;
            uint whole = extended(team, s, at, team_broadcast(team, offset, lead), LANE_BYTES, true);
            if (team.lane == lead) length = whole;
        }
        uint gain = 4u * length - bits;
        uint most = team_max(team, length >= needed ? gain << 5 | (31u - team.lane) : 0);
        if (IF_ANY(most != 0)) {
            uint lead = 31u - (most & 31u);
            uint its_length = team_shuffle(team, length, lead);
            uint its_offset = team_shuffle(team, offset, lead);
            if (most != 0) {
                best.length = its_length;
                best.offset = its_offset;
                best.gain = (int)(most >> 5);
            }
        }
    }
    return best;
}

// The best match of a position, if its gain is more than `least`; otherwise one without gain.
inline Found best_at(Team team, Segment s, __global const uint2 *entries, __global const uint *found,
#if THOROUGH
                     __global const uint *near,
#endif
                     uint at, Known known, int least) {
    uint row = team_uniform(team, found[at]);
    uint index = row & 0xffffffu;
    uint hash = row != 0 ? entries[index].x : 0;
    // Each lane loads its candidate early, because such loads take long.
    uint2 other = entries[max(index, team.lane + 1u) - 1u - team.lane];
    // First, three lanes compare the bytes at one recent offset each.
    uint offset = 0, bits = 0, shortest = MIN_MATCH;
    for (uint i = 0; i < 3; i++)
        if (team.lane == i) offset = known.offsets[i];
#if THOROUGH
    if (team.lane == 3) {
        offset = near[at];
        bits = 31u - clz(offset + 3u);
        shortest = offset <= NEAR_REACH ? 3u : 4u;
    }
#endif
    Found none = {0, 0, 0};
    Found best = best_of_lanes(team, s, at, offset, bits, shortest, none, least);
    bool more = row != 0;
    for (uint first = 0; first < CANDIDATES && more; first += 32) {
        uint k = first + team.lane;
        offset = 0;
        bool same = false;
        if (k < CANDIDATES && k < index) {
            if (first != 0) other = entries[index - 1 - k];
            same = (other.x ^ hash) >> 16 == 0;
            uint distance = at - other.y;
            if (((other.x ^ hash) & SAME) == 0 && distance <= at - s.window_start) offset = distance;
        }
        bits = 31u - clz(offset + 3u);
        best = best_of_lanes(team, s, at, offset, bits, offset < 1u << 13 ? 4u : 5u, best, least);
        // Entries of the same hash are adjacent.
        more = team_any(team, same && team.lane == 31);
    }
    return best;
}

__kernel void deep(__global const uint *jobs, __global const uint *contents, __global const uint2 *entries,
                   __global const uint *found,
#if THOROUGH
                   __global const uint *near,
#endif
                   __global uint2 *matches, __global uint *match_counts, uint slot, uint segments, uint blocks,
                   uint window_log, uint segment_log) {
    TEAM_START(team);
    Segment s = segment_start(team, jobs, contents, matches, slot, segments, blocks, window_log, segment_log);
    PARSE_STATE(s);
    entries += (size_t)s.block * slot;
    found += (size_t)s.block * slot;
#if THOROUGH
    near += (size_t)s.block * slot;
#endif
    Known known = {{0, 0, 0}};
    while (pos < s.last) {
        // The next positions to try, one per lane, if none before them has a match.
        uint mine = pos;
        if (pos - anchor + 31 < 1u << SKIP_LOG) {
            mine += team.lane;
        } else {
            for (uint i = 0; i < 31; i++)
                if (i < team.lane) mine += 1 + ((mine - anchor) >> SKIP_LOG);
        }
        uint at = min(mine, s.last - 1);
        bool hit = found[at] != 0;
#if THOROUGH
        uint nearest = near[at];
        hit |= repeats(s, at, nearest, nearest <= NEAR_REACH ? 3u : 4u);
#endif
        for (uint i = 0; i < 3; i++) hit |= repeats(s, at, known.offsets[i], MIN_MATCH);
        uint hits = team_ballot(team, hit && mine < s.last);
        if (hits == 0) {
            pos = team_broadcast(team, mine + 1 + ((mine - anchor) >> SKIP_LOG), 31);
            continue;
        }
        pos = team_broadcast(team, mine, trailing_zeros(hits));
        Found best = {0, 0, 0};
        uint match_at = pos;
        for (uint tried = pos; tried == pos || (best.gain != 0 && tried <= match_at + PATIENCE(best) &&
                                                tried < s.last && best.length < LONG_ENOUGH); tried++) {
            // Each further position costs another literal.
            int least = tried == pos ? 0 : best.gain + 1 + LITERAL_GAIN * (int)(tried - match_at);
#if THOROUGH
            Found other = best_at(team, s, entries, found, near, tried, known, least);
#else
            Found other = best_at(team, s, entries, found, tried, known, least);
#endif
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
        if (best.offset != known.offsets[0] && best.offset != known.offsets[1] && best.offset != known.offsets[2]) {
            known.offsets[2] = known.offsets[1];
            known.offsets[1] = known.offsets[0];
            known.offsets[0] = best.offset;
        }
        pos = anchor;
    }
    segment_end(s, count, match_counts, slot);
}
