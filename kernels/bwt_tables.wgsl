// BWT payloads: the descriptions of tables, and the tables.
//
// @pz_cost {
//   threads_per_element: 0.012
//   passes: 2
//   buffers: jobs=32, payload=N+256, results=32,
//            bwt_blocks=512, bwt_state=3840, bwt_tables=208896
//   local_mem: 6144
//   note: describe is a chain of a few decisions for each exponent, two lanes a block; tables have a team each
// }
// @pz_import team
// @pz_import bwt
// @pz_import binary

struct Args {
    blocks: u32,
    most: u32,
}

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> payload: array<u32>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@group(0) @binding(3) var<storage, read> bwt_blocks: array<u32>;
@group(0) @binding(4) var<storage, read_write> bwt_state: array<u32>;
@group(0) @binding(5) var<storage, read_write> bwt_tables: array<u32>;
var<immediate> args: Args;

// Words of a description's state before its models.
const TABLES_STARTED = 0u;
const TABLES_RANGE = 1u;
const TABLES_CODE = 2u;
const TABLES_AT = 3u;
const TABLES_COLUMN = 4u; // columns of all sets that are done
const TABLES_DIFFERENT = 5u; // different tables of the set
// Its models.
const FRESH = STATE_MODELS;
const PRESENT = FRESH + 4u;
const ZERO = PRESENT + 8u;
const SIGN = ZERO + 15u;
const MORE = SIGN + 15u;
const TABLES_STATE = MORE + 90u;

var<workgroup> state: array<u32, STATE_WORDS>;
var<workgroup> exponents: array<u32, 1024>; // of 32 rows of a column
var<workgroup> fresh: array<u32, 32>;
var<workgroup> numbers: array<u32, 32>;
var<workgroup> failed: u32;

// The exponents of a row's table, for one work item. Its place has those of the table to the left, and gets the new
// ones. Returns whether they are out of range.
fn describe_table(tokens: u32, row: u32, has_left: bool) -> bool {
    var bad = false;
    var present = 1u;
    var before = 0i;
    let table = row * 32u;
    for (var t = 0u; t < tokens; t++) {
        let left = select(0u, exponents[table + t], has_left);
        var a = left;
        if row > 0u {
            a = exponents[table - 32u + t];
        }
        let b = select(a, left, has_left);
        let context = select(0u, 4u, a > 0u) + select(0u, 2u, b > 0u) + present;
        present = binary_bit(PRESENT + context);
        var exponent = 0u;
        if present != 0u {
            var guess = (a + b + 1u) >> 1u;
            let apart = max(a, b) - min(a, b);
            var kind = select(select(2u, 1u, apart < 3u), 0u, apart == 0u);
            if a == 0u || b == 0u {
                guess = a + b;
                kind = 3u;
                if guess == 0u {
                    guess = 4u;
                    kind = 4u;
                }
            }
            let size = u32(min(abs(before), 2i));
            var delta = 0i;
            if binary_bit(ZERO + 3u * kind + size) != 0u {
                let negative = binary_bit(SIGN + 3u * kind + u32(sign(before) + 1i));
                var m = 1u;
                while m < 7u {
                    if binary_bit(MORE + (3u * kind + size) * 6u + m - 1u) == 0u {
                        break;
                    }
                    m += 1u;
                }
                if m == 7u {
                    m += binary_raw(6u);
                }
                delta = select(i32(m), -i32(m), negative != 0u);
            }
            before = delta;
            let sum = i32(guess) + delta;
            bad = bad || sum < 1i || sum > 37i;
            exponent = u32(clamp(sum, 1i, 37i));
        }
        exponents[table + t] = exponent;
    }
    return bad;
}

