// BWT payloads, second stage: decodes segments into runs of labels.
//
// A segment is decoded before the list at its start is known, so labels, which are positions in that list, represent
// bytes.
//
// @pz_cost {
//   threads: ((N/1024+1)/96+8)*96
//   passes: 1
//   buffers: payload=N+256, results=32,
//            bwt_blocks=512, bwt_segments=N/1024*20+20, bwt_tables=208896,
//            bwt_histories=N+32768, bwt_lists=N/4+256, bwt_links=N*4+N/16+64
//   local_mem: 31380
//   note: a lane decodes a segment; the time is the latency of a run, times the runs of the longest segment
// }
// @pz_import bwt

struct Args {
    slot: u32,
    blocks: u32,
    groups: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> payload: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
@group(0) @binding(2) var<storage, read> bwt_blocks: array<u32>;
@group(0) @binding(3) var<storage, read_write> bwt_segments: array<u32>;
@group(0) @binding(4) var<storage, read> bwt_tables: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> bwt_histories: array<u32>;
@group(0) @binding(6) var<storage, read_write> bwt_lists: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> bwt_links: array<vec4<u32>>;

// A lane's list in units of 16 bytes. The first unit is in registers, the next NEAR units are in workgroup memory, and
// the rest, which is needed less often, is in the place of the finished list.
const UNITS = 15u;

// KEPT distinct rank tables, and as many run tables. The others are read from device memory.
var<workgroup> tables: array<vec4<u32>, 2u * KEPT * 4u>;
var<workgroup> numbers: array<u32, CONTEXTS / 4u>; // table numbers, a byte for each context
var<workgroup> eights: array<vec2<u32>, 2u * KEPT>; // the first starts of the second, third and fourth eight of each
var<workgroup> lists: array<vec4<u32>, NEAR * THREADS>;
var<workgroup> masks: array<vec4<u32>, 17>; // masks[n] covers the first n bytes
var<workgroup> shared_go: u32;

// The lane's own state.
var<private> own: u32;         // its number in the workgroup
var<private> far_tables: u32;  // where the tables of its set are
var<private> final_list: u32;  // where its final list goes
// The words of a segment, in pairs. A run takes at most two words, so they are ready before it begins. The load of the
// next pair starts when a run begins, and the wait for it is at the run's end.
var<private> pairs: u32;       // of the payload, from the pair with the segment's first word on
var<private> pair_now: vec2<u32>;
var<private> pair_after: vec2<u32>;
var<private> pair_coming: vec2<u32>;
var<private> pairs_loaded: u32;
var<private> pairs_end: u32;   // of the segment
var<private> words_odd: u32;   // whether the next word is the second of `pair_now`
var<private> words_left: u32;
var<private> words_taken: u32; // since words_begin
var<private> x_low: u32;       // the state
var<private> x_high: u32;

// The place of eight starts of a table, spread so that the first eights of tables are in different banks.
fn place_of_eight(table: u32, i: u32) -> u32 {
    return table * 4u + ((i + (table >> 1u)) & 3u);
}

fn table_of(context: u32, first: u32) -> u32 {
    let number = (numbers[context >> 2u] >> (8u * (context & 3u))) & 255u;
    return select(2u * KEPT + context, first + number, number < KEPT);
}

fn put_unit(unit: u32, value: vec4<u32>) {
    if unit <= NEAR {
        lists[(unit - 1u) * THREADS + own] = value;
    } else {
        bwt_lists[final_list + unit] = value;
    }
}

fn words_start(first: u32, count: u32) {
    pairs = first >> 1u;
    words_odd = first & 1u;
    words_left = count;
    pairs_end = select((words_odd + count + 1u) >> 1u, 0u, count == 0u);
    if pairs_end > 0u {
        pair_now = payload[pairs];
    }
    if pairs_end > 1u {
        pair_after = payload[pairs + 1u];
    }
    if pairs_end > 2u {
        pair_coming = payload[pairs + 2u];
    }
    pairs_loaded = 3u;
    words_taken = 0u;
}

// Called before a run.
fn words_begin() {
    if words_taken > 1u && pairs_loaded - 1u < pairs_end {
        pair_coming = payload[pairs + pairs_loaded - 1u];
    }
    words_taken = 0u;
}

// Called after a run.
fn words_end() {
    words_taken += words_odd;
    let next = words_taken > 1u;
    pair_now = select(pair_now, pair_after, next);
    pair_after = select(pair_after, pair_coming, next);
    pairs_loaded += select(0u, 1u, next);
    words_odd = words_taken & 1u;
}

fn refill() {
    let takes = x_high == 0u && words_left > 0u;
    let at = words_odd + words_taken;
    let word = select(select(pair_after.x, pair_now.y, at == 1u), pair_now.x, at == 0u);
    x_high = select(x_high, x_low, takes);
    x_low = select(x_low, word, takes);
    words_left -= select(0u, 1u, takes);
    words_taken += select(0u, 1u, takes);
}

// From 1 to 31 bits.
fn drop_bits(count: u32) {
    x_low = (x_low >> count) | (x_high << (32u - count));
    x_high >>= count;
}

// A logarithm of the smaller of the value and 255: 16 times the exponent, plus the four bits after the highest one, as
// in floating-point numbers. For 0 it is 0.
fn log_scale(value: u32) -> u32 {
    return max(bitcast<u32>(f32(min(value, 255u))) >> 19u, 127u << 4u) - (127u << 4u);
}

// The number of the eight starts that are at most v, which is in both halves of vv.
fn up_to(starts: vec4<u32>, vv: u32) -> u32 {
    let r = (vec4<u32>(vv | 0x80008000u) - starts) & vec4<u32>(0x80008000u);
    return countOneBits(r.x | (r.y >> 1u) | (r.z >> 2u) | (r.w >> 3u));
}

// Removes the token that covers `start` up to `end` from the state, whose low bits are v.
fn take(v: u32, start: u32, end: u32) {
    let freq = end - start;
    let low = (x_low >> 12u) | (x_high << 20u);
    let product = (low & 0xffffu) * freq;
    let upper = (low >> 16u) * freq;
    let sum = product + (upper << 16u);
    x_low = sum + (v - start);
    x_high = (x_high >> 12u) * freq + (upper >> 16u) + select(0u, 1u, sum < product) + select(0u, 1u, x_low < sum);
}

fn half_of(place: u32, i: u32) -> u32 {
    return (tables[place][(i & 7u) >> 1u] >> (16u * (i & 1u))) & 0xffffu;
}

fn half_of_far(table: u32, i: u32) -> u32 {
    return (bwt_tables[far_tables + table * 4u + (i >> 3u)][(i & 7u) >> 1u] >> (16u * (i & 1u))) & 0xffffu;
}

// Removes the token that the state's low bits select from the state, and returns it. Tables from 2 KEPT on are in
// device memory.
fn take_token(table: u32) -> u32 {
    let v = x_low & 4095u;
    let vv = v | (v << 16u);
    if table < 2u * KEPT {
        let begins = eights[table];
        let i = countOneBits(((vv | 0x80008000u) - begins.x) & 0x80008000u) + select(0u, 1u, v >= begins.y);
        let place = place_of_eight(table, i);
        // At least 1, because the first of the eight is at most v.
        let count = up_to(tables[place], vv);
        let following = select(place, place_of_eight(table, i + 1u), count == 8u);
        take(v, half_of(place, count - 1u), half_of(following, count));
        return 8u * i + count - 1u;
    }
    let far = table - 2u * KEPT;
    let first = far_tables + far * 4u;
    let count = up_to(bwt_tables[first], vv) + up_to(bwt_tables[first + 1u], vv) + up_to(bwt_tables[first + 2u], vv)
        + up_to(bwt_tables[first + 3u], vv);
    take(v, half_of_far(far, count - 1u), half_of_far(far, count & 31u));
    return count - 1u;
}

fn shift_in(unit: vec4<u32>, next: u32) -> vec4<u32> {
    return (unit >> vec4<u32>(8u)) | (vec4<u32>(unit.yzw, next) << vec4<u32>(24u));
}

// Moves symbols one place to the front, in the units after the front up to `units`; the first of them was `second`.
// Returns the old value of the last unit. Reads several units before writing any, so that the loads overlap.
fn move_units(second: vec4<u32>, units: u32) -> vec4<u32> {
    var unit = second;
    let near = min(units, NEAR);
    for (var i = 1u; i < near; i += 4u) {
        let next0 = lists[i * THREADS + own];
        let next1 = lists[(min(i + 2u, near) - 1u) * THREADS + own];
        let next2 = lists[(min(i + 3u, near) - 1u) * THREADS + own];
        let next3 = lists[(min(i + 4u, near) - 1u) * THREADS + own];
        lists[(i - 1u) * THREADS + own] = shift_in(unit, next0.x);
        if i + 1u < near {
            lists[i * THREADS + own] = shift_in(next0, next1.x);
        }
        if i + 2u < near {
            lists[(i + 1u) * THREADS + own] = shift_in(next1, next2.x);
        }
        if i + 3u < near {
            lists[(i + 2u) * THREADS + own] = shift_in(next2, next3.x);
        }
        // After the last unit, all of these repeat that unit.
        unit = next3;
    }
    for (var i = NEAR; i < units; i += 4u) {
        let next0 = bwt_lists[final_list + i + 1u];
        let next1 = bwt_lists[final_list + min(i + 2u, units)];
        let next2 = bwt_lists[final_list + min(i + 3u, units)];
        let next3 = bwt_lists[final_list + min(i + 4u, units)];
        put_unit(i, shift_in(unit, next0.x));
        if i + 1u < units {
            bwt_lists[final_list + i + 1u] = shift_in(next0, next1.x);
        }
        if i + 2u < units {
            bwt_lists[final_list + i + 2u] = shift_in(next1, next2.x);
        }
        if i + 3u < units {
            bwt_lists[final_list + i + 3u] = shift_in(next2, next3.x);
        }
        unit = next3;
    }
    return unit;
}

// The mask, for the word at byte `from_byte`, of its bytes among the first `count`.
fn first_bytes(count: u32, from_byte: u32) -> u32 {
    let bytes = clamp(count, from_byte, from_byte + 4u) - from_byte;
    return select((1u << (8u * (bytes & 3u))) - 1u, 0xffffffffu, bytes == 4u);
}

// Each lane decodes a segment, and writes its runs as label | begin << 8, and its final list.
// @pz_entry
fn segments(local_index: u32, workgroup_index: u32) {
    // The first groups of all blocks come first. This spreads groups with work, and the longest segments, over all
    // processors.
    let block = workgroup_index % args.blocks;
    var group = workgroup_index / args.blocks;
    if group >= args.groups {
        return;
    }
    let slot = args.slot;
    let info = block * BLOCK_WORDS;

    // This group's set of tables, and the place of its segments in the decoding order.
    var which = 0u;
    var first = 0u;
    for (; which < MAX_SETS; which++) {
        let size = bwt_blocks[info + BLOCK_SET_SIZES + which];
        let its = (size + THREADS - 1u) / THREADS;
        if group < its {
            break;
        }
        group -= its;
        first += size;
    }
    if local_index == 0u {
        shared_go = select(0u, 1u, which < MAX_SETS && results[block * RESULT_WORDS] == 0u);
    }
    if workgroupUniformLoad(&shared_go) == 0u {
        return;
    }
    var place = group * THREADS + local_index;
    let has_segment = place < bwt_blocks[info + BLOCK_SET_SIZES + which];
    place += first;
    far_tables = block * (TABLES_OF / 4u) + which * (CONTEXTS * 4u);
    let all_numbers = block * (TABLES_OF / 4u) + (NUMBERS_AT + which * CONTEXTS) / 4u;
    for (var i = local_index; i < CONTEXTS / 4u; i += THREADS) {
        let four = min(bwt_tables[all_numbers + i] & vec4<u32>(0xffffu), vec4<u32>(255u));
        numbers[i] = four.x | (four.y << 8u) | (four.z << 16u) | (four.w << 24u);
    }
    for (var i = local_index; i < CONTEXTS; i += THREADS) {
        let number = bwt_tables[all_numbers + (i >> 2u)][i & 3u];
        let table = (number & 0xffffu) + select(KEPT, 0u, i < RANK_CONTEXTS);
        if number >= NUMBER_IS_FIRST && (number & 0xffffu) < KEPT {
            for (var k = 0u; k < 4u; k++) {
                tables[place_of_eight(table, k)] = bwt_tables[far_tables + 4u * i + k];
            }
            let second = bwt_tables[far_tables + 4u * i + 1u].x;
            let third = bwt_tables[far_tables + 4u * i + 2u].x;
            let fourth = bwt_tables[far_tables + 4u * i + 3u].x;
            eights[table] = vec2<u32>((second & 0xffffu) | (third << 16u), fourth & 0xffffu);
        }
    }
    for (var i = local_index; i < 17u; i += THREADS) {
        masks[i] = vec4<u32>(first_bytes(i, 0u), first_bytes(i, 4u), first_bytes(i, 8u), first_bytes(i, 12u));
    }
    workgroupBarrier();
    if !has_segment {
        return;
    }

    own = local_index;
    let segment = bwt_segments[segments_at(block, slot) + order_at(slot) + place];
    let entry = segments_at(block, slot) + segment * SEGMENT_WORDS;
    var at = bwt_segments[entry];
    let end = bwt_segments[entry + 1u];
    let first_word = bwt_blocks[info + BLOCK_PAYLOAD] * 4u + bwt_blocks[info + BLOCK_WORDS_AT] + bwt_segments[entry + 2u];
    words_start(first_word, bwt_segments[entry + 3u] & 0xffffu);

    // Histories of 32 lanes are interleaved.
    let histories = block * ((slot + 32768u) / 4u) + (place >> 5u) * 8192u + (place & 31u);
    for (var label = 0u; label < 256u; label++) {
        bwt_histories[histories + label * 32u] = (log_scale(label + 1u) << 8u) | (8u << 24u);
    }
    var front = vec4<u32>(0x03020100u, 0x07060504u, 0x0b0a0908u, 0x0f0e0d0cu);
    final_list = block * (slot / 64u + 16u) + segment * 16u;
    for (var unit = 1u; unit <= UNITS; unit++) {
        put_unit(unit, front + vec4<u32>(0x10101010u * unit));
    }

    var out = (block * links_of(slot) + runs_at(at, segment)) / 4u;
    var runs = vec4<u32>();
    var rank_mean = 24u << 8u;
    var run_mean = 10u << 8u;
    x_low = 0u;
    x_high = 0u;
    refill();
    refill();
    words_end();
    var history = bwt_histories[histories];
    var bad = 30u;
    var count = 0u;
    while count < MAX_RUNS {
        let symbol = front.x & 255u;
        // Unless the next rank is 0, the list's second symbol may come next: load its history early.
        let second = (front.x >> 8u) & 255u;
        let history_of_second = bwt_histories[histories + second * 32u];
        words_begin();
        let h = history & 0xffffu;
        let j = history >> 16u;
        let rank_context = min(31u, (6u * h + 2u * rank_mean) >> 13u) * 4u + min(3u, rank_mean >> 13u);
        let run_context = RANK_CONTEXTS + min(31u, (7u * j + run_mean) >> 12u) * 8u + min(7u, h >> 11u);

        let run_table = table_of(run_context, KEPT);

        var token = take_token(table_of(rank_context, 0u));
        let rank_bits = select((token - 4u) >> 2u, 0u, token < 8u);
        var rank = select((4u + (token & 3u)) << rank_bits, token, token < 8u);
        rank = (rank + (x_low & ((1u << rank_bits) - 1u)) + 1u) & 255u;
        if rank_bits > 0u {
            drop_bits(rank_bits);
        }
        token = take_token(run_table);
        refill();
        var length = token + 1u;
        if token >= 8u {
            if token < 28u {
                let bits = ((token - 8u) >> 1u) + 2u;
                length = ((2u + (token & 1u)) << bits) + (x_low & ((1u << bits) - 1u)) + 1u;
                drop_bits(bits);
            } else {
                if x_low < MAX_RUNS {
                    bad = 31u;
                    break;
                }
                length = select(x_low + 1u, x_low, x_low == 0xffffffffu);
                x_low = x_high;
                x_high = 0u;
            }
            refill();
        }

        let rank_log = log_scale(rank);
        let run_log = log_scale(length);
        history = history - ((history >> 3u) & 0x1fff1fffu) + ((rank_log << 5u) | (run_log << 21u));
        bwt_histories[histories + symbol * 32u] = history;
        history = select(history_of_second, history, rank == 0u);
        rank_mean = rank_mean - (rank_mean >> 3u) + (rank_log << 5u);
        run_mean = run_mean - (run_mean >> 3u) + (run_log << 5u);

        // Symbols move one place to the front, up to the rank.
        let before = masks[rank & 15u];
        let upto = masks[(rank & 15u) + 1u];
        let units = rank >> 4u;
        var unit = front;
        if units > 0u {
            unit = lists[own];
            front = shift_in(front, unit.x);
        }
        unit = move_units(unit, units);
        // The symbols before the rank move back, this symbol goes to the front, and the rest stays.
        let changed = (shift_in(unit, 0u) & before) | (vec4<u32>(symbol * 0x01010101u) & ~before);
        unit = (changed & upto) | (unit & ~upto);
        if units == 0u {
            front = unit;
        } else {
            put_unit(units, unit);
        }

        words_end();
        if length > end - at {
            bad = 32u;
            break;
        }
        runs = vec4<u32>(runs.yzw, symbol | (at << 8u));
        count += 1u;
        if (count & 3u) == 0u {
            bwt_links[out] = runs;
            out += 1u;
        }
        at += length;
        if at == end {
            let is_good = x_low == 1u && x_high == 0u && words_left == 0u;
            bad = select(33u, 0u, is_good);
            break;
        }
    }
    if bad != 0u {
        results[block * RESULT_WORDS] = bad;
        return;
    }
    if (count & 3u) != 0u {
        for (var i = count & 3u; i < 4u; i++) {
            runs = vec4<u32>(runs.yzw, 0u);
        }
        bwt_links[out] = runs;
    }
    bwt_segments[entry + 2u] = count;
    bwt_lists[final_list] = front;
    for (var i = 1u; i <= NEAR; i++) {
        bwt_lists[final_list + i] = lists[(i - 1u) * THREADS + own];
    }
}
