// Sorts all suffixes, given their order by first characters, by prefix doubling (Manber and Myers, "Suffix arrays: a
// new method for on-line string searches", 1990; a group's rank is its beginning, as in Larsson and Sadakane, "Faster
// suffix sorting", 2007).
//
// A group is a set of suffixes that the sort cannot tell apart yet: they have the same first `depth` characters. A
// suffix's rank is the number of suffixes in the groups before its own. A suffix alone in its group is done. Every
// other suffix is in the list of small groups or, if its group has more than GROUP elements, in the list of large
// groups. Element e of the small list is at index e of the block's part of the arrays, element e of the large list at
// index slot - 1 - e. Together the lists are at most as long as the block.
//
// A round gives each element the key 1 + the rank of the suffix `depth` on (0 for the empty suffix), sorts each group
// by key, and so doubles the depth. All elements of a group are at least `depth` long.
//
// A small group is sorted in workgroup memory, where each element counts the smaller ones of its group. The radix sort
// of bwt/sort sorts large groups by (high, low): `high` is the group's rank, whose low bits the sort can leave out.
// Each tile of either list reserves room in the lists of the next round with an atomic addition. The order of groups in
// a list is unspecified and irrelevant.
//
// @pz_cost {
//   threads: max(min(N/896*256, 262144), N/896*32)
//   passes: 1+2*log2(N/8)
//   buffers: sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_rank=N*4, sort_state=1088
//   local_mem: 4740
//   note: two copies of the elements, and the ranks, take 28 bytes for each byte
// }

// @pz_import team
// @pz_import bwt_sort_state

const GROUP = 1u << GROUP_LOG;
const WINDOW = 1024u;
const TILE = WINDOW - GROUP;
// The window's rows of 32 elements, as many rows as a team has lanes, and the rows of each team.
const ROWS = 32u;
const ROWS_OF_TEAM = ROWS / TEAMS;
const NONE = 0xffffffffu;
const FIRST_DEPTH = 8u;

