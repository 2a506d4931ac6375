// Sorts all suffixes of each block by their first eight bytes, and lists of suffixes by pairs of numbers: a stable radix
// sort, lowest digit first, of (high, low) with the suffix's position. A pass counts the digits of each tile
// (`histogram`), sums the counts up (`scan`), and moves the elements (`scatter`): no workgroup waits for another.
//
// Each block has its own list. Element e of a list is at index slot - 1 - e of the block's part of the arrays, so that
// the lists of `bwt_sort_refine` can grow from the other end. Before the first pass the suffixes are in the order of
// their lengths, so a suffix that is cut off by the block's end, and padded with zeros, comes before longer ones with
// the same key.
//
// The state of a block: its length, the lengths of its lists in the order small, large for even and then for odd
// rounds, and from STATE_DIGITS on how many elements have each digit.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 25
//   buffers: jobs=32, contents=N,
//            sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_counts=N/4+1024, sort_state=1088
//   local_mem: 27648
//   note: 24 bytes a byte for two copies of the elements; counts of 256 digits for every tile of 4096 elements
// }

// @pz_import team

const TILE = 4096u;
const ITEMS = 16u;
const SUBTILE = THREADS * ITEMS;
const STATE_WORDS = 272u;
const STATE_LARGE = 2u;
const STATE_DIGITS = 16u;
const NO_DIGIT = 256u;

fn counts_words(slot: u32) -> u32 {
    return slot / 16u + 256u;
}

