// Cuts the transform of each block into runs, and the runs into segments (`codec/bwt/runs.rs`).
//
// sort_high_a: where each run begins. sort_low_a: the run's symbol; later also rank << 8 | rank context << 16 | length
// context << 24. A segment has eight words: its first run, its first byte, and words that later kernels add.
//
// @pz_cost {
//   threads: max(min(N/1024*256, 65536), N/1024*32)
//   passes: 4
//   buffers: jobs=32, transform=N, sort_counts=N/4+1024, sort_high_a=N*4, sort_low_a=N*4,
//            encode_state=256, encode_segments=N/8192*32+32
//   local_mem: 292
//   note: reuses the arrays of the sort
// }

// @pz_import team
// @pz_import tile_scan
// @pz_import bwt_encode

const TILE = 1024u;
const ROWS = 32u;

struct Args { slot: u32, parts: u32, segment_log: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> transform: array<u32>;
@group(0) @binding(2) var<storage, read_write> tile_counts: array<u32>;
@group(0) @binding(3) var<storage, read_write> used_state: array<atomic<u32>>;
var<workgroup> sum: atomic<u32>;
var<workgroup> used: array<atomic<u32>, 8>;

fn counts_words(slot: u32) -> u32 {
    return slot / 16u + 256u;
}

// Byte p of the block whose transform begins at `base`.
fn byte_at(base: u32, p: u32) -> u32 {
    return transform[(base + p) >> 2u] >> (8u * (p & 3u)) & 255u;
}

// Whether a run begins at position p.
fn is_start(base: u32, len: u32, p: u32) -> bool {
    if p >= len {
        return false;
    }
    if p == 0u {
        return true;
    }
    return byte_at(base, p) != byte_at(base, p - 1u);
}

// Counts the runs that begin in each tile, and notes which symbols occur.
// @pz_entry
fn count_runs(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let base = block * args.slot;
    let len = jobs[block * 8u];
    let tiles = (len + TILE - 1u) / TILE;
    for (var tile = workgroup_index % parts; tile < tiles; tile += parts) {
        if local_index == 0u {
            atomicStore(&sum, 0u);
        }
        for (var i = local_index; i < 8u; i += THREADS) {
            atomicStore(&used[i], 0u);
        }
        workgroupBarrier();
        for (var r = 0u; r < ROWS; r += TEAMS) {
            let p = (tile * ROWS + r + team_index) * 32u + lane;
            let starts = is_start(base, len, p);
            let bits = team_ballot(starts);
            if lane == 0u {
                atomicAdd(&sum, countOneBits(bits));
            }
            if starts {
                let c = byte_at(base, p);
                atomicOr(&used[c >> 5u], 1u << (c & 31u));
            }
        }
        workgroupBarrier();
        if local_index == 0u {
            tile_counts[block * counts_words(args.slot) + tile] = atomicLoad(&sum);
        }
        for (var i = local_index; i < 8u; i += THREADS) {
            atomicOr(&used_state[block * ENCODE_STATE + ENCODE_USED + i], atomicLoad(&used[i]));
        }
        workgroupBarrier();
    }
}

@group(0) @binding(1) var<storage, read_write> scanned: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;

// Sums up the counts. One team per block.
// @pz_entry
fn scan_runs(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let block = workgroup_index;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let tiles = (jobs[block * 8u] + TILE - 1u) / TILE;
    let total = scan_tiles(block * counts_words(args.slot), tiles);
    if lane == 0u {
        state[block * ENCODE_STATE + ENCODE_RUNS] = total;
    }
}

@group(0) @binding(2) var<storage, read> counts: array<u32>;
@group(0) @binding(3) var<storage, read_write> begins: array<u32>;
@group(0) @binding(4) var<storage, read_write> infos: array<u32>;

// Writes the beginnings of runs, and their symbols.
// @pz_entry
fn write_runs(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let base = block * args.slot;
    let len = jobs[block * 8u];
    let tiles = (len + TILE - 1u) / TILE;
    for (var tile = workgroup_index % parts; tile < tiles; tile += parts) {
        // Every team looks at all rows, and each lane keeps the bits of the row with its own number.
        var mine = 0u;
        for (var row = 0u; row < ROWS; row++) {
            let p = (tile * ROWS + row) * 32u + lane;
            let bits = team_ballot(is_start(base, len, p));
            mine = select(mine, bits, lane == row);
        }
        let of_row = countOneBits(mine);
        let before = counts[block * counts_words(args.slot) + tile] + team_scan(of_row) - of_row;
        for (var r = 0u; r < ROWS; r += TEAMS) {
            let row = r + team_index;
            let first = team_shuffle(before, row);
            let bits = team_shuffle(mine, row);
            if (bits >> lane & 1u) != 0u {
                let to = base + first + countOneBits(bits & team_before());
                let p = (tile * ROWS + row) * 32u + lane;
                begins[to] = p;
                infos[to] = byte_at(base, p);
            }
        }
    }
}

@group(0) @binding(0) var<storage, read> cut_begins: array<u32>;
@group(0) @binding(1) var<storage, read_write> cut_state: array<u32>;
@group(0) @binding(2) var<storage, read_write> segments: array<u32>;

// Cuts the runs into segments: at the first run that begins at least 1 << segment_log bytes on, or after
// ENCODE_SEGMENT_RUNS runs. One team per block, which looks at 32 runs at a time.
// @pz_entry
fn cut(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let block = workgroup_index;
    if block >= arrayLength(&cut_state) / ENCODE_STATE {
        return;
    }
    let base = block * args.slot;
    let at_segments = segments_at(block, args.slot);
    let runs = team_uniform(cut_state[block * ENCODE_STATE + ENCODE_RUNS]);
    var run = 0u;
    var count = 0u;
    while run < runs && count < most_segments(args.slot) {
        let begin = cut_begins[base + run];
        if lane == 0u {
            segments[at_segments + count * SEGMENT_WORDS + SEGMENT_RUN] = run;
            segments[at_segments + count * SEGMENT_WORDS + SEGMENT_BEGIN] = begin;
        }
        count++;
        // Find the first run in `low` to `high` that begins at or after the end.
        let end = begin + (1u << args.segment_log);
        var low = run + 1u;
        var high = min(run + ENCODE_SEGMENT_RUNS, runs);
        for (var i = 0u; i < 8u; i++) {
            if low >= high {
                break;
            }
            let step = (high - low + 31u) / 32u;
            let at = low + lane * step;
            var is_reached = at >= high;
            if !is_reached {
                is_reached = cut_begins[base + at] >= end;
            }
            let reached = team_ballot(is_reached);
            if reached == 0u {
                low += 31u * step + 1u;
            } else {
                let first = firstTrailingBit(reached);
                high = min(high, low + first * step);
                if first > 0u {
                    low += (first - 1u) * step + 1u;
                }
            }
        }
        run = high;
    }
    if lane == 0u {
        cut_state[block * ENCODE_STATE + ENCODE_SEGMENTS] = count;
    }
}
