// The decoding tables of each group of chunks, from their descriptions.
//
// A team has a group: one lane reads the description, then all build tables. See src/format/lz77.md.
//
// @pz_cost {
//   threads_per_element: 0.00048828125
//   passes: 1
//   buffers: payload=N+256, results=32, lz77_chunks=N/64+64, lz77_tables=N/4+N/32+17440
//   local_mem: 27040
//   note: at least a chunk for each 64 KiB, and a team for each; workgroup memory is that of two teams
// }
// @pz_import team
// @pz_import lz77_chunks

struct Args {
    blocks: u32,
    max_chunks: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> payload: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
@group(0) @binding(2) var<storage, read> lz77_chunks: array<u32>;
@group(0) @binding(3) var<storage, read_write> lz77_tables_out: array<u32>;

// @pz_import length_code

const ALPHABET: u32 = 256u;
const OFFSETS: u32 = 48u;

// A workgroup is one team. Code lengths or norms of the three models:
var<workgroup> values: array<u32, 768>;
// The symbols of a prefix code by length, for each length how many are shorter, and the end of its part of the table:
var<workgroup> order: array<u32, 256>;
var<workgroup> firsts: array<u32, 16>;
var<workgroup> limits: array<u32, 16>;
// What lane 0 found: status, modes, logs, constants.
var<workgroup> found: array<u32, 4>;

// Of each model, what its alphabet is.
struct Alphabet {
    symbols: u32,
    raw_bits: u32,
    prefix_log: u32, // the longest code, and the log of a prefix code's table
    fse_log: u32,    // of the largest FSE table
}

fn alphabet_of(model: u32) -> Alphabet {
    if model == 2u {
        return Alphabet(OFFSETS, 6u, OFFSET_LOG, 8u);
    }
    return Alphabet(ALPHABET, 8u, PREFIX_LOG, 11u);
}

// Reads code lengths of at most `most` (`log` 0), or norms for a table of 2^log states, of `size` symbols; those that
// are not 0 go to `values` from `first` on. Returns 0 or a status.
fn description_lengths(size: u32, most: u32, log: u32, first: u32) -> u32 {
    var near = 0u;
    var far = 0u;
    var place = 0u;
    var space = select(4096u, 1u << log, log != 0u);
    for (var i = 0u; i <= size; i++) {
        let next = description_peek();
        var used = 0u;
        if (near | far) == 0u {
            let zeros = countLeadingZeros(next);
            if zeros > 8u {
                return 20u;
            }
            used = 2u * zeros + 1u;
            place += (next >> (32u - used)) - 1u;
        }
        if place >= size {
            return 21u;
        }
        var code = near + far;
        if near == 0u {
            code = select(1u, 0u, far == 0u);
        } else if far == 0u {
            code = 2u * near;
        }
        let entry = length_code_entry(code, next << used);
        let length = entry >> 3u;
        description_skip(used + (entry & 7u));
        if length != 0u {
            var value = length;
            var share = 4096u >> length;
            if log != 0u {
                if length > log {
                    return 22u;
                }
                value = description_read(log - length) | 1u << (log - length);
                share = value;
            } else if length > most {
                return 23u;
            }
            if share > space {
                return 24u;
            }
            values[first + place] = value;
            space -= share;
            if space == 0u {
                return select(0u, 25u, description_is_short());
            }
        }
        far = near;
        near = length;
        place++;
    }
    return 26u;
}

// What lane 0 does.
fn read_group(first: u32, count: u32, out: u32, block: u32) {
    description_start(first, count);
    var status = 0u;
    var logs = 0u;
    var constants = 0u;
    let modes = description_read(8u);
    if count == 0u || modes >> 6u != 0u {
        status = 10u;
    }
    for (var m = 0u; m < 3u; m++) {
        if ((modes >> (2u * m)) & 3u) == 0u {
            let symbol = description_read(8u);
            if symbol >= alphabet_of(m).symbols {
                status = 11u;
            }
            constants |= symbol << (8u * m);
        }
    }
    for (var i = 0u; i < 6u; i++) {
        let pass_mode = 2u + i / 3u;
        let m = i % 3u;
        if ((modes >> (2u * m)) & 3u) != pass_mode || status != 0u {
            continue;
        }
        let a = alphabet_of(m);
        var log = 0u;
        if pass_mode == 3u {
            if FSE == 0u {
                status = 12u;
                continue;
            }
            log = description_read(4u);
            if log < 5u || log > a.fse_log {
                status = 13u;
                continue;
            }
        }
        status = description_lengths(a.symbols, a.prefix_log, log, ALPHABET * m);
        logs |= log << (8u * m);
    }
    // What is left of the last word is padding.
    let rest = (0u - description_position) & 31u;
    if description_read(rest) != 0u && status == 0u {
        status = 14u;
    }
    if description_is_short() && status == 0u {
        status = 15u;
    }
    lz77_tables_out[out + TABLES_STATUS] = status;
    lz77_tables_out[out + TABLES_WORDS] = description_position >> 5u;
    lz77_tables_out[out + TABLES_MODES] = modes;
    lz77_tables_out[out + TABLES_LOGS] = logs;
    if status != 0u {
        results[8u * block] = status;
    }
    found[0] = status;
    found[1] = modes;
    found[2] = logs;
    found[3] = constants;
}

// Sorts the symbols of a prefix code by length.
fn sort_symbols(a: Alphabet, base: u32) {
    let each = select(2u, 8u, a.symbols > 64u);
    var first = 0u;
    var limit = 0u;
    for (var length = 1u; length <= a.prefix_log; length++) {
        var mine = 0u;
        for (var i = 0u; i < each; i++) {
            mine += select(0u, 1u, values[base + each * lane + i] == length);
        }
        let end = team_scan(mine);
        var rank = first + end - mine;
        for (var i = 0u; i < each; i++) {
            let symbol = each * lane + i;
            if values[base + symbol] == length {
                order[rank & 255u] = symbol;
                rank++;
            }
        }
        let all = team_broadcast(end, 31u);
        limit += all << (a.prefix_log - length);
        if lane == 0u {
            firsts[length] = first;
            limits[length] = limit;
        }
        first += all;
    }
    team_sync();
}

// The entry at `i` of a prefix code's table.
fn prefix_entry(a: Alphabet, mode: u32, symbol_of_all: u32, i: u32) -> u32 {
    if mode == 0u {
        return symbol_of_all;
    }
    if mode == 1u {
        // Raw symbols that are no offsets are rejected as an offset that reaches before every window.
        return min(i >> (a.prefix_log - a.raw_bits), a.symbols) | a.raw_bits << 8u;
    }
    var length = 1u;
    var start = 0u;
    for (var l = 1u; l < a.prefix_log; l++) {
        let limit = limits[l];
        if i >= limit {
            length = l + 1u;
            start = limit;
        }
    }
    let rank = firsts[length] + ((i - start) >> (a.prefix_log - length));
    return order[rank & 255u] | length << 8u;
}

// @pz_if FSE

const STATES: u32 = 2048u;
var<workgroup> next_state: array<atomic<u32>, 2048>;

// Where occurrence `j` of a symbol of norm `n` would like to be.
fn preferred(n: u32, j: u32, log: u32) -> u32 {
    let size = 1u << log;
    let distance = (size << 16u) / n;
    return select((distance / 2u + j * distance) >> 16u, size - 1u, n == 1u);
}

// The decoding table, from word `table` on, of norms that fill it.
fn build_fse(symbols: u32, log: u32, base: u32, table: u32) {
    let size = 1u << log;
    for (var i = lane; i < size; i += 32u) {
        atomicStore(&next_state[i], 0u);
    }
    team_sync();
    // A counting sort by place: count,
    for (var symbol = 0u; symbol < symbols; symbol++) {
        let n = values[base + symbol];
        for (var j = lane; j < n; j += 32u) {
            atomicAdd(&next_state[preferred(n, j, log) & (STATES - 1u)], 1u);
        }
    }
    team_sync();
    // sum up,
    var sum = 0u;
    for (var i = 0u; i < size; i += 32u) {
        let count = atomicLoad(&next_state[i + lane]);
        let end = team_scan(count);
        atomicStore(&next_state[i + lane], sum + end - count);
        sum += team_broadcast(end, 31u);
    }
    team_sync();
    // and place, symbol after symbol. Occurrences of one symbol are in different places.
    for (var symbol = 0u; symbol < symbols; symbol++) {
        let n = values[base + symbol];
        for (var j = lane; j < n; j += 32u) {
            let place = preferred(n, j, log) & (STATES - 1u);
            let state = atomicLoad(&next_state[place]);
            atomicStore(&next_state[place], state + 1u);
            let x = n + j;
            let bits = log - (31u - countLeadingZeros(x));
            let next = (x << bits) - size;
            lz77_tables_out[table + (state & (STATES - 1u))] = symbol | bits << 8u | next << 16u;
        }
        team_sync();
    }
}

// @pz_end

@compute @workgroup_size(THREADS)
fn lz77_tables(@builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) wgs: vec3<u32>) {
    team_start(local_index);
    length_code_build(local_index);
    for (var i = lane; i < 3u * ALPHABET; i += 32u) {
        values[i] = 0u;
    }
    let team = wg.y * wgs.x + wg.x;
    let block = min(team / args.max_chunks, args.blocks - 1u);
    let group = team % args.max_chunks;
    let head = CHUNK_WORDS * block * (args.max_chunks + 1u);
    let chunk = group << ((lz77_chunks[head + BLOCK_LOGS] >> 16u) & 15u);
    let is_group = team < args.blocks * args.max_chunks && chunk < lz77_chunks[head + BLOCK_CHUNKS];
    let descriptor = head + CHUNK_WORDS * (chunk + 1u);
    let out = GROUP_WORDS * (block * args.max_chunks + group);
    if lane == 0u {
        found[0] = 1u;
    }
    team_sync();
    if lane == 0u && is_group {
        read_group(lz77_chunks[descriptor + CHUNK_START], lz77_chunks[descriptor + CHUNK_RECORD], out, block);
    }
    team_sync();
    if team_uniform(found[0]) != 0u {
        return;
    }
    let modes = team_uniform(found[1]);
    let logs = team_uniform(found[2]);
    let constants = team_uniform(found[3]);

    var table = out + TABLES_HEAD;
    for (var m = 0u; m < 3u; m++) {
        let a = alphabet_of(m);
        let mode = (modes >> (2u * m)) & 3u;
        let symbol_of_all = (constants >> (8u * m)) & 255u;
        team_sync();
        // Each once or not at all; as loops, because barriers may not be in branches that are not known to be uniform.
// @pz_if FSE
        for (var once = 0u; once < select(0u, 1u, mode == 3u); once++) {
            build_fse(a.symbols, (logs >> (8u * m)) & 255u, ALPHABET * m, table);
        }
// @pz_end
        for (var once = 0u; once < select(0u, 1u, mode == 2u); once++) {
            sort_symbols(a, ALPHABET * m);
        }
        if mode != 3u {
// @pz_if FSE
            for (var i = lane; i < (1u << a.prefix_log); i += 32u) {
                lz77_tables_out[table + i] = prefix_entry(a, mode, symbol_of_all, i);
            }
// @pz_else
            for (var i = lane; i < (1u << (a.prefix_log - 1u)); i += 32u) {
                let even = prefix_entry(a, mode, symbol_of_all, 2u * i);
                let odd = prefix_entry(a, mode, symbol_of_all, 2u * i + 1u);
                lz77_tables_out[table + i] = even | odd << 16u;
            }
// @pz_end
        }
        table += SYMBOL_TABLE;
    }
}
