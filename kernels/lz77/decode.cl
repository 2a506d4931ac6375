// Decodes the contents of LZ77 chunks, from tables and words.
//
// One team per chunk. It first decodes the literals into the last bytes of the chunk's own contents: later writes never
// pass a literal that has not been read. Then it takes the sequences in batches of 64, two per lane, and writes their
// bytes in groups of 128. A bit mask of sequence starts and a table of the batch, in workgroup memory, show the
// sequence of each byte. If a group repeats its own bytes, the team first traces them to bytes before the group. The
// loads of a group run while the team finds the sources of the next one, and then the team stores the group: see
// GROUP_STEP.
//
// If `is_ordered`, teams take chunks in the order that lz77_order found.
//
// In windows of several chunks, dispatch k decodes chunk k of each window. With RECORDS, a single dispatch decodes
// only the literals of all chunks and records their sequences, from which lz77_windows writes the contents. See
// src/format/lz77.md.
//
// @pz_cost {
//   threads: N/262144*128
//   passes: N/65536
//   buffers: contents=N, payload=N+256, results=32, lz77_chunks=N/65536*16+16, lz77_tables=N/65536*17440, lz77_places=N+1024, lz77_distances=N+1024, lz77_starts=N/4, lz77_order=N/65536*4
//   local_mem: 24576
//   note: a chunk for each 64 KiB, at least one, and a team for each; a pass for each chunk of a window, most often 1;
//     workgroup memory for four teams without FSE, or two with FSE
// }
// @pz_import team
// @pz_import lz77_chunks
// @pz_import lz77_symbols
// @pz_import lz77_records

#if !RECORDS

// Each lane handles four bytes of a group, 32 apart.
#define GROUP_BYTES_PER_LANE 4
// Bytes of a batch that the mask of starts covers at once.
#define SPAN 2048u
#define SPAN_WORDS (SPAN / 32u)

// Marks the source of a literal. Other sources are bytes that are not written yet.
#define FINAL 0x80000000u

// A sequence of the batch: where its match starts, and the distance from a byte to its source.
#define OWNER_MATCH_START x
#define OWNER_TO_LITERAL y
#define OWNER_TO_MATCH z

// A team's workgroup memory.
typedef struct {
    __local uint4 *owners;
    __local uint *starts;   // SPAN_WORDS of mask, then the number of sequences that start before each word
    __local uint *sources;  // of the bytes of a group
} Memory;

// ---- Memory accesses of the inner loop ------------------------------------------------------------------------------

#if TEAM_PTX

