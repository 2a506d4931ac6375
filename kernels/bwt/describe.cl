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

// The words at the start of each part's state. Its models follow its own words.
#define STARTED 0u
#define RANGE 1u
#define CODE 2u
#define AT 3u

// The parts, in the order of the payload.
#define DIRECTORY 0u
#define RANK_TABLES 1u
#define RUN_TABLES 2u

// The directory's own words.
#define DIRECTORY_BEGIN 4u
#define DIRECTORY_WORDS 5u
#define DIRECTORY_SET 6u
// Its models.
#define SHORT STATE_MODELS
#define LONGER (SHORT + 1u)
#define SHORTER (LONGER + NUMBER_MODELS)
#define LENGTHS (SHORTER + NUMBER_MODELS)
#define SET (LENGTHS + NUMBER_MODELS)
#define DIRECTORY_STATE (SET + MAX_SETS * MAX_SETS)

// The own words of the descriptions of rank tables and of run tables.
#define TABLES_COLUMN 4u // columns done so far, over all sets
#define TABLES_DIFFERENT 5u // distinct tables of the set so far
// Its models.
#define FRESH STATE_MODELS
#define PRESENT (FRESH + 4u)
#define ZERO (PRESENT + 8u)
#define SIGN (ZERO + 15u)
#define MORE (SIGN + 15u)
#define TABLES_STATE (MORE + 90u)

// Reads at most `most` segments of a directory, on one work item. `job` is the block's. Returns a status, or 0.
inline __attribute__((always_inline)) uint describe_segments(Binary *d, __local uint *state, __global const uint *job, __global uint *info,
                              __global uint *out, uint most) {
    uint n = job[0];
    uint begin = state[DIRECTORY_BEGIN];
    uint words_before = state[DIRECTORY_WORDS];
    uint set = state[DIRECTORY_SET];
    uint segment = info[BLOCK_SEGMENTS];
    uint sets = info[BLOCK_SETS];
    uint usual = 1u << info[BLOCK_SEGMENT_LOG];
    uint least = min(usual, MAX_RUNS);
    uint bad = 0u;
    for (uint i = 0u; i < most && begin < n && bad == 0u; i++) {
        uint rest = n - begin;
        uint len = rest;
        if (rest > least) {
            if (binary_bit(d, state + SHORT) != 0u) {
                len = usual - min(usual, binary_number(d, state + SHORTER));
            } else {
                len = usual + binary_number(d, state + LONGER);
            }
            if (len > rest || len < least) bad = 11u;
        }
        uint words = binary_number(d, state + LENGTHS);
        uint node = 1u;
        for (uint k = 0u; k < 3u; k++) node = node << 1 | binary_bit(d, state + SET + set * MAX_SETS + node);
        set = node - MAX_SETS;
        if (words > 2u * MAX_RUNS + 2u) bad = 12u;
        if (set >= sets) bad = 13u;
        if (bad == 0u) {
            out[segment * SEGMENT_WORDS] = begin;
            out[segment * SEGMENT_WORDS + 1u] = begin + len;
            out[segment * SEGMENT_WORDS + 2u] = words_before;
            out[segment * SEGMENT_WORDS + 3u] = words | set << 16;
            info[BLOCK_SET_SIZES + set] += 1u;
            segment += 1u;
            words_before += words;
            begin += len;
        }
    }
    if (begin == n) {
        uint size = job[1];
        uint at = info[BLOCK_WORDS_AT] * 4u;
        if (size - at != words_before * 4u) bad = 14u;
    }
    info[BLOCK_SEGMENTS] = segment;
    state[DIRECTORY_BEGIN] = begin;
    state[DIRECTORY_WORDS] = words_before;
    state[DIRECTORY_SET] = set;
    return bad;
}

