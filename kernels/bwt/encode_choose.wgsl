// Chooses which segments share a set of tables and which contexts of a set share a table, and builds the tables
// (`codec/bwt/choose.rs` and `tables.rs`).
//
// encode_tables: the cost of each token in each context of each set, in 1/256 bit; finally the exponents.
// encode_starts: each token's interval, start | frequency << 16.
// encode_fresh: the contexts that begin a table.
//
// @pz_cost {
//   threads: max(6144, N/8192*256+256)
//   passes: 18
//   buffers: jobs=32, encode_state=256, encode_segments=N/8192*32+32, encode_counts=N/8192*24576+24576,
//            encode_sums=393216, encode_tables=393216, encode_starts=393216, encode_fresh=12288
//   local_mem: 17424
//   note: eight sets of tables for each block, however short
// }

// @pz_import team
// @pz_import bwt_encode

struct Args { slot: u32, parts: u32 }
var<immediate> args: Args;

// log2 of x, at least 1, in units of 1/65536, from its first 13 bits.
fn log2_of(x: u32) -> u32 {
    let e = firstLeadingBit(x);
    var y = x;
    if e >= 12u {
        y = x >> (e - 12u);
    } else {
        y = x << (12u - e);
    }
    y = y << 19u;
    var log = 0u;
    for (var i = 0u; i < 16u; i++) {
        let square = mul64(y, y);
        log = log << 1u | square.y >> 31u;
        y = select(square.y << 1u | square.x >> 31u, square.y, square.y >> 31u != 0u);
    }
    return e << 16u | log;
}

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read_write> new_state: array<u32>;
@group(0) @binding(2) var<storage, read_write> new_segments: array<u32>;
var<workgroup> set_count: u32;

// Chooses the number of sets, and makes the first grouping of segments, by the length of their runs. One workgroup per
// block.
// @pz_entry
fn prepare(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let at_segments = segments_at(block, args.slot);
    let count = new_state[block * ENCODE_STATE + ENCODE_SEGMENTS];
    if local_index == 0u {
        let sets = clamp(count / 48u, 1u, SETS);
        // Keep a segment's counts while there is room for the most that it could have.
        var limit = 0u;
        if sets > 1u {
            limit = jobs[block * 8u] / 4u;
        }
        var cells = 0u;
        for (var s = 0u; s < count; s++) {
            let is_kept = cells + CELLS <= limit;
            if is_kept {
                cells += new_segments[at_segments + s * SEGMENT_WORDS + SEGMENT_CELLS];
            }
            new_segments[at_segments + s * SEGMENT_WORDS + SEGMENT_KEPT] = select(0u, 1u, is_kept);
        }
        new_state[block * ENCODE_STATE + ENCODE_SETS] = sets;
        set_count = sets;
    }
    storageBarrier();
    workgroupBarrier();
    for (var s = local_index; s < count; s += THREADS) {
        let density = new_segments[at_segments + s * SEGMENT_WORDS + SEGMENT_DENSITY];
        var place = 0u;
        for (var o = 0u; o < count; o++) {
            let other = new_segments[at_segments + o * SEGMENT_WORDS + SEGMENT_DENSITY];
            place += select(0u, 1u, other < density || (other == density && o < s));
        }
        let is_kept = new_segments[at_segments + s * SEGMENT_WORDS + SEGMENT_KEPT] != 0u;
        new_segments[at_segments + s * SEGMENT_WORDS + SEGMENT_SET] =
            select(0u, place * set_count / count, is_kept);
    }
}

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> segments: array<u32>;
@group(0) @binding(2) var<storage, read> counts: array<u32>;
@group(0) @binding(3) var<storage, read_write> set_sums: array<u32>;

// Sums the counts of each set's segments. Each work item sums two cells.
// @pz_entry
fn sums(local_index: u32, workgroup_index: u32) {
    let parts = CELLS / 2u / THREADS;
    let block = workgroup_index / parts;
    if block >= arrayLength(&state) / ENCODE_STATE {
        return;
    }
    let cell = workgroup_index % parts * THREADS + local_index;
    let at_segments = segments_at(block, args.slot);
    let at_counts = counts_at(block, args.slot);
    let count = state[block * ENCODE_STATE + ENCODE_SEGMENTS];
    var low: array<u32, SETS>;
    var high: array<u32, SETS>;
    for (var s = 0u; s < count; s++) {
        let of_set = segments[at_segments + s * SEGMENT_WORDS + SEGMENT_SET] & 7u;
        let v = counts[at_counts + s * (CELLS / 2u) + cell];
        low[of_set] += v & 0xffffu;
        high[of_set] += v >> 16u;
    }
    for (var k = 0u; k < SETS; k++) {
        let to = (block * SETS + k) * CELLS + cell * 2u;
        set_sums[to] = low[k];
        set_sums[to + 1u] = high[k];
    }
}

