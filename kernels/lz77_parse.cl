// Parses of LZ77: the matches of a segment, by a team for each segment.
//
// `greedy` takes the first match found; `lazy` the best one of a few neighbouring positions. The rules are those of the
// modules codec::lz77::greedy and codec::lz77::lazy; `found` and `entries` are what lz77_find makes, and candidates
// are verified here. Thirty-two positions are looked at at once for one that may have a match; all the matches that a
// step of `lazy` chooses among are measured at the same time, each by LANES lanes, and those of 16 bytes and more then by
// all lanes.
//
// The list of segment s of a block begins at entry s * segment length / 4 of the block's part of `matches`. An entry is
// two words: start in the segment and length << 16; offset.
//
// Constants: SEGMENT_LOG, at most 15; for `lazy`, CANDIDATES and LAZY, the further positions looked at.
//
// @pz_cost {
//   threads_per_element: 0.004
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, matches=N*2, match_counts=N/64
//   local_mem: 256
// }

// @pz_import team

inline uint trailing_zeros(uint x) {
    return 31u - clz(x & -x);
}

// The four bytes from `pos` on. Bytes behind the slot, of `words` words, read as any.
inline uint read32(__global const uint *contents, uint words, uint pos) {
    uint word = pos >> 2;
    ulong both = (ulong)contents[min(word + 1, words - 1)] << 32 | contents[word];
    return (uint)(both >> ((pos & 3u) * 8u));
}

// The same where `pos` may be up to three before the block; those bytes read as any.
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

// The number of equal bytes from `at` and from `offset` before it on, up to the segment's end, where `length` are known.
inline uint extended(Team team, Segment s, uint at, uint offset, uint length) {
    uint room = s.end - at;
    while (length < room) {
        uint p = at + length + 4u * team.lane;
        uint differ = 1;
        if (p < s.end) differ = read32(s.contents, s.words, p) ^ read32(s.contents, s.words, p - offset);
        uint ends = team_ballot(team, differ != 0);
        if (ends != 0) {
            uint lead = trailing_zeros(ends);
            uint n = differ != 0 ? trailing_zeros(differ) >> 3 : 0;
            length += 4u * lead + team_broadcast(team, n, lead);
            break;
        }
        length += 128u;
    }
    return min(length, room);
}

// The number of equal bytes before `at` and before `offset` before it, at most `room`, where `length` are known.
inline uint extended_back(Team team, Segment s, uint at, uint offset, uint room, uint length) {
    while (length < room) {
        uint back = length + 4u * team.lane;
        uint differ = 0x80000000u;
        if (back < room) {
            int p = (int)(at - back) - 4;
            differ = read32_before(s.contents, p) ^ read32_before(s.contents, p - (int)offset);
        }
        uint ends = team_ballot(team, differ != 0);
        if (ends != 0) {
            uint lead = trailing_zeros(ends);
            length += 4u * lead + team_broadcast(team, clz(differ) >> 3, lead);
            break;
        }
        length += 128u;
    }
    return min(length, room);
}

// The segment of a team, its positions that may have matches, and where its matches go; leaves the kernel if there is no
// such segment.
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
    __global const uint *own_found = found + (size_t)block * slot;                                       \
    __global uint2 *out = matches + (size_t)block * (slot >> 2) + ((size_t)number << (SEGMENT_LOG - 2)); \
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

#ifndef LAZY

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

#else

// Offsets that a position has a choice of, positions that are measured at the same time, and lanes and words for each.
#define CHOICES (CANDIDATES + 1u)
#if CHOICES * (LAZY + 1u) <= 8u
#define LANES 4u
#elif CHOICES * (LAZY + 1u) <= 16u
#define LANES 2u
#else
#define LANES 1u
#endif
#define AT_ONCE min(LAZY + 1u, 32u / LANES / CHOICES)
#define WORDS (4u / LANES)

