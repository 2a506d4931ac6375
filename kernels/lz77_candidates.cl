// The candidates of each position for the optimal parse of LZ77: the rule is that of codec::lz77::candidate_lists.
// `entries` and `found` are what lz77_link makes of a hash of four bytes, `entries_far` and `found_far` of one of seven, and
// `found_three` what lz77_latest makes of one of three.
//
// A position's list has eight words, offset | length - 3 << 24, by increasing offset and length; behind them zeros.
// Positions with fewer than eight bytes from themselves on have none.
//
// Constants: SAME, the bits of an entry's first word that are the same in candidates; NICE_LENGTH.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 2
//   buffers: jobs=32, contents=N, found_three=N*4, entries=N*8, found=N*4, entries_far=N*8, found_far=N*4,
//            lz77_lists=N*32
//   local_mem: 256
// }
// @pz_import team
// @pz_import lz77_words

#define LIST 8u
#define LONGEST 256u
// Candidates by the hash of four bytes, and by that of seven.
#define NEAR 16u
#define FAR 32u
// Beyond this offset a match of three bytes costs more than three literals.
#define SHORT_REACH (1u << 12)
#define NONE 0xffffffffu

// The entries before a position's own.
typedef struct {
    uint hash;
    uint index;     // behind the next one
    uint left;      // how many may come
    uint distance;  // of the candidate at hand
} Nearer;

inline void next_nearer(__global const uint2 *entries, Nearer *n, uint pos, uint reach) {
    n->distance = NONE;
    while (n->left != 0) {
        n->index--;
        n->left--;
        uint2 other = entries[n->index];
        uint differ = other.x ^ n->hash, distance = pos - other.y;
        if (differ >> 16 != 0 || distance > reach) {
            // Those of another hash, and those before the window, are followed by no candidate.
            n->left = 0;
        } else if ((differ & SAME) == 0) {
            n->distance = distance;
            break;
        }
    }
}

inline Nearer nearer(__global const uint2 *entries, uint row, uint most) {
    Nearer n = {0, row & 0xffffffu, 0, NONE};
    if (row != 0) {
        n.hash = entries[n.index].x;
        n.left = min(most, n.index);
    }
    return n;
}

// The number of equal bytes from `pos` and from `offset` before it on, at most `room`.
inline uint common_length(__global const uint *contents, uint words, uint pos, uint offset, uint room) {
    uint a = pos >> 2, b = (pos - offset) >> 2;
    uint shift_a = (pos & 3u) * 8u, shift_b = ((pos - offset) & 3u) * 8u;
    ulong x = contents[a], y = contents[b];
    uint n = 0;
    for (; n < room; n += 4) {
        a++;
        b++;
        x |= (ulong)contents[min(a, words - 1u)] << 32;
        y |= (ulong)contents[b] << 32;
        uint differ = (uint)(x >> shift_a) ^ (uint)(y >> shift_b);
        if (differ != 0) {
            n += trailing_zeros(differ) >> 3;
            break;
        }
        x >>= 32;
        y >>= 32;
    }
    return min(n, room);
}

