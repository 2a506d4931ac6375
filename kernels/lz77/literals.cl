// Decodes LZ77 chunks that hold only literals, from tables and words.
//
// One team per chunk. The teams of a workgroup decode chunks of the same group and share its table, so that workgroup
// memory has room for as many teams as a processor can run. The only check on the sequences is that none has a match: a
// chunk with as many literals as bytes has no room for one. See src/format/lz77.md.
//
// @pz_cost {
//   threads: N/262144*128
//   passes: 1
//   buffers: contents=N, payload=N+256, results=32, lz77_chunks=N/65536*16+16, lz77_tables=N/65536*17440, lz77_places=N+1024, lz77_distances=N+1024, lz77_starts=N/4, lz77_order=N/65536*4
//   local_mem: 10244
//   note: a chunk for each 64 KiB, at least one, and a team for each; workgroup memory for four teams; every plan that
//     decodes has the last four buffers, because memory is taken before the payloads are known
// }
// @pz_import lanes
// @pz_import lz77_chunks

#define ROW 128u
#define MAX_LITERALS 511u

// Here `high` and `low` are two of the lane's words, and `held` is the number of their bits that it has read: at most
// 32 after the beginning of a row.

#if TEAM_PTX
// The upper half of high:low shifted left by the lowest five bits of `by`.
INLINE uint shift_pair_wrapped(uint high, uint low, uint by) {
    uint r;
    asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(by));
    return r;
}

