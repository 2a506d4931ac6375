// Writes payloads: the words of each segment (`codec/bwt/segments.rs`), the descriptions of directory and tables
// (`payload.rs`, `tables.rs`, `binary.rs`), and all of it together.
//
// @pz_cost {
//   threads_per_element: 0.125
//   passes: 4
//   buffers: jobs=32, sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4, encode_state=256,
//            encode_segments=N/64+64, encode_lists=N/32+512, encode_tables=393216, encode_starts=393216,
//            encode_fresh=12288, encode_described=N/64+263168, start_rows=N/64+4, payload=N+256, results=32
//   local_mem: 2048
//   note: sort_position_a holds segments' words; a segment has at most as many as bytes
// }

// @pz_import bwt_encode

struct Args { slot: u32, parts: u32, start_log: u32, segment_log: u32 }
var<immediate> args: Args;

// Room for the descriptions of the directory, and of the tables of ranks and lengths, in this order.
const RANKS_ROOM = 98304u;
const RUNS_ROOM = 163840u;

fn directory_room(slot: u32) -> u32 {
    return slot / 64u + 1024u;
}

fn described_room(slot: u32) -> u32 {
    return directory_room(slot) + RANKS_ROOM + RUNS_ROOM;
}

// The state x with a token of this interval. A quotient by a number below 2^13 is found 16 bits at a time.
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
@group(0) @binding(4) var<storage, read_write> code_state: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> code_segments: array<u32>;
@group(0) @binding(6) var<storage, read_write> words: array<u32>;