__kernel void lazy(__global const uint *jobs, __global const uint *contents, __global const uint2 *entries,
                   __global const uint *found, __global uint2 *matches, __global uint *match_counts, uint slot,
                   uint segments, uint blocks, uint window_log) {
    SEGMENT_START;
    __global const uint2 *own_entries = entries + (size_t)block * slot;
    uint pair = team.lane / LANES;
    uint part = team.lane % LANES;
    uint choice = pair % CHOICES;
    while (pos < last) {
        uint mine = min(pos + team.lane, last - 1);
        uint bytes = read32(s.contents, s.words, mine);
        bool hit = own_found[mine] != 0;
        if (recent != 0) hit |= read32(s.contents, s.words, mine - recent) == bytes;
        if (pos == anchor && second != 0 && team.lane == 0)
            hit |= read32(s.contents, s.words, pos - second) == bytes;
        uint hits = team_ballot(team, hit && pos + team.lane < last);
        if (hits == 0) {
            pos += 32;
            continue;
        }
        pos += trailing_zeros(hits);
        uint cheap = pos == anchor ? second : recent;

        uint best_at = pos, best_length = 0, best_offset = 0;
        int best_gain = 0;
        for (uint first = 0; first <= LAZY; first += AT_ONCE) {
            uint ahead = first + pair / CHOICES;
            uint at = pos + ahead;
            uint offset = 0;
            if (pair / CHOICES < AT_ONCE && ahead <= LAZY && at < last) {
                if (choice == 0) {
                    offset = ahead == 0 ? cheap : recent;
                } else {
                    uint row = own_found[at];
                    if (row >> (23u + choice) & 1u) offset = at - own_entries[(row & 0xffffffu) - choice].y;
                }
            }
            // Bytes that are equal in this lane's part.
            uint n = 0;
            if (offset != 0) {
                for (uint w = 0; w < WORDS; w++) {
                    uint p = at + 4u * (part * WORDS + w);
                    uint differ = 1;
                    if (p < s.end) differ = read32(s.contents, s.words, p) ^ read32(s.contents, s.words, p - offset);
                    if (n == 4u * w) n += differ != 0 ? trailing_zeros(differ) >> 3 : 4u;
                }
            }
            uint ends = team_ballot(team, n < 4u * WORDS);
            uint own_ends = ends >> (pair * LANES) & ((1u << LANES) - 1u);
            uint end_part = own_ends != 0 ? trailing_zeros(own_ends) : 0;
            uint end_n = team_shuffle(team, n, pair * LANES + end_part);
            uint length = own_ends != 0 ? 4u * WORDS * end_part + end_n : 16u;
            length = min(length, offset != 0 ? s.end - at : 0u);
            // The long ones, one after the other.
            uint more = team_ballot(team, offset != 0 && part == 0 && own_ends == 0 && at + 16u < s.end);
            while (more != 0) {
                uint lead = trailing_zeros(more);
                more &= more - 1u;
                uint whole = extended(team, s, team_broadcast(team, at, lead), team_broadcast(team, offset, lead), 16);
                if (pair * LANES == lead) length = whole;
            }
            // The best of each position: of equals the first, the cheap one before all.
            uint key = 0;
            if (length >= 4) {
                int gain = 4 * (int)length + (choice == 0 ? 1 : (int)clz(offset + 3u) - 31);
                if (gain >= 3) key = (uint)gain << 6 | (63u - choice);
            }
            for (uint i = 0; i < AT_ONCE; i++) {
                uint most = team_max(team, pair / CHOICES == i ? key : 0u);
                int gain = (int)(most >> 6);
                uint distance = first + i;
                bool better = distance == 0 ? gain != 0 : gain > best_gain + 1 + 3 * (int)(pos + distance - best_at);
                if (better) {
                    uint lead = (i * CHOICES + 63u - (most & 63u)) * LANES;
                    best_at = pos + distance;
                    best_gain = gain;
                    best_length = team_broadcast(team, length, lead);
                    best_offset = team_broadcast(team, offset, lead);
                }
                // A position that has no match does not look ahead.
                if (best_gain == 0) break;
            }
            if (best_gain == 0) break;
        }
        if (best_gain == 0) {
            pos++;
            continue;
        }
        uint room = min(best_at - best_offset - s.window_start, best_at - anchor);
        uint before = extended_back(team, s, best_at, best_offset, room, 0);
        TAKE(before, best_at, best_length, best_offset);
    }
    SEGMENT_END;
}

#endif
