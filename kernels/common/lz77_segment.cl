// Shared by the LZ77 parses: a team's segment, comparing its bytes with earlier ones, and taking matches.
//
// The list of segment s of a block begins at entry s * segment length * 3 / 8 of the block's part of `matches`,
// because a match takes at least three bytes. An entry has two words: the start in the segment plus length << 16, and
// the offset.
//
// Constants: SEGMENT_LOG, at most 15.
// @pz_import team
// @pz_import lz77_words

// As read32 where `pos` may be up to three before the block; those bytes read as any.
inline uint read32_before(__global const uint *contents, int pos) {
    int word = pos >> 2;
    ulong both = (ulong)contents[word + 1] << 32 | contents[max(word, 0)];
    return (uint)(both >> (((uint)pos & 3u) * 8u));
}

// A segment.
typedef struct {
    __global const uint *contents;
    uint words;
    uint window_start, start, end;
} Segment;

// The number of equal bytes at `at` and `offset` before it, up to the segment's end. `length` of them are known; with
// offset 0, there are no more.
inline uint extended(Team team, Segment s, uint at, uint offset, uint length) {
    uint room = s.end - at;
    uint ends = 0;
    while (ends == 0) {
        uint p = at + length + 4u * team.lane;
        // Behind the end nothing is equal.
        uint differ = 1;
        if (p < s.end && offset != 0) differ = read32(s.contents, s.words, p) ^ read32(s.contents, s.words, p - offset);
        ends = team_ballot(team, differ != 0);
        uint lead = ends != 0 ? trailing_zeros(ends) : 31u;
        uint n = differ != 0 ? trailing_zeros(differ) >> 3 : 4u;
        length += 4u * lead + team_broadcast(team, n, lead);
    }
    return min(length, room);
}

// The number of equal bytes before `at` and before `offset` before it, at most `room`. `length` of them are known.
inline uint extended_back(Team team, Segment s, uint at, uint offset, uint room, uint length) {
    uint ends = 0;
    while (ends == 0) {
        uint back = length + 4u * team.lane;
        uint differ = 0x80000000u;
        if (back < room) {
            int p = (int)(at - back) - 4;
            differ = read32_before(s.contents, p) ^ read32_before(s.contents, p - (int)offset);
        }
        ends = team_ballot(team, differ != 0);
        uint lead = ends != 0 ? trailing_zeros(ends) : 31u;
        length += 4u * lead + team_broadcast(team, clz(differ) >> 3, lead);
    }
    return min(length, room);
}

// Finds a team's segment, the positions in it that may have matches, and where its matches go. Leaves the kernel if
// there is no such segment.
#define SEGMENT_START                                                                                    \
    TEAM_START(team);                                                                                    \
    uint index = (uint)get_group_id(0) * TEAMS + team.index;                                             \
    uint block = index / segments, number = index % segments;                                            \
    if (block >= blocks) return;                                                                         \
    uint len = team_uniform(team, jobs[(size_t)block * 8]);                                              \
    Segment s;                                                                                           \
    s.contents = contents + (size_t)block * (slot >> 2);                                                 \
    s.words = slot >> 2;                                                                                 \
    s.start = number << SEGMENT_LOG;                                                                     \
    s.end = min(s.start + (1u << SEGMENT_LOG), len);                                                     \
    s.window_start = s.start >> window_log << window_log;                                                \
    uint last = min(s.end, len < 8u ? 0u : len - 7u);                                                    \
    __global const uint *own_found = found + (size_t)block * slot;                                                            \
    __global uint2 *out = matches + ((size_t)block * (slot >> 3) + ((size_t)number << (SEGMENT_LOG - 3))) * 3; \
    uint count = 0;                                                                                      \
    uint pos = s.start, anchor = s.start;                                                                \
    /* The offsets of the last two different matches, the last one first. */                             \
    uint recent = 0, second = 0

#define SEGMENT_END \
    if (team.lane == 0) match_counts[(size_t)block * (slot >> 8) + number] = count

#define TAKE(before, at, length, offset)                                                    \
    do {                                                                                    \
        if (team.lane == 0)                                                                 \
            out[count] = (uint2)((at) - (before) - s.start | ((before) + (length)) << 16, offset); \
        count++;                                                                            \
        if ((offset) != recent) {                                                           \
            second = recent;                                                                \
            recent = offset;                                                                \
        }                                                                                   \
        pos = anchor = (at) + (length);                                                     \
    } while (0)