@group(0) @binding(0) var<storage, read> of_sets: array<u32>;
@group(0) @binding(1) var<storage, read_write> new_costs: array<u32>;
@group(0) @binding(2) var<storage, read> cost_state: array<u32>;

// Computes the cost of each token with the tables of each set, adding half a count to each token.
// @pz_entry
fn costs(local_index: u32, workgroup_index: u32) {
    let parts = SETS * CONTEXTS / THREADS;
    let block = workgroup_index / parts;
    if block >= arrayLength(&cost_state) / ENCODE_STATE {
        return;
    }
    let context = workgroup_index % parts * THREADS + local_index;
    if context >= cost_state[block * ENCODE_STATE + ENCODE_SETS] * CONTEXTS {
        return;
    }
    let base = block * SETS * CELLS + context * 32u;
    var total = 32u;
    for (var t = 0u; t < 32u; t++) {
        total += 2u * of_sets[base + t];
    }
    let log = log2_of(total);
    for (var t = 0u; t < 32u; t++) {
        new_costs[base + t] = (log - log2_of(2u * of_sets[base + t] + 1u)) >> 8u;
    }
}

@group(0) @binding(1) var<storage, read_write> set_segments: array<u32>;
@group(0) @binding(3) var<storage, read> set_costs: array<u32>;
var<workgroup> cost_sums: array<atomic<u32>, SETS>;

// Gives each segment the cheapest set of tables; among equal ones, the first. One workgroup per segment.
// @pz_entry
fn assign(local_index: u32, workgroup_index: u32) {
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&state) / ENCODE_STATE {
        return;
    }
    let count = state[block * ENCODE_STATE + ENCODE_SEGMENTS];
    let sets = state[block * ENCODE_STATE + ENCODE_SETS];
    if sets == 1u {
        return;
    }
    let at_segments = segments_at(block, args.slot);
    let at_counts = counts_at(block, args.slot);
    let at_costs = block * SETS * CELLS;
    for (var s = workgroup_index % parts; s < count; s += parts) {
        for (var k = local_index; k < SETS; k += THREADS) {
            atomicStore(&cost_sums[k], 0u);
        }
        workgroupBarrier();
        var mine: array<u32, SETS>;
        for (var i = local_index; i < CELLS / 2u; i += THREADS) {
            let v = counts[at_counts + s * (CELLS / 2u) + i];
            if v != 0u {
                for (var k = 0u; k < sets; k++) {
                    let at = at_costs + k * CELLS + i * 2u;
                    mine[k] += (v & 0xffffu) * set_costs[at] + (v >> 16u) * set_costs[at + 1u];
                }
            }
        }
        for (var k = 0u; k < sets; k++) {
            atomicAdd(&cost_sums[k], mine[k]);
        }
        workgroupBarrier();
        if local_index == 0u && set_segments[at_segments + s * SEGMENT_WORDS + SEGMENT_KEPT] != 0u {
            var best = 0u;
            for (var k = 1u; k < sets; k++) {
                if atomicLoad(&cost_sums[k]) < atomicLoad(&cost_sums[best]) {
                    best = k;
                }
            }
            set_segments[at_segments + s * SEGMENT_WORDS + SEGMENT_SET] = best;
        }
        workgroupBarrier();
    }
}

@group(0) @binding(1) var<storage, read_write> exponents: array<u32>;
@group(0) @binding(2) var<storage, read_write> intervals: array<u32>;
@group(0) @binding(3) var<storage, read_write> fresh: array<u32>;
@group(0) @binding(4) var<storage, read> share_state: array<u32>;
// At end * (end - 1) / 2 + begin: the cost of rows begin to end - 1 with one table.
var<workgroup> range_costs: array<vec2<u32>, TEAMS * 528u>;
var<workgroup> cuts: array<u32, TEAMS * 33u>;