// Reads the exponents of one table, on one work item. `table` holds the exponents of the table to the left, and gets
// the new ones.
inline __attribute__((always_inline)) uint describe_table(Binary *d, __local uint *models, uint tokens, __local const uint *above,
                           bool has_above, __local uint *table, bool has_left) {
    uint bad = 0u;
    uint present = 1u;
    int before = 0;
    // Load the next token's data early.
    uint next_left = table[0];
    uint next_above = above[0];
    for (uint t = 0u; t < tokens; t++) {
        uint left = next_left;
        uint a = has_above ? next_above : has_left ? left : 0u;
        uint b = has_left ? left : a;
        next_left = table[t + 1u];
        next_above = above[t + 1u];
        uint context = (a > 0u ? 4u : 0u) + (b > 0u ? 2u : 0u) + present;
        present = binary_bit(d, models + PRESENT + context);
        uint exponent = 0u;
        if (present != 0u) {
            uint guess = (a + b + 1u) >> 1;
            uint apart = max(a, b) - min(a, b);
            uint kind = apart == 0u ? 0u : apart < 3u ? 1u : 2u;
            if (a == 0u || b == 0u) {
                guess = a + b;
                kind = 3u;
                if (guess == 0u) {
                    guess = 4u;
                    kind = 4u;
                }
            }
            uint size = min(abs(before), 2u);
            int delta = 0;
            if (binary_bit(d, models + ZERO + 3u * kind + size) != 0u) {
                uint sign = before < 0 ? 0u : before == 0 ? 1u : 2u;
                uint negative = binary_bit(d, models + SIGN + 3u * kind + sign);
                uint m = 1u;
                while (m < 7u && binary_bit(d, models + MORE + (3u * kind + size) * 6u + m - 1u) != 0u) m += 1u;
                if (m == 7u) m += binary_raw(d, 6u);
                delta = negative != 0u ? -(int)m : (int)m;
            }
            before = delta;
            int sum = (int)guess + delta;
            if (sum < 1 || sum > 37) bad = 1u;
            exponent = (uint)clamp(sum, 1, 37);
        }
        table[t] = exponent;
    }
    return bad;
}