// The symbols of two entries in the lower half; anything in the upper.
INLINE uint pack_symbols(uint a, uint b) {
    uint r;
    asm("prmt.b32 %0, %1, %2, 0x0051;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
#else
INLINE uint shift_pair_wrapped(uint high, uint low, uint by) {
    return shift_pair_left(high, low, by & 31u);
}

INLINE uint pack_symbols(uint a, uint b) {
    return (a >> 8 & 255u) | (b & 0xff00u);
}
#endif

// Begins a row if `is_row`, which is uniform: each lane with fewer than 32 bits takes a word. The ring already holds
// these words.
INLINE void take_words(Team t, Lanes *s, bool is_row) {
    bool need = s->held > 32u && is_row;
    uint takers = team_ballot(t, need);
#if !TEAM_PTX
    // The barriers of the ballot are enough: the words that this replaces were taken before it.
    if (s->taken >= s->limit) lanes_stage(t, s);
#endif
    uint word = s->ring[(s->taken + popcount(takers & s->before)) & (RING - 1u)];
    s->high = need ? s->low : s->high;
    s->low = need ? word : s->low;
    s->held -= need ? 32u : 0u;
    s->taken += popcount(takers);
}

// Fills the ring with the words of two rows.
INLINE void fill_ring(Team t, Lanes *s) {
#if TEAM_PTX
    if (s->taken >= s->limit) {
        team_sync(t);
        lanes_stage(t, s);
        team_sync(t);
    }
#endif
}

// The next 32 bits.
INLINE uint next_bits(const Lanes *s) {
    return shift_pair_left(s->high, s->low, s->held);
}

INLINE uint next_state(uint entry, uint bits) {
    return shift_pair_wrapped(entry >> 20, bits, entry);
}

// Reads two literals of a row, those at `place` and after it, where they are before `end`. With FSE, n states are
// numbered n to 2 n - 1, and `table` begins where state 0 would be.
INLINE uint literal_pair(Team t, Lanes *in, __local const uint *table, bool fse, uint *state, bool full, uint place, uint end) {
    take_words(t, in, true);
    uint bits = next_bits(in);
    uint e0 = table[fse ? *state : bits >> (32u - PREFIX_LOG)];
    uint used = 0u;
    if (full || place < end) {
        *state = next_state(e0, bits);
        bits = shift_pair_wrapped(bits, 0u, e0);
        used = e0;
    }
    uint e1 = table[fse ? *state : bits >> (32u - PREFIX_LOG)];
    if (full || place + 1u < end) {
        *state = next_state(e1, bits);
        used += e1;
    }
    // The lowest five bits of an entry are its number of bits, and the sum of two is at most 22.
    in->held += used & 31u;
    return pack_symbols(e0, e1);
}

// A stream of tokens or of offsets. There are few of them, so their table stays in device memory.
typedef struct {
    __global const uint *table;
    uint log;
    bool fse;   // uniform
    uint state; // of this lane
} Stream;

INLINE uint read_symbol(Stream *s, uint *bits, uint *used, bool active) {
    uint entry = s->table[(s->fse ? s->state : *bits >> (32u - s->log)) & ((1u << s->log) - 1u)];
    if (active) s->state = next_state(entry, *bits);
    *used = entry & 31u;
    *bits = shift_left(*bits, *used);
    return entry >> 8 & 255u;
}

// Reads a sequence and returns its number of literals; 0 if it has a match or breaks a rule.
INLINE uint read_run(Team t, Lanes *in, Stream *tokens, Stream *offsets, bool active) {
    fill_ring(t, in);
    take_words(t, in, true);
    uint bits = next_bits(in);
    uint used, used_offset;
    uint token = read_symbol(tokens, &bits, &used, active);
    uint literals = token >> 5;
    if (literals == 7u) {
        uint k = bits >> 29;
        literals = 6u + (1u << k);
        k = k == 7u ? 9u : k;
        literals += shift_right(bits << 3, 32u - k);
        used += 3u + k;
    }
    in->held += active ? used : 0u;
    take_words(t, in, true);
    bits = next_bits(in);
    uint offset = read_symbol(offsets, &bits, &used_offset, active);
    in->held += active ? used_offset : 0u;
    return (token & 31u) == 0u && offset == 0u && literals <= MAX_LITERALS && active ? literals : 0u;
}

__kernel void lz77_literals(__global uint *contents, __global const uint *payload, __global uint *results,
                            __global const uint *lz77_chunks, __global const uint *lz77_tables,
                            uint blocks, uint max_chunks, uint slot, uint per_block) {
    SHARED uint table[SYMBOL_TABLE] __attribute__((aligned(16)));
    SHARED uint rings[TEAMS * RING] __attribute__((aligned(16)));
    TEAM_START(t);
    uint block = (uint)get_group_id(0) / per_block;
    if (block >= blocks) return;
    // Shared by the workgroup's teams.
    uint first_chunk = (uint)get_group_id(0) % per_block * TEAMS;
    __global const uint *head = lz77_chunks + CHUNK_WORDS * ((ulong)block * (max_chunks + 1u));
    uint chunks = head[BLOCK_CHUNKS];
    if (first_chunk >= chunks) return;
    uint logs = head[BLOCK_LOGS];
    uint chunk_log = logs & 31u;
    uint group_log = logs >> 16 & 15u;
    __global const uint *tables = lz77_tables + (ulong)GROUP_WORDS * ((ulong)block * max_chunks + (first_chunk >> group_log));
    if (tables[TABLES_STATUS] != 0u) return;
    uint modes = tables[TABLES_MODES];
    uint fse_logs = tables[TABLES_LOGS];
    bool fse = (modes & 3u) == 3u;
    uint log = fse ? min(fse_logs & 15u, 11u) : PREFIX_LOG;
    __global const uint4 *source = (__global const uint4 *)(tables + TABLES_HEAD);
    for (uint i = (uint)get_local_id(0); i < (1u << log) / 4u; i += THREADS) ((__local uint4 *)table)[i] = source[i];
    barrier(CLK_LOCAL_MEM_FENCE);

    uint chunk = team_uniform(t, first_chunk + t.index);
    if (chunk >= chunks) return;
    __global const uint *descriptor = head + CHUNK_WORDS * (chunk + 1u);
    uint start = team_uniform(t, descriptor[CHUNK_START]);
    uint words = team_uniform(t, descriptor[CHUNK_RECORD]);
    uint sequences = team_uniform(t, descriptor[CHUNK_SEQUENCES]);
    if ((chunk & ((1u << group_log) - 1u)) == 0u) {
        uint described = team_uniform(t, tables[TABLES_WORDS]);
        start += described;
        words -= described;
    }
    uint chunk_start = chunk << chunk_log;
    uint chunk_len = team_uniform(t, min(1u << chunk_log, head[BLOCK_LEN] - chunk_start));
    uint status = 0u;
    if (words != 0u && payload[start + words - 1u] == 0u) status = 30u;
    // Plans ensure this.
    if (descriptor[CHUNK_LITERALS] != chunk_len || TEAMS > 1u << group_log) status = 37u;

    Lanes in;
    lanes_start(t, &in, payload, start, words, rings + RING * t.index);
    in.held = 64u;
    uint state = 0u;
    take_words(t, &in, fse);
    if (fse) {
        state = 1u << log | next_bits(&in) >> (32u - log);
        in.held += log;
    }
    __local const uint *own = fse ? LOCAL_BEFORE(const uint, table, (size_t)4u << log) : table;
    __global uint *to = contents + ((ulong)block * slot + chunk_start) / 4u + t.lane;
    uint row = 0u;
#if TEAM_PTX
    // Whole rows of FSE coded literals take a faster path, two at a time.
    uint whole = fse ? chunk_len / ROW & ~1u : 0u;
    #pragma unroll 1
    for (; row < whole; row += 2u, to += 64u) {
        #pragma unroll
        for (uint i = 0u; i < 2u; i++) {
            fill_ring(t, &in);
            uint low = literal_pair(t, &in, own, true, &state, true, 0u, 0u);
            uint high = literal_pair(t, &in, own, true, &state, true, 0u, 0u);
            to[32u * i] = pack_halves(low, high);
        }
    }
#endif
    #pragma unroll 1
    for (; row < (chunk_len + ROW - 1u) / ROW; row++, to += 32u) {
        fill_ring(t, &in);
        uint place = row * ROW + 4u * t.lane;
        uint low = 0u, high = 0u;
        #pragma unroll 1
        for (uint pair = 0u; pair < 2u; pair++) {
            low = high;
            high = literal_pair(t, &in, own, fse, &state, false, place + 2u * pair, chunk_len);
        }
        // Whole words are written, so bytes after the literals are written too: those are beyond the block's end, and
        // the slot has whole words.
        if (place < chunk_len) *to = pack_halves(low, high);
    }
    if (team_any(t, fse && state != 1u << log)) status = 31u;

    Stream tokens, offsets;
    tokens.table = tables + TABLES_HEAD + SYMBOL_TABLE;
    tokens.fse = (modes >> 2 & 3u) == 3u && sequences != 0u;
    tokens.log = tokens.fse ? min(fse_logs >> 8 & 15u, 11u) : PREFIX_LOG;
    offsets.table = tables + TABLES_HEAD + 2u * SYMBOL_TABLE;
    offsets.fse = (modes >> 4 & 3u) == 3u && sequences != 0u;
    offsets.log = offsets.fse ? min(fse_logs >> 16 & 15u, 8u) : OFFSET_LOG;
    fill_ring(t, &in);
    take_words(t, &in, tokens.fse || offsets.fse);
    uint bits = next_bits(&in);
    uint token_bits = tokens.fse ? tokens.log : 0u;
    uint offset_bits = offsets.fse ? offsets.log : 0u;
    tokens.state = 1u << tokens.log | shift_right(bits, 32u - token_bits);
    offsets.state = 1u << offsets.log | shift_right(shift_left(bits, token_bits), 32u - offset_bits);
    in.held += token_bits + offset_bits;
    uint sum = 0u;
    bool bad = false;
    #pragma unroll 1
    for (uint i = 2u * t.lane, rest = sequences; rest != 0u; i += 64u, rest -= min(rest, 64u)) {
        #pragma unroll 1
        for (uint parity = 0u; parity < 2u; parity++) {
            bool active = i + parity < sequences;
            uint literals = read_run(t, &in, &tokens, &offsets, active);
            bad |= active && literals == 0u;
            sum += literals;
        }
    }
    if (team_any(t, bad)) status = 32u;
    if (team_any(t, (tokens.fse && tokens.state != 1u << tokens.log) || (offsets.fse && offsets.state != 1u << offsets.log))) status = 33u;
    // Words that no lane has taken, or remaining bits that are not 0.
    uint left = in.held <= 32u ? next_bits(&in) | shift_left(in.low, in.held) : shift_left(in.low, in.held - 32u);
    if (team_any(t, left != 0u) || in.taken < in.end) status = 34u;
    if (team_sum(t, sum) != chunk_len) status = 35u;
    if (status != 0u && t.lane == 0u) results[8u * block] = status;
}
