// The inverse of the Burrows-Wheeler transform, from many stored rows.
//
// For each place of the transform, `bwt_links` holds the byte there and the place that a walk visits next.
// `bwt_steps_low` and `bwt_steps_high` hold the same for four steps at once, so that a walk makes one random read per
// four bytes. The first covers the first half of a block's places, the second the rest: two smaller buffers allow more
// blocks at once, because the largest buffer sets the limit. The transform is in `contents`, and the walks overwrite
// it. A block has at most 2^24 bytes, so a word holds a place and a byte.
//
// @pz_cost {
//   threads: N/1024*256
//   passes: 4+N/1048576
//   buffers: jobs=32, contents=N, results=32, bwt_blocks=512, bwt_rows=N/64, bwt_walks=N/524288*4,
//            bwt_counts=N/8+1024, bwt_links=N*4+N/16+64, bwt_steps_low=N*4, bwt_steps_high=N*4
//   local_mem: 8224
//   note: limited by random reads of 8 bytes: one for four bytes in steps, about four nearby ones in compose
// }
// @pz_import team
// @pz_import bwt

#define CHUNK 8192u
#define CHUNKS_OF(slot) (((slot) + CHUNK - 1u) / CHUNK)
#define COUNTS_OF(slot) ((size_t)((slot) / 32u + 256u))
// Where the step from a place is stored.
#define STEP(low, high, place, half_slot) ((place) < (half_slot) ? (low) + (place) : (high) + ((place) - (half_slot)))
// A dispatch walks at least 2^18 bytes, so only walks over stretches of 2^19 bytes or more are continued.
#define WALKS_OF(slot) (((slot) + 524287u) / 524288u)
#define PLACE(row, whole) ((row) > (whole) ? (row) - 1u : (row) == (whole) ? 0u : (row))

// Counts each byte's occurrences in each chunk. One team per chunk.
__kernel void histogram(__global const uint *results, __global const uint *bwt_blocks, __global const uint4 *contents,
                        __global uint *bwt_counts, uint slot, uint blocks, uint groups, uint done, uint most) {
    TEAM_START(team);
    SHARED uint all_counts[TEAMS * 256u];
    __local uint *counts = all_counts + team.index * 256u;
    uint chunks = CHUNKS_OF(slot);
    uint index = team_uniform(team, (uint)get_group_id(0) * TEAMS + team.index);
    uint block = index / chunks;
    if (block >= blocks) return;
    uint begin = index % chunks * CHUNK;
    uint n = team_uniform(team, results[block * RESULT_WORDS] == 0u ? bwt_blocks[block * BLOCK_WORDS] : 0u);
    if (begin >= n) return;
    uint len = min(CHUNK, n - begin);
    for (uint i = team.lane; i < 256u; i += 32u) counts[i] = 0u;
    team_sync(team);
    __global const uint4 *units = contents + ((size_t)block * slot + begin) / 16u;
    for (uint i = team.lane; 16u * i < len; i += 32u) {
        uint4 unit = units[i];
        uint words[4] = {unit.x, unit.y, unit.z, unit.w};
        uint byte = unit.x & 255u;
        uint count = 0u;
        #pragma unroll
        for (uint k = 0u; k < 16u; k++) {
            uint next = words[k >> 2] >> (8u * (k & 3u)) & 255u;
            if (16u * i + k < len) {
                if (next != byte) {
                    atomic_add(&counts[byte], count);
                    byte = next;
                    count = 0u;
                }
                count += 1u;
            }
        }
        atomic_add(&counts[byte], count);
    }
    team_sync(team);
    __global uint *out = bwt_counts + block * COUNTS_OF(slot) + (begin / CHUNK) * 256u;
    for (uint i = team.lane; i < 256u; i += 32u) out[i] = counts[i];
}