// Reads at most `most_segments` segments of the directory, and at most `most_columns` columns each of rank tables and
// run tables, continuing where the previous dispatch ended. Each of these three parts has its own workgroup. Exponents
// go to the first half of each table's space.
__kernel void describe(__global const uint *jobs, __global const uint *payload, __global uint *results,
                       __global uint *bwt_blocks, __global uint *bwt_state, __global uint *bwt_tables,
                       __global uint *bwt_segments, uint slot, uint blocks, uint most_segments, uint most_columns) {
    TEAM_START(team);
    SHARED uint state[STATE_WORDS];
    SHARED uint exponents[1024]; // of 32 rows of a column
    SHARED uint fresh[32];
    SHARED uint numbers[32];
    SHARED uint failed;
    uint block = (uint)get_group_id(0) / 3u;
    if (block >= blocks) return;
    uint part = (uint)get_group_id(0) % 3u;
    __global const uint *job = jobs + block * JOB_WORDS;
    __global uint *info = bwt_blocks + block * BLOCK_WORDS;
    __global uint *saved = bwt_state + ((size_t)block * 3u + part) * STATE_WORDS;
    __global uint *tables = bwt_tables + (size_t)block * TABLES_OF;
    uint columns = part == RUN_TABLES ? 8u : 4u;
    uint tokens = part == RUN_TABLES ? 29u : 28u;
    uint first = part == RUN_TABLES ? RANK_CONTEXTS : 0u;
    bool is_new = saved[STARTED] == 0u;
    // Another part may fail meanwhile, so make sure that all lanes see the same status.
    uint valid = 1u - team_max(team, results[block * RESULT_WORDS] == 0u ? 0u : 1u);
    uint column = team_uniform(team, is_new || part == DIRECTORY ? 0u : saved[TABLES_COLUMN]);
    uint last = part == DIRECTORY ? column : min(info[BLOCK_SETS] * columns, column + most_columns);
    uint end = team_uniform(team, valid != 0u ? last : column);

    for (uint i = team.lane; i < STATE_WORDS; i += 32u) {
        state[i] = !is_new ? saved[i] : i >= STATE_MODELS ? MODEL_NEW : 0u;
    }
    Binary d;
    uint begin = info[BLOCK_PARTS + 2u * part];
    uint bytes_end = valid != 0u ? begin + info[BLOCK_PARTS + 2u * part + 1u] : 0u;
    binary_open(&d, payload_of(payload, jobs, block), is_new ? begin : saved[AT], bytes_end);
    if (is_new) {
        binary_start(&d);
    } else {
        d.range = saved[RANGE];
        d.code = saved[CODE];
    }
    if (team.lane == 0u) failed = 0u;
    team_sync(team);
    if (team.lane == 0u && part == DIRECTORY && valid != 0u && state[DIRECTORY_BEGIN] < job[0]) {
        failed = describe_segments(&d, state, job, info, bwt_segments + SEGMENTS_AT(block, slot), most_segments);
    }
    // If the previous dispatch ended inside a set, its last column is to the left of the first one here.
    if (column % columns != 0u) {
        __global const uint *left = tables
            + ((column / columns) * CONTEXTS + first + team.lane * columns + column % columns - 1u) * TABLE_WORDS;
        for (uint k = 0u; k < 8u; k++) {
            uint four = left[k];
            for (uint j = 0u; j < 4u; j++) exponents[team.lane * 32u + 4u * k + j] = four >> (8u * j) & 255u;
        }
        fresh[team.lane] = left[8];
        numbers[team.lane] = tables[NUMBERS_AT + (column / columns) * CONTEXTS + first + team.lane * columns
                                    + column % columns - 1u];
    } else {
        for (uint i = team.lane; i < 1024u; i += 32u) exponents[i] = 0u;
    }
    team_sync(team);

    for (; column < end; column++) {
        bool has_left = column % columns != 0u;
        if (team.lane == 0u && failed == 0u) {
            uint bad = 0u;
            uint different = has_left ? state[TABLES_DIFFERENT] : 0u;
            for (uint row = 0u; row < 32u && bad == 0u; row++) {
                __local uint *table = exponents + row * 32u;
                __local const uint *above = exponents + (max(row, 1u) - 1u) * 32u;
                uint context = (row > 0u ? 2u * fresh[max(row, 1u) - 1u] : 0u) + (has_left ? fresh[row] : 0u);
                uint is_fresh = binary_bit(&d, state + FRESH + context);
                fresh[row] = is_fresh;
                if (is_fresh != 0u || (row == 0u && !has_left)) {
                    numbers[row] = different | NUMBER_IS_FIRST;
                    different += 1u;
                } else {
                    numbers[row] = numbers[row > 0u ? row - 1u : 0u] & (NUMBER_IS_FIRST - 1u);
                }
                if (is_fresh != 0u) {
                    bad = describe_table(&d, state, tokens, above, row > 0u, table, has_left);
                } else if (row > 0u) {
                    // Zeros follow the last token. Take eight at a time, so that their loads overlap.
                    for (uint t = 0u; t < 32u; t += 8u) {
                        uint eight[8];
                        #pragma unroll
                        for (uint k = 0u; k < 8u; k++) eight[k] = above[t + k];
                        #pragma unroll
                        for (uint k = 0u; k < 8u; k++) table[t + k] = eight[k];
                    }
                } else if (!has_left) {
                    for (uint t = 0u; t < tokens; t++) table[t] = 0u;
                }
            }
            failed = bad != 0u ? 20u + part : 0u;
            state[TABLES_DIFFERENT] = different;
        }
        team_sync(team);
        __global uint *out = tables
            + ((column / columns) * CONTEXTS + first + team.lane * columns + column % columns) * TABLE_WORDS;
        for (uint k = 0u; k < 8u; k++) {
            __local const uint *four = exponents + team.lane * 32u + 4u * k;
            out[k] = four[0] | four[1] << 8 | four[2] << 16 | four[3] << 24;
        }
        out[8] = fresh[team.lane];
        tables[NUMBERS_AT + (column / columns) * CONTEXTS + first + team.lane * columns + column % columns] =
            numbers[team.lane];
        team_sync(team);
    }
    if (team.lane == 0u && valid != 0u) {
        if (failed != 0u) results[block * RESULT_WORDS] = failed;
        state[STARTED] = 1u;
        state[RANGE] = d.range;
        state[CODE] = d.code;
        state[AT] = binary_at(&d);
        if (part != DIRECTORY) state[TABLES_COLUMN] = column;
    }
    team_sync(team);
    for (uint i = team.lane; i < STATE_WORDS; i += 32u) saved[i] = state[i];
}
