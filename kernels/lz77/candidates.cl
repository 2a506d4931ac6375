// Lists the candidates of each position for the optimal parse of LZ77, by the rule of codec::lz77::candidate_lists.
//
// `entries` holds the sorted entries of a four-byte hash. From them come three arrays of words: positions; marks, with
// a bit for each earlier entry that is a candidate, the nearest in bit 0; and the sorted index of each position. They
// are separate because writes to them are in random order, and a small array stays in a cache. `found` comes from
// lz77/latest, for a three-byte hash. `lz77_low` holds four distances for each position, from lz77/suffixes.
//
// A position's list has eight words, offset | length - 3 << 24, by increasing offset and length, padded with zeros.
// Four go to `lz77_low` and four to `lz77_high`; those in `lz77_high` are unspecified if one in `lz77_low` is 0. A
// position with fewer than eight bytes up to the block's end has no candidates.
//
// Constants: HASH_BITS, the upper bits of an entry's first word; CANDIDATES, the candidates of a position by this hash;
// INHERITED_LENGTH.
//
// @pz_cost {
//   threads: N
//   passes: 3
//   buffers: jobs=32, contents=N, found=N*4, entries=N*8, sorted_positions=N*4, sorted_marks=N*4,
//            sorted_places=N*4, lz77_low=N*16, lz77_high=N*16
//   local_mem: 256
// }
// @pz_import team
// @pz_import lz77_words

#define LIST 8u
#define LONGEST 256u
// Beyond this offset a match of three bytes costs more than three literals.
#define SHORT_REACH (1u << 12)
#define NONE 0xffffffffu
#define ALL 0xffffffffu

// A work item for each entry: marks the candidates among the entries before it.
__kernel void mark(__global const uint *restrict jobs, __global const uint2 *restrict entries,
                   __global uint *restrict positions, __global uint *restrict marked, __global uint *restrict places,
                   uint slot, uint blocks, uint window_log) {
    uint group = get_group_id(0), groups = (slot + THREADS - 1u) / THREADS;
    uint block = group / groups;
    uint index = group % groups * THREADS + get_local_id(0);
    if (block >= blocks) return;
    uint len = jobs[(size_t)block * 8];
    if (len < 8u || index >= len - 7u) return;
    size_t own = (size_t)block * slot;
    entries += own;
    uint2 entry = entries[index];
    uint pos = entry.y, reach = pos & ((1u << window_log) - 1u), marks = 0;
    for (uint k = 0; k < min(CANDIDATES, index); k++) {
        uint2 other = entries[index - 1u - k];
        if ((other.x ^ entry.x) >> (32u - HASH_BITS) == 0 && pos - other.y <= reach) marks |= 1u << k;
    }
    positions[own + index] = pos;
    marked[own + index] = marks;
    places[own + pos] = index;
}

// Returns the distance of the nearest marked entry and removes its mark; NONE if there is none.
inline uint next_distance(__global const uint *positions, uint index, uint *marks, uint pos) {
    if (*marks == 0) return NONE;
    uint k = trailing_zeros(*marks);
    *marks &= *marks - 1u;
    return pos - positions[index - 1u - k];
}

// Whether the four bytes at `pos` equal `bytes` under `mask`. Mostly they do not, and the first word shows it.
inline bool is_equal(__global const uint *contents, uint words, uint pos, uint bytes, uint mask) {
    uint word = pos >> 2, shift = (pos & 3u) * 8u;
    uint low = contents[word] >> shift;
    if (((low ^ bytes) & mask & (ALL >> shift)) != 0) return false;
    if (shift == 0) return true;
    uint high = contents[min(word + 1u, words - 1u)] << (32u - shift);
    return (((low | high) ^ bytes) & mask) == 0;
}

// The eight bytes that begin `shift` bits into `word` and end in the word after it.
inline ulong eight_bytes_of(ulong word, ulong next, uint shift) {
    return word >> shift | next << 1 << (63u - shift);
}

// The number of equal bytes at `pos` and `offset` before it, at most `room`. Unlike lz77_long_length, this reads words
// of eight bytes.
inline uint long_length(__global const uint *contents, uint words, uint pos, uint offset, uint room) {
    __global const ulong *eights = (__global const ulong *)contents;
    uint a = pos >> 3, b = (pos - offset) >> 3, most = (words >> 1) - 1u;
    uint shift_a = (pos & 7u) * 8u, shift_b = ((pos - offset) & 7u) * 8u;
    ulong x = eights[a], y = eights[b], differ = 0;
    uint n = 0;
    while (differ == 0 && n < room) {
        a++;
        b++;
        ulong next_x = eights[min(a, most)], next_y = eights[min(b, most)];
        differ = eight_bytes_of(x, next_x, shift_a) ^ eight_bytes_of(y, next_y, shift_b);
        x = next_x;
        y = next_y;
        n += 8u;
    }
    if (differ != 0) {
        uint low = (uint)differ;
        n -= 8u;
        n += (low != 0 ? trailing_zeros(low) : 32u + trailing_zeros((uint)(differ >> 32))) >> 3;
    }
    return min(n, room);
}

