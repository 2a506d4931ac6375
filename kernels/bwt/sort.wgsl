// A stable radix sort, lowest digit first, of elements (high, low) with a suffix's position. It sorts all suffixes of
// each block by their first eight bytes, and later lists of suffixes by pairs of numbers. A pass counts the digits of
// each tile (`histogram`), sums the counts (`scan`), and moves the elements (`scatter`). No workgroup waits for
// another.
//
// Each block has its own list. Element e of a list is at index slot - 1 - e of the block's part of the arrays, so
// that the small lists of bwt/sort_refine can grow from the other end. Before the first pass, the suffixes are
// ordered by length. So a suffix that the block's end cuts off, padded with zeros, comes before longer suffixes with
// the same key.
//
// @pz_cost {
//   threads: max(8192, max(min(N/4096*256, 65536), N/4096*32))
//   passes: 25+3*log2(N/8)*(1+2*(log2(N/128)/8))
//   buffers: jobs=32, contents=N,
//            sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_counts=N/4+1024, sort_state=1088
//   local_mem: 27712
//   note: two copies of the elements take 24 bytes for each byte; each tile of 4096 elements has counts of 256 digits;
//     WGSL takes 8 KB less workgroup memory
// }

// @pz_import team
// @pz_import tile_scan
// @pz_import bwt_sort_state

const TILE = 4096u;
const ITEMS = 16u;
const SUBTILE = THREADS * ITEMS;
// Counters of a digit, each for some of the lanes, so that equal digits in neighbouring lanes rarely contend.
const COUNTERS = 4u;
// Digits of a work item.
const DIGITS = 256u / THREADS;

fn counts_words(slot: u32) -> u32 {
    return slot / 16u + 256u;
}

struct Args { slot: u32, parts: u32, which: u32, shift: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read_write> new_high: array<u32>;
@group(0) @binding(3) var<storage, read_write> new_low: array<u32>;
@group(0) @binding(4) var<storage, read_write> new_position: array<u32>;
@group(0) @binding(5) var<storage, read_write> new_state: array<u32>;

// The four bytes from position p on as a number, the first byte on top. Bytes past the block's end are 0.
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

// @pz_entry
fn keys(local_index: u32, workgroup_index: u32) {
    let slot = args.slot;
    let parts = args.parts;
    let block = workgroup_index / parts;
    let part = workgroup_index % parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let len = jobs[block * 8u];
    if part == 0u {
        for (var i = local_index; i < STATE_DIGITS; i += THREADS) {
            new_state[block * STATE_WORDS + i] = select(0u, len, i == 0u || i == STATE_LARGE);
        }
    }
    let base = block * slot;
    for (var p = part * THREADS + local_index; p < len; p += parts * THREADS) {
        let at = base + slot - len + p;
        new_high[at] = bytes_at(base / 4u, p, len, slot);
        new_low[at] = bytes_at(base / 4u, p + 4u, len, slot);
        new_position[at] = p;
    }
}

@group(0) @binding(0) var<storage, read> keys_in: array<u32>;
@group(0) @binding(1) var<storage, read_write> tile_counts: array<u32>;
@group(0) @binding(2) var<storage, read> lists: array<u32>;
var<workgroup> bins: array<atomic<u32>, 256 * COUNTERS>;

// Counts the digits at `shift` of the keys of each tile. `which` is the index of the list's length in the state.
// @pz_entry
fn histogram(local_index: u32, workgroup_index: u32) {
    let slot = args.slot;
    let parts = args.parts;
    let block = workgroup_index / parts;
    let part = workgroup_index % parts;
    if block >= arrayLength(&lists) / STATE_WORDS {
        return;
    }
    let count = lists[block * STATE_WORDS + args.which];
    let tiles = (count + TILE - 1u) / TILE;
    let last = block * slot + slot - 1u;
    let counts_base = block * counts_words(slot);
    for (var tile = part; tile < tiles; tile += parts) {
        for (var d = local_index; d < 256u * COUNTERS; d += THREADS) {
            atomicStore(&bins[d], 0u);
        }
        workgroupBarrier();
        for (var begin = tile * TILE; begin < (tile + 1u) * TILE; begin += SUBTILE) {
            // Start all loads before waiting for the first.
            var keys: array<u32, ITEMS>;
            for (var i = 0u; i < ITEMS; i++) {
                let e = begin + i * THREADS + local_index;
                if e < count {
                    keys[i] = keys_in[last - e];
                }
            }
            for (var i = 0u; i < ITEMS; i++) {
                if begin + i * THREADS + local_index < count {
                    atomicAdd(&bins[(keys[i] >> args.shift & 255u) * COUNTERS + local_index % COUNTERS], 1u);
                }
            }
        }
        workgroupBarrier();
        for (var d = local_index; d < 256u; d += THREADS) {
            var sum = 0u;
            for (var i = 0u; i < COUNTERS; i++) {
                sum += atomicLoad(&bins[d * COUNTERS + i]);
            }
            tile_counts[counts_base + d * tiles + tile] = sum;
        }
        workgroupBarrier();
    }
}

@group(0) @binding(0) var<storage, read_write> scanned: array<u32>;
@group(0) @binding(1) var<storage, read_write> digits: array<u32>;

// Sums a digit's counts over the earlier tiles, and over all tiles in the state. A team handles one digit at a time.
// @pz_entry
fn scan(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&digits) / STATE_WORDS {
        return;
    }
    let tiles = team_uniform((digits[block * STATE_WORDS + args.which] + TILE - 1u) / TILE);
    if tiles == 0u {
        return;
    }
    for (var first = workgroup_index % parts * TEAMS; first < 256u; first += parts * TEAMS) {
        let digit = first + team_index;
        let total = scan_tiles(block * counts_words(args.slot) + digit * tiles, tiles);
        if lane == 0u {
            digits[block * STATE_WORDS + STATE_DIGITS + digit] = total;
        }
    }
}

