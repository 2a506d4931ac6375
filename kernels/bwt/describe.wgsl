// BWT payloads: decodes the directory and the descriptions of tables, which are coded as binary decisions.
//
// @pz_cost {
//   threads: 96
//   passes: 1
//   buffers: jobs=32, payload=N+256, results=32,
//            bwt_blocks=512, bwt_state=3840, bwt_tables=208896,
//            bwt_segments=N/1024*20+20
//   local_mem: 5892
//   note: three lanes a block, each a chain of dependent decisions: some 30 for each segment, a few for each exponent
// }
// @pz_import team
// @pz_import bwt
// @pz_import binary

struct Args {
    slot: u32,
    blocks: u32,
    most_segments: u32,
    most_columns: u32,
}

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> payload: array<u32>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@group(0) @binding(3) var<storage, read_write> bwt_blocks: array<u32>;
@group(0) @binding(4) var<storage, read_write> bwt_state: array<u32>;
@group(0) @binding(5) var<storage, read_write> bwt_tables: array<u32>;
@group(0) @binding(6) var<storage, read_write> bwt_segments: array<u32>;
var<immediate> args: Args;

// The words at the start of each part's state. Its models follow its own words.
const STARTED = 0u;
const RANGE = 1u;
const CODE = 2u;
const AT = 3u;

// The parts, in the order of the payload.
const DIRECTORY = 0u;
const RANK_TABLES = 1u;
const RUN_TABLES = 2u;

// The directory's own words.
const DIRECTORY_BEGIN = 4u;
const DIRECTORY_WORDS = 5u;
const DIRECTORY_SET = 6u;
// Its models.
const SHORT = STATE_MODELS;
const LONGER = SHORT + 1u;
const SHORTER = LONGER + NUMBER_MODELS;
const LENGTHS = SHORTER + NUMBER_MODELS;
const SET = LENGTHS + NUMBER_MODELS;
const DIRECTORY_STATE = SET + MAX_SETS * MAX_SETS;

// The own words of the descriptions of rank tables and of run tables.
const TABLES_COLUMN = 4u; // columns done so far, over all sets
const TABLES_DIFFERENT = 5u; // distinct tables of the set so far
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

// Reads the next segments of a directory, as many as one dispatch may, on one work item. Returns a status, or 0.
fn describe_segments(block: u32) -> u32 {
    let n = jobs[block * JOB_WORDS];
    let info = block * BLOCK_WORDS;
    var begin = state[DIRECTORY_BEGIN];
    var words_before = state[DIRECTORY_WORDS];
    var which = state[DIRECTORY_SET];
    var segment = bwt_blocks[info + BLOCK_SEGMENTS];
    let sets = bwt_blocks[info + BLOCK_SETS];
    let usual = 1u << bwt_blocks[info + BLOCK_SEGMENT_LOG];
    let least = min(usual, MAX_RUNS);
    let out = segments_at(block, args.slot);
    var bad = 0u;
    for (var i = 0u; i < args.most_segments && begin < n && bad == 0u; i++) {
        let rest = n - begin;
        var len = rest;
        if rest > least {
            if binary_bit(SHORT) != 0u {
                len = usual - min(usual, binary_number(SHORTER));
            } else {
                len = usual + binary_number(LONGER);
            }
            if len > rest || len < least {
                bad = 11u;
            }
        }
        let words = binary_number(LENGTHS);
        var node = 1u;
        for (var k = 0u; k < 3u; k++) {
            node = (node << 1u) | binary_bit(SET + which * MAX_SETS + node);
        }
        which = node - MAX_SETS;
        if words > 2u * MAX_RUNS + 2u {
            bad = 12u;
        }
        if which >= sets {
            bad = 13u;
        }
        if bad == 0u {
            let entry = out + segment * SEGMENT_WORDS;
            bwt_segments[entry] = begin;
            bwt_segments[entry + 1u] = begin + len;
            bwt_segments[entry + 2u] = words_before;
            bwt_segments[entry + 3u] = words | (which << 16u);
            bwt_blocks[info + BLOCK_SET_SIZES + which] += 1u;
            segment += 1u;
            words_before += words;
            begin += len;
        }
    }
    if begin == n {
        let size = jobs[block * JOB_WORDS + 1u];
        let at = bwt_blocks[info + BLOCK_WORDS_AT] * 4u;
        if size - at != words_before * 4u {
            bad = 14u;
        }
    }
    bwt_blocks[info + BLOCK_SEGMENTS] = segment;
    state[DIRECTORY_BEGIN] = begin;
    state[DIRECTORY_WORDS] = words_before;
    state[DIRECTORY_SET] = which;
    return bad;
}

