// From suffixes sorted by their first characters to all suffixes sorted, by prefix doubling (Manber and Myers, "Suffix
// arrays: a new method for on-line string searches", 1990; the rank of a group is where it begins, as in Larsson and
// Sadakane, "Faster suffix sorting", 2007).
//
// A suffix's rank is the number of suffixes in the groups before its own, where a group is what the sort so far cannot
// tell apart: suffixes with the same first `depth` characters. A suffix alone in its group is done. The others are in a
// list of small groups, or in one of large groups, of more than GROUP: element e of the small list is at index e of the
// block's part of the arrays, element e of the large list at index slot - 1 - e. Together they are at most as long as
// the block. A round takes the rank of the suffix `depth` on as an element's key (1 more, and 0 for the empty suffix),
// sorts each group by it, and so doubles the depth. All elements of a group are at least `depth` long.
//
// Small groups are sorted in workgroup memory, where each element counts the smaller ones of its group. Large ones go
// through the radix sort of `bwt_sort` by (high, low), with `high` the group's rank, whose low bits it can leave out.
// Each tile of either list reserves room in the lists of the next round with an atomic addition: the order of
// groups in a list is left to chance, and matters to nothing.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 4
//   buffers: sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_rank=N*4, sort_state=1088
//   local_mem: 19456
//   note: 28 bytes a byte: two copies of the elements, and ranks
// }

// @pz_import team

const GROUP = 1u << GROUP_LOG;
const TILE = 1024u;
const WINDOW = TILE + GROUP;
const ROWS = WINDOW / 32u;
const STATE_WORDS = 272u;
const STATE_LEN = 0u;
const STATE_SMALL = 1u;
const STATE_LARGE = 2u;
const NONE = 0xffffffffu;
const FIRST_DEPTH = 8u;

