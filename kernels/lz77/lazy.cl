// The lazy parse of LZ77: takes the best match of a few neighbouring positions, by the rule of the module
// codec::lz77::lazy. A step measures all candidate matches at the same time: PAIR_LANES lanes compare each of them;
// then one lane each continues those of 16 bytes and more; then all lanes of the segment continue those of LANE_BYTES
// and more.
//
// The variants are for two and four candidates, and for eight: four by each of two hashes. Among equally good matches,
// one by the longer hash wins. `found` and `rows` come from lz77/latest. With two candidates, `found` holds a row of
// distances for each position. With four, `rows` holds the rows, and `found` the index of a position's row, with bit 24
// set if the row is not empty.
//
// Constants: CANDIDATES of each hash, 2 or 4; FOUR, whether it is 4; TWO_HASHES, whether there are two hashes; LAZY,
// the number of further positions to try.
//
// @pz_cost two {
//   threads: N/262144*128
//   passes: 1
//   buffers: jobs=32, contents=N, found_two=N*8, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
//
// @pz_cost four {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, rows_four=N*16, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
//
// @pz_cost eight {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, rows_four=N*16, found_second=N*4,
//            rows_four_second=N*16, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment

// The number of offsets of a position: the cheap one, which an earlier match of the segment had, and the candidates
// of one hash or two. Then the positions measured at the same time, and the lanes and words for each offset.
#if TWO_HASHES
#define CHOICES (2u * CANDIDATES + 1u)
#else
#define CHOICES (CANDIDATES + 1u)
#endif
#if CHOICES * (LAZY + 1u) * 4u <= LANES
#define PAIR_LANES 4u
#elif CHOICES * (LAZY + 1u) * 2u <= LANES
#define PAIR_LANES 2u
#else
#define PAIR_LANES 1u
#endif
#define AT_ONCE min(LAZY + 1u, LANES / PAIR_LANES / CHOICES)
#define COMPARED (4u / PAIR_LANES)
// A multiple of 16.
#define LANE_BYTES 80u
// @pz_import lz77_common_length

#if CANDIDATES == 4u
#define FOUND_WORDS 1u
inline bool has_any(__global const uint *found, uint pos) {
    return found[pos] >> 24 != 0u;
}
// Distance `k` of a position.
#define DISTANCE(found, rows, pos, k) distance_by(found, rows, pos, k)
inline uint distance_by(__global const uint *found, __global const uint *rows, uint pos, uint k) {
    uint place = found[pos];
    return place >> 24 != 0u ? rows[(place & 0xffffffu) * 4u + k] : 0u;
}
#else
#define FOUND_WORDS 2u
inline bool has_any(__global const uint *found, uint pos) {
    uint2 row = ((__global const uint2 *)found)[pos];
    return (row.x | row.y) != 0u;
}
#define DISTANCE(found, rows, pos, k) (found)[2u * (pos) + (k)]
#endif

// The lane's offset for position `at`; 0 if there is none.
#if TWO_HASHES
#define OFFSET_OF_SECOND(at) choice > CANDIDATES ? DISTANCE(found_second, rows_second, at, choice - CANDIDATES - 1u) :
#else
#define OFFSET_OF_SECOND(at)
#endif
#define OFFSET(at)                                                                           \
    (!has || pair / CHOICES >= AT_ONCE || (at) > pos + LAZY || (at) >= s.last ? 0u :         \
     choice == 0u ? ((at) == pos ? cheap : recent) :                                         \
     OFFSET_OF_SECOND(at) DISTANCE(found, rows, at, choice - 1u))

