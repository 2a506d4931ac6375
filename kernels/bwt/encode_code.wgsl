// Writes the words of each segment of a payload (`codec/bwt/segments.rs`).
//
// @pz_cost {
//   threads: (N/8192+1)/32*32
//   passes: 1
//   buffers: jobs=32, sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4, encode_state=256,
//            encode_segments=N/8192*32+32, encode_starts=393216
//   local_mem: 0
//   note: a lane for each segment; sort_position_a holds its words, at most as many as it has bytes
// }

// @pz_import bwt_encode

struct Args { slot: u32, parts: u32 }
var<immediate> args: Args;

// The state x after adding a token with this interval. The quotient by a number below 2^13 is computed 16 bits at a
// time.
fn put(x: vec2<u32>, interval: u32) -> vec2<u32> {
    let d = interval >> 16u;
    let high = x.y / d;
    let middle = (x.y - high * d) << 16u | x.x >> 16u;
    let q1 = middle / d;
    let low = (middle - q1 * d) << 16u | (x.x & 0xffffu);
    let q0 = low / d;
    let rest = low - q0 * d;
    return add64(shl64(vec2(q1 << 16u | q0, high), 12u), vec2(rest + (interval & 0xffffu), 0u));
}

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> begins: array<u32>;
@group(0) @binding(2) var<storage, read> infos: array<u32>;
@group(0) @binding(3) var<storage, read> intervals: array<u32>;
@group(0) @binding(4) var<storage, read_write> state: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> segments: array<u32>;
@group(0) @binding(6) var<storage, read_write> words: array<u32>;

// Each lane codes a segment and writes its words backward, from the end of the segment's space.
// @pz_entry
fn code(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let s = workgroup_index % args.parts * THREADS + local_index;
    let segment_count = atomicLoad(&state[block * ENCODE_STATE + ENCODE_SEGMENTS]);
    if s >= segment_count {
        return;
    }
    let base = block * args.slot;
    let segment = segments_at(block, args.slot) + s * SEGMENT_WORDS;
    let tables = (block * SETS + segments[segment + SEGMENT_SET]) * CELLS;
    let first = segments[segment + SEGMENT_RUN];
    let least = segments[segment + SEGMENT_BEGIN];
    var end = atomicLoad(&state[block * ENCODE_STATE + ENCODE_RUNS]);
    var most = jobs[block * 8u];
    if s + 1u < segment_count {
        end = segments[segment + SEGMENT_WORDS + SEGMENT_RUN];
        most = segments[segment + SEGMENT_WORDS + SEGMENT_BEGIN];
    }
    var to = most;
    var is_full = false;
    var x = vec2(1u, 0u);
    // Load a run's data two runs ahead, and its intervals one run ahead.
    var begin = begins[base + end - 1u];
    var info = infos[base + end - 1u];
    var next_rank = rank_token(info >> 8u & 255u);
    var next_lasts = run_token(most - begin);
    var next_rank_interval = intervals[tables + (info >> 16u & 255u) * 32u + next_rank.token];
    var next_run_interval = intervals[tables + (RANK_CONTEXTS + (info >> 24u)) * 32u + next_lasts.token];
    var behind = begin;
    begin = begins[base + max(end, first + 2u) - 2u];
    info = infos[base + max(end, first + 2u) - 2u];
    for (var after = end; after > first; after--) {
        let rank = next_rank;
        let lasts = next_lasts;
        let rank_interval = next_rank_interval;
        let run_interval = next_run_interval;
        next_rank = rank_token(info >> 8u & 255u);
        next_lasts = run_token(behind - begin);
        next_rank_interval = intervals[tables + (info >> 16u & 255u) * 32u + next_rank.token];
        next_run_interval = intervals[tables + (RANK_CONTEXTS + (info >> 24u)) * 32u + next_lasts.token];
        behind = begin;
        let next = max(after, first + 3u) - 3u;
        begin = begins[base + next];
        info = infos[base + next];
        if lasts.bits > 0u {
            if (x.y >> ((32u - lasts.bits) & 31u)) != 0u {
                if to > least {
                    to--;
                    words[base + to] = x.x;
                } else {
                    is_full = true;
                }
                x = vec2(x.y, 0u);
            }
            if lasts.bits == 32u {
                x = vec2(lasts.raw, x.x);
            } else {
                x = shl64(x, lasts.bits);
                x.x |= lasts.raw;
            }
        }
        if x.y >> (8u - rank.bits) >= (rank_interval >> 16u) * (run_interval >> 16u) {
            if to > least {
                to--;
                words[base + to] = x.x;
            } else {
                is_full = true;
            }
            x = vec2(x.y, 0u);
        }
        x = shl64(put(x, run_interval), rank.bits);
        x.x |= rank.raw;
        x = put(x, rank_interval);
    }
    for (var half = 0u; half < 2u; half++) {
        if half == 0u || x.y != 0u {
            if to > least {
                to--;
                words[base + to] = select(x.y, x.x, half == 0u);
            } else {
                is_full = true;
            }
        }
    }
    segments[segment + SEGMENT_CODED] = most - to;
    if is_full {
        atomicOr(&state[block * ENCODE_STATE + ENCODE_FULL], 1u);
    }
}
