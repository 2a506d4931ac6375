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

// Words of a description's state before its models.
#define TABLES_STARTED 0u
#define TABLES_RANGE 1u
#define TABLES_CODE 2u
#define TABLES_AT 3u
#define TABLES_COLUMN 4u // columns of all sets that are done
#define TABLES_DIFFERENT 5u // different tables of the set
// Its models.
#define FRESH STATE_MODELS
#define PRESENT (FRESH + 4u)
#define ZERO (PRESENT + 8u)
#define SIGN (ZERO + 15u)
#define MORE (SIGN + 15u)
#define TABLES_STATE (MORE + 90u)

// The exponents of one table, for one work item. `table` has those of the table to the left, and gets the new ones.
inline uint describe_table(Binary *d, __local uint *models, uint tokens, __local const uint *above,
                           bool has_above, __local uint *table, bool has_left) {
    uint bad = 0u;
    uint present = 1u;
    int before = 0;
    for (uint t = 0u; t < tokens; t++) {
        uint left = table[t];
        uint a = has_above ? above[t] : has_left ? left : 0u;
        uint b = has_left ? left : a;
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

// Reads at most `most` columns of tables, of ranks and of runs, from where the run before of this kernel ended.
// Exponents go to the first half of each table's place.
__kernel void describe(__global const uint *jobs, __global const uint *payload, __global uint *results,
                       __global const uint *bwt_blocks, __global uint *bwt_state, __global uint *bwt_tables,
                       uint blocks, uint most) {
    TEAM_START(team);
    __local uint state[STATE_WORDS];
    __local uint exponents[1024]; // of 32 rows of a column
    __local uint fresh[32];
    __local uint numbers[32];
    __local uint failed;
    uint block = (uint)get_group_id(0) >> 1;
    if (block >= blocks) return;
    uint is_runs = (uint)get_group_id(0) & 1u;
    __global const uint *info = bwt_blocks + block * BLOCK_WORDS;
    __global uint *saved = bwt_state + ((size_t)block * 3u + 1u + is_runs) * STATE_WORDS;
    __global uint *tables = bwt_tables + (size_t)block * TABLES_OF;
    uint columns = is_runs != 0u ? 8u : 4u;
    uint tokens = is_runs != 0u ? 29u : 28u;
    uint first = is_runs != 0u ? RANK_CONTEXTS : 0u;
    bool is_new = saved[TABLES_STARTED] == 0u;
    // The other description may fail meanwhile: all lanes are to see the same.
    uint valid = 1u - team_max(team, results[block * RESULT_WORDS] == 0u ? 0u : 1u);
    uint column = team_uniform(team, is_new ? 0u : saved[TABLES_COLUMN]);
    uint end = team_uniform(team, valid != 0u ? min(info[BLOCK_SETS] * columns, column + most) : 0u);

    for (uint i = team.lane; i < TABLES_STATE; i += 32u) {
        state[i] = !is_new ? saved[i] : i >= STATE_MODELS ? MODEL_NEW : 0u;
    }
    Binary d;
    uint part = info[BLOCK_PARTS + 2u + 2u * is_runs];
    uint part_end = valid != 0u ? part + info[BLOCK_PARTS + 3u + 2u * is_runs] : 0u;
    binary_open(&d, payload_of(payload, jobs, block), is_new ? part : saved[TABLES_AT], part_end);
    if (is_new) {
        binary_start(&d);
    } else {
        d.range = saved[TABLES_RANGE];
        d.code = saved[TABLES_CODE];
    }
    if (team.lane == 0u) failed = 0u;
    // What is left of the first column, as the run before left it.
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
                    // Behind the last token there are zeros. Eight at a time, so that one does not wait for another.
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
            failed = bad;
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
        if (failed != 0u) results[block * RESULT_WORDS] = 20u + is_runs;
        state[TABLES_STARTED] = 1u;
        state[TABLES_RANGE] = d.range;
        state[TABLES_CODE] = d.code;
        state[TABLES_AT] = binary_at(&d);
        state[TABLES_COLUMN] = column;
    }
    team_sync(team);
    for (uint i = team.lane; i < TABLES_STATE; i += 32u) saved[i] = state[i];
}

// Turns exponents into starts, in place: 32 of 16 bits.
__kernel void starts(__global const uint *results, __global const uint *bwt_blocks, __global uint *bwt_tables,
                     uint blocks, uint most) {
    TEAM_START(team);
    uint index = team_uniform(team, (uint)get_group_id(0) * TEAMS + team.index);
    uint block = index / (MAX_SETS * CONTEXTS);
    if (block >= blocks) return;
    uint set = index % (MAX_SETS * CONTEXTS) / CONTEXTS;
    uint count = results[block * RESULT_WORDS] == 0u ? bwt_blocks[block * BLOCK_WORDS + BLOCK_SETS] : 0u;
    if (team_uniform(team, set < count ? 1u : 0u) == 0u) return;
    __global uint *table = bwt_tables + (size_t)block * TABLES_OF + index % (MAX_SETS * CONTEXTS) * TABLE_WORDS;
    uint lane = team.lane;
    uint q = table[lane >> 2] >> (8u * (lane & 3u)) & 255u;
    team_sync(team);

    uint third = (q + 2u) % 3u; // (q - 1) % 3
    uint mantissa = third == 0u ? 65536u : third == 1u ? 82570u : 104032u;
    uint weight = q == 0u ? 0u : mantissa << ((q - 1u) / 3u);
    // The sum needs more than 32 bits.
    ulong sum = ((ulong)team_sum(team, weight >> 16) << 16) + team_sum(team, weight & 0xffffu);
    uint freq = q == 0u ? 0u : max(1u, (uint)((((ulong)weight << 12) + (sum >> 1)) / max(sum, (ulong)1)));
    uint total = team_sum(team, freq);
    uint largest = team_max(team, freq << 5 | (31u - lane));
    if (lane == 31u - (largest & 31u)) freq += 4096u - total;
    uint start = team_scan(team, freq) - freq;
    uint after = team_shuffle(team, start, (lane + 1u) & 31u);
    if ((lane & 1u) == 0u) table[lane >> 1] = start | after << 16;
}
