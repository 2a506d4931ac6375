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

struct Args {
    slot: u32,
    blocks: u32,
    groups: u32,
    done: u32,
    most: u32,
}

var<immediate> args: Args;

const CHUNK = 8192u;

fn chunks_of(slot: u32) -> u32 {
    return (slot + CHUNK - 1u) / CHUNK;
}

fn counts_of(slot: u32) -> u32 {
    return slot / 32u + 256u;
}

// The place in the transform of a row.
fn place_of(row: u32, whole: u32) -> u32 {
    if row == whole {
        return 0u;
    }
    return row - select(0u, 1u, row > whole);
}

@group(0) @binding(0) var<storage, read> results: array<u32>;
@group(0) @binding(1) var<storage, read> bwt_blocks: array<u32>;
@group(0) @binding(2) var<storage, read> content_units: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> count_words: array<u32>;

// A block's length; 0 if the block is not decoded.
fn length_of(block: u32) -> u32 {
    return select(0u, bwt_blocks[block * BLOCK_WORDS], results[block * RESULT_WORDS] == 0u);
}

var<workgroup> counts: array<atomic<u32>, TEAMS * 256u>;

// Counts each byte's occurrences in each chunk. One team per chunk.
// @pz_entry
fn histogram(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let slot = args.slot;
    let chunks = chunks_of(slot);
    let index = team_uniform(workgroup_index * TEAMS + team_index);
    let block = index / chunks;
    if block >= args.blocks {
        return;
    }
    let begin = index % chunks * CHUNK;
    let n = team_uniform(length_of(block));
    if begin >= n {
        return;
    }
    let len = min(CHUNK, n - begin);
    let mine = team_index * 256u;
    for (var i = lane; i < 256u; i += 32u) {
        atomicStore(&counts[mine + i], 0u);
    }
    team_sync();
    let units = block * (slot / 16u) + begin / 16u;
    for (var i = lane; 16u * i < len; i += 32u) {
        let unit = content_units[units + i];
        var byte = unit.x & 255u;
        var count = 0u;
        for (var k = 0u; k < 16u; k++) {
            let next = (unit[k >> 2u] >> (8u * (k & 3u))) & 255u;
            if 16u * i + k < len {
                if next != byte {
                    atomicAdd(&counts[mine + byte], count);
                    byte = next;
                    count = 0u;
                }
                count += 1u;
            }
        }
        atomicAdd(&counts[mine + byte], count);
    }
    team_sync();
    let out = block * counts_of(slot) + (begin / CHUNK) * 256u;
    for (var i = lane; i < 256u; i += 32u) {
        count_words[out + i] = atomicLoad(&counts[mine + i]);
    }
}

@group(0) @binding(2) var<storage, read_write> row_words: array<u32>;

var<workgroup> totals: array<u32, 256>;

// Turns counts into the row of each byte's first occurrence in each chunk. One workgroup of 256 per block.
// @pz_entry
fn rows(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index;
    if block >= args.blocks {
        return;
    }
    let chunks = (length_of(block) + CHUNK - 1u) / CHUNK;
    let first = block * counts_of(args.slot) + local_index;
    var total = 0u;
    for (var i = 0u; i < chunks; i++) {
        total += row_words[first + i * 256u];
    }
    totals[local_index] = total;
    workgroupBarrier();
    for (var by = 1u; by < 256u; by <<= 1u) {
        var before = 0u;
        if local_index >= by {
            before = totals[local_index - by];
        }
        workgroupBarrier();
        totals[local_index] += before;
        workgroupBarrier();
    }
    var row = totals[local_index] - total + 1u;
    for (var i = 0u; i < chunks; i++) {
        let count = row_words[first + i * 256u];
        row_words[first + i * 256u] = row;
        row += count;
    }
}

@group(0) @binding(2) var<storage, read> bwt_rows: array<u32>;
@group(0) @binding(3) var<storage, read> contents: array<u32>;
@group(0) @binding(4) var<storage, read> bwt_counts: array<u32>;
@group(0) @binding(5) var<storage, read_write> link_words: array<u32>;

var<workgroup> next: array<u32, TEAMS * 257u>;

// Writes the links. One team per chunk.
// @pz_entry
fn link(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let slot = args.slot;
    let chunks = chunks_of(slot);
    let index = team_uniform(workgroup_index * TEAMS + team_index);
    let block = index / chunks;
    if block >= args.blocks {
        return;
    }
    let begin = index % chunks * CHUNK;
    let n = team_uniform(length_of(block));
    if begin >= n {
        return;
    }
    let len = min(CHUNK, n - begin);
    let whole = bwt_rows[block * (slot / 256u)];
    let mine = team_index * 257u;
    let first = block * counts_of(slot) + (begin / CHUNK) * 256u;
    for (var i = lane; i < 256u; i += 32u) {
        next[mine + i] = bwt_counts[first + i];
    }
    if lane == 0u {
        next[mine + 256u] = 0u;
    }
    team_sync();
    let from_word = block * (slot / 4u) + begin / 4u;
    let links = block * links_of(slot) + begin;
    for (var begin_at = 0u; begin_at < len; begin_at += 128u) {
        // Handle four rows at a time, so that their loads overlap.
        var bytes: array<u32, 4>;
        var same: array<u32, 4>;
        for (var k = 0u; k < 4u; k++) {
            let i = begin_at + 32u * k + lane;
            bytes[k] = 256u;
            if i < len {
                bytes[k] = (contents[from_word + (i >> 2u)] >> (8u * (i & 3u))) & 255u;
            }
        }
        for (var k = 0u; k < 4u; k++) {
            same[k] = team_match(bytes[k], 9u);
        }
        for (var k = 0u; k < 4u; k++) {
            let i = begin_at + 32u * k + lane;
            let row = next[mine + bytes[k]] + countOneBits(same[k] & team_before());
            team_sync();
            if (same[k] >> lane) == 1u {
                next[mine + bytes[k]] = row + 1u;
            }
            team_sync();
            if i < len {
                link_words[links + i] = (place_of(row, whole) << 8u) | bytes[k];
            }
        }
    }
}

