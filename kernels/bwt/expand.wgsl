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

struct Args {
    slot: u32,
    blocks: u32,
    groups: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> results: array<u32>;
@group(0) @binding(1) var<storage, read> bwt_blocks: array<u32>;
@group(0) @binding(2) var<storage, read_write> list_words: array<u32>;

var<workgroup> current: array<u32, 64>;
var<workgroup> segment_count: u32;

// Replaces the labels in each segment's final list by bytes, which gives the next segment's first list. One workgroup
// of 64 per block.
// @pz_entry
fn lists(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index;
    if block >= args.blocks {
        return;
    }
    let info = block * BLOCK_WORDS;
    if local_index == 0u {
        segment_count = select(0u, bwt_blocks[info + BLOCK_SEGMENTS], results[block * RESULT_WORDS] == 0u);
    }
    let count = workgroupUniformLoad(&segment_count);
    let list = block * (args.slot / 16u + 64u) + local_index;
    var mine = bwt_blocks[info + BLOCK_LIST + local_index];
    for (var segment = 0u; segment < count; segment++) {
        let labels = list_words[list + segment * 64u];
        current[local_index] = mine;
        list_words[list + segment * 64u] = mine;
        workgroupBarrier();
        mine = 0u;
        for (var k = 0u; k < 4u; k++) {
            let label = (labels >> (8u * k)) & 255u;
            mine |= ((current[label >> 2u] >> (8u * (label & 3u))) & 255u) << (8u * k);
        }
        workgroupBarrier();
    }
}

@group(0) @binding(2) var<storage, read> bwt_segments: array<u32>;
@group(0) @binding(3) var<storage, read> bwt_lists: array<u32>;
@group(0) @binding(4) var<storage, read> bwt_links: array<u32>;
@group(0) @binding(5) var<storage, read_write> contents: array<atomic<u32>>;

const TILE = 4096u;
const BATCH = 128u;

var<workgroup> bytes: array<u32, TEAMS * 64u>;
var<workgroup> runs: array<u32, TEAMS * BATCH>;

// The index of the last of `count` segments that begins at or before `value`. The first always qualifies.
fn last_segment(segments: u32, count: u32, value: u32) -> u32 {
    var begin_at = 0u;
    var span = count;
    while span > 1u {
        let stride = (span + 31u) / 32u;
        let probe = lane * stride;
        var below = false;
        if probe < span {
            below = bwt_segments[segments + (begin_at + probe) * SEGMENT_WORDS] <= value;
        }
        let found = max(countOneBits(team_ballot(below)), 1u) - 1u;
        begin_at += found * stride;
        span = min(stride, span - found * stride);
    }
    return begin_at;
}

// The index of the last of `count` runs that begins at or before `value`. The first always qualifies.
fn last_run(runs: u32, count: u32, value: u32) -> u32 {
    var begin_at = 0u;
    var span = count;
    while span > 1u {
        let stride = (span + 31u) / 32u;
        let probe = lane * stride;
        var below = false;
        if probe < span {
            below = (bwt_links[runs + begin_at + probe] >> 8u) <= value;
        }
        let found = max(countOneBits(team_ballot(below)), 1u) - 1u;
        begin_at += found * stride;
        span = min(stride, span - found * stride);
    }
    return begin_at;
}

// Writes the transform, one team per tile.
// @pz_entry
fn expand(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let slot = args.slot;
    let tiles = (slot + TILE - 1u) / TILE;
    let index = team_uniform(workgroup_index * TEAMS + team_index);
    let block = index / tiles;
    if block >= args.blocks {
        return;
    }
    let info = block * BLOCK_WORDS;
    let segments = segments_at(block, slot);
    let out = block * (slot / 4u);
    var at = index % tiles * TILE;
    let is_good = results[block * RESULT_WORDS] == 0u;
    let tile_end = team_uniform(select(0u, min(at + TILE, bwt_blocks[info]), is_good));
    if at >= tile_end {
        return;
    }
    let count = team_uniform(bwt_blocks[info + BLOCK_SEGMENTS]);
    var segment = last_segment(segments, count, at);
    let my_bytes = team_index * 64u;
    let my_runs = team_index * BATCH;
    while at < tile_end && segment < count {
        let entry = segments + segment * SEGMENT_WORDS;
        let begin = team_uniform(bwt_segments[entry]);
        let end = team_uniform(bwt_segments[entry + 1u]);
        let run_count = team_uniform(bwt_segments[entry + 2u]);
        let its_runs = block * links_of(slot) + runs_at(begin, segment);
        let stop = min(end, tile_end);
        for (var i = lane; i < 64u; i += 32u) {
            bytes[my_bytes + i] = bwt_lists[block * (slot / 16u + 64u) + segment * 64u + i];
        }
        team_sync();
        var run = 0u;
        if at != begin {
            run = last_run(its_runs, run_count, at);
        }
        while at < stop && run < run_count {
            // Where runs begin, from `at` on, and their bytes.
            for (var i = lane; i < BATCH; i += 32u) {
                var packed = 0xffffff00u;
                if run + i < run_count {
                    packed = bwt_links[its_runs + run + i];
                    let begin_at = max(packed >> 8u, at) - at;
                    let label = packed & 255u;
                    let byte = (bytes[my_bytes + (label >> 2u)] >> (8u * (label & 3u))) & 255u;
                    packed = (min(begin_at, 65535u) << 8u) | byte;
                }
                runs[my_runs + i] = packed;
            }
            team_sync();
            var batch_end = end;
            if run + BATCH < run_count {
                batch_end = bwt_links[its_runs + run + BATCH] >> 8u;
            }
            batch_end = team_uniform(min(batch_end, stop));
            let last_word = (batch_end - 1u) / 4u;
            for (var word = at / 4u + lane; word <= last_word; word += 32u) {
                let begin_at = max(word * 4u, at);
                let to = min(word * 4u + 4u, batch_end);
                var low = my_runs;
                for (var half_span = BATCH / 2u; half_span > 0u; half_span >>= 1u) {
                    if (runs[low + half_span] >> 8u) <= begin_at - at {
                        low += half_span;
                    }
                }
                var value = 0u;
                for (var p = begin_at; p < to; p++) {
                    if low + 1u < my_runs + BATCH {
                        if (runs[low + 1u] >> 8u) <= p - at {
                            low += 1u;
                        }
                    }
                    value |= (runs[low] & 255u) << (8u * (p & 3u));
                }
                // Several batches share this word, which has been cleared.
                if to - begin_at == 4u {
                    atomicStore(&contents[out + word], value);
                } else {
                    atomicOr(&contents[out + word], value);
                }
            }
            team_sync();
            at = batch_end;
            run += BATCH;
        }
        segment += 1u;
    }
}