// Turns counts into the row of each byte's first occurrence in each chunk. One workgroup of 256 per block.
__kernel void rows(__global const uint *results, __global const uint *bwt_blocks, __global uint *bwt_counts,
                   uint slot, uint blocks, uint groups, uint done, uint most) {
    SHARED uint totals[256];
    uint block = (uint)get_group_id(0);
    if (block >= blocks) return;
    uint byte = (uint)get_local_id(0);
    uint n = results[block * RESULT_WORDS] == 0u ? bwt_blocks[block * BLOCK_WORDS] : 0u;
    uint chunks = (n + CHUNK - 1u) / CHUNK;
    __global uint *counts = bwt_counts + block * COUNTS_OF(slot) + byte;
    uint total = 0u;
    #pragma unroll 8
    for (uint i = 0u; i < chunks; i++) total += counts[i * 256u];
    totals[byte] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint by = 1u; by < 256u; by <<= 1) {
        uint before = byte >= by ? totals[byte - by] : 0u;
        barrier(CLK_LOCAL_MEM_FENCE);
        totals[byte] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    uint row = totals[byte] - total + 1u;
    #pragma unroll 8
    for (uint i = 0u; i < chunks; i++) {
        uint count = counts[i * 256u];
        counts[i * 256u] = row;
        row += count;
    }
}

// Writes the links. One team per chunk.
__kernel void link(__global const uint *results, __global const uint *bwt_blocks, __global const uint *bwt_rows,
                   __global const uchar *contents, __global const uint *bwt_counts, __global uint *bwt_links,
                   uint slot, uint blocks, uint groups, uint done, uint most) {
    TEAM_START(team);
    SHARED uint all_rows[TEAMS * 257u];
    __local uint *next = all_rows + team.index * 257u;
    uint chunks = CHUNKS_OF(slot);
    uint index = team_uniform(team, (uint)get_group_id(0) * TEAMS + team.index);
    uint block = index / chunks;
    if (block >= blocks) return;
    uint begin = index % chunks * CHUNK;
    uint n = team_uniform(team, results[block * RESULT_WORDS] == 0u ? bwt_blocks[block * BLOCK_WORDS] : 0u);
    if (begin >= n) return;
    uint len = min(CHUNK, n - begin);
    uint whole = bwt_rows[(size_t)block * (slot / 256u)];
    __global const uint *counts = bwt_counts + block * COUNTS_OF(slot) + (begin / CHUNK) * 256u;
    for (uint i = team.lane; i < 256u; i += 32u) next[i] = counts[i];
    if (team.lane == 0u) next[256] = 0u;
    team_sync(team);
    __global const uchar *bytes = contents + (size_t)block * slot + begin;
    __global uint *links = bwt_links + block * LINKS_OF(slot) + begin;
    uint before = team_before(team);
    for (uint from = 0u; from < len; from += 128u) {
        uint byte[4];
        uint same[4];
        #pragma unroll
        for (uint k = 0u; k < 4u; k++) {
            uint i = from + 32u * k + team.lane;
            byte[k] = i < len ? bytes[i] : 256u;
        }
        #pragma unroll
        for (uint k = 0u; k < 4u; k++) same[k] = team_match(team, byte[k], 9u);
        #pragma unroll
        for (uint k = 0u; k < 4u; k++) {
            uint i = from + 32u * k + team.lane;
            uint row = next[byte[k]] + popcount(same[k] & before);
            team_sync(team);
            if (same[k] >> team.lane == 1u) next[byte[k]] = row + 1u;
            team_sync(team);
            if (i < len) links[i] = PLACE(row, whole) << 8 | byte[k];
        }
    }
}

// Follows four links, and stores the place that they lead to and their bytes.
__kernel void compose(__global const uint *results, __global const uint *bwt_blocks, __global const uint *bwt_links,
                      __global uint2 *bwt_steps_low, __global uint2 *bwt_steps_high, uint slot, uint blocks, uint groups,
                      uint done, uint most) {
    uint block = (uint)get_group_id(0) / groups;
    if (block >= blocks) return;
    uint from = (uint)get_group_id(0) % groups * (4u * THREADS) + (uint)get_local_id(0);
    uint n = results[block * RESULT_WORDS] == 0u ? bwt_blocks[block * BLOCK_WORDS] : 0u;
    if (from >= n) return;
    __global const uint *links = bwt_links + block * LINKS_OF(slot);
    uint half_slot = slot / 2u;
    __global uint2 *low = bwt_steps_low + (size_t)block * half_slot;
    __global uint2 *high = bwt_steps_high + (size_t)block * half_slot;
    uint link[4];
    uint bytes[4];
    #pragma unroll
    for (uint k = 0u; k < 4u; k++) {
        link[k] = links[min(from + k * THREADS, n - 1u)];
        bytes[k] = link[k] << 24;
    }
    #pragma unroll
    for (uint s = 1u; s < 4u; s++) {
        #pragma unroll
        for (uint k = 0u; k < 4u; k++) {
            link[k] = links[min(link[k] >> 8, n - 1u)];
            bytes[k] |= (link[k] & 255u) << (24u - 8u * s);
        }
    }
    #pragma unroll
    for (uint k = 0u; k < 4u; k++) {
        uint at = from + k * THREADS;
        if (at < n) *STEP(low, high, at, half_slot) = UINT2(link[k] >> 8, bytes[k]);
    }
}