struct Args { slot: u32, parts: u32, parity: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> high: array<u32>;
@group(0) @binding(1) var<storage, read> low: array<u32>;
@group(0) @binding(2) var<storage, read> position: array<u32>;
@group(0) @binding(3) var<storage, read_write> high_out: array<u32>;
@group(0) @binding(4) var<storage, read_write> position_out: array<u32>;
@group(0) @binding(5) var<storage, read_write> rank: array<u32>;
@group(0) @binding(6) var<storage, read_write> state: array<atomic<u32>>;

var<workgroup> shared_count: u32;
var<workgroup> keys: array<u32, WINDOW>;
// Bits: first elements of groups, and of the previous round's groups.
var<workgroup> starts: array<u32, ROWS>;
var<workgroup> old_starts: array<u32, ROWS>;
// One bit for each place in the order of small groups: whether to keep it.
var<workgroup> kept: array<atomic<u32>, ROWS>;
// Bits: elements to keep in the small list, and in the large one.
var<workgroup> small: array<u32, ROWS>;
var<workgroup> large: array<u32, ROWS>;
var<workgroup> small_before: array<u32, ROWS>;
var<workgroup> large_before: array<u32, ROWS>;
var<workgroup> small_room: u32;
var<workgroup> large_room: u32;
// Where the tile's first group, and that of the previous round, begin in the list.
var<workgroup> carried: u32;
var<workgroup> old_carried: u32;

// The last element whose bit is set, up to this lane of this row; `none` if there is none. `rows` tells which rows have
// bits, and `before` holds the bits of the last earlier row that has some.
fn last_up_to(bits: u32, rows: u32, before: u32, row: u32, none: u32) -> u32 {
    let own = bits & (0xffffffffu >> (31u - lane));
    if own != 0u {
        return row * 32u + firstLeadingBit(own);
    }
    let rows_before = rows & ((1u << row) - 1u);
    return select(none, firstLeadingBit(rows_before) * 32u + firstLeadingBit(before), rows_before != 0u);
}

// The row that `last_up_to` needs.
fn row_before(rows: u32, row: u32) -> u32 {
    return min(firstLeadingBit(rows & ((1u << row) - 1u)), ROWS - 1u);
}

// The first element after this lane whose bit is set; `none` if there is none.
fn first_behind(bits: u32, rows: u32, behind: u32, row: u32, none: u32) -> u32 {
    let own = bits & (0xfffffffeu << lane);
    if own != 0u {
        return row * 32u + firstTrailingBit(own);
    }
    let rows_behind = rows & (0xfffffffeu << row);
    return select(none, firstTrailingBit(rows_behind) * 32u + firstTrailingBit(behind), rows_behind != 0u);
}

fn row_behind(rows: u32, row: u32) -> u32 {
    return min(firstTrailingBit(rows & (0xfffffffeu << row)), ROWS - 1u);
}

// Sorts the small groups, sets the ranks, and keeps the groups that remain.
// @pz_entry
fn order_small(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&state) / STATE_WORDS {
        return;
    }
    if local_index == 0u {
        shared_count = atomicLoad(&state[block * STATE_WORDS + STATE_SMALL + 2u * args.parity]);
    }
    let count = workgroupUniformLoad(&shared_count);
    let reserve = block * STATE_WORDS + STATE_SMALL + 2u * (1u - args.parity);
    let tiles = (count + TILE - 1u) / TILE;
    let base = block * args.slot;
    for (var tile = workgroup_index % parts; tile < tiles; tile += parts) {
        // Take the groups that begin in the tile. The last one may end after it.
        let begin = tile * TILE;
        let limit = min(count - begin, WINDOW);
        var heads: array<u32, ROWS_OF_TEAM>;
        var heads_before: array<u32, ROWS_OF_TEAM>;
        var own_keys: array<u32, ROWS_OF_TEAM>;
        var positions: array<u32, ROWS_OF_TEAM>;
        for (var k = 0u; k < ROWS_OF_TEAM; k++) {
            let i = (k * TEAMS + team_index) * 32u + lane;
            let e = begin + min(i, limit - 1u);
            heads[k] = high[base + e];
            heads_before[k] = high[base + max(e, 1u) - 1u];
            own_keys[k] = low[base + e];
            positions[k] = position[base + e];
        }
        for (var k = 0u; k < ROWS_OF_TEAM; k++) {
            let row = k * TEAMS + team_index;
            let i = row * 32u + lane;
            keys[i] = own_keys[k];
            let bits = team_ballot(i < limit && (begin + i == 0u || heads[k] != heads_before[k]));
            if lane == 0u {
                starts[row] = bits;
                atomicStore(&kept[row], 0u);
            }
        }
        workgroupBarrier();
        let rows = team_ballot(starts[lane] != 0u);
        for (var k = 0u; k < ROWS_OF_TEAM; k++) {
            let row = k * TEAMS + team_index;
            let i = row * 32u + lane;
            var start = last_up_to(starts[row], rows, starts[row_before(rows, row)], row, NONE);
            if i >= limit {
                start = NONE;
            }
            let end = first_behind(starts[row], rows, starts[row_behind(rows, row)], row, limit);
            let own_key = own_keys[k];
            var less = 0u;
            var before = 0u;
            var same = 0u;
            // This leaves out elements whose `start` is NONE.
            if start < TILE {
                for (var j = start; j < end; j++) {
                    let key = keys[j];
                    less += select(0u, 1u, key < own_key);
                    same += select(0u, 1u, key == own_key);
                    before += select(0u, 1u, key == own_key && j < i);
                }
                if less > 0u {
                    rank[base + positions[k]] = heads[k] + less;
                }
            }
            heads[k] += less;
            own_keys[k] = NONE; // from here on, the element's place if it is kept
            if same > 1u {
                let place = start + less + before;
                own_keys[k] = place;
                atomicOr(&kept[place >> 5u], 1u << (place & 31u));
            }
        }
        workgroupBarrier();
        let own = countOneBits(atomicLoad(&kept[lane]));
        let upto = team_scan(own);
        if local_index == lane {
            small_before[lane] = upto - own;
        }
        if local_index == 31u {
            small_room = atomicAdd(&state[reserve], upto);
        }
        workgroupBarrier();
        for (var k = 0u; k < ROWS_OF_TEAM; k++) {
            let place = own_keys[k];
            if place != NONE {
                let row = place >> 5u;
                let bits = atomicLoad(&kept[row]) & ((1u << (place & 31u)) - 1u);
                let to = base + small_room + small_before[row] + countOneBits(bits);
                high_out[to] = heads[k];
                position_out[to] = positions[k];
            }
        }
        workgroupBarrier();
    }
}

// Whether element f of the sorted large list is in the group of a later element with these keys. If `old`, groups are
// those of the previous round. Element e is at last - e.
fn together(last: u32, f: u32, h: u32, l: u32, longest: u32, old: bool) -> bool {
    let at = last - f;
    return high[at] == h && (old || low[at] == l) && position[at] <= longest;
}

// The first element of the group of element e. All lanes search together: first at distances of powers of two, then
// at 32 places of the remaining range.
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
    // The first element known to be in the group, and the first that may be.
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

