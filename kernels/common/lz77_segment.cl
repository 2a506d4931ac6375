// Shared by the LZ77 parses in which teams parse segments: bounds of segments, comparing bytes with earlier ones, and
// taking matches.
//
// LANES lanes parse a segment together, so a team parses 32 / LANES segments, in lockstep: every lane does the work of
// a step, and each segment then decides whether to use the result.
//
// The list of segment s of a block begins at entry s * segment length * 3 / 8 of the block's part of `matches`,
// because a match takes at least three bytes. An entry has two words: the start in the segment plus length << 16, and
// the offset.
//
// Segments have 1 << segment_log bytes, and segment_log is at most 15. Constant: LANES, 4, 8, 16 or 32.
// @pz_import team
// @pz_import lz77_words

typedef struct {
    uint lane, first_lane;  // this lane's number in the segment, and the segment's first lane in the team
    bool exists;
    uint block, number;
    __global const uint *contents;
    uint words;             // of the block's slot
    uint window_start, start, end;
    uint last;              // positions from here on have no candidates; 0 if there is no segment
    __global uint2 *list;   // its matches
} Segment;

// The state of a parse: the number of matches taken, the position, the end of the last match, and the offsets of the
// last two different matches, the last one first. These are variables because PoCL 3.1 mixes up the segments of a team
// if they are in a struct.
#define PARSE_STATE(s) uint count = 0, pos = (s).start, anchor = (s).start, recent = 0, second = 0

// If `takes`, takes a match that begins `before` bytes before `at` and has `length` bytes from `at` on.
#define TAKE(s, takes, at, before, length, offset)                                                                 \
    do {                                                                                                           \
        if ((takes) && (s).lane == 0u)                                                                             \
            (s).list[count] = UINT2((at) - (before) - (s).start | ((before) + (length)) << 16, offset);            \
        if (takes) {                                                                                               \
            count++;                                                                                               \
            second = (offset) != recent ? recent : second;                                                         \
            recent = offset;                                                                                       \
            anchor = (at) + (length);                                                                              \
        }                                                                                                          \
    } while (0)

inline Segment segment_start(
    Team t, __global const uint *jobs, __global const uint *contents, __global uint2 *matches, uint slot, uint segments,
    uint blocks, uint window_log, uint segment_log
) {
    Segment s;
    s.lane = t.lane & (LANES - 1u);
    s.first_lane = t.lane & ~(LANES - 1u);
    uint index = ((uint)get_group_id(0) * TEAMS + t.index) * (32u / LANES) + t.lane / LANES;
    s.exists = index < blocks * segments;
    s.block = s.exists ? index / segments : 0u;
    s.number = s.exists ? index % segments : 0u;
    uint len = jobs[(size_t)s.block * 8];
    s.words = slot >> 2;
    s.contents = contents + (size_t)s.block * s.words;
    s.start = s.number << segment_log;
    s.end = min(s.start + (1u << segment_log), len);
    s.window_start = s.start >> window_log << window_log;
    s.last = s.exists ? min(s.end, len < 8u ? 0u : len - 7u) : 0u;
    s.list = matches + ((size_t)s.block * (slot >> 3) + ((size_t)s.number << (segment_log - 3))) * 3;
    return s;
}

inline void segment_end(Segment s, uint count, __global uint *match_counts, uint slot) {
    if (s.exists && s.lane == 0u) match_counts[(size_t)s.block * (slot >> 8) + s.number] = count;
}

// Team functions for the lanes of one segment.
inline uint part_ballot(Team t, Segment s, bool p) {
    return team_ballot(t, p) >> s.first_lane & (0xffffffffu >> (32u - LANES));
}

inline uint part_shuffle(Team t, Segment s, uint v, uint from) {
    return team_shuffle(t, v, s.first_lane | (from & (LANES - 1u)));
}

inline uint part_max(Team t, Segment s, uint v) {
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

// The four bytes at `pos`. They may begin up to three bytes before the block, or behind its slot; bytes outside have
// any value.
inline uint bytes_at(Segment s, int pos) {
    int word = pos >> 2;
    return bytes_of(s.contents[max(word, 0)], s.contents[min(word + 1, (int)s.words - 1)], ((uint)pos & 3u) * 8u);
}

// The exclusive or of the bytes at `pos` and those `offset` before.
inline uint difference(Segment s, int pos, uint offset) {
    return bytes_at(s, pos) ^ bytes_at(s, pos - (int)offset);
}

// The number of equal bytes at `at` and `offset` before it, up to the segment's end. The first `length` are known to be
// equal, and `open` tells whether there may be more.
inline uint extended(Team t, Segment s, uint at, uint offset, uint length, bool open) {
    while (team_any(t, open)) {
        uint p = at + length + 4u * s.lane;
        // Bytes behind the end count as different.
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

// The number of equal bytes before `at` and before `offset` before it, at most `room`. `length` of them are already
// known, and `open` tells whether there may be more.
inline uint extended_back(Team t, Segment s, uint at, uint offset, uint room, uint length, bool open) {
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