@group(0) @binding(2) var<storage, read> links_read: array<u32>;
@group(0) @binding(3) var<storage, read_write> new_steps_low: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> new_steps_high: array<vec2<u32>>;

// Follows four links, and stores the place that they lead to and their bytes.
// @pz_entry
fn compose(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.groups;
    if block >= args.blocks {
        return;
    }
    let n = length_of(block);
    let links = block * links_of(args.slot);
    let half_slot = args.slot / 2u;
    var at = workgroup_index % args.groups * (4u * THREADS) + local_index;
    for (var k = 0u; k < 4u; k++) {
        if at < n {
            let link0 = links_read[links + at];
            let link1 = links_read[links + min(link0 >> 8u, n - 1u)];
            let link2 = links_read[links + min(link1 >> 8u, n - 1u)];
            let link3 = links_read[links + min(link2 >> 8u, n - 1u)];
            let bytes = (link0 << 24u) | ((link1 & 255u) << 16u) | ((link2 & 255u) << 8u) | (link3 & 255u);
            let step = vec2<u32>(link3 >> 8u, bytes);
            if at < half_slot {
                new_steps_low[block * half_slot + at] = step;
            } else {
                new_steps_high[block * half_slot + at - half_slot] = step;
            }
        }
        at += THREADS;
    }
}

@group(0) @binding(0) var<storage, read_write> walk_results: array<u32>;
@group(0) @binding(3) var<storage, read_write> bwt_walks: array<u32>;
@group(0) @binding(4) var<storage, read> bwt_links: array<u32>;
@group(0) @binding(5) var<storage, read> bwt_steps_low: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read> bwt_steps_high: array<vec2<u32>>;
@group(0) @binding(7) var<storage, read_write> walked: array<vec4<u32>>;

// The place that four steps lead to, and their bytes.
fn step_from(block: u32, place: u32) -> vec2<u32> {
    let half_slot = args.slot / 2u;
    let begin = block * half_slot;
    if place < half_slot {
        return bwt_steps_low[begin + place];
    }
    return bwt_steps_high[begin + place - half_slot];
}

// Each work item walks at most `most` bytes from its stored row, continuing where the previous dispatch ended (`done`
// bytes before the end of its stretch). It first checks that it has arrived at the right row.
// @pz_entry
fn walk(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.groups;
    if block >= args.blocks {
        return;
    }
    let index = workgroup_index % args.groups * THREADS + local_index;
    let info = block * BLOCK_WORDS;
    // A work item reports a failure at once. Work items that have not seen the report continue, which is harmless.
    if walk_results[block * RESULT_WORDS] != 0u || index >= bwt_blocks[info + BLOCK_STARTS] {
        return;
    }
    let slot = args.slot;
    let n = bwt_blocks[info];
    let start_log = bwt_blocks[info + BLOCK_START_LOG];
    let stored = block * (slot / 256u);
    // A dispatch walks at least 2^18 bytes, so only walks over stretches of 2^19 bytes or more are continued.
    let continued = block * ((slot + 524287u) / 524288u) + index;
    let links = block * links_of(slot);
    let begin = index << start_log;
    let end = min(n, begin + (1u << start_log));
    // Units of 16 bytes. The last one may be shorter.
    let unit_begin = begin / 16u;
    var unit = (end + 15u) / 16u;
    if args.done / 16u >= unit - unit_begin {
        return;
    }
    unit -= args.done / 16u;
    let unit_end = unit - min(unit - unit_begin, args.most / 16u);
    let whole = bwt_rows[stored];
    var place = 0u;
    if args.done == 0u {
        var row = whole;
        if end != n {
            row = bwt_rows[stored + index + 1u];
        }
        place = place_of(row, whole);
    } else {
        place = bwt_walks[continued];
    }
    let out = block * (slot / 16u);
    let odd = end & 15u;
    if args.done == 0u && odd != 0u {
        var bytes = vec4<u32>();
        for (var i = odd; i > 0u; i--) {
            let link = bwt_links[links + min(place, n - 1u)];
            bytes[(i - 1u) >> 2u] |= (link & 255u) << (8u * ((i - 1u) & 3u));
            place = link >> 8u;
        }
        unit -= 1u;
        walked[out + unit] = bytes;
    }
    while unit > unit_end {
        let step3 = step_from(block, min(place, n - 1u));
        let step2 = step_from(block, min(step3.x, n - 1u));
        let step1 = step_from(block, min(step2.x, n - 1u));
        let step0 = step_from(block, min(step1.x, n - 1u));
        place = step0.x;
        unit -= 1u;
        walked[out + unit] = vec4<u32>(step0.y, step1.y, step2.y, step3.y);
    }
    if unit > unit_begin {
        bwt_walks[continued] = place;
    } else if place != place_of(bwt_rows[stored + index], whole) {
        walk_results[block * RESULT_WORDS] = 40u;
    }
}
