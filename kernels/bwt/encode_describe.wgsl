// Writes the descriptions of a payload's directory and tables (`payload.rs`, `tables.rs` and `binary.rs` in
// `codec/bwt`).
//
// @pz_cost {
//   threads: 96
//   passes: 1
//   buffers: jobs=32, encode_state=256, encode_segments=N/8192*32+32, encode_tables=393216, encode_fresh=12288,
//            encode_described=N/64+263168
//   local_mem: 1024
//   note: three lanes a block, each a chain of dependent decisions
// }

// @pz_import bwt_encode

struct Args { slot: u32, segment_log: u32 }
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read_write> state: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read> segments: array<u32>;
@group(0) @binding(3) var<storage, read> exponents: array<u32>;
@group(0) @binding(4) var<storage, read> fresh: array<u32>;
@group(0) @binding(5) var<storage, read_write> described: array<u32>;

// The writer of binary decisions. A model is `fast` | `slow` << 16.
const NEW_MODEL = 0x80008000u;
var<workgroup> models: array<u32, 256>;
var<private> out_begin: u32;
var<private> out_len: u32;
var<private> out_room: u32;
var<private> out_word: u32; // bytes not written yet
var<private> low: vec2<u32>;
var<private> range: u32;
var<private> cache: u32;
var<private> pending: u32;
var<private> is_first: bool;

fn put_byte(byte: u32) {
    if out_len < out_room {
        let at = out_begin + out_len;
        out_word |= (byte & 255u) << (8u * (at & 3u));
        if (at & 3u) == 3u {
            described[at >> 2u] = out_word;
            out_word = 0u;
        }
    }
    out_len++;
}

fn shift_out() {
    if low.x < 0xff000000u || low.y != 0u {
        var byte = cache;
        while pending > 0u {
            if !is_first {
                put_byte(byte + low.y);
            }
            is_first = false;
            byte = 0xffu;
            pending--;
        }
        cache = low.x >> 24u;
    }
    pending++;
    low = vec2((low.x & 0x00ffffffu) << 8u, 0u);
}

fn put_bit(model: u32, bit: bool) {
    var fast = models[model] & 0xffffu;
    var slow = models[model] >> 16u;
    let bound = (range >> 16u) * ((fast + slow) >> 1u);
    if bit {
        low = add64(low, vec2(bound, 0u));
        range -= bound;
        fast -= fast >> 4u;
        slow -= slow >> 6u;
    } else {
        range = bound;
        fast += (0xffffu - fast) >> 4u;
        slow += (0xffffu - slow) >> 6u;
    }
    models[model] = fast | slow << 16u;
    while range < 1u << 24u {
        range <<= 8u;
        shift_out();
    }
}

fn put_raw(count: u32, value: u32) {
    for (var i = count; i > 0u; i--) {
        range >>= 1u;
        if (value >> (i - 1u) & 1u) != 0u {
            low = add64(low, vec2(range, 0u));
        }
        if range < 1u << 24u {
            range <<= 8u;
            shift_out();
        }
    }
}

// Models: 30 for the length, then 31 for the highest bit after the leading one.
fn put_number(model: u32, value: u32) {
    let number = value + 1u;
    let top = firstLeadingBit(number);
    var length = 0u;
    while length < 30u {
        let is_longer = top > length;
        put_bit(model + length, is_longer);
        if !is_longer {
            break;
        }
        length++;
    }
    if length == 0u {
        return;
    }
    put_bit(model + 30u + length, (number >> (length - 1u) & 1u) != 0u);
    put_raw(length - 1u, low_bits(number, length - 1u));
}

fn finish() {
    let high = add64(low, vec2(range - 1u, 0u));
    for (var bits = 32u; bits > 0u; bits--) {
        let rounded = vec2(high.x >> (bits - 1u) << (bits - 1u), high.y);
        if !less64(rounded, low) {
            low = rounded;
            break;
        }
    }
    for (var i = 0u; i < 5u; i++) {
        shift_out();
    }
    if out_len <= out_room && (out_len & 3u) != 0u {
        described[(out_begin + out_len) >> 2u] = out_word;
    }
    while out_len > 0u && out_len <= out_room {
        let at = out_begin + out_len - 1u;
        if (described[at >> 2u] >> (8u * (at & 3u)) & 255u) != 0u {
            break;
        }
        out_len--;
    }
}

fn describe_directory(first: u32, count: u32, len: u32) {
    const SHORTER = 0u;
    const MORE = 1u;
    const LESS = 62u;
    const WORDS = 123u;
    const SET = 184u;
    let usual = 1u << args.segment_log;
    var set_before = 0u;
    for (var s = 0u; s < count; s++) {
        let segment = first + s * SEGMENT_WORDS;
        let begin = segments[segment + SEGMENT_BEGIN];
        var end = len;
        if s + 1u < count {
            end = segments[segment + SEGMENT_WORDS + SEGMENT_BEGIN];
        }
        let bytes = end - begin;
        if len - begin > min(usual, 8192u) {
            put_bit(SHORTER, bytes < usual);
            if bytes < usual {
                put_number(LESS, usual - bytes);
            } else {
                put_number(MORE, bytes - usual);
            }
        }
        put_number(WORDS, segments[segment + SEGMENT_CODED]);
        let of_set = segments[segment + SEGMENT_SET];
        var node = 1u;
        for (var bit = 3u; bit > 0u; bit--) {
            let b = of_set >> (bit - 1u) & 1u;
            put_bit(SET + set_before * 8u + node, b != 0u);
            node = node << 1u | b;
        }
        set_before = of_set;
    }
}

