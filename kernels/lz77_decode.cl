// The contents of LZ77 chunks, from tables and words.
//
// A team has a chunk. It decodes the literals into the last bytes of the chunk's own contents: what is written after
// that never passes a literal that is still to be read. Then it goes through the sequences in batches of 64, two to a
// lane, and writes their bytes in groups of 128. Which sequence a byte belongs to is told by a bit mask of sequence
// starts and a table of the batch in workgroup memory. A group that repeats bytes of itself first finds the bytes
// outside that they derive from. The loads of a group are on their way while the next is worked out, and are stored
// then: see GROUP_STEP.
//
// In windows of several chunks, chunk k of each window is decoded in dispatch k. See src/format/lz77.md.
//
// @pz_cost {
//   threads_per_element: 0.00048828125
//   passes: 256
//   buffers: contents=N, payload=N+256, results=32, lz77_chunks=N/64+64, lz77_tables=N/4+N/32+17440
//   local_mem: 24576
//   note: at least a chunk for each 64 KiB, and a team for each; as many passes as a window has chunks, most often 1;
//         workgroup memory is that of four teams without FSE, or two with
// }
// @pz_import team
// @pz_import lz77_chunks
// @pz_import lanes

#if FSE
typedef uint Entry;
#define SYMBOL_ENTRIES 2048u
#else
typedef ushort Entry;
#define SYMBOL_ENTRIES 1024u
#endif
#define OFFSET_ENTRIES 256u

// Bytes that a team writes at a time: each lane has four, 32 apart.
#define GROUP 128u
#define GROUP_BYTES_PER_LANE 4
// Bytes of a batch that the mask of starts covers at a time.
#define SPAN 2048u
#define SPAN_WORDS (SPAN / 32u)
// Offsets that are kept: a batch has at most 64 explicit ones, and three before it can be named.
#define HISTORY 128u
#define MAX_LITERALS 511u
#define MAX_MATCH 512u

// Set in the source of a literal: nothing that is still to be written.
#define FINAL 0x80000000u

// A sequence of the batch: where its match starts, and what leads from a byte to its source.
#define OWNER_MATCH_START x
#define OWNER_TO_LITERAL y
#define OWNER_TO_MATCH z

// A team's workgroup memory.
typedef struct {
    __local Entry *symbols; // literals', then tokens' table
    __local Entry *offsets;
    __local uint *history;  // explicit offsets by number
    __local uint4 *owners;
    __local uint *starts;   // SPAN_WORDS of mask, then of each word how many sequences start before it
    __local uint *sources;  // of the bytes of a group
} Memory;

// ---- Memory accesses of the inner loop -------------------------------------------------------------------------------

#if TEAM_PTX

// Volatile, so that the loads stay where they are: ahead of the work that hides how long they take. The two bodies of
// the loop must not be merged either, hence `BODY`.
#define LOAD_BYTE(r, base, source, BODY) \
    asm volatile("ld.global.u8 %0, [%1]; // " #BODY : "=r"(r) : "l"((ulong)((base) + (source))) : "memory")

// A store under a predicate keeps the compiler from working out the address a second time.
#define STORE_BYTE(at, distance, v, index, end)                                                            \
    asm volatile("{.reg .pred p; setp.lt.u32 p, %2, %3; @p st.global.u8 [%0+" #distance "], %1;}"          \
                 :: "l"((ulong)(at)), "r"(v), "r"((index) + distance), "r"(end) : "memory")

INLINE void prefetch_byte(__global const uchar *p) {
    asm volatile("prefetch.global.L2 [%0];" :: "l"((ulong)p));
}

INLINE uint remainder_small(uint v, uint by) {
    // Below 128 the quotient is at least 1/256 away from the next integer, and the error far smaller.
    float quotient;
    asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(quotient) : "f"((float)v + 0.5f), "f"((float)by));
    return v - (uint)quotient * by;
}

INLINE __global uchar *uniform_pointer(Team t, __global uchar *p) {
    uint2 halves = as_uint2((ulong)p);
    halves.x = team_uniform(t, halves.x);
    halves.y = team_uniform(t, halves.y);
    return (__global uchar *)as_ulong(halves);
}

#else

