// Sorts the positions of blocks by (hash, position), to find LZ77 candidates: the candidates of a position are
// earlier positions whose bytes have the same hash.
//
// It is a stable radix sort of one or two passes, lowest digit first. Each pass counts the digits of each tile of
// positions (`count`), sums the counts of a digit over the tiles of the block (`scan`), and moves the tiles' entries
// (`place`). Before that, it orders the entries of a tile by digit in workgroup memory, so that it writes whole runs.
//
// An entry has two words. The first is the upper half of the hash's product: its upper HASH_BITS bits are the hash,
// and eight other bits the tag. The second is the position. A block's sorted entries are contiguous from the start of
// its part. A position with fewer than eight bytes up to the block's end has no entry.
//
// Constants: HASH_BYTES; FIRST, whether entries come from the contents; PLACES, whether this pass also writes the
// sorted index of each position; DIGIT_SHIFT and DIGIT_BITS, of the pass; TILE, entries of a workgroup.
//
// @pz_cost entries {
//   threads: max(N/2048*512, 8192)
//   passes: 6
//   buffers: jobs=32, contents=N, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8
//   local_mem: 26688
// }
//
// @pz_cost places {
//   threads: max(N/2048*512, 8192)
//   passes: 6
//   buffers: jobs=32, contents=N, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4
//   local_mem: 26688
// }
// @pz_import team
// @pz_import tile_scan

#define RADIX (1u << DIGIT_BITS)
#define DIGIT_MASK (RADIX - 1u)
// Entries of a team's part of a tile, in steps of one for each lane.
#define STEPS (TILE / TEAMS / 32u)

inline uint block_len(__global const uint *jobs, uint block) {
    return jobs[(size_t)block * 8];
}

// The number of positions that have entries.
inline uint entry_count(uint len) {
    return len < 8u ? 0u : len - 7u;
}

inline uint hash_of(ulong x) {
    return (uint)((x << (64u - 8u * HASH_BYTES)) * 0x9e3779b185ebca87UL >> 32);
}

inline uint hash_at(__global const uint *contents, uint pos) {
    uint word = pos >> 2, shift = (pos & 3u) * 8u;
    ulong low = (ulong)contents[word + 1] << 32 | contents[word];
    ulong x = low >> shift;
#if HASH_BYTES > 5
    ulong high = contents[(pos + 7u) >> 2];
    x |= (high << 1) << (63u - shift);
#endif
    return hash_of(x);
}

inline uint digit_of(uint hash) {
    return hash >> DIGIT_SHIFT & DIGIT_MASK;
}

#if FIRST
#define SOURCE_BLOCK(block) (source + (size_t)(block) * (slot >> 2))
#define SOURCE_TYPE uint
inline uint2 entry_at(__global const uint *source, uint index) {
    return UINT2(hash_at(source, index), index);
}
#else
#define SOURCE_BLOCK(block) (source + (size_t)(block) * slot)
#define SOURCE_TYPE uint2
inline uint2 entry_at(__global const uint2 *source, uint index) {
    return source[index];
}
#endif

// A workgroup for each tile of each block.
__kernel void count(__global const uint *jobs, __global const SOURCE_TYPE *source, __global uint *histogram, uint slot,
                    uint tiles, uint blocks, uint window_log) {
    SHARED uint counts[RADIX];
    uint group = get_group_id(0), local_index = get_local_id(0);
    uint block = group / tiles, tile = group % tiles;
    if (block >= blocks) return;
    __global const SOURCE_TYPE *from = SOURCE_BLOCK(block);
    for (uint d = local_index; d < RADIX; d += THREADS) counts[d] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint first = tile * TILE;
    uint end = min(first + TILE, entry_count(block_len(jobs, block)));
#if FIRST
    // Four positions share three words.
    for (uint i = first + 4u * local_index; i < end; i += 4u * THREADS) {
        uint word = i >> 2;
        ulong low = (ulong)from[word + 1u] << 32 | from[word], high = from[min(word + 2u, (slot >> 2) - 1u)];
        atomic_inc(&counts[digit_of(hash_of(low))]);
        if (i + 1u < end) atomic_inc(&counts[digit_of(hash_of(low >> 8 | high << 56))]);
        if (i + 2u < end) atomic_inc(&counts[digit_of(hash_of(low >> 16 | high << 48))]);
        if (i + 3u < end) atomic_inc(&counts[digit_of(hash_of(low >> 24 | high << 40))]);
    }
#else
    for (uint i = first + local_index; i < end; i += THREADS) atomic_inc(&counts[digit_of(from[i].x)]);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    __global uint *to = histogram + (size_t)block * tiles * RADIX + tile;
    for (uint d = local_index; d < RADIX; d += THREADS) to[d * tiles] = counts[d];
}