__kernel void lazy(__global const uint *restrict jobs, __global const uint *restrict contents,
                   __global const uint *restrict found,
#if CANDIDATES == 4u
                   __global const uint *restrict rows,
#endif
#if TWO_HASHES
                   __global const uint *restrict found_second, __global const uint *restrict rows_second,
#endif
                   __global uint2 *restrict matches, __global uint *restrict match_counts, uint slot,
                   uint segments, uint blocks, uint window_log, uint segment_log) {
    TEAM_START(team);
    Segment s = segment_start(team, jobs, contents, matches, slot, segments, blocks, window_log, segment_log);
    PARSE_STATE(s);
    found += (size_t)s.block * slot * FOUND_WORDS;
#if CANDIDATES == 4u
    rows += (size_t)s.block * slot * 4u;
#endif
#if TWO_HASHES
    found_second += (size_t)s.block * slot;
    rows_second += (size_t)s.block * slot * 4u;
#endif
    uint pair = s.lane / PAIR_LANES, part = s.lane % PAIR_LANES;
    uint choice = pair % CHOICES;
    while (team_any(team, pos < s.last)) {
        bool active = pos < s.last;
        uint mine = active ? min(pos + s.lane, s.last - 1u) : 0u;
        uint bytes = bytes_at(s, (int)mine);
        bool hit = has_any(found, mine);
#if TWO_HASHES
        hit |= has_any(found_second, mine);
#endif
        if (active && recent != 0u) hit |= bytes_at(s, (int)(mine - recent)) == bytes;
        bool is_first = active && pos == anchor && s.lane == 0u;
        if (is_first && second != 0u) hit |= bytes_at(s, (int)(pos - second)) == bytes;
        uint hits = part_ballot(team, s, active && hit && pos + s.lane < s.last);
        bool has = hits != 0u;
        pos += has ? trailing_zeros(hits) : active ? LANES : 0u;
        uint cheap = pos == anchor ? second : recent;

        uint best_at = pos, best_length = 0, best_offset = 0;
        int best_gain = 0;
        // A position without a match does not look ahead.
        bool goes = has;
        uint next_offset = OFFSET(pos + pair / CHOICES);
        for (uint first = 0; first <= LAZY && team_any(team, goes); first += AT_ONCE) {
            uint ahead = first + pair / CHOICES;
            uint at = pos + ahead;
            uint offset = goes ? next_offset : 0u;
            // This load runs while the current offsets are measured.
            next_offset = first + AT_ONCE <= LAZY ? OFFSET(at + AT_ONCE) : 0u;
            int bits = choice == 0u ? -1 : 31 - (int)clz(offset + 3u);
            bool open = offset != 0u;
            if (first != 0u) {
                // A match that beats the best so far must have equal bytes where the shortest such match ends.
                int least = best_gain + 1 + 3 * (int)(at - best_at);
                uint needed = max((uint)(least + bits) / 4u + 1u, 4u);
                open = open && at + needed <= s.end;
                if (open) open = difference(s, (int)(at + needed) - 4, offset) == 0u;
            }
            // The number of equal bytes in this lane's part.
            uint n = open ? common_length(s.contents, s.words, at + 4u * part * COMPARED, offset) : 0u;
            uint ends = part_ballot(team, s, n < 4u * COMPARED);
            uint own_ends = ends >> (pair * PAIR_LANES) & ((1u << PAIR_LANES) - 1u);
            uint end_part = own_ends != 0u ? trailing_zeros(own_ends) : 0u;
            uint end_n = part_shuffle(team, s, n, pair * PAIR_LANES + end_part);
            uint length = own_ends != 0u ? 4u * COMPARED * end_part + end_n : 16u;
            length = min(length, open ? s.end - at : 0u);
            open = open && part == 0u && own_ends == 0u && at + 16u < s.end;
            for (n = 16u; open && n < LANE_BYTES;) {
                uint equal = common_length(s.contents, s.words, at + n, offset);
                n += equal;
                open = equal == 4u * COMPARED && at + n < s.end;
                length = min(n, s.end - at);
            }
            // Continue the long matches one after another.
            uint more = part_ballot(team, s, open);
            while (team_any(team, more != 0u)) {
                bool is_more = more != 0u;
                uint lead = is_more ? trailing_zeros(more) : 0u;
                more &= more - 1u;
                uint its_at = part_shuffle(team, s, at, lead), its_offset = part_shuffle(team, s, offset, lead);
                uint whole = extended(team, s, its_at, its_offset, LANE_BYTES, is_more);
                if (is_more && pair * PAIR_LANES == lead) length = whole;
            }
            // Find the best match of each position. Of those with equal gain, the first wins; the cheap offset comes
            // first.
            uint key = 0;
            if (length >= 4u) {
                int gain = 4 * (int)length - bits;
                if (gain >= 3) key = (uint)gain << 6 | (63u - choice);
            }
            for (uint i = 0; i < AT_ONCE; i++) {
                uint most = part_max(team, s, pair / CHOICES == i ? key : 0u);
                uint lead = (i * CHOICES + 63u - (most & 63u)) * PAIR_LANES;
                uint its_length = part_shuffle(team, s, length, lead);
                uint its_offset = part_shuffle(team, s, offset, lead);
                int gain = (int)(most >> 6);
                uint distance = first + i;
                bool better = best_gain != 0 && gain > best_gain + 1 + 3 * (int)(pos + distance - best_at);
                if (goes && (distance == 0u ? gain != 0 : better)) {
                    best_at = pos + distance;
                    best_gain = gain;
                    best_length = its_length;
                    best_offset = its_offset;
                }
            }
            goes = goes && best_gain != 0;
        }
        bool takes = best_gain != 0;
        uint room = takes ? min(best_at - best_offset - s.window_start, best_at - anchor) : 0u;
        uint before = extended_back(team, s, best_at, best_offset, room, 0u, takes);
        TAKE(s, takes, best_at, before, best_length, best_offset);
        pos = takes ? anchor : has ? pos + 1u : pos;
    }
    segment_end(s, count, match_counts, slot);
}