// Each work item walks at most `most` bytes from its stored row, continuing where the previous dispatch ended (`done`
// bytes before the end of its stretch). It first checks that it has arrived at the right row.
__kernel void walk(__global uint *results, __global const uint *bwt_blocks, __global const uint *bwt_rows,
                   __global uint *bwt_walks, __global const uint *bwt_links, __global const uint2 *bwt_steps_low,
                   __global const uint2 *bwt_steps_high, __global uint4 *contents, uint slot, uint blocks, uint groups,
                   uint done, uint most) {
    uint block = (uint)get_group_id(0) / groups;
    if (block >= blocks) return;
    uint index = (uint)get_group_id(0) % groups * THREADS + (uint)get_local_id(0);
    __global const uint *info = bwt_blocks + block * BLOCK_WORDS;
    // A work item reports a failure at once. Work items that have not seen the report continue, which is harmless.
    if (results[block * RESULT_WORDS] != 0u || index >= info[BLOCK_STARTS]) return;
    uint n = info[0];
    uint start_log = info[BLOCK_START_LOG];
    __global const uint *rows = bwt_rows + (size_t)block * (slot / 256u);
    __global const uint *links = bwt_links + block * LINKS_OF(slot);
    uint half_slot = slot / 2u;
    __global const uint2 *low = bwt_steps_low + (size_t)block * half_slot;
    __global const uint2 *high = bwt_steps_high + (size_t)block * half_slot;
    uint begin = index << start_log;
    uint end = min(n, begin + (1u << start_log));
    // Units of 16 bytes. The last one may be shorter.
    uint unit_begin = begin / 16u;
    uint unit = (end + 15u) / 16u;
    if (done / 16u >= unit - unit_begin) return;
    unit -= done / 16u;
    uint unit_end = unit - min(unit - unit_begin, most / 16u);
    uint whole = rows[0];
    uint place = 0u;
    if (done == 0u) {
        uint row = end == n ? whole : rows[index + 1u];
        place = PLACE(row, whole);
    } else {
        place = bwt_walks[(size_t)block * WALKS_OF(slot) + index];
    }
    __global uint4 *out = contents + (size_t)block * (slot / 16u);
    uint odd = end & 15u;
    if (done == 0u && odd != 0u) {
        uint words[4] = {0u, 0u, 0u, 0u};
        for (uint i = odd; i > 0u; i--) {
            uint link = links[min(place, n - 1u)];
            words[(i - 1u) >> 2] |= (link & 255u) << (8u * ((i - 1u) & 3u));
            place = link >> 8;
        }
        unit -= 1u;
        out[unit] = UINT4(words[0], words[1], words[2], words[3]);
    }
    while (unit > unit_end) {
        uint words[4];
        #pragma unroll
        for (uint k = 0u; k < 4u; k++) {
            place = min(place, n - 1u);
            uint2 step = *STEP(low, high, place, half_slot);
            place = step.x;
            words[3u - k] = step.y;
        }
        unit -= 1u;
        out[unit] = UINT4(words[0], words[1], words[2], words[3]);
    }
    if (unit > unit_begin) {
        bwt_walks[(size_t)block * WALKS_OF(slot) + index] = place;
    } else if (place != PLACE(rows[index], whole)) {
        results[block * RESULT_WORDS] = 40u;
    }
}