#define LOAD_BYTE(r, base, source, BODY) r = (base)[source]
#define STORE_BYTE(at, distance, v, index, end) \
    if ((index) + distance < (end)) (at)[distance] = (uchar)(v)

INLINE void prefetch_byte(__global const uchar *p) {
}

INLINE uint remainder_small(uint v, uint by) {
    return v % by;
}

INLINE __global uchar *uniform_pointer(Team t, __global uchar *p) {
    return p;
}

#endif

// ---- Symbols ---------------------------------------------------------------------------------------------------------

// How a stream's symbols are read.
typedef struct {
    __local const Entry *table;
    uint log;   // of a prefix code's table
    bool fse;   // uniform
    uint state; // of this lane
} Stream;

INLINE uint stream_entry(const Stream *s, uint bits) {
#if FSE
    uint index = s->fse ? s->state : bits >> (32u - s->log);
    return s->table[index & (SYMBOL_ENTRIES - 1u)];
#else
    return s->table[bits >> (32u - s->log)];
#endif
}

INLINE uint entry_bits(uint entry) {
#if FSE
    return entry >> 8 & 255u;
#else
    return entry >> 8;
#endif
}

// Moves on to the next state, whose bits are the first of `bits`.
INLINE void stream_advance(Stream *s, uint entry, uint bits, bool active) {
#if FSE
    uint next = (entry >> 16) + shift_right(bits, 32u - entry_bits(entry));
    s->state = active ? next : s->state;
#endif
}

// Copies a table from device memory.
INLINE void load_table(Team t, __local Entry *table, __global const uint *from, uint words) {
    __global const uint4 *source = (__global const uint4 *)from;
    __local uint4 *target = (__local uint4 *)table;
    for (uint i = t.lane; i < words / 4u; i += 32u) target[i] = source[i];
}

// ---- Literals --------------------------------------------------------------------------------------------------------

// Reads two literals of a row, those at `place` and after it, where they are in [first, end).
INLINE uint literal_pair(Team t, Lanes *in, Stream *s, bool full, uint place, uint first, uint end) {
    lanes_refill(t, in);
    uint bits = in->high;
    bool has0 = full || (place >= first && place < end);
    bool has1 = full || (place + 1u >= first && place + 1u < end);
    uint e0 = stream_entry(s, bits);
    uint n0 = has0 ? entry_bits(e0) : 0u;
    stream_advance(s, e0, bits, has0);
    bits <<= n0;
    uint e1 = stream_entry(s, bits);
    uint n1 = has1 ? entry_bits(e1) : 0u;
    stream_advance(s, e1, bits, has1);
    lanes_skip(in, n0 + n1);
    return pack_bytes(e0, e1);
}

// Reads all literals, into the words from `grid` on, of which they begin at byte `first`.
INLINE void read_literals(Team t, Lanes *in, Stream *s, __global uint *grid, uint first, uint end) {
    #pragma unroll 1
    for (uint row = 0u; row < end; row += GROUP) {
        uint place = row + 4u * t.lane;
#if TEAM_PTX
        // A path of its own for rows without gaps: all but the first and the last.
        if (row >= first && row + GROUP <= end) {
            uint low = literal_pair(t, in, s, true, place, first, end);
            uint high = literal_pair(t, in, s, true, place + 2u, first, end);
            grid[place / 4u] = pack_halves(low, high);
            continue;
        }
#endif
        uint low = 0u, high = 0u;
        #pragma unroll 1
        for (uint pair = 0u; pair < 2u; pair++) {
            low = high;
            high = literal_pair(t, in, s, false, place + 2u * pair, first, end);
        }
        // Bytes around the literals are written with them: before them is what is not yet decoded, after them is the end
        // of the block, whose slot is whole words.
        if (place < end) grid[place / 4u] = pack_halves(low, high);
    }
    team_sync(t);
}

// ---- Sequences -------------------------------------------------------------------------------------------------------

typedef struct {
    uint literals;
    uint length;
    uint offset;  // or number of a recent one
    bool recent;
    bool bad;
} Sequence;

