// Finds LZ77 candidates in the order of suffixes, by the rule of codec::lz77::suffixes. bwt/sort has computed each
// position's rank in that order.
//
// A position's candidates are stored as distances back, the smallest first, padded with NONE. They are in `lz77_low`,
// where lz77/candidates puts the position's list afterwards. A position with fewer than eight bytes up to the block's
// end has none.
//
// @pz_cost {
//   threads: N
//   passes: 2
//   buffers: jobs=32, sort_rank=N*4, sort_position_a=N*4, lz77_low=N*16
//   local_mem: 0
// }

const NONE = 0xffffffffu;
// The number of suffixes to look at on each side.
const REACH = 32u;

// order: slot, blocks; neighbours: slot, blocks, window_log.
struct Args {
    slot: u32,
    blocks: u32,
    window_log: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
// order
@group(0) @binding(1) var<storage, read> rank: array<u32>;
@group(0) @binding(2) var<storage, read_write> ordered: array<u32>;
// neighbours
@group(0) @binding(1) var<storage, read> suffixes: array<u32>;
@group(0) @binding(2) var<storage, read_write> low: array<vec4<u32>>;

// A work item for each position: puts the positions in the order of their suffixes.
// @pz_entry
fn order(local_index: u32, workgroup_index: u32) {
    let groups = (args.slot + THREADS - 1u) / THREADS;
    let block = workgroup_index / groups;
    let pos = workgroup_index % groups * THREADS + local_index;
    if block >= args.blocks || pos >= jobs[block * 8u] {
        return;
    }
    let start = block * args.slot;
    ordered[start + rank[start + pos]] = pos;
}

// The distance to the first candidate on one side, in steps of `step` entries from place `place` on: a position before
// `pos` by at most `reach`. NONE if there is none.
fn nearest(place: u32, step: u32, count: u32, pos: u32, reach: u32) -> u32 {
    var at = place;
    for (var k = 0u; k < count; k++) {
        at += step;
        let distance = pos - suffixes[at];
        if distance - 1u < reach {
            return distance;
        }
    }
    return NONE;
}

// A work item for each suffix.
// @pz_entry
fn neighbours(local_index: u32, workgroup_index: u32) {
    let groups = (args.slot + THREADS - 1u) / THREADS;
    let block = workgroup_index / groups;
    let place = workgroup_index % groups * THREADS + local_index;
    if block >= args.blocks {
        return;
    }
    let len = jobs[block * 8u];
    if place >= len {
        return;
    }
    let start = block * args.slot;
    let pos = suffixes[start + place];
    if pos + 7u >= len {
        return;
    }
    let reach = pos & ((1u << args.window_log) - 1u);
    let after = nearest(start + place, 1u, min(REACH, len - 1u - place), pos, reach);
    let before = nearest(start + place, 0xffffffffu, min(REACH, place), pos, reach);
    low[start + pos] = vec4(min(after, before), max(after, before), NONE, NONE);
}