// Finds the groups in the sorted large list, sets the ranks, and keeps the remaining groups in the large or small
// list. INITIAL: the list holds all suffixes, sorted by their first FIRST_DEPTH characters.
// @pz_entry
fn classify(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let parts = args.parts;
    let slot = args.slot;
    let block = workgroup_index / parts;
    if block >= arrayLength(&state) / STATE_WORDS {
        return;
    }
    if local_index == 0u {
        shared_count = atomicLoad(&state[block * STATE_WORDS + STATE_LARGE + 2u * args.parity]);
    }
    let count = workgroupUniformLoad(&shared_count);
    let reserve = block * STATE_WORDS + STATE_SMALL + 2u * (1u - args.parity);
    let tiles = (count + TILE - 1u) / TILE;
    let base = block * slot;
    let last = base + slot - 1u;
    // Positions after `longest` belong to suffixes shorter than the depth, if there are any.
    var longest = NONE;
    var all_short = false;
// @pz_if INITIAL
    all_short = count < FIRST_DEPTH;
    longest = max(count, FIRST_DEPTH) - FIRST_DEPTH;
// @pz_end
    for (var tile = workgroup_index % parts; tile < tiles; tile += parts) {
        let begin = tile * TILE;
        let limit = min(count - begin, WINDOW);
        var heads: array<u32, ROWS_OF_TEAM>;
        var heads_before: array<u32, ROWS_OF_TEAM>;
        var own_keys: array<u32, ROWS_OF_TEAM>;
        var keys_before: array<u32, ROWS_OF_TEAM>;
        var positions: array<u32, ROWS_OF_TEAM>;
        var positions_before: array<u32, ROWS_OF_TEAM>;
        for (var k = 0u; k < ROWS_OF_TEAM; k++) {
            let i = (k * TEAMS + team_index) * 32u + lane;
            let e = begin + min(i, limit - 1u);
            let f = max(e, 1u) - 1u;
            heads[k] = high[last - e];
            heads_before[k] = high[last - f];
            own_keys[k] = low[last - e];
            keys_before[k] = low[last - f];
            positions[k] = position[last - e];
// @pz_if INITIAL
            positions_before[k] = position[last - f];
// @pz_end
        }
        for (var k = 0u; k < ROWS_OF_TEAM; k++) {
            let row = k * TEAMS + team_index;
            let i = row * 32u + lane;
            let is_old = begin + i == 0u || heads[k] != heads_before[k];
            var is_start = is_old || own_keys[k] != keys_before[k];
// @pz_if INITIAL
            is_start = is_start || all_short || positions[k] > longest || positions_before[k] > longest;
// @pz_end
            let bits = team_ballot(is_start && i < limit);
            let old_bits = team_ballot(is_old && i < limit);
            if lane == 0u {
                starts[row] = bits;
                old_starts[row] = old_bits;
            }
        }
        // One team searches for the first group of this round, another for that of the previous round.
// @pz_if TEAM_LOCAL
        {
// @pz_else
        if team_index == 0u {
// @pz_end
            let first = first_of(last, begin, longest, false);
            if lane == 0u {
                carried = select(first, begin, all_short);
            }
        }
// @pz_if INITIAL
// @pz_else
// @pz_if TEAM_LOCAL
        {
// @pz_else
        if team_index == 1u % TEAMS {
// @pz_end
            let first = first_of(last, begin, longest, true);
            if lane == 0u {
                old_carried = first;
            }
        }
// @pz_end
        workgroupBarrier();
        let rows = team_ballot(starts[lane] != 0u);
        let old_rows = team_ballot(old_starts[lane] != 0u);
        for (var k = 0u; k < ROWS_OF_TEAM; k++) {
            let row = k * TEAMS + team_index;
            let i = row * 32u + lane;
            let place = last_up_to(starts[row], rows, starts[row_before(rows, row)], row, NONE);
            let start = select(begin + place, carried, place == NONE);
            // The end of a group that continues after the window does not matter: the group is large.
            let none = select(2u * WINDOW, limit, limit < WINDOW);
            let next = begin + first_behind(starts[row], rows, starts[row_behind(rows, row)], row, none);
            var is_new = true;
// @pz_if INITIAL
            heads[k] = start;
// @pz_else
            let old_place = last_up_to(old_starts[row], old_rows, old_starts[row_before(old_rows, row)], row, NONE);
            let old_start = select(begin + old_place, old_carried, old_place == NONE);
            is_new = start != old_start;
            heads[k] += start - old_start;
// @pz_end
            let valid = i < limit;
            let size = next - start;
            if valid && i < TILE && is_new {
                rank[base + positions[k]] = heads[k];
            }
            let is_small = valid && size > 1u && size <= GROUP && start >= begin && start < begin + TILE;
            let is_large = valid && size > GROUP && i < TILE;
            let small_bits = team_ballot(is_small);
            let large_bits = team_ballot(is_large);
            if lane == 0u {
                small[row] = small_bits;
                large[row] = large_bits;
            }
        }
        workgroupBarrier();
        let own_small = countOneBits(small[lane]);
        let own_large = countOneBits(large[lane]);
        let small_upto = team_scan(own_small);
        let large_upto = team_scan(own_large);
        if local_index == lane {
            small_before[lane] = small_upto - own_small;
            large_before[lane] = large_upto - own_large;
        }
        if local_index == 31u {
            small_room = atomicAdd(&state[reserve], small_upto);
            large_room = atomicAdd(&state[reserve + 1u], large_upto);
        }
        workgroupBarrier();
        for (var k = 0u; k < ROWS_OF_TEAM; k++) {
            let row = k * TEAMS + team_index;
            let bit = 1u << lane;
            if (small[row] & bit) != 0u {
                let to = base + small_room + small_before[row] + countOneBits(small[row] & (bit - 1u));
                high_out[to] = heads[k];
                position_out[to] = positions[k];
            } else if (large[row] & bit) != 0u {
                let to = last - (large_room + large_before[row] + countOneBits(large[row] & (bit - 1u)));
                high_out[to] = heads[k];
                position_out[to] = positions[k];
            }
        }
        workgroupBarrier();
    }
}