// Volatile keeps the loads in place, ahead of the work that hides their latency. `BODY` keeps the compiler from
// merging the two bodies of the loop.
#define LOAD_BYTE(r, base, source, BODY) \
    asm volatile("ld.global.u8 %0, [%1]; // " #BODY : "=r"(r) : "l"((ulong)((base) + (source))) : "memory")

// A predicated store keeps the compiler from computing the address a second time.
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

#else

#define LOAD_BYTE(r, base, source, BODY) r = (base)[source]
#define STORE_BYTE(at, distance, v, index, end) \
    if ((index) + distance < (end)) (at)[distance] = (uchar)(v)

INLINE void prefetch_byte(__global const uchar *p) {
}

INLINE uint remainder_small(uint v, uint by) {
    return v % by;
}

#endif

// ---- Contents -------------------------------------------------------------------------------------------------------

// A group that is loaded but not stored. Positions count from the start of the window.
typedef struct {
    uint start; // of the group; uniform
    uint at;    // the lane's first byte
    uint end;   // of the bytes to store; 0 for none
} Pending;

// The place of the next group in a batch. Uniform except `at`.
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

// Replaces sources inside the group, from `start` on, by the sources outside it that they repeat. `more`, which is
// uniform, tells whether there are any.
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
    // Each round doubles how far back a source reaches, and a group has at most 128 links. No barrier of TEAM_LOCAL
    // is in a branch: compilers may copy the code after it.
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

// Finds the sources of the group at the cursor, and the match starts that reveal repetition. Returns whether one of the
// lane's sources is at `from` or after it.
INLINE bool find_sources(Memory m, const Cursor *c, uint from, uint *source, uint *match_start) {
    uint4 mask4 = *(__local const uint4 *)(m.starts + c->word);
    uint4 count4 = *(__local const uint4 *)(m.starts + SPAN_WORDS + c->word);
    uint mask[4] = {mask4.x, mask4.y, mask4.z, mask4.w};
    uint count[4] = {count4.x, count4.y, count4.z, count4.w};
    bool waits = false;
    #pragma unroll
    for (uint g = 0u; g < GROUP_BYTES_PER_LANE; g++) {
        // The index is 0 to 63: a batch has at most 64 starts, the first at its first byte.
        uint4 owner = m.owners[count[g] + popcount(mask[g] & c->upto) - 1u];
        // Bytes past the end have the last byte's source.
        uint at = min(c->at + 32u * g, c->end - 1u);
        match_start[g] = owner.OWNER_MATCH_START;
        source[g] = at + (at < owner.OWNER_MATCH_START ? owner.OWNER_TO_LITERAL : owner.OWNER_TO_MATCH);
        waits |= (int)source[g] >= (int)from;
    }
    return waits;
}

#if TEAM_PTX

// Finds the final sources of the group at the cursor. If they depend on the pending group, stores that first.
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

// Starts loading the bytes of the group at the cursor into `loaded`, and stores the group before it, from `values`.
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
    // Two bodies, so that each group's bytes have their own registers.
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

// Decodes a batch. `values` and `p` are the pending group. If the batch breaks a rule, returns false before writing
// anything.
INLINE bool run_batch(Team t, Memory m, Cursor *c, Output *out, Sequence even, Sequence odd, uint *values, uint *others, Pending *p) {
    Batch b = batch_places(t, out, &even, &odd);
    // If no literal is ahead of the output, the chunk has no more matches, and its literals are in place.
    uint written = out->position == out->literal ? 0u : b.total;
    if (even.length != 0u && b.match0 - even.offset < out->position) prefetch_byte(c->base + (b.match0 - even.offset));
    if (odd.length != 0u && b.match1 - odd.offset < out->position) prefetch_byte(c->base + (b.match1 - odd.offset));
    m.owners[2u * t.lane] = UINT4(b.match0, out->literal + b.literals0 - out->position - b.start0 + FINAL, 0u - even.offset, 0u);
    m.owners[2u * t.lane + 1u] = UINT4(b.match1, out->literal + b.literals1 - out->position - b.start1 + FINAL, 0u - odd.offset, 0u);
    uint started = 0u;
    #pragma unroll 1
    for (uint span = 0u; span < written; span += SPAN) {
        ((__local uint2 *)m.starts)[t.lane] = UINT2(0u, 0u);
        team_sync(t);
        uint bit = b.start0 - span;
        if (bit < SPAN && b.start0 < b.total) atomic_or(&m.starts[bit >> 5], 1u << (bit & 31u));
        bit = b.start1 - span;
        if (bit < SPAN && b.start1 < b.total) atomic_or(&m.starts[bit >> 5], 1u << (bit & 31u));
        team_sync(t);
        uint2 mask = ((__local uint2 *)m.starts)[t.lane];
        uint count0 = popcount(mask.x);
        uint count = team_scan(t, count0 + popcount(mask.y));
        uint before = started + count - count0 - popcount(mask.y);
        ((__local uint2 *)(m.starts + SPAN_WORDS))[t.lane] = UINT2(before, before + count0);
        if (b.total > SPAN) started += team_max(t, count);
        team_sync(t);

        c->start = out->position + span;
        c->at = c->start + t.lane;
        c->end = out->position + min(b.total, span + SPAN);
        c->word = 0u;
        write_groups(t, m, c, p, values, others);
    }
    out->position += b.total;
    out->literal += b.literals;
    return !b.bad;
}

#endif // !RECORDS

__kernel void lz77_decode(__global uchar *contents, __global const uint *payload, __global uint *results,
                          __global const uint *lz77_chunks, __global const uint *lz77_tables,
#if RECORDS
                          __global uint *lz77_places, __global uint *lz77_distances, __global uint2 *lz77_starts,
#else
                          __global const uint *lz77_order,
#endif
                          uint blocks, uint max_chunks, uint slot, uint per_block, uint stride, uint turn,
                          uint is_ordered) {
    SHARED Entry symbols_of[TEAMS][SYMBOL_ENTRIES] __attribute__((aligned(16)));
    SHARED Entry offsets_of[TEAMS][OFFSET_ENTRIES] __attribute__((aligned(16)));
    SHARED uint ring_of[TEAMS][RING] __attribute__((aligned(16)));
    SHARED uint history_of[TEAMS][HISTORY];
#if RECORDS
    SHARED uint mask_of[TEAMS][RECORD_SPAN / 32u];
#else
    SHARED uint4 owners_of[TEAMS][64];
    SHARED uint starts_of[TEAMS][2u * SPAN_WORDS] __attribute__((aligned(16)));
    SHARED uint sources_of[TEAMS][GROUP];
#endif
    TEAM_START(t);
    uint team = team_uniform(t, (uint)get_group_id(0) * TEAMS + t.index);
    bool active = team < blocks * per_block;
#if !RECORDS
    if (is_ordered) team = team_uniform(t, lz77_order[active ? team : 0u]);
#endif
    uint block = team / per_block;
    active = active && block < blocks;
    block = active ? block : 0u;
    uint chunk = team % per_block * stride + turn % stride;
    __global const uint *head = lz77_chunks + CHUNK_WORDS * ((ulong)block * (max_chunks + 1u));
    active = active && chunk < team_uniform(t, head[BLOCK_CHUNKS]);
    uint logs = team_uniform(t, head[BLOCK_LOGS]);
    uint chunk_log = logs & 255u;
    uint group_log = logs >> 16 & 255u;
    uint in_window = active ? chunk & ((1u << ((logs >> 8 & 255u) - chunk_log)) - 1u) : 0u;
#if !RECORDS
    active = active && in_window == turn;
#endif
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

    __local Entry *symbol_table = symbols_of[t.index];
    __local Entry *offset_table = offsets_of[t.index];
    __local uint *history = history_of[t.index];
#if !RECORDS
    Memory m;
    m.owners = owners_of[t.index];
    m.starts = starts_of[t.index];
    m.sources = sources_of[t.index];
#endif
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
    s.table = symbol_table;
    s.log = PREFIX_LOG;
    s.fse = (modes & 3u) == 3u;
    s.state = 0u;
    load_table(t, symbol_table, tables + TABLES_HEAD, SYMBOL_TABLE);
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

    load_table(t, symbol_table, tables + TABLES_HEAD + SYMBOL_TABLE, SYMBOL_TABLE);
    load_table(t, offset_table, tables + TABLES_HEAD + 2u * SYMBOL_TABLE, OFFSET_TABLE);
    if (t.lane < 3u) history[t.lane] = t.lane == 0u ? 8u : t.lane == 1u ? 4u : 1u;
    team_sync(t);
    uint named = 3u;
    Stream tokens = s;
    tokens.fse = (modes >> 2 & 3u) == 3u;
    tokens.state = 0u;
    Stream offsets = tokens;
    offsets.table = offset_table;
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

#if RECORDS
    Records r;
    ulong record = RECORDS_OF(block, slot) + chunk_start / 4u;
    r.places = lz77_places + record;
    r.offsets = lz77_distances + record;
    r.starts = lz77_starts + ((ulong)block * slot + chunk_start) / 32u;
    r.mask = mask_of[t.index];
    r.span = 0u;
    r.started = 0u;
    r.begin = out.position;
    r.length = chunk_len;
    r.literals = 0u;
    r.mask[t.lane] = 0u;
    team_sync(t);
    // Plans ensure this: there is room for the records, and the numbers fit.
    uint room = chunk_len / 4u + (chunk_start + chunk_len == block_len ? SPARE_RECORDS : 0u);
    if (sequences > room || chunk_len > 1u << 19) {
        sequences = 0u;
        status = 36u;
    }
#else
    Cursor c;
    c.base = base;
    c.upto = team_before(t) | 1u << t.lane;
    Pending p;
    p.start = out.position;
    p.at = 0u;
    p.end = 0u;
    uint values[GROUP_BYTES_PER_LANE] = {0u, 0u, 0u, 0u};
    uint others[GROUP_BYTES_PER_LANE] = {0u, 0u, 0u, 0u};
#endif
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
        resolve_offsets(t, history, &even, &odd, &named);
#if RECORDS
        if (!record_batch(t, &r, &out, even, odd, i, sequences)) status = 32u;
#else
        if (!run_batch(t, m, &c, &out, even, odd, values, others, &p)) status = 32u;
#endif
    }
#if RECORDS
    record_span(t, &r);
#else
    store_group(base, values, &p);
#endif
#if FSE
    if (team_any(t, (tokens.fse && tokens.state != 0u) || (offsets.fse && offsets.state != 0u))) status = 33u;
#endif
    if (!lanes_at_end(t, &in) && status == 0u) status = 34u;
    if ((out.position != out.end || out.literal != out.end) && status == 0u) status = 35u;
    if (status != 0u && t.lane == 0u) results[8u * block] = status;
}