INLINE Sequence read_sequence(Team t, Lanes *in, Stream *tokens, Stream *offsets, bool active) {
    Sequence q;
    lanes_refill(t, in);
    uint bits = in->high;
    uint entry = stream_entry(tokens, bits);
    uint used = entry_bits(entry);
    stream_advance(tokens, entry, bits, active);
    bits <<= used;
    uint literals = entry >> 5 & 7u;
    uint code = entry & 31u;
    uint length = code == 0u ? 0u : code + 2u;
    if (literals == 7u) {
        uint k = bits >> 29;
        literals = 6u + (1u << k);
        k = k == 7u ? 9u : k;
        bits <<= 3;
        literals += shift_right(bits, 32u - k);
        bits <<= k;
        used += 3u + k;
    }
    q.bad = code > 26u;
    if (code >= 20u) {
        uint k = code < 26u ? code - 17u : 0u;
        length = code < 26u ? 14u + (1u << k) + shift_right(bits, 32u - k) : MAX_MATCH;
        used += k;
    }
    lanes_skip(in, active ? used : 0u);

    lanes_refill(t, in);
    bits = in->high;
    entry = stream_entry(offsets, bits);
    used = entry_bits(entry);
    stream_advance(offsets, entry, bits, active);
    bits <<= used;
    uint symbol = entry & 255u;
    q.recent = symbol < 3u || !active;
    uint y = symbol - 3u;
    uint k = ((y >> 1) + 1u) & 31u;
    uint offset = ((2u | (y & 1u)) << k) + shift_right(bits, 32u - k) - 3u;
    q.offset = symbol < 3u ? symbol : offset;
    used += symbol < 3u ? 0u : k;
    lanes_skip(in, active ? used : 0u);

    q.bad |= literals > MAX_LITERALS || length > MAX_MATCH || (length == 0u && (symbol != 0u || literals == 0u));
    q.bad = q.bad && active;
    q.literals = active ? literals : 0u;
    q.length = active ? length : 0u;
    return q;
}

// Puts explicit offsets into the history, of which `named` are known before, and looks up recent ones.
INLINE void resolve_offsets(Team t, Memory m, Sequence *even, Sequence *odd, uint *named) {
    uint before = team_before(t);
    uint explicit0 = team_ballot(t, !even->recent);
    uint explicit1 = team_ballot(t, !odd->recent);
    uint number0 = *named + popcount(explicit0 & before) + popcount(explicit1 & before);
    uint number1 = number0 + (even->recent ? 0u : 1u);
    if (!even->recent) m.history[number0 & (HISTORY - 1u)] = even->offset;
    if (!odd->recent) m.history[number1 & (HISTORY - 1u)] = odd->offset;
    team_sync(t);
    if (even->recent) even->offset = m.history[(number0 - 1u - even->offset) & (HISTORY - 1u)];
    if (odd->recent) odd->offset = m.history[(number1 - 1u - odd->offset) & (HISTORY - 1u)];
    *named += popcount(explicit0) + popcount(explicit1);
}

// ---- Contents --------------------------------------------------------------------------------------------------------

// A group whose bytes have been asked for and not yet been stored. Positions count from the start of the window.
typedef struct {
    uint start; // of the group; uniform
    uint at;    // the lane's first byte
    uint end;   // of what is to be stored; 0 for nothing
} Pending;

// Where in a batch the next group is. Uniform but for `at`.
typedef struct {
    __global uchar *base; // of the window
    uint start;           // of the group
    uint at;              // the lane's first byte
    uint end;             // of the batch or the span
    uint word;            // of the mask of starts
    uint upto;            // mask of the lanes up to this one
} Cursor;

INLINE void store_group(__global uchar *base, const uint *values, const Pending *p) {
    __global uchar *to = base + p->at;
    STORE_BYTE(to, 0, values[0], p->at, p->end);
    STORE_BYTE(to, 32, values[1], p->at, p->end);
    STORE_BYTE(to, 64, values[2], p->at, p->end);
    STORE_BYTE(to, 96, values[3], p->at, p->end);
}

INLINE void next_group(Cursor *c) {
    c->start += GROUP;
    c->at += GROUP;
    c->word += GROUP / 32u;
}