// Cuts a column of contexts into ranges that share a table, at the least cost, and builds the tables. One team per
// column of a set: there are four columns of ranks and eight of lengths. A lane first handles the row at which a range
// begins, then a token.
// @pz_entry
fn share(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let parts = SETS * 12u / TEAMS;
    let block = workgroup_index / parts;
    if block >= arrayLength(&share_state) / ENCODE_STATE {
        return;
    }
    let at = workgroup_index % parts * TEAMS + team_index;
    let of_set = at / 12u;
    let column = at % 12u;
    let columns = select(8u, 4u, column < 4u);
    let first = select(RANK_CONTEXTS + column - 4u, column, column < 4u);
    let own = team_index * 528u;
    let own_cuts = team_index * 33u;
    let base = (block * SETS + of_set) * CELLS;
    let is_there = of_set < share_state[block * ENCODE_STATE + ENCODE_SETS];
    if is_there {
        var so_far: array<u32, 32>;
        for (var row = lane; row < 32u; row++) {
            var total = 0u;
            var described = 8u;
            var counted = vec2(0u, 0u);
            for (var t = 0u; t < 32u; t++) {
                let count = so_far[t] + of_sets[base + (first + row * columns) * 32u + t];
                so_far[t] = count;
                if count > 0u {
                    total += count;
                    described += 4u;
                    counted = add64(counted, mul64(count, log2_of(count)));
                }
            }
            var cost = vec2(0u, 0u);
            if total > 0u {
                cost = add64(sub64(mul64(total, log2_of(total)), counted), vec2(described << 16u, 0u));
            }
            range_costs[own + (row + 1u) * row / 2u + lane] = cost;
        }
    }
    workgroupBarrier();
    if is_there && lane == 0u {
        var best: array<vec2<u32>, 33>;
        best[0] = vec2(0u, 0u);
        for (var end = 1u; end <= 32u; end++) {
            best[end] = vec2(0xffffffffu, 0xffffffffu);
            for (var begin = end; begin > 0u; begin--) {
                let cost = add64(best[begin - 1u], range_costs[own + end * (end - 1u) / 2u + begin - 1u]);
                if !less64(best[end], cost) {
                    best[end] = cost;
                    cuts[own_cuts + end] = begin - 1u;
                }
            }
        }
    }
    workgroupBarrier();
    var end = select(0u, 32u, is_there);
    for (var i = 0u; i < 32u; i++) {
        // All teams stay until the last round, for its barriers. Finished teams write nothing.
        var begin = 0u;
        if end > 0u {
            begin = cuts[own_cuts + end];
        }
        var count = 0u;
        for (var row = begin; row < end; row++) {
            count += of_sets[base + (first + row * columns) * 32u + lane];
        }
        let total = team_sum(count);
        var exponent = 0u;
        if count > 0u {
            let log = log2_of(count) + (12u << 16u);
            let of_total = log2_of(total);
            exponent = 1u + (((max(log, of_total) - of_total) * 3u + (1u << 15u)) >> 16u);
        }
        // The frequencies that the exponents represent.
        var weight = 0u;
        if exponent > 0u {
            let third = (exponent - 1u) % 3u;
            weight = select(select(104032u, 82570u, third == 1u), 65536u, third == 0u) << ((exponent - 1u) / 3u);
        }
        let low = team_sum(weight & 0xffffu);
        let high = team_sum(weight >> 16u);
        let sum = add64(vec2(low, 0u), vec2(high << 16u, high >> 16u));
        var freq = 0u;
        if exponent > 0u {
            var rest = add64(shl64(vec2(weight, 0u), 12u), vec2(sum.x >> 1u | sum.y << 31u, sum.y >> 1u));
            for (var bit = 13u; bit > 0u; bit--) {
                let part = shl64(sum, bit - 1u);
                if !less64(rest, part) {
                    rest = sub64(rest, part);
                    freq |= 1u << (bit - 1u);
                }
            }
            freq = max(freq, 1u);
        }
        let missing = 4096u - team_sum(freq);
        let most = team_max(freq);
        let largest = firstTrailingBit(team_ballot(freq == most));
        if lane == largest {
            freq += missing;
        }
        let start = team_scan(freq) - freq;
        for (var row = begin; row < end; row++) {
            let context = first + row * columns;
            exponents[base + context * 32u + lane] = exponent;
            intervals[base + context * 32u + lane] = start | freq << 16u;
            if lane == 0u {
                fresh[(block * SETS + of_set) * CONTEXTS + context] = select(0u, 1u, row == begin && total > 0u);
            }
        }
        end = begin;
    }
}
