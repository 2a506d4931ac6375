// Shared by the LZ77 parses in which a team has several segments. LANES lanes parse each segment together. All
// segments of a team take their steps at the same time: every lane does the work of a step, and each segment then
// decides whether to use the result.
//
// The list of segment s of a block begins at entry s * segment length * 3 / 8 of the block's part of `matches`,
// because a match takes at least three bytes. An entry has two words: the start in the segment plus length << 16, and
// the offset.
//
// Constants: SEGMENT_LOG, at most 15; LANES, 4, 8, 16 or 32.
// @pz_import team

// A segment, and the lanes that have it.
typedef struct {
    uint lane, first_lane;
    bool exists;
    uint block, number;
    __global const uint *contents;
    uint words;  // of the block's slot
    uint start, end, window_start;
    uint last;   // positions from here on have no candidates; 0 if there is no segment
} Part;

// Of a number that is not 0.
inline uint trailing_zeros(uint x) {
    return 31u - clz(x & -x);
}

inline Part part_of(
    Team t, uint group, __global const uint *jobs, __global const uint *contents, uint slot, uint segments, uint blocks,
    uint window_log
) {
    Part s;
    s.lane = t.lane & (LANES - 1u);
    s.first_lane = t.lane & ~(LANES - 1u);
    uint index = (group * TEAMS + t.index) * (32u / LANES) + t.lane / LANES;
    s.exists = index < blocks * segments;
    s.block = s.exists ? index / segments : 0u;
    s.number = s.exists ? index % segments : 0u;
    uint len = jobs[(size_t)s.block * 8];
    s.words = slot >> 2;
    s.contents = contents + (size_t)s.block * s.words;
    s.start = s.number << SEGMENT_LOG;
    s.end = min(s.start + (1u << SEGMENT_LOG), len);
    s.window_start = s.start >> window_log << window_log;
    s.last = s.exists ? min(s.end, len < 8u ? 0u : len - 7u) : 0u;
    return s;
}

// Of the lanes of a segment alone.
inline uint part_ballot(Team t, Part s, bool p) {
    return team_ballot(t, p) >> s.first_lane & (0xffffffffu >> (32u - LANES));
}

inline uint part_shuffle(Team t, Part s, uint v, uint from) {
    return team_shuffle(t, v, s.first_lane | (from & (LANES - 1u)));
}

inline uint part_max(Team t, Part s, uint v) {
#if LANES == 32u
    return team_max(t, v);
#else
    v = max(v, team_shuffle(t, v, t.lane ^ 1u));
    v = max(v, team_shuffle(t, v, t.lane ^ 2u));
#if LANES >= 8u
    v = max(v, team_shuffle(t, v, t.lane ^ 4u));
#endif
#if LANES >= 16u
    v = max(v, team_shuffle(t, v, t.lane ^ 8u));
#endif
    return v;
#endif
}

// The four bytes at `pos`. These may begin up to three bytes before the block, or after its slot; such bytes have any
// value.
inline uint read32(Part s, int pos) {
    int word = pos >> 2;
    ulong both = (ulong)s.contents[min(word + 1, (int)s.words - 1)] << 32 | s.contents[max(word, 0)];
    return (uint)(both >> (((uint)pos & 3u) * 8u));
}

// How the bytes at `pos` differ from those `offset` before.
inline uint difference(Part s, int pos, uint offset) {
    return read32(s, pos) ^ read32(s, pos - (int)offset);
}

// The number of equal bytes at `at` and `offset` before it, up to the segment's end. `length` of them are known, and
// `open` tells whether there may be more.
inline uint extended(Team t, Part s, uint at, uint offset, uint length, bool open) {
    while (team_any(t, open)) {
        uint p = at + length + 4u * s.lane;
        // Behind the end nothing is equal.
        uint differ = 1;
        if (open && p < s.end) differ = difference(s, (int)p, offset);
        uint ends = part_ballot(t, s, differ != 0u);
        uint end_lane = ends != 0u ? trailing_zeros(ends) : LANES - 1u;
        uint more = 4u * end_lane + part_shuffle(t, s, differ != 0u ? trailing_zeros(differ) >> 3 : 4u, end_lane);
        length += open ? more : 0u;
        open = open && ends == 0u;
    }
    return min(length, s.end - at);
}

// The number of equal bytes before `at` and before `offset` before it, at most `room`.
inline uint extended_back(Team t, Part s, uint at, uint offset, uint room, uint length, bool open) {
    while (team_any(t, open)) {
        uint back = length + 4u * s.lane;
        uint differ = 0x80000000u;
        if (open && back < room) differ = difference(s, (int)(at - back) - 4, offset);
        uint ends = part_ballot(t, s, differ != 0u);
        uint end_lane = ends != 0u ? trailing_zeros(ends) : LANES - 1u;
        uint more = 4u * end_lane + part_shuffle(t, s, clz(differ) >> 3, end_lane);
        length += open ? more : 0u;
        open = open && ends == 0u;
    }
    return min(length, room);
}
