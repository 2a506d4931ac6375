// Undoes differences: each element becomes the sum, or the exclusive or, of itself and those before it at multiples of
// a stride. Other kernels handle adjacent elements of at most 4 bytes, and rows of some lengths. Lists of values are
// summed in a dispatch of their own.
//
// One workgroup of 256 per unit, which goes from tile to tile. In a tile, work items sum parts of the columns, and
// exchange the sums. Strides of more than 256 elements need no tiles: the elements that an element depends on are
// already written.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 9
//   buffers: jobs=32, contents=N
//   local_mem: 14592
// }
// @pz_import filter

// Words of a tile, and the most columns.
const TILE = 2048u;
const COLUMNS = 256u;

// The turn for lists of values.
const LIST_TURN = 2u;

struct Args {
    blocks: u32,
    slot: u32,
    count: u32,
    stage: u32,
    turn: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read_write> contents: array<u32>;

// Elements of a tile: a word each, and a second one if they have 8 bytes.
var<workgroup> values: array<u32, TILE + TILE / 32u>;
// The last sum of each column in the previous tile.
var<workgroup> carried: array<vec2<u32>, COLUMNS>;
var<workgroup> parts: array<vec2<u32>, 2u * COLUMNS>;

fn joined(a: vec2<u32>, b: vec2<u32>, is_xor: bool) -> vec2<u32> {
    let low = a.x + b.x;
    let sum = vec2<u32>(low, a.y + b.y + u32(low < a.x));
    return select(sum, a ^ b, is_xor);
}

// Element `at` of a unit, which begins at word `unit`.
fn element(unit: u32, at: u32, width: u32) -> vec2<u32> {
    if width == 8u {
        return vec2<u32>(contents[unit + 2u * at], contents[unit + 2u * at + 1u]);
    }
    return vec2<u32>(contents[unit + at * width / 4u] >> (8u * ((at * width) & 3u)), 0u);
}

// Adds to each element the one `stride` before it, in steps of one stride, by chunks of 8 bytes.
fn add_rows(local_index: u32, unit: u32, count: u32, width: u32, stride: u32, is_xor: bool) {
    let in_chunk = 8u / width;
    let chunks = (count + in_chunk - 1u) / in_chunk;
    let at_once = stride / in_chunk;
    let mask = select((1u << ((8u * width) & 31u)) - 1u, 0xffffffffu, width >= 4u);
    for (var first = 0u; first < chunks; first += at_once) {
        let end = min(first + at_once, chunks);
        for (var chunk = first + local_index; chunk < end; chunk += THREADS) {
            let place = unit + 2u * chunk;
            var changed = vec2<u32>(contents[place], contents[place + 1u]);
            for (var i = 0u; i < in_chunk; i++) {
                let at = chunk * in_chunk + i;
                if at >= stride && at < count {
                    let before = element(unit, at - stride, width);
                    if width == 8u {
                        changed = joined(changed, before, is_xor);
                    } else {
                        let half = i * width / 4u;
                        let shift = 8u * ((i * width) & 3u);
                        let v = joined(vec2<u32>(changed[half] >> shift, 0u), before, is_xor).x & mask;
                        changed[half] = (changed[half] & ~(mask << shift)) | (v << shift);
                    }
                }
            }
            contents[place] = changed.x;
            contents[place + 1u] = changed.y;
        }
        storageBarrier();
    }
}

// The place of element `i` of a tile, spread so that work items with neighbouring rows use different memory banks.
fn place_of(i: u32) -> u32 {
    return i + i / 32u;
}

// Element `i` of the tile.
fn value(i: u32, is_wide: bool) -> vec2<u32> {
    return vec2<u32>(values[place_of(i)], select(0u, values[place_of((TILE / 2u + i) % TILE)], is_wide));
}

// `count` workgroups per block, enough for units of 2^18 bytes. With longer units, some have nothing to do.
// @pz_entry
fn sums(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let word = jobs[block * JOB_WORDS + JOB_UNDO + args.stage];
    let content_len = min(jobs[block * JOB_WORDS], args.slot);
    let unit_log = clamp(jobs[block * JOB_WORDS + JOB_UNIT_LOG], 18u, 20u);
    let is_xor = filter_id(word) == FILTER_XOR;
    let turns = select(select(0u, filter_order(word), filter_id(word) == FILTER_DELTA), 1u, is_xor);
    let is_list = filter_id(word) == FILTER_DICTIONARY;
    if is_list {
        if args.turn != LIST_TURN {
            return;
        }
    } else if args.turn >= turns || sums_are_adjacent(word) || row_period(word) != 0u {
        return;
    }
    let width = select(filter_width(word), list_width(word), is_list);
    let stride = select(max(filter_parameter(word), 1u), 1u, is_list);
    let number = workgroup_index % args.count;
    if number >= ((content_len + (1u << unit_log) - 1u) >> unit_log) {
        return;
    }
    let start = number << unit_log;
    let unit_len = min(content_len - start, 1u << unit_log);
    var unit_count = unit_len / width;
    var unit_start = 0u;
    if is_list {
        unit_start = list_start(word, unit_count) * (width / 4u);
        unit_count = select(list_capacity(word, unit_count), 0u, unit_len < MIN_LISTED);
    }
    var unit = block * (args.slot / 4u) + start / 4u + unit_start;
    if stride > COLUMNS {
        add_rows(local_index, unit, unit_count, width, stride, is_xor);
        return;
    }

    let is_wide = width == 8u;
    let tile = select(TILE, TILE / 2u, is_wide);
    let in_word = select(4u / width, 1u, is_wide);
    // Work item g * stride + c sums part g of column c.
    let groups = COLUMNS / stride;
    let group = local_index / stride;
    let column = local_index % stride;
    let mask = select((1u << ((8u * width) & 31u)) - 1u, 0xffffffffu, width >= 4u);
    carried[local_index] = vec2<u32>(0u);
    for (var first = 0u; first < unit_count; first += tile) {
        let here = min(unit_count - first, tile);
        let words = select((here + in_word - 1u) / in_word, 2u * here, is_wide);
        for (var i = local_index; i < words; i += THREADS) {
            let w = contents[unit + i];
            if is_wide {
                values[place_of(i / 2u + (i & 1u) * tile)] = w;
            } else {
                for (var k = 0u; k < in_word; k++) {
                    values[place_of(i * in_word + k)] = w >> (8u * width * k);
                }
            }
        }
        workgroupBarrier();
        let rows = (here + stride - 1u) / stride;
        let own = (rows + groups - 1u) / groups;
        let begin = group * own * stride + column;
        let end = select(0u, min((group + 1u) * own * stride, here), group < groups);
        var sum = vec2<u32>(0u);
        for (var i = begin; i < end; i += stride) {
            sum = joined(sum, value(i, is_wide), is_xor);
        }
        parts[local_index] = sum;
        workgroupBarrier();
        var from_half = 0u;
        for (var by = stride; by < COLUMNS; by *= 2u) {
            var total = parts[from_half + local_index];
            if local_index >= by {
                total = joined(total, parts[from_half + local_index - by], is_xor);
            }
            from_half = COLUMNS - from_half;
            parts[from_half + local_index] = total;
            workgroupBarrier();
        }
        sum = carried[column];
        if group > 0u {
            sum = joined(sum, parts[from_half + local_index - stride], is_xor);
        }
        for (var i = begin; i < end; i += stride) {
            sum = joined(sum, value(i, is_wide), is_xor);
            values[place_of(i)] = sum.x;
            if is_wide {
                values[place_of(tile + i)] = sum.y;
            }
        }
        workgroupBarrier();
        // If another tile follows, this one is full.
        if local_index < stride && here == tile {
            carried[local_index] = value(tile - stride + local_index, is_wide);
        }
        for (var i = local_index; i < words; i += THREADS) {
            var w = 0u;
            if is_wide {
                w = values[place_of(i / 2u + (i & 1u) * tile)];
            } else {
                for (var k = 0u; k < in_word; k++) {
                    w |= (values[place_of(i * in_word + k)] & mask) << (8u * width * k);
                }
            }
            contents[unit + i] = w;
        }
        workgroupBarrier();
        unit += TILE / in_word;
    }
}