// A work item for each position.
__kernel void list(__global const uint *restrict jobs, __global const uint *restrict contents,
                   __global const uint *restrict found, __global const uint *restrict positions,
                   __global const uint *restrict marked, __global const uint *restrict places,
                   __global uint4 *restrict low, __global uint4 *restrict high, uint slot, uint blocks,
                   uint chunk_log) {
    uint group = get_group_id(0), groups = (slot + THREADS - 1u) / THREADS;
    uint block = group / groups;
    uint pos = group % groups * THREADS + get_local_id(0);
    if (block >= blocks) return;
    uint len = jobs[(size_t)block * 8];
    if (len < 8u || pos >= len - 7u) return;
    uint words = slot >> 2;
    contents += (size_t)block * words;
    size_t own = (size_t)block * slot;
    positions += own;
    uint chunk_end = min(len, ((pos >> chunk_log) + 1u) << chunk_log);
    uint room = min(chunk_end - pos, LONGEST);

    uint near = places[own + pos], marks = marked[own + near];
    uint near_distance = next_distance(positions, near, &marks, pos);
    // The candidates by suffixes, by increasing distance.
    uint4 far = low[own + pos];
    // No match of three bytes is nearer than this one.
    uint offset = found[own + pos];
    if (offset == 0) offset = min(near_distance, far.x);

    uint row[LIST] = {0, 0, 0, 0, 0, 0, 0, 0};
    uint count = 0, longest = 2;
    // The four bytes in which a candidate must equal the position to beat the longest so far.
    uint probe = pos, mask = 0xffffffu, probed = read32(contents, words, pos);
    while (offset != NONE) {
        if (is_equal(contents, words, probe - offset, probed, mask)) {
            uint length = long_length(contents, words, pos, offset, room);
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
                mask = ALL;
                probed = read32(contents, words, probe);
            }
        }
        uint nearest = offset;
        if (near_distance <= nearest) near_distance = next_distance(positions, near, &marks, pos);
        if (far.x <= nearest) far = UINT4(far.y, far.z, far.w, NONE);
        offset = min(near_distance, far.x);
    }
    low[own + pos] = UINT4(row[0], row[1], row[2], row[3]);
    if (row[3] != 0) high[own + pos] = UINT4(row[4], row[5], row[6], row[7]);
}

// The last word that is not 0.
inline uint last_word(uint4 a) {
    return a.w != 0 ? a.w : a.z != 0 ? a.z : a.y != 0 ? a.y : a.x;
}

// If the longest candidate of a position extends INHERITED_LENGTH beyond the next 32 positions, makes its remainder the
// only candidate of these. One team per chunk.
__kernel void inherit(__global const uint *restrict jobs, __global uint4 *restrict low,
                      __global const uint4 *restrict high, uint slot, uint chunks, uint blocks, uint chunk_log) {
    TEAM_START(team);
    uint index = (uint)get_group_id(0) * TEAMS + team.index;
    uint block = index / chunks, start = index % chunks << chunk_log;
    if (block >= blocks) return;
    uint len = team_uniform(team, jobs[(size_t)block * 8]);
    uint end = min(len < 8u ? 0 : len - 7u, start + (1u << chunk_log));
    if (start >= end) return;
    low += (size_t)block * slot + start;
    high += (size_t)block * slot + start;
    uint n = end - start;
    // The match that the next positions may inherit.
    uint length = 0, offset = 0;
    for (uint first = 0; first < n; first += 1024) {
        // Each lane knows the last candidate of 32 positions.
        uint mine = first + 32 * team.lane + 31;
        uint word = 0;
        if (mine < n) {
            uint4 four = low[mine];
            word = last_word(four);
            if (four.w != 0) {
                four = high[mine];
                if (four.x != 0) word = last_word(four);
            }
        }
        uint longs = team_ballot(team, word >> 24 > INHERITED_LENGTH - 3u);
        uint batch = 0;
        while (batch < 32 && first + 32 * batch < n && (length > INHERITED_LENGTH || longs >> batch != 0)) {
            uint from = first + 32 * batch;
            uint size = min(32u, n - from);
            uint its = team_broadcast(team, word, batch);
            if (length >= size + INHERITED_LENGTH) {
                if (team.lane < size) low[from + team.lane] = UINT4(offset | (length - team.lane - 4u) << 24, 0, 0, 0);
                length -= size;
            } else {
                length = its != 0 ? (its >> 24) + 3u : 0;
                offset = its & 0xffffffu;
            }
            batch++;
        }
    }
}