// No table: all exponents are 0.
const NONE = 0xffffffffu;

fn exponent(table: u32, t: u32) -> i32 {
    if table == NONE {
        return 0i;
    }
    return i32(exponents[table + t]);
}

fn describe_table(at: u32, above: u32, left: u32, tokens: u32) {
    const PRESENT = 4u;
    const ZERO = 12u;
    const SIGN = 27u;
    const MORE = 42u;
    // Load the next token's data early.
    var next_q = exponent(at, 0u);
    var next_a = exponent(above, 0u);
    var next_b = exponent(left, 0u);
    var before_present = 1u;
    var before = 0i;
    for (var t = 0u; t < tokens; t++) {
        let q = next_q;
        let a = next_a;
        let b = next_b;
        next_q = exponent(at, t + 1u);
        next_a = exponent(above, t + 1u);
        next_b = exponent(left, t + 1u);
        put_bit(PRESENT + select(0u, 4u, a > 0i) + select(0u, 2u, b > 0i) + before_present, q > 0i);
        before_present = select(0u, 1u, q > 0i);
        if q == 0i {
            continue;
        }
        var guess = 4i;
        var kind = 4u;
        if a > 0i && b > 0i {
            guess = (a + b + 1i) / 2i;
            kind = min(2u, firstLeadingBit(u32(abs(a - b)) + 1u));
        } else if a > 0i || b > 0i {
            guess = a + b;
            kind = 3u;
        }
        let difference = q - guess;
        let context = kind * 3u + min(2u, u32(abs(before)));
        put_bit(ZERO + context, difference != 0i);
        if difference != 0i {
            put_bit(SIGN + kind * 3u + u32(sign(before) + 1i), difference < 0i);
            let size = u32(abs(difference));
            var n = 1u;
            while n < 7u {
                let is_larger = size > n;
                put_bit(MORE + context * 6u + n - 1u, is_larger);
                if !is_larger {
                    break;
                }
                n++;
            }
            if n == 7u {
                put_raw(6u, size - 7u);
            }
        }
        before = difference;
    }
}

fn describe_tables(block: u32, sets: u32, first: u32, columns: u32, tokens: u32) {
    // After the models comes, for each row, the number of the equal table: at first in the column to the left, then in
    // this one. A table that is not fresh has the exponents of its equal table.
    const EQUAL_TO = 132u;
    for (var of_set = 0u; of_set < sets; of_set++) {
        let tables = (block * SETS + of_set) * CELLS;
        let fresh_tables = (block * SETS + of_set) * CONTEXTS;
        for (var column = 0u; column < columns; column++) {
            var before_row = NONE;
            for (var row = 0u; row < 32u; row++) {
                let at = first + row * columns + column;
                var context = 0u;
                var before_column = NONE;
                if column > 0u {
                    before_column = models[EQUAL_TO + row];
                    context = fresh[fresh_tables + at - 1u];
                }
                var above = before_column;
                if row > 0u {
                    above = before_row;
                    context += fresh[fresh_tables + at - columns] * 2u;
                }
                let left = select(above, before_column, column > 0u);
                let is_fresh = fresh[fresh_tables + at] != 0u;
                put_bit(context, is_fresh);
                before_row = select(above, tables + at * 32u, is_fresh);
                models[EQUAL_TO + row] = before_row;
                if is_fresh {
                    describe_table(before_row, above, left, tokens);
                }
            }
        }
    }
}

// One workgroup per description, three for each block. One of its work items writes.
// @pz_entry
fn describe(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / 3u;
    let which = workgroup_index % 3u;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    for (var i = local_index; i < 256u; i += THREADS) {
        models[i] = NEW_MODEL;
    }
    workgroupBarrier();
    if local_index > 0u {
        return;
    }
    out_begin = block * described_room(args.slot);
    out_room = directory_room(args.slot);
    if which == 1u {
        out_begin += directory_room(args.slot);
        out_room = RANKS_ROOM;
    } else if which == 2u {
        out_begin += directory_room(args.slot) + RANKS_ROOM;
        out_room = RUNS_ROOM;
    }
    out_len = 0u;
    out_word = 0u;
    low = vec2(0u, 0u);
    range = 0xffffffffu;
    cache = 0u;
    pending = 1u;
    is_first = true;
    let at_state = block * ENCODE_STATE;
    let sets = atomicLoad(&state[at_state + ENCODE_SETS]);
    if which == 0u {
        let first = segments_at(block, args.slot);
        describe_directory(first, atomicLoad(&state[at_state + ENCODE_SEGMENTS]), jobs[block * 8u]);
    } else if which == 1u {
        describe_tables(block, sets, 0u, 4u, 28u);
    } else {
        describe_tables(block, sets, RANK_CONTEXTS, 8u, 29u);
    }
    finish();
    atomicStore(&state[at_state + ENCODE_LENGTHS + which], min(out_len, out_room));
    if out_len > out_room {
        atomicOr(&state[at_state + ENCODE_FULL], 1u);
    }
}