@group(0) @binding(0) var<storage, read> key: array<u32>;
@group(0) @binding(1) var<storage, read> other: array<u32>;
@group(0) @binding(2) var<storage, read> position: array<u32>;
@group(0) @binding(3) var<storage, read_write> key_out: array<u32>;
@group(0) @binding(4) var<storage, read_write> other_out: array<u32>;
@group(0) @binding(5) var<storage, read_write> position_out: array<u32>;
@group(0) @binding(6) var<storage, read> counts: array<u32>;
@group(0) @binding(7) var<storage, read> state: array<u32>;
// Elements of lower digits in the subtile.
var<workgroup> firsts: array<u32, 256>;
// The sum of where an element of the digit goes and its place in the subtile.
var<workgroup> ends: array<u32, 256>;
// Elements of a digit in earlier subtiles.
var<workgroup> done: array<u32, 256>;
// Sums of 32 digits each, in the subtile and in the list.
var<workgroup> row_sums: array<u32, 8>;
var<workgroup> all_sums: array<u32, 8>;
// While a team counts: its elements of a digit so far. Then: the place for the next one. Then: elements in their new
// order.
var<workgroup> staged: array<u32, SUBTILE>;

// Moves the elements from one list to their places in the other, by digits of `key`. Elements with equal digits keep
// their order.
// @pz_entry
fn scatter(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let slot = args.slot;
    let parts = args.parts;
    let shift = args.shift;
    let block = workgroup_index / parts;
    let part = workgroup_index % parts;
    if block >= arrayLength(&state) / STATE_WORDS {
        return;
    }
    let count = state[block * STATE_WORDS + args.which];
    let tiles = (count + TILE - 1u) / TILE;
    let counts_base = block * counts_words(slot);
    let digits_base = block * STATE_WORDS + STATE_DIGITS;
    let own = team_index * 256u;
    for (var tile = part; tile < tiles; tile += parts) {
        for (var d = local_index; d < 256u; d += THREADS) {
            done[d] = 0u;
        }
        for (var begin = tile * TILE; begin < (tile + 1u) * TILE; begin += SUBTILE) {
            let valid = min(max(count, begin) - begin, SUBTILE);
            // Element e of the subtile is at last - e. The work item handles its first element and every 32nd from
            // there on.
            let last = block * slot + slot - 1u - begin;
            let first = team_index * ITEMS * 32u + lane;
            // Start all loads before waiting for the first. Missing elements after the last one sort last.
            var keys: array<u32, ITEMS>;
            for (var i = 0u; i < ITEMS; i++) {
                keys[i] = 0xffffffffu;
                if first + i * 32u < valid {
                    keys[i] = key[last - first - i * 32u];
                }
            }
            for (var d = local_index; d < TEAMS * 256u; d += THREADS) {
                staged[d] = 0u;
            }
            workgroupBarrier();

            // Each team ranks its own elements, 32 at a time.
            var to: array<u32, ITEMS>;
            for (var i = 0u; i < ITEMS; i++) {
                let digit = keys[i] >> shift & 255u;
                let same = team_match(digit, 8u);
                let before = countOneBits(same & team_before());
                let so_far = staged[own + digit];
                team_sync();
                if before == 0u {
                    staged[own + digit] = so_far + countOneBits(same);
                }
                team_sync();
                to[i] = so_far + before;
            }
            workgroupBarrier();
            for (var k = 0u; k < DIGITS; k++) {
                let d = k * THREADS + local_index;
                var sum = 0u;
                for (var t = 0u; t < TEAMS; t++) {
                    sum += staged[t * 256u + d];
                }
                let upto = team_scan(sum);
                let all = state[digits_base + d];
                let all_upto = team_scan(all);
                firsts[d] = upto - sum;
                ends[d] = slot - 1u - (all_upto - all + counts[counts_base + d * tiles + tile] + done[d]);
                done[d] += sum;
                if lane == 31u {
                    row_sums[d >> 5u] = upto;
                    all_sums[d >> 5u] = all_upto;
                }
            }
            workgroupBarrier();
            for (var k = 0u; k < DIGITS; k++) {
                let d = k * THREADS + local_index;
                var place = firsts[d];
                var end = block * slot + ends[d];
                for (var r = 0u; r < d / 32u; r++) {
                    place += row_sums[r];
                    end -= all_sums[r];
                }
                ends[d] = end + place;
                for (var t = 0u; t < TEAMS; t++) {
                    let sum = staged[t * 256u + d];
                    staged[t * 256u + d] = place;
                    place += sum;
                }
            }
            workgroupBarrier();

            // Pass the elements through workgroup memory, so that neighbours are written together. The loads of each
            // array run during the writes of the previous one.
            for (var i = 0u; i < ITEMS; i++) {
                to[i] += staged[own + (keys[i] >> shift & 255u)];
            }
            workgroupBarrier();
            for (var i = 0u; i < ITEMS; i++) {
                staged[to[i]] = keys[i];
                if first + i * 32u < valid {
                    keys[i] = other[last - first - i * 32u];
                }
            }
            workgroupBarrier();
            var goes: array<u32, ITEMS>;
            for (var i = 0u; i < ITEMS; i++) {
                let at = i * THREADS + local_index;
                if at < valid {
                    let k = staged[at];
                    goes[i] = ends[k >> shift & 255u] - at;
                    key_out[goes[i]] = k;
                }
            }
            workgroupBarrier();
            for (var i = 0u; i < ITEMS; i++) {
                staged[to[i]] = keys[i];
                if first + i * 32u < valid {
                    keys[i] = position[last - first - i * 32u];
                }
            }
            workgroupBarrier();
            for (var i = 0u; i < ITEMS; i++) {
                let at = i * THREADS + local_index;
                if at < valid {
                    other_out[goes[i]] = staged[at];
                }
            }
            workgroupBarrier();
            for (var i = 0u; i < ITEMS; i++) {
                staged[to[i]] = keys[i];
            }
            workgroupBarrier();
            for (var i = 0u; i < ITEMS; i++) {
                let at = i * THREADS + local_index;
                if at < valid {
                    position_out[goes[i]] = staged[at];
                }
            }
            workgroupBarrier();
        }
    }
}
