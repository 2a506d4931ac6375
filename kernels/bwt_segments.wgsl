// BWT payloads: the second stage. Segments become runs of labels.
//
// A segment is decoded before the list at its start is known: positions in that list, labels, stand for bytes.
//
// @pz_cost {
//   threads_per_element: 0.001
//   passes: 1
//   buffers: payload=N+256, results=32,
//            bwt_blocks=512, bwt_segments=N/32+32, bwt_tables=208896,
//            bwt_histories=N+32768, bwt_lists=N/4+256, bwt_links=N*4+N/16+64
//   local_mem: 31380
//   note: a lane decodes a segment; what bounds it is the latency of a run times the runs of the longest segment
// }
// @pz_import bwt

struct Args {
    slot: u32,
    blocks: u32,
    groups: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> payload: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
@group(0) @binding(2) var<storage, read> bwt_blocks: array<u32>;
@group(0) @binding(3) var<storage, read_write> bwt_segments: array<u32>;
@group(0) @binding(4) var<storage, read> bwt_tables: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> bwt_histories: array<u32>;
@group(0) @binding(6) var<storage, read_write> bwt_lists: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> bwt_links: array<vec4<u32>>;

// Units of 16 bytes of a lane's list: the first is in registers, NEAR more are in workgroup memory, and the others,
// which are needed less, where the list is to be in the end.
const UNITS = 15u;

// Different tables of ranks, and of runs, KEPT of each; the others, if there are more, are read from device memory.
var<workgroup> tables: array<vec4<u32>, 2u * KEPT * 4u>;
var<workgroup> numbers: array<u32, CONTEXTS / 4u>; // of tables, a byte for each context
var<workgroup> eights: array<vec2<u32>, 2u * KEPT>; // the starts that begin the second, third and fourth eight of each
var<workgroup> lists: array<vec4<u32>, NEAR * THREADS>;
var<workgroup> masks: array<vec4<u32>, 17>; // so many bytes
var<workgroup> shared_go: u32;

// Of the lane.
var<private> own: u32;         // its number in the workgroup
var<private> far_tables: u32;  // where its set's are
var<private> final_list: u32;  // where its list is to be
var<private> words: u32;       // its segment's
var<private> word_count: u32;
var<private> next_word: u32;   // to be loaded
var<private> taken: u32;
var<private> ahead0: u32;
var<private> ahead1: u32;
var<private> x_low: u32;       // the state
var<private> x_high: u32;

// The place of 8 starts of a table, so that tables' first eights are in different banks.
fn place_of_eight(table: u32, i: u32) -> u32 {
    return table * 4u + ((i + (table >> 1u)) & 3u);
}

// 8 starts of a table in workgroup memory, from 2 KEPT on of one that is not.
fn eight(table: u32, i: u32) -> vec4<u32> {
    if table < 2u * KEPT {
        return tables[place_of_eight(table, i)];
    }
    return bwt_tables[far_tables + (table - 2u * KEPT) * 4u + i];
}

fn table_of(context: u32, first: u32) -> u32 {
    let number = (numbers[context >> 2u] >> (8u * (context & 3u))) & 255u;
    return select(2u * KEPT + context, first + number, number < KEPT);
}

fn get_unit(unit: u32) -> vec4<u32> {
    if unit <= NEAR {
        return lists[(unit - 1u) * THREADS + own];
    }
    return bwt_lists[final_list + unit];
}

fn put_unit(unit: u32, value: vec4<u32>) {
    if unit <= NEAR {
        lists[(unit - 1u) * THREADS + own] = value;
    } else {
        bwt_lists[final_list + unit] = value;
    }
}

fn refill() {
    if x_high == 0u && taken < word_count {
        x_high = x_low;
        x_low = ahead0;
        taken += 1u;
        ahead0 = ahead1;
        ahead1 = 0u;
        if next_word < word_count {
            ahead1 = payload[words + next_word];
        }
        next_word += 1u;
    }
}

// From 1 to 31 bits.
fn drop_bits(count: u32) {
    x_low = (x_low >> count) | (x_high << (32u - count));
    x_high >>= count;
}

fn log_scale(value: u32) -> u32 {
    let v = clamp(value, 1u, 255u);
    let e = firstLeadingBit(v);
    let scale = 16u * e + (((v << (7u - e)) & 127u) >> 3u);
    return select(scale, 127u, value >= 255u);
}

// How many of eight starts are at most v, which stands in both halves of vv.
fn up_to(starts: vec4<u32>, vv: u32) -> u32 {
    let r = (vec4<u32>(vv | 0x80008000u) - starts) & vec4<u32>(0x80008000u);
    return countOneBits(r.x | (r.y >> 1u) | (r.z >> 2u) | (r.w >> 3u));
}

fn start_of(table: u32, token: u32) -> u32 {
    return (eight(table, token >> 3u)[(token & 7u) >> 1u] >> (16u * (token & 1u))) & 0xffffu;
}

// The token that the state's low bits are in, which it is then without.
fn take_token(table: u32) -> u32 {
    let v = x_low & 4095u;
    let vv = v | (v << 16u);
    var count = 0u;
    if table < 2u * KEPT {
        let begins = eights[table];
        let i = countOneBits(((vv | 0x80008000u) - begins.x) & 0x80008000u) + select(0u, 1u, v >= begins.y);
        count = 8u * i + up_to(tables[place_of_eight(table, i)], vv);
    } else {
        for (var i = 0u; i < 4u; i++) {
            if count == 8u * i {
                count += up_to(eight(table, i), vv);
            }
        }
    }
    let token = count - 1u;
    let start = start_of(table, token);
    let freq = start_of(table, count & 31u) - start;
    let low = (x_low >> 12u) | (x_high << 20u);
    let product = (low & 0xffffu) * freq;
    let upper = (low >> 16u) * freq;
    let sum = product + (upper << 16u);
    x_low = sum + (v - start);
    x_high = (x_high >> 12u) * freq + (upper >> 16u) + select(0u, 1u, sum < product) + select(0u, 1u, x_low < sum);
    return token;
}

fn shift_in(unit: vec4<u32>, next: u32) -> vec4<u32> {
    return (unit >> vec4<u32>(8u)) | (vec4<u32>(unit.yzw, next) << vec4<u32>(24u));
}

// Moves a unit but the first by a place; `unit` is what it was. Returns the next.
fn shift_unit(i: u32, unit: vec4<u32>) -> vec4<u32> {
    let next = get_unit(i + 1u);
    put_unit(i, shift_in(unit, next.x));
    return next;
}

// The mask of those of the first `count` bytes that are in the word at byte `from_byte`.
fn first_bytes(count: u32, from_byte: u32) -> u32 {
    let bytes = clamp(count, from_byte, from_byte + 4u) - from_byte;
    return select((1u << (8u * (bytes & 3u))) - 1u, 0xffffffffu, bytes == 4u);
}

// A lane decodes a segment, and writes its runs as label | begin << 8 and the list that it leaves.
@compute @workgroup_size(THREADS)
fn segments(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let block = (wg.y * wgs.x + wg.x) / args.groups;
    if block >= args.blocks {
        return;
    }
    let slot = args.slot;
    var group = (wg.y * wgs.x + wg.x) % args.groups;
    let info = block * BLOCK_WORDS;

    // The set of tables of this group, and its segments in the order.
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
    words = bwt_blocks[info + BLOCK_PAYLOAD] * 4u + bwt_blocks[info + BLOCK_WORDS_AT] + bwt_segments[entry + 2u];
    word_count = bwt_segments[entry + 3u] & 0xffffu;
    taken = 0u;
    ahead0 = 0u;
    ahead1 = 0u;
    if word_count > 0u {
        ahead0 = payload[words];
    }
    if word_count > 1u {
        ahead1 = payload[words + 1u];
    }
    next_word = 2u;

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
    var history = bwt_histories[histories];
    var bad = 30u;
    var count = 0u;
    while count < MAX_RUNS {
        let symbol = front.x & 255u;
        // The symbol of the next run but where a rank is 0, which it need not be.
        let second = (front.x >> 8u) & 255u;
        let history_of_second = bwt_histories[histories + second * 32u];
        let h = history & 0xffffu;
        let j = history >> 16u;
        let rank_context = min(31u, (6u * h + 2u * rank_mean) >> 13u) * 4u + min(3u, rank_mean >> 13u);
        let run_context = RANK_CONTEXTS + min(31u, (7u * j + run_mean) >> 12u) * 8u + min(7u, h >> 11u);

        let run_table = table_of(run_context, KEPT);

        var token = take_token(table_of(rank_context, 0u));
        var rank = token + 1u;
        if token >= 8u {
            let bits = ((token - 8u) >> 2u) + 1u;
            rank = (((4u + (token & 3u)) << bits) + (x_low & ((1u << bits) - 1u)) + 1u) & 255u;
            drop_bits(bits);
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

        let rank_log = select(log_scale(rank), 0u, rank == 0u);
        let run_log = log_scale(length);
        history = history - ((history >> 3u) & 0x1fff1fffu) + ((rank_log << 5u) | (run_log << 21u));
        bwt_histories[histories + symbol * 32u] = history;
        history = select(history_of_second, history, rank == 0u);
        rank_mean = rank_mean - (rank_mean >> 3u) + (rank_log << 5u);
        run_mean = run_mean - (run_mean >> 3u) + (run_log << 5u);

        // Symbols move one place to the front, up to the rank. Without a loop: a lane has to do with few iterations.
        let units = rank >> 4u;
        var unit = front;
        if units > 0u {
            let next = get_unit(1u);
            front = shift_in(unit, next.x);
            unit = next;
            if units > 1u {
                unit = shift_unit(1u, unit);
                if units > 2u {
                    unit = shift_unit(2u, unit);
                    if units > 3u {
                        unit = shift_unit(3u, unit);
                        if units > 4u {
                            unit = shift_unit(4u, unit);
                            if units > 5u {
                                unit = shift_unit(5u, unit);
                                if units > 6u {
                                    unit = shift_unit(6u, unit);
                                    if units > 7u {
                                        unit = shift_unit(7u, unit);
                                        if units > 8u {
                                            unit = shift_unit(8u, unit);
                                            if units > 9u {
                                                unit = shift_unit(9u, unit);
                                                if units > 10u {
                                                    unit = shift_unit(10u, unit);
                                                    if units > 11u {
                                                        unit = shift_unit(11u, unit);
                                                        if units > 12u {
                                                            unit = shift_unit(12u, unit);
                                                            if units > 13u {
                                                                unit = shift_unit(13u, unit);
                                                                if units > 14u {
                                                                    unit = shift_unit(14u, unit);
                                                                }
                                                            }
                                                        }
                                                    }
                                                }
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        // Those before the rank move, the symbol comes behind them, the others stay.
        let before = masks[rank & 15u];
        let upto = masks[(rank & 15u) + 1u];
        let changed = (shift_in(unit, 0u) & before) | (vec4<u32>(symbol * 0x01010101u) & ~before);
        unit = (changed & upto) | (unit & ~upto);
        if units == 0u {
            front = unit;
        } else {
            put_unit(units, unit);
        }

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
            let is_good = x_low == 1u && x_high == 0u && taken == word_count;
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
        bwt_lists[final_list + i] = get_unit(i);
    }
}