// Replaces sources inside the group, from `start` on, by what they derive from outside it; `more`, which is uniform,
// tells whether there are any.
INLINE void chase_sources(Team t, Memory m, const Cursor *c, uint *source, const uint *match_start, bool more) {
    #pragma unroll
    for (uint g = 0u; g < GROUP_BYTES_PER_LANE; g++) {
        uint at = min(c->at + 32u * g, c->end - 1u);
        if ((int)source[g] >= (int)c->start) {
            // A match that repeats its own bytes: go back by whole periods to before it.
            uint offset = at - source[g];
            uint first = max(match_start[g], c->start);
            uint distance = at - first;
            if (distance >= offset) source[g] = first - offset + remainder_small(distance, offset);
        }
        m.sources[32u * g + t.lane] = source[g];
    }
    team_sync(t);
    // Each round doubles how far back a source reaches, in links of which a group has at most 128.
    // Barriers of TEAM_LOCAL stand in no branch: compilers may copy what follows one.
    #pragma unroll 1
    for (uint round = 0u; round < 7u && more; round++) {
        bool inside = false;
        #pragma unroll
        for (uint g = 0u; g < GROUP_BYTES_PER_LANE; g++) {
            if ((int)source[g] >= (int)c->start) source[g] = m.sources[(source[g] - c->start) & (GROUP - 1u)];
            inside |= (int)source[g] >= (int)c->start;
        }
        more = team_any(t, inside);
#if TEAM_PTX
        if (!more) break;
        team_sync(t);
#endif
        #pragma unroll
        for (uint g = 0u; g < GROUP_BYTES_PER_LANE; g++) m.sources[32u * g + t.lane] = source[g];
        team_sync(t);
    }
    team_sync(t);
}

// Finds the sources of the group at the cursor, and the match starts that tell of repetition. Returns whether one of the
// lane's is at `from` or after it.
INLINE bool find_sources(Memory m, const Cursor *c, uint from, uint *source, uint *match_start) {
    uint4 mask4 = *(__local const uint4 *)(m.starts + c->word);
    uint4 count4 = *(__local const uint4 *)(m.starts + SPAN_WORDS + c->word);
    uint mask[4] = {mask4.x, mask4.y, mask4.z, mask4.w};
    uint count[4] = {count4.x, count4.y, count4.z, count4.w};
    bool waits = false;
    #pragma unroll
    for (uint g = 0u; g < GROUP_BYTES_PER_LANE; g++) {
        // In 0 to 63: a batch has at most 64 starts, the first of them at its first byte.
        uint4 owner = m.owners[count[g] + popcount(mask[g] & c->upto) - 1u];
        // Bytes past the end do as the last.
        uint at = min(c->at + 32u * g, c->end - 1u);
        match_start[g] = owner.OWNER_MATCH_START;
        source[g] = at + (at < owner.OWNER_MATCH_START ? owner.OWNER_TO_LITERAL : owner.OWNER_TO_MATCH);
        waits |= (int)source[g] >= (int)from;
    }
    return waits;
}

#if TEAM_PTX

// Finds the final sources of the group at the cursor. If they depend on the pending group, that is stored first.
INLINE void group_sources(Team t, Memory m, const Cursor *c, Pending *p, const uint *values, uint *source) {
    uint match_start[GROUP_BYTES_PER_LANE];
    if (team_any(t, find_sources(m, c, p->start, source, match_start))) {
        store_group(c->base, values, p);
        p->end = 0u;
        team_sync(t);
        bool inside = false;
        #pragma unroll
        for (uint g = 0u; g < GROUP_BYTES_PER_LANE; g++) inside |= (int)source[g] >= (int)c->start;
        if (team_any(t, inside)) chase_sources(t, m, c, source, match_start, true);
    }
}

// Asks for the bytes of the group at the cursor, into `loaded`, and stores the group before it, which is in `values`.
#define GROUP_STEP(t, m, c, p, values, loaded, BODY)                                                       \
    {                                                                                                      \
        uint source_[GROUP_BYTES_PER_LANE];                                                                \
        group_sources(t, m, c, p, values, source_);                                                        \
        LOAD_BYTE(loaded[0], (c)->base, source_[0] & ~FINAL, BODY);                                        \
        LOAD_BYTE(loaded[1], (c)->base, source_[1] & ~FINAL, BODY);                                        \
        LOAD_BYTE(loaded[2], (c)->base, source_[2] & ~FINAL, BODY);                                        \
        LOAD_BYTE(loaded[3], (c)->base, source_[3] & ~FINAL, BODY);                                        \
        store_group((c)->base, values, p);                                                                 \
        team_sync(t);                                                                                      \
        (p)->start = (c)->start;                                                                           \
        (p)->at = (c)->at;                                                                                 \
        (p)->end = (c)->end;                                                                               \
        next_group(c);                                                                                     \
    }

