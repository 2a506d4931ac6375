// Builds the decoding tables of each group of chunks from their descriptions.
//
// Reading a description is serial. The first invocations of a workgroup read the descriptions of all teams, one each,
// then each team builds its group's tables. See src/format/lz77.md.
//
// @pz_cost {
//   threads: N/262144*128
//   passes: 1
//   buffers: payload=N+256, results=32, lz77_chunks=N/65536*16+16, lz77_tables=N/65536*17440
//   local_mem: 26576
//   note: a chunk for each 64 KiB, at least one, and a team for each; workgroup memory for four teams
// }
// @pz_import team
// @pz_import lz77_chunks

struct Args {
    blocks: u32,
    max_chunks: u32,
    per_block: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> payload: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
@group(0) @binding(2) var<storage, read> lz77_chunks: array<u32>;
@group(0) @binding(3) var<storage, read_write> lz77_tables_out: array<u32>;

// @pz_import length_code

const ALPHABET: u32 = 256u;
const OFFSETS: u32 = 48u;

// Each team of a workgroup has arrays of its own. Code lengths or norms of the three models, two to a word:
const VALUES: u32 = 2u * ALPHABET + 64u;
var<workgroup> values: array<atomic<u32>, TEAMS * VALUES / 2u>;
// The symbols of a prefix code by length, four to a word; for each length the number of shorter codes, and the end of
// its part of the table:
const ORDER_WORDS: u32 = ALPHABET / 4u;
var<workgroup> order: array<atomic<u32>, TEAMS * ORDER_WORDS>;
var<workgroup> firsts: array<u32, TEAMS * 16u>;
var<workgroup> limits: array<u32, TEAMS * 16u>;
// Read for the team: status, modes, logs, constants.
var<workgroup> found: array<u32, TEAMS * 4u>;

fn value(index: u32) -> u32 {
    return (atomicLoad(&values[team_index * (VALUES / 2u) + (index >> 1u)]) >> (16u * (index & 1u))) & 0xffffu;
}

// Adds to a value of the workgroup's team `team`. The sum is below 65536.
fn value_add(team: u32, index: u32, more: u32) {
    atomicAdd(&values[team * (VALUES / 2u) + (index >> 1u)], more << (16u * (index & 1u)));
}

fn order_put(rank: u32, symbol: u32) {
    atomicOr(&order[team_index * ORDER_WORDS + ((rank >> 2u) & (ORDER_WORDS - 1u))], symbol << (8u * (rank & 3u)));
}

fn order_at(rank: u32) -> u32 {
    return (atomicLoad(&order[team_index * ORDER_WORDS + ((rank >> 2u) & (ORDER_WORDS - 1u))]) >> (8u * (rank & 3u))) & 255u;
}

// The alphabet of each model.
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

// Reads the code lengths of `size` symbols, at most `most`, if `log` is 0; otherwise their norms for a table of 2^log
// states. Values other than 0 go to those of `team` from `first` on. Returns 0 or a status.
fn description_lengths(team: u32, size: u32, most: u32, log: u32, first: u32) -> u32 {
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
            var v = length;
            var share = 4096u >> length;
            if log != 0u {
                if length > log {
                    return 22u;
                }
                v = description_read(log - length) | 1u << (log - length);
                share = v;
            } else if length > most {
                return 23u;
            }
            if share > space {
                return 24u;
            }
            value_add(team, first + place, v);
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

// Reads the description of the group of the workgroup's team `team`, on one lane.
fn read_group(team: u32, first: u32, count: u32, out: u32, block: u32) {
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
        status = description_lengths(team, a.symbols, a.prefix_log, log, ALPHABET * m);
        logs |= log << (8u * m);
    }
    // The rest of the last word is padding.
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
    found[4u * team + 0u] = status;
    found[4u * team + 1u] = modes;
    found[4u * team + 2u] = logs;
    found[4u * team + 3u] = constants;
}

// Sorts the symbols of a prefix code by length.
fn sort_symbols(a: Alphabet, base: u32) {
    let each = select(2u, 8u, a.symbols > 64u);
    for (var i = lane; i < ORDER_WORDS; i += 32u) {
        atomicStore(&order[team_index * ORDER_WORDS + i], 0u);
    }
    // The lengths of the lane's symbols, in four bits each, the first symbol's at the bottom.
    var own = 0u;
    for (var i = 0u; i < each; i++) {
        own |= value(base + each * lane + i) << (4u * i);
    }
    team_sync();
    var first = 0u;
    var limit = 0u;
    for (var length = 1u; length <= a.prefix_log; length++) {
        // `same` gets the lowest of the four bits of each symbol of this length.
        var other = own ^ (length * 0x11111111u);
        other |= other >> 1u;
        var same = ~(other | other >> 2u) & 0x11111111u;
        let mine = countOneBits(same);
        let end = team_scan(mine);
        var rank = first + end - mine;
        while same != 0u {
            order_put(rank, each * lane + countTrailingZeros(same) / 4u);
            rank++;
            same &= same - 1u;
        }
        let all_ = team_broadcast(end, 31u);
        limit += all_ << (a.prefix_log - length);
        if lane == 0u {
            firsts[16u * team_index + length] = first;
            limits[16u * team_index + length] = limit;
        }
        first += all_;
    }
    team_sync();
}

// The entries at `i`, an even number, and `i` + 1 of a prefix code's table. Only the longest codes have one entry.
fn prefix_pair(a: Alphabet, mode: u32, symbol_of_all: u32, i: u32) -> u32 {
    if mode == 0u {
        return symbol_of_all * 0x00010001u;
    }
    if mode == 1u {
        // Raw symbols that are not offsets become an offset that reaches before every window, which is rejected.
        return (min(i >> (a.prefix_log - a.raw_bits), a.symbols) | a.raw_bits << 8u) * 0x00010001u;
    }
    var length = 1u;
    var start = 0u;
    for (var l = 1u; l < a.prefix_log; l++) {
        let limit = limits[16u * team_index + l];
        if i >= limit {
            length = l + 1u;
            start = limit;
        }
    }
    let rank = firsts[16u * team_index + length] + ((i - start) >> (a.prefix_log - length));
    let even = order_at(rank);
    let odd = select(even, order_at(rank + 1u), length == a.prefix_log);
    return even | odd << 16u | length * 0x01000100u;
}

// @pz_if FSE

const MASK_WORDS: u32 = 64u;

// For each place, two to a word: the number of occurrences there, then the next state of one.
var<workgroup> next_state: array<atomic<u32>, TEAMS * 1024u>;
// `order` holds the symbols that have norms; this mask has a bit at the first occurrence of each among all occurrences
// in a row.
var<workgroup> start_mask: array<atomic<u32>, TEAMS * MASK_WORDS>;

// Counts an occurrence at a place.
fn place_add(place: u32, count: u32) {
    atomicAdd(&next_state[team_index * 1024u + ((place >> 1u) & 1023u)], count << (16u * (place & 1u)));
}

// The ideal place of occurrence `j` of a symbol of norm `n`.
fn preferred(n: u32, j: u32, log: u32) -> u32 {
    let size = 1u << log;
    let distance = (size << 16u) / max(n, 1u);
    return select((distance / 2u + j * distance) >> 16u, size - 1u, n == 1u);
}

fn list_occurrences(symbols: u32, base: u32) {
    let each = select(2u, 8u, symbols > 64u);
    for (var i = lane; i < ORDER_WORDS; i += 32u) {
        atomicStore(&order[team_index * ORDER_WORDS + i], 0u);
    }
    for (var i = lane; i < MASK_WORDS; i += 32u) {
        atomicStore(&start_mask[team_index * MASK_WORDS + i], 0u);
    }
    team_sync();
    var mine = 0u;
    for (var i = 0u; i < each; i++) {
        let n = value(base + each * lane + i);
        mine += n + select(0u, 1u << 16u, n != 0u);
    }
    var before = team_scan(mine) - mine;
    for (var i = 0u; i < each; i++) {
        let n = value(base + each * lane + i);
        if n != 0u {
            let start = before & 0xffffu;
            let rank = (before >> 16u) & 255u;
            order_put(rank, each * lane + i);
            atomicOr(&start_mask[team_index * MASK_WORDS + ((start >> 5u) & (MASK_WORDS - 1u))], 1u << (start & 31u));
            before += n + (1u << 16u);
        }
    }
    team_sync();
}

struct Occurrence {
    symbol: u32,
    norm: u32,
    number: u32, // among the occurrences of its symbol
    place: u32,
}

// The state before a word of the mask: how many symbols have begun, and where the last one did.
var<private> passed_ranks: u32;
var<private> passed_open: u32;

// Occurrence i + lane. Called for each multiple i of 32 in turn.
fn occurrence(i: u32, base: u32, log: u32) -> Occurrence {
    let here = atomicLoad(&start_mask[team_index * MASK_WORDS + (i >> 5u)]);
    let mine = here & (team_before() | 1u << lane);
    var o: Occurrence;
    o.symbol = order_at((passed_ranks + countOneBits(mine) - 1u) & 255u);
    o.norm = value(base + o.symbol);
    o.number = select(i + lane - passed_open, lane + countLeadingZeros(mine) - 31u, mine != 0u);
    o.place = preferred(o.norm, o.number, log) & 2047u;
    passed_ranks += countOneBits(here);
    passed_open = select(passed_open, i + 31u - countLeadingZeros(here), here != 0u);
    return o;
}

// @pz_if LITERALS
// @pz_else
// Symbols of states, four to a word.
var<workgroup> state_symbols: array<atomic<u32>, TEAMS * 512u>;
// @pz_end

// Builds the decoding table at word `table`, with room for this many states, from norms that fill it.
fn build_fse(symbols: u32, log: u32, base: u32, table: u32, states: u32) {
    let size = 1u << log;
    let places = team_index * 1024u;
    for (var i = lane; i < max(size / 2u, 32u); i += 32u) {
        atomicStore(&next_state[places + i], 0u);
    }
// @pz_if LITERALS
// @pz_else
    let symbol_words = team_index * 512u;
    for (var i = lane; i < size / 4u; i += 32u) {
        atomicStore(&state_symbols[symbol_words + i], 0u);
    }
// @pz_end
    list_occurrences(symbols, base);
    // A counting sort by place: count,
    passed_ranks = 0u;
    passed_open = 0u;
    for (var i = 0u; i < size; i += 32u) {
        place_add(occurrence(i, base, log).place, 1u);
    }
    team_sync();
    // sum up,
    var sum = 0u;
    for (var i = 0u; i < size / 2u; i += 32u) {
        let pair = atomicLoad(&next_state[places + i + lane]);
        let even = pair & 0xffffu;
        let both = even + (pair >> 16u);
        let end = team_scan(both);
        let first = sum + end - both;
        atomicStore(&next_state[places + i + lane], first | (first + even) << 16u);
        sum += team_broadcast(end, 31u);
    }
    team_sync();
    // and place, in the order of symbols.
    passed_ranks = 0u;
    passed_open = 0u;
    for (var i = 0u; i < size; i += 32u) {
        let o = occurrence(i, base, log);
        let same = team_match(o.place, 11u);
        let earlier = countOneBits(same & team_before());
        let next = atomicLoad(&next_state[places + (o.place >> 1u)]) >> (16u * (o.place & 1u));
        let state = ((next & 0xffffu) + earlier) & 2047u;
        team_sync();
        if earlier == 0u {
            place_add(o.place, countOneBits(same));
        }
        team_sync();
// @pz_if LITERALS
        let x = o.norm + o.number;
        let bits = log - (31u - countLeadingZeros(x));
        lz77_tables_out[table + (state & (states - 1u))] = bits | o.symbol << 8u | x << 20u;
// @pz_else
        atomicOr(&state_symbols[symbol_words + (state >> 2u)], o.symbol << (8u * (state & 3u)));
// @pz_end
    }
// @pz_if LITERALS
// @pz_else
    team_sync();
    // A symbol's states are those of its occurrences, in order. Each norm counts up to the number of its symbol's next
    // occurrence.
    for (var i = 0u; i < size; i += 32u) {
        let state = i + lane;
        let symbol = (atomicLoad(&state_symbols[symbol_words + (state >> 2u)]) >> (8u * (state & 3u))) & 255u;
        let same = team_match(symbol, 8u);
        let x = value(base + symbol) + countOneBits(same & team_before());
        team_sync();
        if (same & team_before()) == 0u {
            value_add(team_index, base + symbol, countOneBits(same));
        }
        let bits = log - (31u - countLeadingZeros(x));
        let half = (bits & 15u) | ((x << bits) - size) << 4u;
        let other = team_shuffle(half, lane | 1u);
        if (lane & 1u) == 0u {
            lz77_tables_out[table + (state >> 1u)] = half | other << 16u;
        }
        team_sync();
    }
    for (var i = lane; i < size / 4u; i += 32u) {
        lz77_tables_out[table + states / 2u + i] = atomicLoad(&state_symbols[symbol_words + i]);
    }
// @pz_end
}

// @pz_end

// A team's group: its block, its first chunk there, and where its tables go. The last teams may have no group.
struct Place {
    block: u32,
    chunk: u32,
    out: u32,
    exists: bool,
}

fn place_of(team: u32) -> Place {
    let block = min(team / args.per_block, args.blocks - 1u);
    let group = team % args.per_block;
    let head = CHUNK_WORDS * block * (args.max_chunks + 1u);
    let chunk = group << ((lz77_chunks[head + BLOCK_LOGS] >> 16u) & 15u);
    let exists = team < args.blocks * args.per_block && chunk < lz77_chunks[head + BLOCK_CHUNKS];
    return Place(block, chunk, GROUP_WORDS * (block * args.max_chunks + group), exists);
}

// @pz_entry
fn lz77_tables(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    length_code_build(local_index);
    for (var i = lane; i < VALUES / 2u; i += 32u) {
        atomicStore(&values[team_index * (VALUES / 2u) + i], 0u);
    }
    workgroupBarrier();
    if local_index < TEAMS {
        let p = place_of(workgroup_index * TEAMS + local_index);
        found[4u * local_index] = 1u;
        if p.exists {
            let descriptor = CHUNK_WORDS * (p.block * (args.max_chunks + 1u) + p.chunk + 1u);
            let start = lz77_chunks[descriptor + CHUNK_START];
            read_group(local_index, start, lz77_chunks[descriptor + CHUNK_RECORD], p.out, p.block);
        }
    }
    workgroupBarrier();
    if team_uniform(found[4u * team_index]) != 0u {
        return;
    }
    let modes = team_uniform(found[4u * team_index + 1u]);
    let logs = team_uniform(found[4u * team_index + 2u]);
    let constants = team_uniform(found[4u * team_index + 3u]);
    let out = place_of(workgroup_index * TEAMS + team_index).out;

    var table = out + TABLES_HEAD;
    for (var m = 0u; m < 3u; m++) {
        let a = alphabet_of(m);
        let mode = (modes >> (2u * m)) & 3u;
        let symbol_of_all = (constants >> (8u * m)) & 255u;
        team_sync();
        // Each of these loops runs once or not at all. They are loops because barriers must not be in branches whose
        // uniformity the compiler cannot prove.
// @pz_if FSE
        for (var once = 0u; once < select(0u, 1u, mode == 3u); once++) {
            build_fse(a.symbols, (logs >> (8u * m)) & 255u, ALPHABET * m, table, select(SYMBOL_STATES, OFFSET_STATES, m == 2u));
        }
// @pz_end
        for (var once = 0u; once < select(0u, 1u, mode == 2u); once++) {
            sort_symbols(a, ALPHABET * m);
        }
        if mode != 3u {
// @pz_if LITERALS
            for (var i = lane; i < (1u << (a.prefix_log - 1u)); i += 32u) {
                let pair = prefix_pair(a, mode, symbol_of_all, 2u * i);
                lz77_tables_out[table + 2u * i] = ((pair >> 8u) & 255u) | (pair & 255u) << 8u;
                lz77_tables_out[table + 2u * i + 1u] = pair >> 24u | ((pair >> 8u) & 0xff00u);
            }
// @pz_else
// @pz_if FSE
            for (var i = lane; i < (1u << (a.prefix_log - 2u)); i += 32u) {
                let first = prefix_pair(a, mode, symbol_of_all, 4u * i);
                let second = prefix_pair(a, mode, symbol_of_all, 4u * i + 2u);
                lz77_tables_out[table + 2u * i] = (first >> 8u) & 0x00ff00ffu;
                lz77_tables_out[table + 2u * i + 1u] = (second >> 8u) & 0x00ff00ffu;
                let symbols = (first & 255u) | ((first >> 8u) & 0xff00u) | (second & 255u) << 16u | (second & 0x00ff0000u) << 8u;
                lz77_tables_out[table + select(SYMBOL_STATES, OFFSET_STATES, m == 2u) / 2u + i] = symbols;
            }
// @pz_else
            for (var i = lane; i < (1u << (a.prefix_log - 1u)); i += 32u) {
                lz77_tables_out[table + i] = prefix_pair(a, mode, symbol_of_all, 2u * i);
            }
// @pz_end
// @pz_end
        }
        table += SYMBOL_TABLE;
    }
}
