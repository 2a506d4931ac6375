// Builds the decoding tables of each group of chunks from their descriptions.
//
// Reading a description is serial. The first team of a workgroup reads the descriptions of all teams, one per lane,
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
// @pz_import length_code

#define ALPHABET 256u
#define OFFSETS 48u
// Code lengths or norms of the three models.
#define VALUES (2u * ALPHABET + 64u)

// The alphabet of each model.
typedef struct {
    uint symbols;
    uint raw_bits;
    uint prefix_log; // the longest code, and the log of a prefix code's table
    uint fse_log;    // of the largest FSE table
} Alphabet;

static inline Alphabet alphabet_of(uint model) {
    bool offsets = model == 2u;
    Alphabet a;
    a.symbols = offsets ? OFFSETS : ALPHABET;
    a.raw_bits = offsets ? 6u : 8u;
    a.prefix_log = offsets ? OFFSET_LOG : PREFIX_LOG;
    a.fse_log = offsets ? 8u : 11u;
    return a;
}

// The results of reading a group's description, on one lane.
typedef struct {
    uint status;
    uint words;
    uint modes;
    uint logs;
    uint constants;
} Group;

static inline Group read_group(__global const uint *words, uint count, __local const uchar *codes, __local ushort *values) {
    Group g = {0u, 0u, 0u, 0u, 0u};
    Description d;
    description_start(&d, words, count);
    g.modes = description_read(&d, 8u);
    if (count == 0u || g.modes >> 6 != 0u) g.status = 10u;
    for (uint m = 0u; m < 3u; m++) {
        if ((g.modes >> 2u * m & 3u) != 0u) continue;
        uint symbol = description_read(&d, 8u);
        if (symbol >= alphabet_of(m).symbols) g.status = 11u;
        g.constants |= symbol << 8u * m;
    }
    for (uint pass = 2u; pass < 4u; pass++) {
        for (uint m = 0u; m < 3u; m++) {
            if ((g.modes >> 2u * m & 3u) != pass || g.status != 0u) continue;
            Alphabet a = alphabet_of(m);
            uint log = 0u;
            if (pass == 3u) {
                if (!FSE) {
                    g.status = 12u;
                    continue;
                }
                log = description_read(&d, 4u);
                if (log < 5u || log > a.fse_log) {
                    g.status = 13u;
                    continue;
                }
            }
            g.status = description_lengths(&d, codes, a.symbols, a.prefix_log, log, values + ALPHABET * m);
            g.logs |= log << 8u * m;
        }
    }
    // The rest of the last word is padding.
    uint rest = (0u - d.position) & 31u;
    if (description_read(&d, rest) != 0u && g.status == 0u) g.status = 14u;
    if (description_is_short(&d) && g.status == 0u) g.status = 15u;
    g.words = d.position >> 5;
    return g;
}

// Sorts the symbols of a prefix code by length: `order` gets the symbols. For each length, `firsts` gets the number of
// shorter codes, and `limits` the end of its part of the table.
static inline void sort_symbols(Team t, Alphabet a, __local const ushort *lengths, __local uchar *order, __local ushort *firsts, __local ushort *limits) {
    uint each = a.symbols > 64u ? 8u : 2u;
    // The lengths of the lane's symbols, in four bits each, the first symbol's on top.
    uint own = 0u;
    for (uint i = 0u; i < each; i++) own |= (uint)lengths[each * t.lane + i] << (28u - 4u * i);
    uint first = 0u;
    uint limit = 0u;
    for (uint length = 1u; length <= a.prefix_log; length++) {
        // `same` gets the lowest of the four bits of each symbol of this length.
        uint other = own ^ length * 0x11111111u;
        other |= other >> 1;
        uint same = ~(other | other >> 2) & 0x11111111u;
        uint mine = popcount(same);
        uint end = team_scan(t, mine);
        uint rank = first + end - mine;
        while (same != 0u) {
            uint i = clz(same) / 4u;
            order[rank & 255u] = (uchar)(each * t.lane + i);
            rank++;
            same &= 0x0fffffffu >> 4u * i;
        }
        uint all = team_broadcast(t, end, 31u);
        limit += all << (a.prefix_log - length);
        if (t.lane == 0u) {
            firsts[length] = (ushort)first;
            limits[length] = (ushort)limit;
        }
        first += all;
    }
    team_sync(t);
}

// The entries at `i`, an even number, and `i` + 1 of a prefix code's table. Only the longest codes have one entry.
static inline uint prefix_pair(Alphabet a, uint mode, uint symbol_of_all, uint i, __local const uchar *order, __local const ushort *firsts, __local const ushort *limits) {
    if (mode == 0u) return symbol_of_all * 0x00010001u;
    if (mode == 1u) {
        // Raw symbols that are not offsets become an offset that reaches before every window, which is rejected.
        uint symbol = min(i >> (a.prefix_log - a.raw_bits), a.symbols);
        return (symbol | a.raw_bits << 8) * 0x00010001u;
    }
    uint length = 1u;
#pragma unroll
    for (uint l = 1u; l < PREFIX_LOG; l++) length += l < a.prefix_log && i >= limits[l] ? 1u : 0u;
    uint start = length == 1u ? 0u : limits[length - 1u];
    uint rank = firsts[length] + ((i - start) >> (a.prefix_log - length));
    uint even = order[rank & 255u];
    uint odd = length == a.prefix_log ? order[(rank + 1u) & 255u] : even;
    return even | odd << 16 | length * 0x01000100u;
}

