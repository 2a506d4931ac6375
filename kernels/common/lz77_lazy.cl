// The lazy parse of LZ77: the best match of a few neighbouring positions. The rule is that of the module
// codec::lz77::lazy. All the matches that a step chooses among are measured at the same time, each by LANES lanes, and
// those of 16 bytes and more then by all lanes. `found` is what lz77_latest_two or lz77_latest_four makes: a row of distances
// for each position.
//
// Constants: CANDIDATES, of each hash, 2 or 4; TWO, whether there are two; LAZY, the further positions looked at.
// @pz_import lz77_segment

// Offsets that a position has a choice of: the cheap one, and the candidates of one hash or two. Then positions that are measured at the same time, and lanes and words for each.
#if TWO
#define CHOICES (2u * CANDIDATES + 1u)
#else
#define CHOICES (CANDIDATES + 1u)
#endif
#if CHOICES * (LAZY + 1u) <= 8u
#define LANES 4u
#elif CHOICES * (LAZY + 1u) <= 16u
#define LANES 2u
#else
#define LANES 1u
#endif
#define AT_ONCE min(LAZY + 1u, 32u / LANES / CHOICES)
#define WORDS (4u / LANES)

// Whether a position has candidates.
#if CANDIDATES == 4u
inline bool has_any(__global const uint *found, uint pos) {
    uint4 row = ((__global const uint4 *)found)[pos];
    return (row.x | row.y | row.z | row.w) != 0u;
}
#else
inline bool has_any(__global const uint *found, uint pos) {
    uint2 row = ((__global const uint2 *)found)[pos];
    return (row.x | row.y) != 0u;
}
#endif

__kernel void lazy(__global const uint *jobs, __global const uint *contents, __global const uint *found,
#if TWO
                   __global const uint *found_second,
#endif
                   __global uint2 *matches, __global uint *match_counts, uint slot,
                   uint segments, uint blocks, uint window_log) {
    SEGMENT_START;
#if TWO
    __global const uint *own_found_second = found_second + (size_t)block * slot * CANDIDATES;
#endif
    uint pair = team.lane / LANES;
    uint part = team.lane % LANES;
    uint choice = pair % CHOICES;
    while (pos < last) {
        uint mine = min(pos + team.lane, last - 1);
        uint bytes = read32(s.contents, s.words, mine);
        bool hit = has_any(own_found, mine);
#if TWO
        hit |= has_any(own_found_second, mine);
#endif
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
        // A position that has no match does not look ahead.
        for (uint first = 0; first <= LAZY && (first == 0 || best_gain != 0); first += AT_ONCE) {
            uint ahead = first + pair / CHOICES;
            uint at = pos + ahead;
            uint offset = 0;
            if (pair / CHOICES < AT_ONCE && ahead <= LAZY && at < last) {
                if (choice == 0) {
                    offset = ahead == 0 ? cheap : recent;
#if TWO
                } else if (choice > CANDIDATES) {
                    offset = own_found_second[CANDIDATES * at + choice - CANDIDATES - 1u];
#endif
                } else {
                    offset = own_found[CANDIDATES * at + choice - 1u];
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
                uint lead = (i * CHOICES + 63u - (most & 63u)) * LANES;
                uint its_length = team_shuffle(team, length, lead);
                uint its_offset = team_shuffle(team, offset, lead);
                int gain = (int)(most >> 6);
                uint distance = first + i;
                bool better = best_gain != 0 && gain > best_gain + 1 + 3 * (int)(pos + distance - best_at);
                if (distance == 0 ? gain != 0 : better) {
                    best_at = pos + distance;
                    best_gain = gain;
                    best_length = its_length;
                    best_offset = its_offset;
                }
            }
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