// Writes the groups from the cursor to its end; the last may stay pending, in `values`.
INLINE void write_groups(Team t, Memory m, Cursor *c, Pending *p, uint *values, uint *others) {
    // Two bodies, so that each group's bytes stay in registers of their own.
    #pragma unroll 1
    do {
        GROUP_STEP(t, m, c, p, values, others, even);
        if (c->start >= c->end) {
            store_group(c->base, others, p);
            p->end = 0u;
            p->start = c->end;
            team_sync(t);
            break;
        }
        GROUP_STEP(t, m, c, p, others, values, odd);
    } while (c->start < c->end);
}

#else

// Writes the groups from the cursor to its end.
INLINE void write_groups(Team t, Memory m, Cursor *c, Pending *p, uint *values, uint *others) {
    for (; c->start < c->end; next_group(c)) {
        uint source[GROUP_BYTES_PER_LANE], match_start[GROUP_BYTES_PER_LANE];
        bool inside = find_sources(m, c, c->start, source, match_start);
        chase_sources(t, m, c, source, match_start, team_any(t, inside));
        for (uint g = 0u; g < GROUP_BYTES_PER_LANE; g++) LOAD_BYTE(values[g], c->base, source[g] & ~FINAL, 0);
        team_sync(t);
        p->at = c->at;
        p->end = c->end;
        store_group(c->base, values, p);
        p->end = 0u;
        team_sync(t);
    }
}

#endif

// Where a chunk's output stands. Positions count from the start of the window; uniform.
typedef struct {
    uint position; // of the next byte
    uint literal;  // of the next literal
    uint end;      // of the chunk
} Output;

// Carries out a batch. `values` and `p` are the pending group. Returns false, before anything is written, if the batch
// breaks a rule.
INLINE bool run_batch(Team t, Memory m, Cursor *c, Output *out, Sequence even, Sequence odd, uint *values, uint *others, Pending *p) {
    // Sums of a batch fit in 16 bits.
    uint size0 = even.literals | (even.literals + even.length) << 16;
    uint size = size0 + (odd.literals | (odd.literals + odd.length) << 16);
    uint sum = team_scan(t, size);
    uint all = team_max(t, sum);
    uint total = all >> 16;
    uint literals = all & 0xffffu;
    uint sum0 = sum - size;
    uint sum1 = sum0 + size0;
    uint start0 = sum0 >> 16;
    uint start1 = sum1 >> 16;
    uint match0 = out->position + start0 + even.literals;
    uint match1 = out->position + start1 + odd.literals;
    bool bad = even.bad || odd.bad;
    bad |= even.length != 0u && even.offset - 1u >= match0;
    bad |= odd.length != 0u && odd.offset - 1u >= match1;
    // Each literal that is left will be a byte, so the output cannot be past them; this also keeps it in the chunk.
    bad |= out->position + total > out->literal + literals || out->literal + literals > out->end;
    bad = team_any(t, bad);
    if (bad) {
        total = 0u;
        literals = 0u;
    }
    // Where no literal is ahead of the output, the chunk has no more matches, and its literals are in place.
    uint written = out->position == out->literal ? 0u : total;
    if (even.length != 0u && match0 - even.offset < out->position) prefetch_byte(c->base + (match0 - even.offset));
    if (odd.length != 0u && match1 - odd.offset < out->position) prefetch_byte(c->base + (match1 - odd.offset));
    m.owners[2u * t.lane] = (uint4)(match0, out->literal + (sum0 & 0xffffu) - out->position - start0 + FINAL, 0u - even.offset, 0u);
    m.owners[2u * t.lane + 1u] = (uint4)(match1, out->literal + (sum1 & 0xffffu) - out->position - start1 + FINAL, 0u - odd.offset, 0u);
    uint started = 0u;
    #pragma unroll 1
    for (uint span = 0u; span < written; span += SPAN) {
        ((__local uint2 *)m.starts)[t.lane] = (uint2)(0u, 0u);
        team_sync(t);
        uint bit = start0 - span;
        if (bit < SPAN && start0 < total) atomic_or(&m.starts[bit >> 5], 1u << (bit & 31u));
        bit = start1 - span;
        if (bit < SPAN && start1 < total) atomic_or(&m.starts[bit >> 5], 1u << (bit & 31u));
        team_sync(t);
        uint2 mask = ((__local uint2 *)m.starts)[t.lane];
        uint count0 = popcount(mask.x);
        uint count = team_scan(t, count0 + popcount(mask.y));
        uint before = started + count - count0 - popcount(mask.y);
        ((__local uint2 *)(m.starts + SPAN_WORDS))[t.lane] = (uint2)(before, before + count0);
        if (total > SPAN) started += team_max(t, count);
        team_sync(t);

        c->start = out->position + span;
        c->at = c->start + t.lane;
        c->end = out->position + min(total, span + SPAN);
        c->word = 0u;
        write_groups(t, m, c, p, values, others);
    }
    out->position += total;
    out->literal += literals;
    return !bad;
}