// Reads at most `most` columns of tables, of ranks and of runs, from where the run before of this kernel ended.
// Exponents go to the first half of each table's place.
@compute @workgroup_size(THREADS)
fn describe(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let group = wg.y * wgs.x + wg.x;
    let block = group >> 1u;
    if block >= args.blocks {
        return;
    }
    let is_runs = group & 1u;
    let info = block * BLOCK_WORDS;
    let saved = (block * 3u + 1u + is_runs) * STATE_WORDS;
    let tables = block * TABLES_OF;
    let columns = select(4u, 8u, is_runs != 0u);
    let tokens = select(28u, 29u, is_runs != 0u);
    let first = select(0u, RANK_CONTEXTS, is_runs != 0u);
    let is_new = bwt_state[saved + TABLES_STARTED] == 0u;
    // The other description may fail meanwhile: all lanes are to see the same.
    let valid = 1u - team_max(select(1u, 0u, results[block * RESULT_WORDS] == 0u));
    let begin_at = team_uniform(select(bwt_state[saved + TABLES_COLUMN], 0u, is_new));
    let last = min(bwt_blocks[info + BLOCK_SETS] * columns, begin_at + args.most);
    let end = team_uniform(select(0u, last, valid != 0u));

    for (var i = lane; i < TABLES_STATE; i += 32u) {
        if is_new {
            state[i] = select(0u, MODEL_NEW, i >= STATE_MODELS);
        } else {
            state[i] = bwt_state[saved + i];
        }
    }
    payload_at = jobs[block * JOB_WORDS + 2u] * 4u;
    let part = bwt_blocks[info + BLOCK_PARTS + 2u + 2u * is_runs];
    let part_end = select(0u, part + bwt_blocks[info + BLOCK_PARTS + 3u + 2u * is_runs], valid != 0u);
    binary_open(select(bwt_state[saved + TABLES_AT], part, is_new), part_end);
    if lane == 0u {
        failed = 0u;
        if valid != 0u && is_new {
            binary_start();
        } else if valid != 0u {
            code_range = bwt_state[saved + TABLES_RANGE];
            code = bwt_state[saved + TABLES_CODE];
        }
    }
    // What is left of the first column, as the run before left it.
    if begin_at % columns != 0u {
        let left = tables + ((begin_at / columns) * CONTEXTS + first + lane * columns + begin_at % columns - 1u) * TABLE_WORDS;
        for (var k = 0u; k < 8u; k++) {
            let four = bwt_tables[left + k];
            for (var j = 0u; j < 4u; j++) {
                exponents[lane * 32u + 4u * k + j] = (four >> (8u * j)) & 255u;
            }
        }
        fresh[lane] = bwt_tables[left + 8u];
        numbers[lane] = bwt_tables[tables + NUMBERS_AT + (begin_at / columns) * CONTEXTS + first + lane * columns
            + begin_at % columns - 1u];
    } else {
        for (var i = lane; i < 1024u; i += 32u) {
            exponents[i] = 0u;
        }
    }
    team_sync();

    for (var column = begin_at; column < end; column++) {
        let has_left = column % columns != 0u;
        if lane == 0u && failed == 0u {
            var bad = false;
            var different = select(0u, state[TABLES_DIFFERENT], has_left);
            for (var row = 0u; row < 32u && !bad; row++) {
                let above = max(row, 1u) - 1u;
                let context = select(0u, 2u * fresh[above], row > 0u) + select(0u, fresh[row], has_left);
                let is_fresh = binary_bit(FRESH + context);
                fresh[row] = is_fresh;
                if is_fresh != 0u || (row == 0u && !has_left) {
                    numbers[row] = different | NUMBER_IS_FIRST;
                    different += 1u;
                } else {
                    numbers[row] = numbers[above] & (NUMBER_IS_FIRST - 1u);
                }
                if is_fresh != 0u {
                    bad = describe_table(tokens, row, has_left);
                } else if row > 0u {
                    // Behind the last token there are zeros. Eight at a time, so that one does not wait for another.
                    for (var t = 0u; t < 32u; t += 8u) {
                        var eight: array<u32, 8>;
                        for (var k = 0u; k < 8u; k++) {
                            eight[k] = exponents[above * 32u + t + k];
                        }
                        for (var k = 0u; k < 8u; k++) {
                            exponents[row * 32u + t + k] = eight[k];
                        }
                    }
                } else if !has_left {
                    for (var t = 0u; t < tokens; t++) {
                        exponents[t] = 0u;
                    }
                }
            }
            failed = select(0u, 1u, bad);
            state[TABLES_DIFFERENT] = different;
        }
        team_sync();
        let out = tables + ((column / columns) * CONTEXTS + first + lane * columns + column % columns) * TABLE_WORDS;
        for (var k = 0u; k < 8u; k++) {
            let four = lane * 32u + 4u * k;
            bwt_tables[out + k] = exponents[four] | (exponents[four + 1u] << 8u) | (exponents[four + 2u] << 16u)
                | (exponents[four + 3u] << 24u);
        }
        bwt_tables[out + 8u] = fresh[lane];
        bwt_tables[tables + NUMBERS_AT + (column / columns) * CONTEXTS + first + lane * columns + column % columns] =
            numbers[lane];
        team_sync();
    }
    if lane == 0u && valid != 0u {
        if failed != 0u {
            results[block * RESULT_WORDS] = 20u + is_runs;
        }
        state[TABLES_STARTED] = 1u;
        state[TABLES_RANGE] = code_range;
        state[TABLES_CODE] = code;
        state[TABLES_AT] = binary_at();
        state[TABLES_COLUMN] = end;
    }
    team_sync();
    for (var i = lane; i < TABLES_STATE; i += 32u) {
        bwt_state[saved + i] = state[i];
    }
}