#if FSE

#define STATES 2048u

// The symbols that have norms, in order, and a mask with a bit at the first occurrence of each among all occurrences in
// a row.
typedef struct {
    __local uchar *symbols;
    __local uint *mask;
} Occurrences;

// The ideal place of occurrence `j` of a symbol of norm `n`.
static inline uint preferred(uint n, uint j, uint log) {
    uint size = 1u << log;
    uint distance = (size << 16) / max(n, 1u);
    return n == 1u ? size - 1u : min((distance / 2u + j * distance) >> 16, size - 1u);
}

static inline void list_occurrences(Team t, uint symbols, __local const ushort *norms, Occurrences of) {
    uint each = symbols > 64u ? 8u : 2u;
    of.mask[t.lane] = 0u;
    of.mask[32u + t.lane] = 0u;
    team_sync(t);
    uint mine = 0u;
    for (uint i = 0u; i < each; i++) {
        uint n = norms[each * t.lane + i];
        mine += n + (n != 0u ? 1u << 16 : 0u);
    }
    uint before = team_scan(t, mine) - mine;
    for (uint i = 0u; i < each; i++) {
        uint n = norms[each * t.lane + i];
        if (n == 0u) continue;
        uint start = before & 0xffffu;
        uint rank = before >> 16 & 255u;
        of.symbols[rank] = (uchar)(each * t.lane + i);
        atomic_or(&of.mask[start >> 5 & 63u], 1u << (start & 31u));
        before += n + (1u << 16);
    }
    team_sync(t);
}

// An occurrence of a symbol: the symbol, its norm, the occurrence's number among those of the symbol, and its place.
typedef struct {
    uint symbol, norm, number, place;
} Occurrence;

// The state before a word of the mask: how many symbols have begun, and where the last one did.
typedef struct {
    uint ranks, open;
} Passed;

// Occurrence 32 i + lane. Called for each i in turn.
static inline Occurrence occurrence(Team t, uint i, Passed *passed, __local const ushort *norms, Occurrences of, uint log) {
    uint starts = of.mask[i];
    uint mine = starts & (team_before(t) | 1u << t.lane);
    Occurrence o;
    o.symbol = of.symbols[(passed->ranks + popcount(mine) - 1u) & 255u];
    o.norm = norms[o.symbol];
    o.number = mine != 0u ? t.lane - (31u - clz(mine)) : 32u * i + t.lane - passed->open;
    o.place = preferred(o.norm, o.number, log);
    passed->ranks += popcount(starts);
    if (starts != 0u) passed->open = 32u * i + 31u - clz(starts);
    return o;
}

// Builds the decoding table of norms that fill it. `next` has a word for two states.
static inline void build_fse(Team t, uint symbols, uint log, __local const ushort *norms, Occurrences of, __local uint *next, __global uint *table) {
    uint size = 1u << log;
    for (uint i = t.lane; i < STATES / 2u; i += 32u) next[i] = 0u;
    list_occurrences(t, symbols, norms, of);
    // A counting sort by place: count,
    Passed passed = {0u, 0u};
    for (uint i = 0u; i < size / 32u; i++) {
        uint place = occurrence(t, i, &passed, norms, of, log).place;
        atomic_add(&next[place >> 1], 1u << (16u * (place & 1u)));
    }
    team_sync(t);
    // sum up, two places to a word,
    uint sum = 0u;
    for (uint i = 0u; i < size / 2u; i += 32u) {
        uint pair = next[i + t.lane];
        uint even = pair & 0xffffu;
        uint both = even + (pair >> 16);
        uint end = team_scan(t, both);
        uint first = sum + end - both;
        next[i + t.lane] = first | (first + even) << 16;
        sum += team_broadcast(t, end, 31u);
    }
    team_sync(t);
    // and place, in the order of symbols.
    passed.ranks = 0u;
    passed.open = 0u;
    for (uint i = 0u; i < size / 32u; i++) {
        Occurrence o = occurrence(t, i, &passed, norms, of, log);
        uint place = o.place;
        uint same = team_match_digit(t, place, 11u);
        uint earlier = popcount(same & team_before(t));
        uint shift = 16u * (place & 1u);
        uint state = (next[place >> 1] >> shift & 0xffffu) + earlier;
        team_sync(t);
        if (earlier == 0u) atomic_add(&next[place >> 1], popcount(same) << shift);
        team_sync(t);
        uint x = o.norm + o.number;
        uint bits = log - (31u - clz(x));
#if LITERALS
        table[state & (STATES - 1u)] = bits | o.symbol << 8 | x << 20;
#else
        table[state & (STATES - 1u)] = o.symbol | bits << 8 | ((x << bits) - size) << 16;
#endif
    }
}