__kernel void lz77_decode(__global uchar *contents, __global const uint *payload, __global uint *results,
                          __global const uint *lz77_chunks, __global const uint *lz77_tables, uint blocks,
                          uint max_chunks, uint slot, uint per_block, uint stride, uint turn) {
    __local Entry symbols_of[TEAMS][SYMBOL_ENTRIES] __attribute__((aligned(16)));
    __local Entry offsets_of[TEAMS][OFFSET_ENTRIES] __attribute__((aligned(16)));
    __local uint ring_of[TEAMS][RING] __attribute__((aligned(16)));
    __local uint history_of[TEAMS][HISTORY];
    __local uint4 owners_of[TEAMS][64];
    __local uint starts_of[TEAMS][2u * SPAN_WORDS] __attribute__((aligned(16)));
    __local uint sources_of[TEAMS][GROUP];
    TEAM_START(t);
    uint team = team_uniform(t, (uint)get_group_id(0) * TEAMS + t.index);
    uint block = team / per_block;
    bool active = block < blocks;
    block = active ? block : 0u;
    uint chunk = team % per_block * stride + turn % stride;
    __global const uint *head = lz77_chunks + CHUNK_WORDS * ((ulong)block * (max_chunks + 1u));
    active = active && chunk < team_uniform(t, head[BLOCK_CHUNKS]);
    uint logs = team_uniform(t, head[BLOCK_LOGS]);
    uint chunk_log = logs & 255u;
    uint group_log = logs >> 16 & 255u;
    uint in_window = active ? chunk & ((1u << ((logs >> 8 & 255u) - chunk_log)) - 1u) : 0u;
    active = active && in_window == turn;
    uint group = active ? chunk >> group_log : 0u;
    __global const uint *tables = lz77_tables + (ulong)GROUP_WORDS * ((ulong)block * max_chunks + group);
    active = active && team_uniform(t, tables[TABLES_STATUS]) == 0u;
    if (!active) return;
    uint modes = team_uniform(t, tables[TABLES_MODES]);
    __global const uint *descriptor = head + CHUNK_WORDS * (chunk + 1u);
    uint start = team_uniform(t, descriptor[CHUNK_START]);
    uint words = team_uniform(t, descriptor[CHUNK_RECORD]);
    uint literals = team_uniform(t, descriptor[CHUNK_LITERALS]);
    uint sequences = team_uniform(t, descriptor[CHUNK_SEQUENCES]);
    if ((chunk & ((1u << group_log) - 1u)) == 0u) {
        uint described = team_uniform(t, tables[TABLES_WORDS]);
        start += described;
        words -= described;
    }
    uint block_len = team_uniform(t, head[BLOCK_LEN]);
    uint chunk_start = chunk << chunk_log;
    uint chunk_len = min(1u << chunk_log, block_len - chunk_start);
    uint window_start = chunk_start - (in_window << chunk_log);

    Memory m;
    m.symbols = symbols_of[t.index];
    m.offsets = offsets_of[t.index];
    m.history = history_of[t.index];
    m.owners = owners_of[t.index];
    m.starts = starts_of[t.index];
    m.sources = sources_of[t.index];
    Lanes in;
    lanes_start(t, &in, payload, start, words, ring_of[t.index]);
    uint status = 0u;
    if (words != 0u && payload[start + words - 1u] == 0u) status = 30u;

    __global uchar *base = uniform_pointer(t, contents + (ulong)block * slot + window_start);
    Output out;
    out.position = chunk_start - window_start;
    out.end = out.position + chunk_len;
    out.literal = out.end - literals;

    Stream s;
    s.table = m.symbols;
    s.log = PREFIX_LOG;
    s.fse = (modes & 3u) == 3u;
    s.state = 0u;
    load_table(t, m.symbols, tables + TABLES_HEAD, SYMBOL_TABLE);
    team_sync(t);
#if FSE
    uint fse_logs = team_uniform(t, tables[TABLES_LOGS]);
    if (literals == 0u) s.fse = false;
    uint literal_log = s.fse ? fse_logs & 255u : 0u;
    lanes_refill_if(t, &in, s.fse);
    s.state = shift_right(in.high, 32u - literal_log);
    lanes_skip(&in, literal_log);
#endif
    uint first = (chunk_len - literals) & 3u;
    uint end = literals == 0u ? 0u : first + literals;
    read_literals(t, &in, &s, (__global uint *)(base + (out.literal - first)), first, end);
#if FSE
    if (team_any(t, s.fse && s.state != 0u)) status = 31u;
#endif

    load_table(t, m.symbols, tables + TABLES_HEAD + SYMBOL_TABLE, SYMBOL_TABLE);
    load_table(t, m.offsets, tables + TABLES_HEAD + 2u * SYMBOL_TABLE, OFFSET_TABLE);
    if (t.lane < 3u) m.history[t.lane] = t.lane == 0u ? 8u : t.lane == 1u ? 4u : 1u;
    team_sync(t);
    uint named = 3u;
    Stream tokens = s;
    tokens.fse = (modes >> 2 & 3u) == 3u;
    tokens.state = 0u;
    Stream offsets = tokens;
    offsets.table = m.offsets;
    offsets.log = OFFSET_LOG;
    offsets.fse = (modes >> 4 & 3u) == 3u;
#if FSE
    if (sequences == 0u) {
        tokens.fse = false;
        offsets.fse = false;
    }
    uint token_log = tokens.fse ? fse_logs >> 8 & 255u : 0u;
    uint offset_log = offsets.fse ? fse_logs >> 16 & 255u : 0u;
    lanes_refill_if(t, &in, tokens.fse || offsets.fse);
    tokens.state = shift_right(in.high, 32u - token_log);
    offsets.state = shift_right(in.high << token_log, 32u - offset_log);
    lanes_skip(&in, token_log + offset_log);
#endif

    Cursor c;
    c.base = base;
    c.upto = team_before(t) | 1u << t.lane;
    Pending p;
    p.start = out.position;
    p.at = 0u;
    p.end = 0u;
    uint values[GROUP_BYTES_PER_LANE] = {0u, 0u, 0u, 0u};
    uint others[GROUP_BYTES_PER_LANE] = {0u, 0u, 0u, 0u};
    #pragma unroll 1
    for (uint i = 0u; i < sequences && status != 32u; i += 64u) {
        Sequence even, odd = {0u, 0u, 0u, false, false};
#if TEAM_PTX
        even = read_sequence(t, &in, &tokens, &offsets, i + 2u * t.lane < sequences);
        odd = read_sequence(t, &in, &tokens, &offsets, i + 2u * t.lane + 1u < sequences);
#else
        #pragma unroll 1
        for (uint parity = 0u; parity < 2u; parity++) {
            even = odd;
            odd = read_sequence(t, &in, &tokens, &offsets, i + 2u * t.lane + parity < sequences);
        }
#endif
        resolve_offsets(t, m, &even, &odd, &named);
        if (!run_batch(t, m, &c, &out, even, odd, values, others, &p)) status = 32u;
    }
    store_group(base, values, &p);
#if FSE
    if (team_any(t, (tokens.fse && tokens.state != 0u) || (offsets.fse && offsets.state != 0u))) status = 33u;
#endif
    if (!lanes_at_end(t, &in) && status == 0u) status = 34u;
    if ((out.position != out.end || out.literal != out.end) && status == 0u) status = 35u;
    if (status != 0u && t.lane == 0u) results[8u * block] = status;
}
