// Finds the contexts of runs from the histories of their symbols, and counts each token in each context
// (`codec/bwt/segments.rs`).
//
// @pz_cost {
//   threads: N/8192*256+256
//   passes: 2
//   buffers: jobs=32, sort_high_a=N*4, sort_low_a=N*4, encode_state=256, encode_segments=N/8192*32+32,
//            encode_lists=N/8192*256+256, encode_counts=N/8192*24576+24576
//   local_mem: 24580
//   note: 16-bit counts of all tokens in all contexts, for each segment
// }

// @pz_import team
// @pz_import bwt_encode

struct Args { slot: u32, parts: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> begins: array<u32>;
@group(0) @binding(2) var<storage, read_write> infos: array<u32>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read> segments: array<u32>;
@group(0) @binding(5) var<storage, read> lists: array<u32>;
var<workgroup> histories: array<u32, TEAMS * 256u>;

// One team per segment. The low halves of histories hold averages of ranks, the high halves averages of lengths.
// @pz_entry
fn contexts(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let base = block * args.slot;
    let len = jobs[block * 8u];
    let runs = state[block * ENCODE_STATE + ENCODE_RUNS];
    let segment_count = state[block * ENCODE_STATE + ENCODE_SEGMENTS];
    let at_segments = segments_at(block, args.slot);
    let at_lists = lists_at(block, args.slot);
    let own = team_index * 256u;
    let first_segment = team_uniform(workgroup_index % parts * TEAMS + team_index);
    for (var s = first_segment; s < segment_count; s += parts * TEAMS) {
        let first = team_uniform(segments[at_segments + s * SEGMENT_WORDS + SEGMENT_RUN]);
        var behind = runs;
        if s + 1u < segment_count {
            behind = segments[at_segments + (s + 1u) * SEGMENT_WORDS + SEGMENT_RUN];
        }
        let end = team_uniform(behind);
        for (var i = lane; i < 256u; i += 32u) {
            let symbol = lists[at_lists + s * 64u + (i >> 2u)] >> (8u * (i & 3u)) & 255u;
            histories[own + symbol] = log_scale(i + 1u) << 8u | 8u << 24u;
        }
        team_sync();
        var all = 24u << 8u | 10u << 24u;
        for (var begin = first; begin < end; begin += 32u) {
            let run = begin + lane;
            let is_valid = run < end;
            var info = 0u;
            var length = 1u;
            if is_valid {
                info = infos[base + run];
                var next = len;
                if run + 1u < runs {
                    next = begins[base + run + 1u];
                }
                length = next - begins[base + run];
            }
            let symbol = info & 255u;
            let rank = max(info >> 8u & 255u, 1u);
            let step = log_scale(rank) << 5u | log_scale(length) << 21u;
            var global_before = 0u;
            for (var k = 0u; k < 32u; k++) {
                let other = team_shuffle(step, k);
                global_before = select(global_before, all, lane == k);
                all = all - (all >> 3u & 0x1fff1fffu) + other;
            }
            // Runs of the same symbol take turns.
            let same = team_match(select(256u + lane, symbol, is_valid), 9u);
            let turn = countOneBits(same & team_before());
            let turns = team_max(turn);
            var history = 0u;
            for (var k = 0u; k <= turns; k++) {
                if is_valid && turn == k {
                    history = histories[own + symbol];
                    histories[own + symbol] = history - (history >> 3u & 0x1fff1fffu) + step;
                }
                team_sync();
            }
            let h = history & 0xffffu;
            let g = global_before & 0xffffu;
            let rank_context = min((h * 6u + g * 2u) >> 13u, 31u) * 4u + min(g >> 13u, 3u);
            let run_context =
                min(((history >> 16u) * 7u + (global_before >> 16u)) >> 12u, 31u) * 8u + min(h >> 11u, 7u);
            if is_valid {
                infos[base + run] = info | rank_context << 16u | run_context << 24u;
            }
        }
        team_sync();
    }
}

@group(0) @binding(2) var<storage, read> count_infos: array<u32>;
@group(0) @binding(4) var<storage, read_write> count_segments: array<u32>;
@group(0) @binding(5) var<storage, read_write> counts: array<u32>;
var<workgroup> bins: array<atomic<u32>, CELLS / 2u>;
var<workgroup> cells: atomic<u32>;

// Counts the tokens of each segment. One workgroup per segment.
// @pz_entry
fn count(local_index: u32, workgroup_index: u32) {
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let base = block * args.slot;
    let len = jobs[block * 8u];
    let runs = state[block * ENCODE_STATE + ENCODE_RUNS];
    let segment_count = state[block * ENCODE_STATE + ENCODE_SEGMENTS];
    let at_segments = segments_at(block, args.slot);
    let at_counts = counts_at(block, args.slot);
    for (var s = workgroup_index % parts; s < segment_count; s += parts) {
        let segment = at_segments + s * SEGMENT_WORDS;
        let first = count_segments[segment + SEGMENT_RUN];
        var end = runs;
        var last_byte = len;
        if s + 1u < segment_count {
            end = count_segments[segment + SEGMENT_WORDS + SEGMENT_RUN];
            last_byte = count_segments[segment + SEGMENT_WORDS + SEGMENT_BEGIN];
        }
        for (var i = local_index; i < CELLS / 2u; i += THREADS) {
            atomicStore(&bins[i], 0u);
        }
        if local_index == 0u {
            atomicStore(&cells, 0u);
        }
        workgroupBarrier();
        for (var run = first + local_index; run < end; run += THREADS) {
            let info = count_infos[base + run];
            var next = len;
            if run + 1u < runs {
                next = begins[base + run + 1u];
            }
            let length = next - begins[base + run];
            let a = (info >> 16u & 255u) * 32u + rank_token(info >> 8u & 255u).token;
            let b = (RANK_CONTEXTS + (info >> 24u)) * 32u + run_token(length).token;
            atomicAdd(&bins[a >> 1u], 1u << (16u * (a & 1u)));
            atomicAdd(&bins[b >> 1u], 1u << (16u * (b & 1u)));
        }
        workgroupBarrier();
        var mine = 0u;
        for (var i = local_index; i < CELLS / 2u; i += THREADS) {
            let v = atomicLoad(&bins[i]);
            counts[at_counts + s * (CELLS / 2u) + i] = v;
            mine += select(0u, 1u, (v & 0xffffu) != 0u) + select(0u, 1u, v >> 16u != 0u);
        }
        atomicAdd(&cells, mine);
        workgroupBarrier();
        if local_index == 0u {
            count_segments[segment + SEGMENT_CELLS] = atomicLoad(&cells);
            count_segments[segment + SEGMENT_DENSITY] =
                ((end - first) << 16u) / (last_byte - count_segments[segment + SEGMENT_BEGIN]);
        }
        workgroupBarrier();
    }
}