// A lane for each segment, whose words go backward from the end of its bytes' part.
@compute @workgroup_size(THREADS)
fn code(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let group = wg.y * wgs.x + wg.x;
    let block = group / args.parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let s = group % args.parts * THREADS + index;
    let segment_count = atomicLoad(&code_state[block * ENCODE_STATE + ENCODE_SEGMENTS]);
    if s >= segment_count {
        return;
    }
    let base = block * args.slot;
    let segment = (block * most_segments(args.slot) + s) * SEGMENT_WORDS;
    let tables = (block * SETS + code_segments[segment + SEGMENT_SET]) * CELLS;
    let first = code_segments[segment + SEGMENT_RUN];
    let least = code_segments[segment + SEGMENT_BEGIN];
    var end = atomicLoad(&code_state[block * ENCODE_STATE + ENCODE_RUNS]);
    var most = jobs[block * 8u];
    if s + 1u < segment_count {
        end = code_segments[segment + SEGMENT_WORDS + SEGMENT_RUN];
        most = code_segments[segment + SEGMENT_WORDS + SEGMENT_BEGIN];
    }
    var to = most;
    var is_full = false;
    var x = vec2(1u, 0u);
    var behind = most;
    for (var after = end; after > first; after--) {
        let begin = begins[base + after - 1u];
        let info = infos[base + after - 1u];
        let rank = rank_token(info >> 8u & 255u);
        let lasts = run_token(behind - begin);
        behind = begin;
        let rank_interval = intervals[tables + (info >> 16u & 255u) * 32u + rank.token];
        let run_interval = intervals[tables + (RANK_CONTEXTS + (info >> 24u)) * 32u + lasts.token];
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
    code_segments[segment + SEGMENT_CODED] = most - to;
    if is_full {
        atomicOr(&code_state[block * ENCODE_STATE + ENCODE_FULL], 1u);
    }
}

@group(0) @binding(1) var<storage, read_write> state: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read> described_segments: array<u32>;
@group(0) @binding(3) var<storage, read_write> exponents: array<u32>;
@group(0) @binding(4) var<storage, read> fresh: array<u32>;
@group(0) @binding(5) var<storage, read_write> described: array<u32>;

// The writer of binary decisions. A model is `fast` | `slow` << 16.
const NEW_MODEL = 0x80008000u;
var<workgroup> models: array<u32, 256>;
var<private> out_begin: u32;
var<private> out_len: u32;
var<private> out_room: u32;
var<private> low: vec2<u32>;
var<private> range: u32;
var<private> cache: u32;
var<private> pending: u32;
var<private> is_first: bool;

fn put_byte(byte: u32) {
    if out_len < out_room {
        let at = out_begin + out_len;
        let shift = 8u * (at & 3u);
        described[at >> 2u] = (described[at >> 2u] & ~(255u << shift)) | (byte & 255u) << shift;
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

// Models: 30 of the length, then 31 of the high bit.
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
    while out_len > 0u && out_len <= out_room {
        let at = out_begin + out_len - 1u;
        if (described[at >> 2u] >> (8u * (at & 3u)) & 255u) != 0u {
            break;
        }
        out_len--;
    }
}

fn describe_directory(segments: u32, count: u32, len: u32) {
    const SHORTER = 0u;
    const MORE = 1u;
    const LESS = 62u;
    const WORDS = 123u;
    const SET = 184u;
    let usual = 1u << args.segment_log;
    var set_before = 0u;
    for (var s = 0u; s < count; s++) {
        let segment = segments + s * SEGMENT_WORDS;
        let begin = described_segments[segment + SEGMENT_BEGIN];
        var end = len;
        if s + 1u < count {
            end = described_segments[segment + SEGMENT_WORDS + SEGMENT_BEGIN];
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
        put_number(WORDS, described_segments[segment + SEGMENT_CODED]);
        let of_set = described_segments[segment + SEGMENT_SET];
        var node = 1u;
        for (var bit = 3u; bit > 0u; bit--) {
            let b = of_set >> (bit - 1u) & 1u;
            put_bit(SET + set_before * 8u + node, b != 0u);
            node = node << 1u | b;
        }
        set_before = of_set;
    }
}

fn describe_table(at: u32, above_at: u32, left_at: u32, has_near: bool, tokens: u32) {
    const PRESENT = 4u;
    const ZERO = 12u;
    const SIGN = 27u;
    const MORE = 42u;
    var before_present = 1u;
    var before = 0i;
    for (var t = 0u; t < tokens; t++) {
        let q = i32(exponents[at + t]);
        var a = 0i;
        var b = 0i;
        if has_near {
            a = i32(exponents[above_at + t]);
            b = i32(exponents[left_at + t]);
        }
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
    for (var of_set = 0u; of_set < sets; of_set++) {
        let tables = (block * SETS + of_set) * CELLS;
        let fresh_tables = (block * SETS + of_set) * CONTEXTS;
        for (var column = 0u; column < columns; column++) {
            for (var row = 0u; row < 32u; row++) {
                let at = first + row * columns + column;
                var above_at = at;
                var left_at = at;
                var context = 0u;
                if row > 0u {
                    above_at = at - columns;
                    context = fresh[fresh_tables + above_at] * 2u;
                } else if column > 0u {
                    above_at = at - 1u;
                }
                left_at = above_at;
                if column > 0u {
                    left_at = at - 1u;
                    context += fresh[fresh_tables + left_at];
                }
                let has_near = row > 0u || column > 0u;
                let is_fresh = fresh[fresh_tables + at] != 0u;
                put_bit(context, is_fresh);
                if is_fresh {
                    describe_table(
                        tables + at * 32u, tables + above_at * 32u, tables + left_at * 32u, has_near, tokens);
                    continue;
                }
                // As a decoder has it, which counts where the tables that follow are told from this one.
                for (var t = 0u; t < tokens; t++) {
                    var q = 0u;
                    if has_near {
                        q = exponents[tables + above_at * 32u + t];
                    }
                    exponents[tables + at * 32u + t] = q;
                }
            }
        }
    }
}

// A workgroup for each of the three descriptions of a block, of which one work item writes.
@compute @workgroup_size(THREADS)
fn describe(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let group = wg.y * wgs.x + wg.x;
    let block = group / 3u;
    let which = group % 3u;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    for (var i = index; i < 256u; i += THREADS) {
        models[i] = NEW_MODEL;
    }
    workgroupBarrier();
    if index > 0u {
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
    low = vec2(0u, 0u);
    range = 0xffffffffu;
    cache = 0u;
    pending = 1u;
    is_first = true;
    let at_state = block * ENCODE_STATE;
    let sets = atomicLoad(&state[at_state + ENCODE_SETS]);
    if which == 0u {
        let segments = block * most_segments(args.slot) * SEGMENT_WORDS;
        describe_directory(segments, atomicLoad(&state[at_state + ENCODE_SEGMENTS]), jobs[block * 8u]);
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

fn row_bits(len: u32) -> u32 {
    if len <= 1u {
        return 0u;
    }
    return firstLeadingBit(len - 1u) + 1u;
}

@group(0) @binding(1) var<storage, read_write> measured: array<u32>;
@group(0) @binding(2) var<storage, read_write> measured_segments: array<u32>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;

// Where everything goes. One work item for a block.
@compute @workgroup_size(THREADS)
fn measure(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let block = (wg.y * wgs.x + wg.x) * THREADS + index;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let at_state = block * ENCODE_STATE;
    let segments = block * most_segments(args.slot) * SEGMENT_WORDS;
    let len = jobs[block * 8u];
    var coded = 0u;
    for (var s = 0u; s < measured[at_state + ENCODE_SEGMENTS]; s++) {
        measured_segments[segments + s * SEGMENT_WORDS + SEGMENT_BEFORE] = coded;
        coded += measured_segments[segments + s * SEGMENT_WORDS + SEGMENT_CODED];
    }
    var header = 12u;
    for (var i = 0u; i < 8u; i++) {
        header += countOneBits(measured[at_state + ENCODE_USED + i]);
    }
    header += ((((len - 1u) >> args.start_log) + 1u) * row_bits(len) + 7u) / 8u;
    for (var i = 0u; i < 3u; i++) {
        header += measured[at_state + ENCODE_LENGTHS + i];
    }
    header = (header + 3u) & ~3u;
    measured[at_state + ENCODE_HEADER] = header;
    measured[at_state + ENCODE_WORDS] = coded;
    let fits = measured[at_state + ENCODE_FULL] == 0u && header + 4u * coded <= args.slot + 256u;
    results[block * 8u] = select(1u, 0u, fits);
    results[block * 8u + 1u] = select(0u, header + 4u * coded, fits);
}

@group(0) @binding(1) var<storage, read> final_state: array<u32>;
@group(0) @binding(2) var<storage, read> final_segments: array<u32>;
@group(0) @binding(3) var<storage, read> lists: array<u32>;
@group(0) @binding(4) var<storage, read> texts: array<u32>;
@group(0) @binding(5) var<storage, read> rows: array<u32>;
@group(0) @binding(6) var<storage, read> coded_words: array<u32>;
@group(0) @binding(7) var<storage, read_write> payload: array<u32>;

fn text_at(at: u32) -> u32 {
    return texts[at >> 2u] >> (8u * (at & 3u));
}

// Writes the payloads of the blocks that fit.
@compute @workgroup_size(THREADS)
fn assemble(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let group = wg.y * wgs.x + wg.x;
    let parts = args.parts;
    let slot = args.slot;
    let block = group / parts;
    let part = group % parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let at_state = block * ENCODE_STATE;
    let len = jobs[block * 8u];
    let header = final_state[at_state + ENCODE_HEADER];
    if final_state[at_state + ENCODE_FULL] != 0u || header + 4u * final_state[at_state + ENCODE_WORDS] > slot + 256u {
        return;
    }
    let segments = block * most_segments(slot) * SEGMENT_WORDS;
    let at_list = block * most_segments(slot) * 64u;
    let at_rows = block * (slot / 256u + 1u);
    let at_payload = block * (slot / 4u + 64u);
    let text = block * described_room(slot);

    var symbols = 0u;
    for (var i = 0u; i < 8u; i++) {
        symbols += countOneBits(final_state[at_state + ENCODE_USED + i]);
    }
    let bits = row_bits(len);
    let row_count = ((len - 1u) >> args.start_log) + 1u;
    let rows_at = 3u + symbols;
    let lengths_at = rows_at + (row_count * bits + 7u) / 8u;
    let directory_at = lengths_at + 9u;
    let ranks_at = directory_at + final_state[at_state + ENCODE_LENGTHS];
    let runs_at = ranks_at + final_state[at_state + ENCODE_LENGTHS + 1u];
    let end = runs_at + final_state[at_state + ENCODE_LENGTHS + 2u];
    for (var i = part * THREADS + index; i < header / 4u; i += parts * THREADS) {
        var v = 0u;
        for (var k = 0u; k < 4u; k++) {
            let at = i * 4u + k;
            var byte = 0u;
            if at >= end {
                byte = 0u;
            } else if at >= runs_at {
                byte = text_at(text + directory_room(slot) + RANKS_ROOM + at - runs_at);
            } else if at >= ranks_at {
                byte = text_at(text + directory_room(slot) + at - ranks_at);
            } else if at >= directory_at {
                byte = text_at(text + at - directory_at);
            } else if at >= lengths_at {
                let j = at - lengths_at;
                byte = final_state[at_state + ENCODE_LENGTHS + j / 3u] >> (8u * (j % 3u));
            } else if at >= rows_at {
                // All rows that have bits in this byte.
                let begin_bit = (at - rows_at) * 8u;
                for (var r = begin_bit / bits; r < row_count && r * bits < begin_bit + 8u; r++) {
                    let row = rows[at_rows + r] - 1u;
                    let begin = r * bits;
                    if begin >= begin_bit {
                        byte |= row << (begin - begin_bit);
                    } else {
                        byte |= row >> (begin_bit - begin);
                    }
                }
            } else if at >= 3u {
                byte = lists[at_list + ((at - 3u) >> 2u)] >> (8u * ((at - 3u) & 3u));
            } else if at == 0u {
                byte = (args.segment_log - 10u) | (args.start_log - 8u) << 4u;
            } else if at == 1u {
                byte = final_state[at_state + ENCODE_SETS] - 1u;
            } else {
                byte = symbols - 1u;
            }
            v |= (byte & 255u) << (8u * k);
        }
        payload[at_payload + i] = v;
    }
    let segment_count = final_state[at_state + ENCODE_SEGMENTS];
    for (var s = part; s < segment_count; s += parts) {
        let segment = segments + s * SEGMENT_WORDS;
        var most = len;
        if s + 1u < segment_count {
            most = final_segments[segment + SEGMENT_WORDS + SEGMENT_BEGIN];
        }
        let coded = final_segments[segment + SEGMENT_CODED];
        let to = at_payload + header / 4u + final_segments[segment + SEGMENT_BEFORE];
        let base = block * slot + most - coded;
        for (var i = index; i < coded; i += THREADS) {
            payload[to + i] = coded_words[base + i];
        }
    }
}