@group(0) @binding(0) var<storage, read> starts_results: array<u32>;
@group(0) @binding(1) var<storage, read> starts_blocks: array<u32>;
@group(0) @binding(2) var<storage, read_write> starts_tables: array<u32>;

// Turns exponents into starts, in place: 32 of 16 bits.
@compute @workgroup_size(THREADS)
fn starts(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let index = team_uniform((wg.y * wgs.x + wg.x) * TEAMS + team_index);
    let block = index / (MAX_SETS * CONTEXTS);
    if block >= args.blocks {
        return;
    }
    let which = index % (MAX_SETS * CONTEXTS) / CONTEXTS;
    let is_good = starts_results[block * RESULT_WORDS] == 0u;
    let count = select(0u, starts_blocks[block * BLOCK_WORDS + BLOCK_SETS], is_good);
    if team_uniform(select(0u, 1u, which < count)) == 0u {
        return;
    }
    let table = block * TABLES_OF + index % (MAX_SETS * CONTEXTS) * TABLE_WORDS;
    let q = (starts_tables[table + (lane >> 2u)] >> (8u * (lane & 3u))) & 255u;
    team_sync();

    let third = (q + 2u) % 3u; // (q - 1) % 3
    let mantissa = select(select(104032u, 82570u, third == 1u), 65536u, third == 0u);
    let weight = select(mantissa << ((max(q, 1u) - 1u) / 3u), 0u, q == 0u);
    // The sum needs more than 32 bits.
    let highs = team_sum(weight >> 16u);
    let lows = team_sum(weight & 0xffffu);
    let low = (highs << 16u) + lows;
    let high = (highs >> 16u) + select(0u, 1u, low < lows);
    // 4096 weight / sum, a bit at a time, and what is left of it.
    var quotient = 0u;
    var rest_low = weight;
    var rest_high = 0u;
    if rest_high > high || (rest_high == high && rest_low >= low) {
        quotient = 1u;
        rest_low -= low;
    }
    for (var i = 0u; i < 12u; i++) {
        rest_high = (rest_high << 1u) | (rest_low >> 31u);
        rest_low <<= 1u;
        quotient <<= 1u;
        if rest_high > high || (rest_high == high && rest_low >= low) {
            quotient |= 1u;
            rest_high -= high + select(0u, 1u, rest_low < low);
            rest_low -= low;
        }
    }
    // Rounded: one more if the rest and half the sum are the sum or more.
    let half_low = (low >> 1u) | (high << 31u);
    let half_high = high >> 1u;
    let up_low = rest_low + half_low;
    let up_high = rest_high + half_high + select(0u, 1u, up_low < rest_low);
    if up_high > high || (up_high == high && up_low >= low) {
        quotient += 1u;
    }
    var freq = select(max(1u, quotient), 0u, q == 0u);
    let total = team_sum(freq);
    let largest = team_max((freq << 5u) | (31u - lane));
    if lane == 31u - (largest & 31u) {
        freq += 4096u - total;
    }
    let start = team_scan(freq) - freq;
    let after = team_shuffle(start, (lane + 1u) & 31u);
    if (lane & 1u) == 0u {
        starts_tables[table + (lane >> 1u)] = start | (after << 16u);
    }
}