#endif

// A team's group: its block, and its first chunk there. The last teams may have no group.
typedef struct {
    uint block, chunk;
    bool exists;
} Place;

static inline Place place_of(uint team, __global const uint *lz77_chunks, uint blocks, uint max_chunks, uint per_block) {
    Place p = {team / per_block, 0u, false};
    if (p.block >= blocks) return p;
    __global const uint *head = lz77_chunks + CHUNK_WORDS * ((ulong)p.block * (max_chunks + 1u));
    p.chunk = team % per_block << (head[BLOCK_LOGS] >> 16 & 15u);
    p.exists = p.chunk < head[BLOCK_CHUNKS];
    return p;
}

// Where the tables of a team's group go.
static inline __global uint *tables_of(__global uint *lz77_tables_out, uint team, uint max_chunks, uint per_block) {
    return lz77_tables_out + (ulong)GROUP_WORDS * ((ulong)(team / per_block) * max_chunks + team % per_block);
}

__kernel void lz77_tables(__global const uint *payload, __global uint *results, __global const uint *lz77_chunks,
                          __global uint *lz77_tables_out, uint blocks, uint max_chunks,
                          uint per_block) {
    SHARED uchar codes[LENGTH_CODES * 128u];
    SHARED ushort values_of[TEAMS][VALUES];
    SHARED uchar order_of[TEAMS][ALPHABET];
    SHARED ushort firsts_of[TEAMS][16], limits_of[TEAMS][16];
    SHARED Group groups[TEAMS];
#if FSE
    SHARED uint next_of[TEAMS][STATES / 2u];
    SHARED uint mask_of[TEAMS][64];
#endif
    TEAM_START(t);
    uint item = (uint)get_local_id(0);
    length_code_build(codes, item);
    for (uint i = t.lane; i < VALUES; i += 32u) values_of[t.index][i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);

    uint first = (uint)get_group_id(0) * TEAMS;
    if (item < TEAMS) {
        Place p = place_of(first + item, lz77_chunks, blocks, max_chunks, per_block);
        Group g = {1u, 0u, 0u, 0u, 0u};
        if (p.exists) {
            __global const uint *descriptor = lz77_chunks + CHUNK_WORDS * ((ulong)p.block * (max_chunks + 1u) + p.chunk + 1u);
            g = read_group(payload + descriptor[CHUNK_START], descriptor[CHUNK_RECORD], codes, values_of[item]);
            __global uint *out = tables_of(lz77_tables_out, first + item, max_chunks, per_block);
            out[TABLES_STATUS] = g.status;
            out[TABLES_WORDS] = g.words;
            out[TABLES_MODES] = g.modes;
            out[TABLES_LOGS] = g.logs;
            if (g.status != 0u) results[8u * p.block] = g.status;
        }
        groups[item] = g;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    if (team_uniform(t, groups[t.index].status) != 0u) return;
    uint modes = team_uniform(t, groups[t.index].modes);
    uint logs = team_uniform(t, groups[t.index].logs);
    uint constants = team_uniform(t, groups[t.index].constants);
    uint own = team_uniform(t, first + t.index);
    __local ushort *values = values_of[t.index];
    __global uint *out = tables_of(lz77_tables_out, own, max_chunks, per_block);

    __global uint *table = out + TABLES_HEAD;
    for (uint m = 0u; m < 3u; m++) {
        Alphabet a = alphabet_of(m);
        uint mode = modes >> 2u * m & 3u;
        uint symbol_of_all = constants >> 8u * m & 255u;
        __local ushort *lengths = values + ALPHABET * m;
        __local uchar *order = order_of[t.index];
        __local ushort *firsts = firsts_of[t.index];
        __local ushort *limits = limits_of[t.index];
        team_sync(t);
#if FSE
        Occurrences of = {order, mask_of[t.index]};
        if (mode == 3u) build_fse(t, a.symbols, logs >> 8u * m & 255u, lengths, of, next_of[t.index], table);
#endif
        if (mode == 2u) sort_symbols(t, a, lengths, order, firsts, limits);
        if (mode != 3u) {
            for (uint i = t.lane; i < 1u << (a.prefix_log - 1u); i += 32u) {
                uint pair = prefix_pair(a, mode, symbol_of_all, 2u * i, order, firsts, limits);
#if LITERALS
                table[2u * i] = pair >> 8 & 255u | (pair & 255u) << 8;
                table[2u * i + 1u] = pair >> 24 | (pair >> 8 & 0xff00u);
#elif FSE
                table[2u * i] = pair & 0xffffu;
                table[2u * i + 1u] = pair >> 16;
#else
                table[i] = pair;
#endif
            }
        }
        table += m == 2u ? OFFSET_TABLE : SYMBOL_TABLE;
    }
}