// A work item for each position.
__kernel void list(__global const uint *restrict jobs, __global const uint *restrict contents,
                   __global const uint *restrict found_three, __global const uint2 *restrict entries,
                   __global const uint *restrict found, __global const uint2 *restrict entries_far,
                   __global const uint *restrict found_far, __global uint4 *restrict lists, uint slot, uint blocks,
                   uint window_log, uint chunk_log) {
    uint group = get_group_id(0), groups = (slot + THREADS - 1u) / THREADS;
    uint block = group / groups;
    uint pos = group % groups * THREADS + get_local_id(0);
    if (block >= blocks) return;
    uint len = jobs[(size_t)block * 8];
    if (len < 8u || pos >= len - 7u) return;
    uint words = slot >> 2;
    contents += (size_t)block * words;
    entries += (size_t)block * slot;
    entries_far += (size_t)block * slot;
    uint reach = pos & ((1u << window_log) - 1u);
    uint chunk_end = min(len, ((pos >> chunk_log) + 1u) << chunk_log);
    uint room = min(chunk_end - pos, LONGEST);

    Nearer near = nearer(entries, found[(size_t)block * slot + pos], NEAR);
    Nearer far = nearer(entries_far, found_far[(size_t)block * slot + pos], FAR);
    next_nearer(entries, &near, pos, reach);
    next_nearer(entries_far, &far, pos, reach);
    // No match of three bytes is nearer than this one.
    uint offset = found_three[(size_t)block * slot + pos];
    if (offset == 0) offset = min(near.distance, far.distance);

    uint row[LIST] = {0, 0, 0, 0, 0, 0, 0, 0};
    uint count = 0, longest = 2;
    // Where a candidate must equal the position to be longer than the longest so far.
    uint probe = pos, shift = 8, probed = read32(contents, words, pos) << 8;
    while (offset != NONE) {
        if (read32(contents, words, probe - offset) << shift == probed) {
            uint length = common_length(contents, words, pos, offset, room);
            if (length > longest && (length > 3 || offset <= SHORT_REACH)) {
                uint word = offset | (length - 3) << 24;
                uint at = min(count, LIST - 1u);
#if TEAM_PTX
#pragma unroll
#endif
                for (uint k = 0; k < LIST; k++)
                    if (k == at) row[k] = word;
                count = at + 1;
                longest = length;
                if (length >= room) break;
                probe = pos + length - 3u;
                shift = 0;
                probed = read32(contents, words, probe);
            }
        }
        uint nearest = offset;
        if (near.distance <= nearest) next_nearer(entries, &near, pos, reach);
        if (far.distance <= nearest) next_nearer(entries_far, &far, pos, reach);
        offset = min(near.distance, far.distance);
    }
    __global uint4 *to = lists + ((size_t)block * slot + pos) * 2;
    to[0] = (uint4)(row[0], row[1], row[2], row[3]);
    to[1] = (uint4)(row[4], row[5], row[6], row[7]);
}

// The last word of a list.
inline uint last_word(uint4 a, uint4 b) {
    uint first = a.w != 0 ? a.w : a.z != 0 ? a.z : a.y != 0 ? a.y : a.x;
    return b.w != 0 ? b.w : b.z != 0 ? b.z : b.y != 0 ? b.y : b.x != 0 ? b.x : first;
}

// Where the longest candidate of a position goes on for NICE_LENGTH beyond the next 32, makes what is left of it their only
// candidate. A team for each chunk.
__kernel void inherit(__global const uint *restrict jobs, __global uint4 *restrict lists, uint slot, uint chunks,
                      uint blocks, uint chunk_log) {
    TEAM_START(team);
    uint index = (uint)get_group_id(0) * TEAMS + team.index;
    uint block = index / chunks, start = index % chunks << chunk_log;
    if (block >= blocks) return;
    uint len = team_uniform(team, jobs[(size_t)block * 8]);
    uint end = min(len < 8u ? 0 : len - 7u, start + (1u << chunk_log));
    if (start >= end) return;
    lists += ((size_t)block * slot + start) * 2;
    uint n = end - start;
    // What may be inherited.
    uint length = 0, offset = 0;
    for (uint first = 0; first < n; first += 1024) {
        // Each lane knows the last candidate of 32 positions.
        uint mine = first + 32 * team.lane + 31;
        uint word = 0;
        if (mine < n) word = last_word(lists[2 * mine], lists[2 * mine + 1]);
        uint longs = team_ballot(team, word >> 24 > NICE_LENGTH - 3u);
        uint batch = 0;
        while (batch < 32 && first + 32 * batch < n && (length > NICE_LENGTH || longs >> batch != 0)) {
            uint from = first + 32 * batch;
            uint size = min(32u, n - from);
            uint its = team_broadcast(team, word, batch);
            if (length >= size + NICE_LENGTH) {
                if (team.lane < size) {
                    lists[2 * (from + team.lane)] = (uint4)(offset | (length - team.lane - 4u) << 24, 0, 0, 0);
                    lists[2 * (from + team.lane) + 1] = (uint4)(0, 0, 0, 0);
                }
                length -= size;
            } else {
                length = its != 0 ? (its >> 24) + 3u : 0;
                offset = its & 0xffffffu;
            }
            batch++;
        }
    }
}
