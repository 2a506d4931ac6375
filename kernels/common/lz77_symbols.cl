// Decodes the literals and sequences of LZ77 chunks from the words of their lanes. The kernel defines FSE.
// @pz_import lanes
// @pz_import lz77_chunks

#if FSE
typedef uint Entry;
#define SYMBOL_ENTRIES 2048u
#else
typedef ushort Entry;
#define SYMBOL_ENTRIES 1024u
#endif
#define OFFSET_ENTRIES 256u

// Bytes that a team reads or writes at a time.
#define GROUP 128u
// How many offsets to keep: a batch has at most 64 explicit ones, and can name three earlier ones.
#define HISTORY 128u
#define MAX_LITERALS 511u
#define MAX_MATCH 512u

#if TEAM_PTX
INLINE __global uchar *uniform_pointer(Team t, __global uchar *p) {
    uint2 halves = as_uint2((ulong)p);
    halves.x = team_uniform(t, halves.x);
    halves.y = team_uniform(t, halves.y);
    return (__global uchar *)as_ulong(halves);
}

#else
INLINE __global uchar *uniform_pointer(Team t, __global uchar *p) {
    return p;
}

#endif

// ---- Symbols --------------------------------------------------------------------------------------------------------

// The state of reading a stream's symbols.
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

// Moves on to the next state, with the first bits of `bits`.
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

// ---- Literals -------------------------------------------------------------------------------------------------------

// Reads two literals of a row, at `place` and after it, if they are in [first, end).
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

// Reads all literals into the words from `grid` on. They begin at byte `first`.
INLINE void read_literals(Team t, Lanes *in, Stream *s, __global uint *grid, uint first, uint end) {
    #pragma unroll 1
    for (uint row = 0u; row < end; row += GROUP) {
        uint place = row + 4u * t.lane;
#if TEAM_PTX
        // Rows without gaps, which are all but the first and the last, take a faster path.
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
        // Whole words are written, so bytes next to the literals are written too. Those before are not decoded yet;
        // those after are beyond the block's end, and the slot has whole words.
        if (place < end) grid[place / 4u] = pack_halves(low, high);
    }
    team_sync(t);
}

// ---- Sequences ------------------------------------------------------------------------------------------------------

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

// Adds explicit offsets to the history, which already has `named` entries, and looks up recent ones.
INLINE void resolve_offsets(Team t, __local uint *history, Sequence *even, Sequence *odd, uint *named) {
    uint before = team_before(t);
    uint explicit0 = team_ballot(t, !even->recent);
    uint explicit1 = team_ballot(t, !odd->recent);
    uint number0 = *named + popcount(explicit0 & before) + popcount(explicit1 & before);
    uint number1 = number0 + (even->recent ? 0u : 1u);
    if (!even->recent) history[number0 & (HISTORY - 1u)] = even->offset;
    if (!odd->recent) history[number1 & (HISTORY - 1u)] = odd->offset;
    team_sync(t);
    if (even->recent) even->offset = history[(number0 - 1u - even->offset) & (HISTORY - 1u)];
    if (odd->recent) odd->offset = history[(number1 - 1u - odd->offset) & (HISTORY - 1u)];
    *named += popcount(explicit0) + popcount(explicit1);
}

// ---- Batches --------------------------------------------------------------------------------------------------------

// The position of a chunk's output. Positions count from the start of the window; uniform.
typedef struct {
    uint position; // of the next byte
    uint literal;  // of the next literal
    uint end;      // of the chunk
} Output;

// The places of a batch's sequences: `total` and `literals` are uniform; the rest describes the lane's two sequences.
typedef struct {
    uint start0, start1;       // from the batch's start on
    uint literals0, literals1; // of the batch, before them
    uint match0, match1;       // their matches, in the window
    uint total;                // bytes of the batch, 0 if it is bad
    uint literals;             // likewise
    bool bad;                  // whether a rule is broken; uniform
} Batch;

INLINE Batch batch_places(Team t, const Output *out, const Sequence *even, const Sequence *odd) {
    // Sums of a batch fit in 16 bits.
    uint size0 = even->literals | (even->literals + even->length) << 16;
    uint size = size0 + (odd->literals | (odd->literals + odd->length) << 16);
    uint sum = team_scan(t, size);
    uint all = team_max(t, sum);
    uint sum0 = sum - size;
    uint sum1 = sum0 + size0;
    Batch b;
    b.total = all >> 16;
    b.literals = all & 0xffffu;
    b.start0 = sum0 >> 16;
    b.start1 = sum1 >> 16;
    b.literals0 = sum0 & 0xffffu;
    b.literals1 = sum1 & 0xffffu;
    b.match0 = out->position + b.start0 + even->literals;
    b.match1 = out->position + b.start1 + odd->literals;
    bool bad = even->bad || odd->bad;
    bad |= even->length != 0u && even->offset - 1u >= b.match0;
    bad |= odd->length != 0u && odd->offset - 1u >= b.match1;
    // Each remaining literal becomes a byte, so the output cannot be past them. This check also keeps the output in
    // the chunk.
    bad |= out->position + b.total > out->literal + b.literals || out->literal + b.literals > out->end;
    b.bad = team_any(t, bad);
    if (b.bad) {
        b.total = 0u;
        b.literals = 0u;
    }
    return b;
}