struct Args { slot: u32, parts: u32, parity: u32, depth: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> small_position: array<u32>;
@group(0) @binding(1) var<storage, read> small_rank: array<u32>;
@group(0) @binding(2) var<storage, read_write> small_low: array<u32>;
@group(0) @binding(3) var<storage, read> small_state: array<u32>;

// The keys of the small list's elements.
@compute @workgroup_size(THREADS)
fn gather_small(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let group = wg.y * wgs.x + wg.x;
    let parts = args.parts;
    let block = group / parts;
    if block >= arrayLength(&small_state) / STATE_WORDS {
        return;
    }
    let len = small_state[block * STATE_WORDS + STATE_LEN];
    let count = small_state[block * STATE_WORDS + STATE_SMALL + 2u * args.parity];
    let base = block * args.slot;
    for (var e = group % parts * THREADS + index; e < count; e += parts * THREADS) {
        let p = small_position[base + e] + args.depth;
        var key = 0u;
        if p < len {
            key = small_rank[base + p] + 1u;
        }
        small_low[base + e] = key;
    }
}

@group(0) @binding(0) var<storage, read> large_high: array<u32>;
@group(0) @binding(1) var<storage, read> large_position: array<u32>;
@group(0) @binding(2) var<storage, read_write> large_high_out: array<u32>;
@group(0) @binding(3) var<storage, read_write> large_low_out: array<u32>;
@group(0) @binding(4) var<storage, read_write> large_position_out: array<u32>;
@group(0) @binding(5) var<storage, read> large_rank: array<u32>;
@group(0) @binding(6) var<storage, read_write> large_state: array<u32>;

// The keys of the large list's elements, which move to the other copy. The next round's lists become empty.
@compute @workgroup_size(THREADS)
fn gather_large(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let group = wg.y * wgs.x + wg.x;
    let parts = args.parts;
    let part = group % parts;
    let block = group / parts;
    if block >= arrayLength(&large_state) / STATE_WORDS {
        return;
    }
    let slot = args.slot;
    let len = large_state[block * STATE_WORDS + STATE_LEN];
    let count = large_state[block * STATE_WORDS + STATE_LARGE + 2u * args.parity];
    if part == 0u && index < 2u {
        large_state[block * STATE_WORDS + STATE_SMALL + 2u * (1u - args.parity) + index] = 0u;
    }
    let base = block * slot;
    for (var e = part * THREADS + index; e < count; e += parts * THREADS) {
        let at = base + slot - 1u - e;
        let p = large_position[at];
        var key = 0u;
        if p + args.depth < len {
            key = large_rank[base + p + args.depth] + 1u;
        }
        large_high_out[at] = large_high[at];
        large_low_out[at] = key;
        large_position_out[at] = p;
    }
}

@group(0) @binding(0) var<storage, read> high: array<u32>;
@group(0) @binding(1) var<storage, read> low: array<u32>;
@group(0) @binding(2) var<storage, read> position: array<u32>;
@group(0) @binding(3) var<storage, read_write> high_out: array<u32>;
@group(0) @binding(4) var<storage, read_write> position_out: array<u32>;
@group(0) @binding(5) var<storage, read_write> rank: array<u32>;
@group(0) @binding(6) var<storage, read_write> state: array<atomic<u32>>;

var<workgroup> shared_count: u32;
var<workgroup> heads: array<u32, WINDOW>;
var<workgroup> keys: array<u32, WINDOW>;
// In order; NONE where there is nothing to keep.
var<workgroup> new_heads: array<u32, WINDOW>;
var<workgroup> new_positions: array<u32, WINDOW>;
// Bits: elements to keep in the small list, and in the large one.
var<workgroup> small: array<u32, ROWS>;
var<workgroup> large: array<u32, ROWS>;
var<workgroup> small_before: array<u32, ROWS>;
var<workgroup> large_before: array<u32, ROWS>;
var<workgroup> small_room: u32;
var<workgroup> large_room: u32;

// Sorts the small groups, sets the ranks, and keeps the groups that remain.
@compute @workgroup_size(THREADS)
fn order_small(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(index);
    let group = wg.y * wgs.x + wg.x;
    let parts = args.parts;
    let block = group / parts;
    if block >= arrayLength(&state) / STATE_WORDS {
        return;
    }
    if index == 0u {
        shared_count = atomicLoad(&state[block * STATE_WORDS + STATE_SMALL + 2u * args.parity]);
    }
    let count = workgroupUniformLoad(&shared_count);
    let reserve = block * STATE_WORDS + STATE_SMALL + 2u * (1u - args.parity);
    let tiles = (count + TILE - 1u) / TILE;
    let base = block * args.slot;
    for (var tile = group % parts; tile < tiles; tile += parts) {
        // Groups that begin in the tile, of which the last may end behind it.
        let first = base + tile * TILE;
        let limit = min(count - tile * TILE, WINDOW);
        for (var i = index; i < WINDOW; i += THREADS) {
            if i < limit {
                heads[i] = high[first + i];
                keys[i] = low[first + i];
            }
            new_heads[i] = NONE;
        }
        let continued = tile > 0u && high[select(first, first - 1u, tile > 0u)] == high[first];
        workgroupBarrier();
        for (var i = index; i < limit; i += THREADS) {
            let head = heads[i];
            let key = keys[i];
            var less = 0u;
            var before = 0u;
            var after = 0u;
            var start = i;
            while start > 0u {
                if heads[start - 1u] != head {
                    break;
                }
                start--;
                less += select(0u, 1u, keys[start] < key);
                before += select(0u, 1u, keys[start] == key);
            }
            if start >= TILE || (start == 0u && continued) {
                continue;
            }
            for (var j = i + 1u; j < limit; j++) {
                if heads[j] != head {
                    break;
                }
                less += select(0u, 1u, keys[j] < key);
                after += select(0u, 1u, keys[j] == key);
            }
            let p = position[first + i];
            if less > 0u {
                rank[base + p] = head + less;
            }
            if before + after > 0u {
                new_heads[start + less + before] = head + less;
                new_positions[start + less + before] = p;
            }
        }
        workgroupBarrier();
        for (var r = 0u; r < ROWS; r += TEAMS) {
            let row = r + team_index;
            let i = row * 32u + lane;
            let bits = team_ballot(row < ROWS && new_heads[min(i, WINDOW - 1u)] != NONE);
            if lane == 0u && row < ROWS {
                small[row] = bits;
            }
        }
        workgroupBarrier();
        for (var row = index; row < ROWS; row += THREADS) {
            var sum = 0u;
            for (var r = 0u; r < row; r++) {
                sum += countOneBits(small[r]);
            }
            small_before[row] = sum;
            if row == ROWS - 1u {
                small_room = atomicAdd(&state[reserve], sum + countOneBits(small[row]));
            }
        }
        workgroupBarrier();
        for (var i = index; i < limit; i += THREADS) {
            let bits = small[i >> 5u];
            let bit = 1u << (i & 31u);
            if (bits & bit) != 0u {
                let to = base + small_room + small_before[i >> 5u] + countOneBits(bits & (bit - 1u));
                high_out[to] = new_heads[i];
                position_out[to] = new_positions[i];
            }
        }
        workgroupBarrier();
    }
}

// Bits: first elements of groups, and of the groups of the round before.
var<workgroup> starts: array<u32, ROWS>;
var<workgroup> old_starts: array<u32, ROWS>;
// The last first element in the rows before, as a place in the list, and the first one in the rows behind.
var<workgroup> start_before: array<u32, ROWS>;
var<workgroup> old_before: array<u32, ROWS>;
var<workgroup> next_start: array<u32, ROWS>;

// Whether element f of the sorted large list is in the group of an element behind it that has these keys. Groups are
// those of the round before if `old`. Element e is at last - e.
fn together(last: u32, f: u32, h: u32, l: u32, longest: u32, old: bool) -> bool {
    let at = last - f;
    return high[at] == h && (old || low[at] == l) && position[at] <= longest;
}

// The first element of the group of element e. All lanes look together: first at distances of powers of two, then at
// 32 places of what is left.
fn first_of(last: u32, e: u32, longest: u32, old: bool) -> u32 {
    let h = high[last - e];
    let l = low[last - e];
    // A suffix shorter than the depth is alone.
    if team_any(position[last - e] > longest) {
        return e;
    }
    let reach = 1u << lane;
    var is_in = reach <= e;
    if is_in {
        is_in = together(last, e - reach, h, l, longest, old);
    }
    let steps = firstTrailingBit(~team_ballot(is_in));
    if steps == 0u {
        return e;
    }
    // The first known to be in the group, and the first that may be.
    var first = e - (1u << (steps - 1u));
    var least = 0u;
    if e >= 1u << steps {
        least = e - (1u << steps) + 1u;
    }
    for (var i = 0u; i < 8u; i++) {
        if least >= first {
            break;
        }
        let step = (first - least + 31u) / 32u;
        let at = least + lane * step;
        is_in = at >= first;
        if !is_in {
            is_in = together(last, at, h, l, longest, old);
        }
        let ins = team_ballot(is_in);
        if ins == 0u {
            least += 31u * step + 1u;
        } else {
            let from_lane = firstTrailingBit(ins);
            first = min(first, least + from_lane * step);
            if from_lane > 0u {
                least += (from_lane - 1u) * step + 1u;
            }
        }
    }
    return first;
}

// Finds the groups in the sorted large list, sets the ranks, and keeps the groups that remain as large or small ones.
// INITIAL: the list is that of all suffixes, sorted by their first FIRST_DEPTH characters.
@compute @workgroup_size(THREADS)
fn classify(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(index);
    let group = wg.y * wgs.x + wg.x;
    let parts = args.parts;
    let slot = args.slot;
    let block = group / parts;
    if block >= arrayLength(&state) / STATE_WORDS {
        return;
    }
    if index == 0u {
        shared_count = atomicLoad(&state[block * STATE_WORDS + STATE_LARGE + 2u * args.parity]);
    }
    let count = workgroupUniformLoad(&shared_count);
    let reserve = block * STATE_WORDS + STATE_SMALL + 2u * (1u - args.parity);
    let tiles = (count + TILE - 1u) / TILE;
    let base = block * slot;
    let last = base + slot - 1u;
    // Positions behind `longest` are those of suffixes shorter than the depth, where there are such.
    var longest = NONE;
    var all_short = false;
// @pz_if INITIAL
    all_short = count < FIRST_DEPTH;
    longest = max(count, FIRST_DEPTH) - FIRST_DEPTH;
// @pz_end
    for (var tile = group % parts; tile < tiles; tile += parts) {
        let begin = tile * TILE;
        let limit = min(count - begin, WINDOW);
        for (var r = 0u; r < ROWS; r += TEAMS) {
            let row = r + team_index;
            let i = row * 32u + lane;
            var is_start = false;
            var is_old = false;
            if row < ROWS && i < limit {
                let e = last - (begin + i);
                let f = select(e, e + 1u, begin + i > 0u);
                is_old = begin + i == 0u || high[e] != high[f];
                is_start = is_old || low[e] != low[f] || all_short || position[e] > longest || position[f] > longest;
            }
            let bits = team_ballot(is_start);
            let old_bits = team_ballot(is_old);
            if lane == 0u && row < ROWS {
                starts[row] = bits;
                old_starts[row] = old_bits;
            }
        }
        var carried = begin;
        if !all_short {
            carried = first_of(last, begin, longest, false);
        }
        var old_carried = 0u;
// @pz_if INITIAL
// @pz_else
        old_carried = first_of(last, begin, longest, true);
// @pz_end
        workgroupBarrier();
        for (var row = index; row < ROWS; row += THREADS) {
            var start = carried;
            var old_start = old_carried;
            for (var r = 0u; r < row; r++) {
                if starts[r] != 0u {
                    start = begin + r * 32u + firstLeadingBit(starts[r]);
                }
                if old_starts[r] != 0u {
                    old_start = begin + r * 32u + firstLeadingBit(old_starts[r]);
                }
            }
            var next = select(NONE, begin + limit, limit < WINDOW);
            for (var r = ROWS - 1u; r > row; r--) {
                if starts[r] != 0u {
                    next = begin + r * 32u + firstTrailingBit(starts[r]);
                }
            }
            start_before[row] = start;
            old_before[row] = old_start;
            next_start[row] = next;
        }
        workgroupBarrier();
        for (var r = 0u; r < ROWS; r += TEAMS) {
            let row = r + team_index;
            let i = row * 32u + lane;
            var is_small = false;
            var is_large = false;
            if row < ROWS && i < limit {
                let to_here = 0xffffffffu >> (31u - lane);
                let row_begin = begin + row * 32u;
                let bits = starts[row] & to_here;
                var start = start_before[row];
                if bits != 0u {
                    start = row_begin + firstLeadingBit(bits);
                }
                let behind = starts[row] & ~to_here;
                var next = next_start[row];
                if behind != 0u {
                    next = row_begin + firstTrailingBit(behind);
                }
                var head = start;
                var is_new = true;
// @pz_if INITIAL
// @pz_else
                let old_bits = old_starts[row] & to_here;
                var old_start = old_before[row];
                if old_bits != 0u {
                    old_start = row_begin + firstLeadingBit(old_bits);
                }
                head = high[last - (begin + i)] + (start - old_start);
                is_new = start != old_start;
// @pz_end
                let size = next - start;
                if i < TILE && is_new {
                    rank[base + position[last - (begin + i)]] = head;
                }
                heads[i] = head;
                is_small = size > 1u && size <= GROUP && start >= begin && start < begin + TILE;
                is_large = size > GROUP && i < TILE;
            }
            let small_bits = team_ballot(is_small);
            let large_bits = team_ballot(is_large);
            if lane == 0u && row < ROWS {
                small[row] = small_bits;
                large[row] = large_bits;
            }
        }
        workgroupBarrier();
        for (var row = index; row < ROWS; row += THREADS) {
            var small_sum = 0u;
            var large_sum = 0u;
            for (var r = 0u; r < row; r++) {
                small_sum += countOneBits(small[r]);
                large_sum += countOneBits(large[r]);
            }
            small_before[row] = small_sum;
            large_before[row] = large_sum;
            if row == ROWS - 1u {
                small_room = atomicAdd(&state[reserve], small_sum + countOneBits(small[row]));
                large_room = atomicAdd(&state[reserve + 1u], large_sum + countOneBits(large[row]));
            }
        }
        workgroupBarrier();
        for (var i = index; i < limit; i += THREADS) {
            let row = i >> 5u;
            let bit = 1u << (i & 31u);
            if (small[row] & bit) != 0u {
                let to = base + small_room + small_before[row] + countOneBits(small[row] & (bit - 1u));
                high_out[to] = heads[i];
                position_out[to] = position[last - (begin + i)];
            } else if (large[row] & bit) != 0u {
                let to = last - (large_room + large_before[row] + countOneBits(large[row] & (bit - 1u)));
                high_out[to] = heads[i];
                position_out[to] = position[last - (begin + i)];
            }
        }
        workgroupBarrier();
    }
}