// Sums a digit's counts over the earlier tiles, and over all tiles in `digits`. One team per digit of a block.
__kernel void scan(__global uint *histogram, __global uint *digits, uint slot, uint tiles, uint blocks,
                   uint window_log) {
    TEAM_START(team);
    uint row = (uint)get_group_id(0) * TEAMS + team.index;
    if (row >= blocks * RADIX) return;
    uint total = scan_tiles(team, histogram + (size_t)row * tiles, tiles);
    if (team.lane == 0) digits[row] = total;
}

// A workgroup for each tile of each block.
__kernel void place(__global const uint *jobs, __global const SOURCE_TYPE *source, __global const uint *histogram,
                    __global const uint *digits, __global uint2 *entries,
#if PLACES
                    __global uint *places,
#endif
                    uint slot, uint tiles, uint blocks, uint window_log) {
    // At first the number of a digit's entries in a team's part, later the number in earlier parts.
    SHARED uint counts[TEAMS * RADIX];
    // Where a digit's entries begin in the tile, and the distance from there to their destination.
    SHARED uint starts[RADIX], moves[RADIX];
    SHARED uint sums[RADIX / 32], digit_sums[RADIX / 32];
    SHARED uint hashes[TILE], positions[TILE];
    TEAM_START(team);
    uint group = get_group_id(0), local_index = get_local_id(0);
    uint block = group / tiles, tile = group % tiles;
    if (block >= blocks) return;
    __global const SOURCE_TYPE *from = SOURCE_BLOCK(block);
    uint first = tile * TILE;
    uint end = min(first + TILE, entry_count(block_len(jobs, block)));
    if (first >= end) return;

    for (uint i = local_index; i < TEAMS * RADIX; i += THREADS) counts[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint own = team.index * RADIX;
    uint base = first + team.index * (STEPS * 32u) + team.lane;
    uint2 entry[STEPS];
    uint rank[STEPS];
#if TEAM_PTX
#pragma unroll
#endif
    for (uint step = 0; step < STEPS; step++) {
        uint index = base + step * 32u;
        if (index < end) entry[step] = entry_at(from, index);
    }
#if TEAM_PTX
#pragma unroll
#endif
    for (uint step = 0; step < STEPS; step++) {
        bool valid = base + step * 32u < end;
        uint digit = valid ? digit_of(entry[step].x) : RADIX;
        uint same = team_match_digit(team, digit, DIGIT_BITS + 1);
        uint before = valid ? counts[own + digit] : 0;
        team_sync(team);
        if (valid && same >> team.lane == 1u) counts[own + digit] = before + popcount(same);
        team_sync(team);
        rank[step] = before + popcount(same & team_before(team));
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    __global const uint *totals = digits + (size_t)block * RADIX;
    for (uint part = team.index; part < RADIX / 32; part += TEAMS) {
        uint digit = part * 32 + team.lane;
        uint sum = 0;
        for (uint t = 0; t < TEAMS; t++) {
            uint n = counts[t * RADIX + digit];
            counts[t * RADIX + digit] = sum;
            sum += n;
        }
        uint upto = team_scan(team, sum);
        uint total = totals[digit];
        uint total_upto = team_scan(team, total);
        starts[digit] = upto - sum;
        moves[digit] = total_upto - total;
        if (team.lane == 31) {
            sums[part] = upto;
            digit_sums[part] = total_upto;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __global const uint *tile_starts = histogram + (size_t)block * tiles * RADIX + tile;
    for (uint digit = local_index; digit < RADIX; digit += THREADS) {
        uint start = starts[digit], move = moves[digit];
        for (uint part = 0; part < digit / 32; part++) {
            start += sums[part];
            move += digit_sums[part];
        }
        starts[digit] = start;
        moves[digit] = move + tile_starts[digit * tiles] - start;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

#if TEAM_PTX
#pragma unroll
#endif
    for (uint step = 0; step < STEPS; step++) {
        if (base + step * 32u < end) {
            uint digit = digit_of(entry[step].x);
            uint to = starts[digit] + counts[own + digit] + rank[step];
            hashes[to] = entry[step].x;
            positions[to] = entry[step].y;
#if PLACES
            places[(size_t)block * slot + base + step * 32u] = to + moves[digit];
#endif
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __global uint2 *out = entries + (size_t)block * slot;
    for (uint i = local_index; i < end - first; i += THREADS) {
        uint hash = hashes[i];
        out[i + moves[digit_of(hash)]] = UINT2(hash, positions[i]);
    }
}