// Reads the exponents of a row's table, on one work item. Its space holds the exponents of the table to the left, and
// gets the new ones. Returns whether they are out of range.
fn describe_table(tokens: u32, row: u32, has_left: bool) -> bool {
    var bad = false;
    var present = 1u;
    var before = 0i;
    let table = row * 32u;
    // Load the next token's data early.
    let above = max(table, 32u) - 32u;
    var next_left = exponents[table];
    var next_above = exponents[above];
    for (var t = 0u; t < tokens; t++) {
        let left = select(0u, next_left, has_left);
        let a = select(left, next_above, row > 0u);
        let b = select(a, left, has_left);
        next_left = exponents[table + t + 1u];
        next_above = exponents[above + t + 1u];
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

// Reads at most `most_segments` segments of the directory, and at most `most_columns` columns each of rank tables and
// run tables, continuing where the previous dispatch ended. Each of these three parts has its own workgroup. Exponents
// go to the first half of each table's space.
// @pz_entry
fn describe(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let block = workgroup_index / 3u;
    if block >= args.blocks {
        return;
    }
    let which = workgroup_index % 3u;
    let info = block * BLOCK_WORDS;
    let saved = (block * 3u + which) * STATE_WORDS;
    let tables = block * TABLES_OF;
    let columns = select(4u, 8u, which == RUN_TABLES);
    let tokens = select(28u, 29u, which == RUN_TABLES);
    let first = select(0u, RANK_CONTEXTS, which == RUN_TABLES);
    let is_new = bwt_state[saved + STARTED] == 0u;
    // Another part may fail meanwhile, so make sure that all lanes see the same status.
    let valid = 1u - team_max(select(1u, 0u, results[block * RESULT_WORDS] == 0u));
    let begin_at = team_uniform(select(bwt_state[saved + TABLES_COLUMN], 0u, is_new || which == DIRECTORY));
    let most = min(bwt_blocks[info + BLOCK_SETS] * columns, begin_at + args.most_columns);
    let end = team_uniform(select(begin_at, most, valid != 0u && which != DIRECTORY));

    for (var i = lane; i < STATE_WORDS; i += 32u) {
        if is_new {
            state[i] = select(0u, MODEL_NEW, i >= STATE_MODELS);
        } else {
            state[i] = bwt_state[saved + i];
        }
    }
    payload_at = jobs[block * JOB_WORDS + 2u] * 4u;
    let part = bwt_blocks[info + BLOCK_PARTS + 2u * which];
    let part_end = select(0u, part + bwt_blocks[info + BLOCK_PARTS + 2u * which + 1u], valid != 0u);
    binary_open(select(bwt_state[saved + AT], part, is_new), part_end);
    if is_new {
        binary_start();
    } else {
        code_range = bwt_state[saved + RANGE];
        code = bwt_state[saved + CODE];
    }
    if lane == 0u {
        failed = 0u;
    }
    team_sync();
    if lane == 0u && which == DIRECTORY && valid != 0u && state[DIRECTORY_BEGIN] < jobs[block * JOB_WORDS] {
        failed = describe_segments(block);
    }
    // If the previous dispatch ended inside a set, its last column is to the left of the first one here.
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
                    // Zeros follow the last token. Take eight at a time, so that their loads overlap.
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
            failed = select(0u, 20u + which, bad);
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
            results[block * RESULT_WORDS] = failed;
        }
        state[STARTED] = 1u;
        state[RANGE] = code_range;
        state[CODE] = code;
        state[AT] = binary_at();
        if which != DIRECTORY {
            state[TABLES_COLUMN] = end;
        }
    }
    team_sync();
    for (var i = lane; i < STATE_WORDS; i += 32u) {
        bwt_state[saved + i] = state[i];
    }
}