struct Args { slot: u32, parts: u32, which: u32, shift: u32, use_high: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read_write> new_high: array<u32>;
@group(0) @binding(3) var<storage, read_write> new_low: array<u32>;
@group(0) @binding(4) var<storage, read_write> new_position: array<u32>;
@group(0) @binding(5) var<storage, read_write> new_state: array<u32>;

// Four bytes from position p on as a number, the first the highest; those past the block's end are 0.
fn bytes_at(words: u32, p: u32, len: u32, slot: u32) -> u32 {
    if p >= len {
        return 0u;
    }
    let at = p >> 2u;
    let shift = (p & 3u) * 8u;
    var v = contents[words + at] >> shift;
    if shift > 0u && at + 1u < slot / 4u {
        v |= contents[words + at + 1u] << (32u - shift);
    }
    let left = len - p;
    if left < 4u {
        v &= (1u << (left * 8u)) - 1u;
    }
    return v << 24u | (v & 0xff00u) << 8u | (v >> 8u & 0xff00u) | v >> 24u;
}

@compute @workgroup_size(THREADS)
fn keys(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let group = wg.y * wgs.x + wg.x;
    let slot = args.slot;
    let parts = args.parts;
    let block = group / parts;
    let part = group % parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let len = jobs[block * 8u];
    if part == 0u {
        for (var i = index; i < STATE_DIGITS; i += THREADS) {
            new_state[block * STATE_WORDS + i] = select(0u, len, i == 0u || i == STATE_LARGE);
        }
    }
    let base = block * slot;
    for (var p = part * THREADS + index; p < len; p += parts * THREADS) {
        let at = base + slot - len + p;
        new_high[at] = bytes_at(base / 4u, p, len, slot);
        new_low[at] = bytes_at(base / 4u, p + 4u, len, slot);
        new_position[at] = p;
    }
}

@group(0) @binding(0) var<storage, read> key: array<u32>;
@group(0) @binding(1) var<storage, read_write> tile_counts: array<u32>;
@group(0) @binding(2) var<storage, read> lists: array<u32>;
var<workgroup> bins: array<atomic<u32>, 256>;

// Counts the digits at `shift` of the keys of each tile. `which` is where the state has the list's length.
@compute @workgroup_size(THREADS)
fn histogram(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(index);
    let group = wg.y * wgs.x + wg.x;
    let slot = args.slot;
    let parts = args.parts;
    let block = group / parts;
    let part = group % parts;
    if block >= arrayLength(&lists) / STATE_WORDS {
        return;
    }
    let count = lists[block * STATE_WORDS + args.which];
    let tiles = (count + TILE - 1u) / TILE;
    let last = block * slot + slot - 1u;
    let counts_base = block * counts_words(slot);
    for (var tile = part; tile < tiles; tile += parts) {
        for (var d = index; d < 256u; d += THREADS) {
            atomicStore(&bins[d], 0u);
        }
        workgroupBarrier();
        for (var i = 0u; i < TILE; i += THREADS) {
            let e = tile * TILE + i + index;
            var digit = NO_DIGIT;
            if e < count {
                digit = key[last - e] >> args.shift & 255u;
            }
            let same = team_match(digit, 9u);
            if (same & team_before()) == 0u && digit != NO_DIGIT {
                atomicAdd(&bins[digit], countOneBits(same));
            }
        }
        workgroupBarrier();
        for (var d = index; d < 256u; d += THREADS) {
            tile_counts[counts_base + d * tiles + tile] = atomicLoad(&bins[d]);
        }
        workgroupBarrier();
    }
}

@group(0) @binding(0) var<storage, read_write> sums: array<u32>;
@group(0) @binding(1) var<storage, read_write> digits: array<u32>;

// Turns each digit's counts into sums of those of the tiles before, and gives the state their total. A team takes a digit
// at a time.
@compute @workgroup_size(THREADS)
fn scan(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(index);
    let group = wg.y * wgs.x + wg.x;
    let parts = args.parts;
    let block = group / parts;
    if block >= arrayLength(&digits) / STATE_WORDS {
        return;
    }
    let tiles = team_uniform((digits[block * STATE_WORDS + args.which] + TILE - 1u) / TILE);
    if tiles == 0u {
        return;
    }
    for (var first = group % parts * TEAMS; first < 256u; first += parts * TEAMS) {
        let digit = first + team_index;
        let base = block * counts_words(args.slot) + digit * tiles;
        var sum = 0u;
        for (var t = 0u; t < tiles; t += 32u) {
            let tile = t + lane;
            var v = 0u;
            if tile < tiles {
                v = sums[base + tile];
            }
            let to = team_scan(v);
            if tile < tiles {
                sums[base + tile] = sum + to - v;
            }
            sum += team_broadcast(to, 31u);
        }
        if lane == 0u {
            digits[block * STATE_WORDS + STATE_DIGITS + digit] = sum;
        }
    }
}

@group(0) @binding(0) var<storage, read> high: array<u32>;
@group(0) @binding(1) var<storage, read> low: array<u32>;
@group(0) @binding(2) var<storage, read> position: array<u32>;
@group(0) @binding(3) var<storage, read_write> high_out: array<u32>;
@group(0) @binding(4) var<storage, read_write> low_out: array<u32>;
@group(0) @binding(5) var<storage, read_write> position_out: array<u32>;
@group(0) @binding(6) var<storage, read> counts: array<u32>;
@group(0) @binding(7) var<storage, read> state: array<u32>;
// Elements of a digit in the teams before; while a team counts, its own so far.
var<workgroup> ranks: array<u32, TEAMS * 256u>;
// Elements of each digit in this subtile.
var<workgroup> totals: array<u32, 256>;
// Elements of the digits before.
var<workgroup> firsts: array<u32, 256>;
// Where the first of a digit goes to.
var<workgroup> bases: array<u32, 256>;
var<workgroup> staged: array<u32, SUBTILE>;

fn key_of(at: u32) -> u32 {
    if args.use_high != 0u {
        return high[at];
    }
    return low[at];
}

fn other_key_of(at: u32) -> u32 {
    if args.use_high != 0u {
        return low[at];
    }
    return high[at];
}

// Moves the elements from the one list to where they belong in the other. Elements with one digit keep their order.
@compute @workgroup_size(THREADS)
fn scatter(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(index);
    let group = wg.y * wgs.x + wg.x;
    let slot = args.slot;
    let parts = args.parts;
    let shift = args.shift;
    let use_high = args.use_high != 0u;
    let block = group / parts;
    let part = group % parts;
    if block >= arrayLength(&state) / STATE_WORDS {
        return;
    }
    let count = state[block * STATE_WORDS + args.which];
    let tiles = (count + TILE - 1u) / TILE;
    // Element e is at last - e.
    let last = block * slot + slot - 1u;
    let counts_base = block * counts_words(slot);
    let own = team_index * 256u;
    for (var tile = part; tile < tiles; tile += parts) {
        // Every team sums the digits up, the first writes.
        var sum = 0u;
        for (var d = 0u; d < 256u; d += 32u) {
            let v = state[block * STATE_WORDS + STATE_DIGITS + d + lane];
            let s = team_scan(v);
            if team_index == 0u {
                bases[d + lane] = sum + s - v + counts[counts_base + (d + lane) * tiles + tile];
            }
            sum += team_broadcast(s, 31u);
        }
        for (var subtile = 0u; subtile < TILE; subtile += SUBTILE) {
            let begin = tile * TILE + subtile;
            let valid = min(max(count, begin) - begin, SUBTILE);
            for (var d = index; d < TEAMS * 256u; d += THREADS) {
                ranks[d] = 0u;
            }
            workgroupBarrier();

            // Each team ranks its own elements, 32 at a time.
            var to: array<u32, ITEMS>; // digit << 16 | rank in the team; then the place in the subtile
            for (var i = 0u; i < ITEMS; i++) {
                let e = (team_index * ITEMS + i) * 32u + lane;
                var digit = NO_DIGIT;
                if e < valid {
                    digit = key_of(last - (begin + e)) >> shift & 255u;
                }
                let same = team_match(digit, 9u);
                let before = countOneBits(same & team_before());
                var so_far = 0u;
                if digit != NO_DIGIT {
                    so_far = ranks[own + digit];
                }
                team_sync();
                if before == 0u && digit != NO_DIGIT {
                    ranks[own + digit] = so_far + countOneBits(same);
                }
                team_sync();
                to[i] = digit << 16u | (so_far + before);
            }
            workgroupBarrier();
            for (var d = index; d < 256u; d += THREADS) {
                var of_digit = 0u;
                for (var t = 0u; t < TEAMS; t++) {
                    let v = ranks[t * 256u + d];
                    ranks[t * 256u + d] = of_digit;
                    of_digit += v;
                }
                totals[d] = of_digit;
            }
            workgroupBarrier();
            var before_digit = 0u;
            for (var d = 0u; d < 256u; d += 32u) {
                let v = totals[d + lane];
                let s = team_scan(v);
                if team_index == 0u {
                    firsts[d + lane] = before_digit + s - v;
                }
                before_digit += team_broadcast(s, 31u);
            }
            workgroupBarrier();

            // Through workgroup memory, so that neighbours are written together.
            for (var i = 0u; i < ITEMS; i++) {
                let e = (team_index * ITEMS + i) * 32u + lane;
                if e < valid {
                    let digit = to[i] >> 16u;
                    to[i] = firsts[digit] + ranks[own + digit] + (to[i] & 0xffffu);
                    staged[to[i]] = key_of(last - (begin + e));
                }
            }
            workgroupBarrier();
            var goes: array<u32, ITEMS>;
            for (var i = 0u; i < ITEMS; i++) {
                let at = i * THREADS + index;
                if at < valid {
                    let k = staged[at];
                    let digit = k >> shift & 255u;
                    goes[i] = last - (bases[digit] + at - firsts[digit]);
                    if use_high {
                        high_out[goes[i]] = k;
                    } else {
                        low_out[goes[i]] = k;
                    }
                }
            }
            workgroupBarrier();
            for (var i = 0u; i < ITEMS; i++) {
                let e = (team_index * ITEMS + i) * 32u + lane;
                if e < valid {
                    staged[to[i]] = other_key_of(last - (begin + e));
                }
            }
            workgroupBarrier();
            for (var i = 0u; i < ITEMS; i++) {
                let at = i * THREADS + index;
                if at < valid {
                    if use_high {
                        low_out[goes[i]] = staged[at];
                    } else {
                        high_out[goes[i]] = staged[at];
                    }
                }
            }
            workgroupBarrier();
            for (var i = 0u; i < ITEMS; i++) {
                let e = (team_index * ITEMS + i) * 32u + lane;
                if e < valid {
                    staged[to[i]] = position[last - (begin + e)];
                }
            }
            workgroupBarrier();
            for (var i = 0u; i < ITEMS; i++) {
                let at = i * THREADS + index;
                if at < valid {
                    position_out[goes[i]] = staged[at];
                }
            }
            workgroupBarrier();
            for (var d = index; d < 256u; d += THREADS) {
                bases[d] += totals[d];
            }
            workgroupBarrier();
        }
    }
}
