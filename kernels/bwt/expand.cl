// BWT payloads: turns runs of labels into the transform. It composes the lists of the segments in order; with the
// lists, each label gives its byte.
//
// @pz_cost {
//   threads: N/32768*256
//   passes: 2
//   buffers: contents=N, results=32, bwt_blocks=512, bwt_segments=N/1024*20+20,
//            bwt_lists=N/4+256, bwt_links=N*4+N/16+64
//   local_mem: 6144
//   note: each list of a block's segments depends on the one before, which costs two barriers a segment
// }
// @pz_import team
// @pz_import bwt

// Replaces the labels in each segment's final list by bytes, which gives the next segment's first list. One workgroup
// of 64 per block.
__kernel void lists(__global const uint *results, __global const uint *bwt_blocks, __global uint *bwt_lists,
                    uint slot, uint blocks, uint groups) {
    SHARED uint current[64];
    uint block = (uint)get_group_id(0);
    if (block >= blocks) return;
    uint lane = (uint)get_local_id(0);
    __global const uint *info = bwt_blocks + block * BLOCK_WORDS;
    uint count = results[block * RESULT_WORDS] == 0u ? info[BLOCK_SEGMENTS] : 0u;
    __global uint *list = bwt_lists + (size_t)block * (slot / 16u + 64u) + lane;
    uint mine = info[BLOCK_LIST + lane];
    uint labels = count > 0u ? list[0] : 0u;
    for (uint segment = 0u; segment < count; segment++) {
        uint ahead = segment + 1u < count ? list[(segment + 1u) * 64u] : 0u;
        current[lane] = mine;
        list[segment * 64u] = mine;
        barrier(CLK_LOCAL_MEM_FENCE);
        mine = 0u;
        for (uint k = 0u; k < 4u; k++) mine |= byte_of_list(current, labels >> (8u * k) & 255u) << (8u * k);
        barrier(CLK_LOCAL_MEM_FENCE);
        labels = ahead;
    }
}

#define TILE 4096u
#define BATCH 128u

// The index of the last of `count` ascending numbers, `step` words apart, that is at most `value`. The first number
// always qualifies.
inline uint last_up_to(Team team, __global const uint *numbers, uint step, uint shift, uint count, uint value) {
    uint from = 0u;
    uint span = count;
    while (span > 1u) {
        uint stride = (span + 31u) / 32u;
        uint probe = team.lane * stride;
        bool below = probe < span && numbers[(size_t)(from + probe) * step] >> shift <= value;
        uint found = max((uint)popcount(team_ballot(team, below)), 1u) - 1u;
        from += found * stride;
        span = min(stride, span - found * stride);
    }
    return from;
}

// Writes the transform, one team per tile.
__kernel void expand(__global const uint *results, __global const uint *bwt_blocks, __global const uint *bwt_segments,
                     __global const uint *bwt_lists, __global const uint *bwt_links, __global uint *contents,
                     uint slot, uint blocks, uint groups) {
    TEAM_START(team);
    SHARED uint all_bytes[TEAMS * 64u];
    SHARED uint all_runs[TEAMS * BATCH];
    __local uint *bytes = all_bytes + team.index * 64u;
    __local uint *runs = all_runs + team.index * BATCH;
    uint tiles = (slot + TILE - 1u) / TILE;
    uint index = team_uniform(team, (uint)get_group_id(0) * TEAMS + team.index);
    uint block = index / tiles;
    if (block >= blocks) return;
    __global const uint *info = bwt_blocks + block * BLOCK_WORDS;
    __global const uint *segments = bwt_segments + SEGMENTS_AT(block, slot);
    __global uint *out = contents + (size_t)block * (slot / 4u);
    uint at = index % tiles * TILE;
    uint tile_end = team_uniform(team, results[block * RESULT_WORDS] == 0u ? min(at + TILE, info[0]) : 0u);
    if (at >= tile_end) return;
    uint count = team_uniform(team, info[BLOCK_SEGMENTS]);
    uint segment = last_up_to(team, segments, SEGMENT_WORDS, 0u, count, at);
    while (at < tile_end && segment < count) {
        uint begin = team_uniform(team, segments[segment * SEGMENT_WORDS]);
        uint end = team_uniform(team, segments[segment * SEGMENT_WORDS + 1u]);
        uint run_count = team_uniform(team, segments[segment * SEGMENT_WORDS + 2u]);
        __global const uint *its_runs = bwt_links + block * LINKS_OF(slot) + RUNS_AT(begin, segment);
        uint stop = min(end, tile_end);
        for (uint i = team.lane; i < 64u; i += 32u) {
            bytes[i] = bwt_lists[(size_t)block * (slot / 16u + 64u) + segment * 64u + i];
        }
        team_sync(team);
        uint run = at == begin ? 0u : last_up_to(team, its_runs, 1u, 8u, run_count, at);
        while (at < stop && run < run_count) {
            // Where runs begin, from `at` on, and their bytes.
            for (uint i = team.lane; i < BATCH; i += 32u) {
                uint packed = 0xffffff00u;
                if (run + i < run_count) {
                    packed = its_runs[run + i];
                    uint from = max(packed >> 8, at) - at;
                    packed = min(from, 65535u) << 8 | byte_of_list(bytes, packed & 255u);
                }
                runs[i] = packed;
            }
            team_sync(team);
            uint batch_end = run + BATCH < run_count ? its_runs[run + BATCH] >> 8 : end;
            batch_end = team_uniform(team, min(batch_end, stop));
            uint last_word = (batch_end - 1u) / 4u;
            for (uint word = at / 4u + team.lane; word <= last_word; word += 32u) {
                uint from = max(word * 4u, at);
                uint to = min(word * 4u + 4u, batch_end);
                uint low = 0u;
                for (uint half_span = BATCH / 2u; half_span > 0u; half_span >>= 1) {
                    if (runs[low + half_span] >> 8 <= from - at) low += half_span;
                }
                uint value = 0u;
                for (uint p = from; p < to; p++) {
                    if (low + 1u < BATCH && runs[low + 1u] >> 8 <= p - at) low += 1u;
                    value |= (runs[low] & 255u) << (8u * (p & 3u));
                }
                // Several batches share this word, which has been cleared.
                if (to - from == 4u) {
                    out[word] = value;
                } else {
                    atomic_or(&out[word], value);
                }
            }
            team_sync(team);
            at = batch_end;
            run += BATCH;
        }
        segment += 1u;
    }
}
