// Records of sequences, from which lz77_windows writes contents.
//
// Sequence k of a chunk has a word in `lz77_places` and one in `lz77_distances`. Bits 0 to 19 of the first hold the
// start of its match in the chunk, and bits 0 to 23 of the second hold its offset. The other bits of both hold the
// number of match bytes before it in the chunk, the lower 12 bits of it in the first word. There is room for one
// sequence per four bytes of a chunk, and for a few more in the last chunk of a block.
//
// Each 32 bytes of a chunk have two words in `lz77_starts`: a bit for each byte at which a sequence starts, and the
// number of earlier starts, minus 1. The words after a block's last bytes are also written, up to the next multiple
// of 256 bytes.
// @pz_import lz77_chunks

#define SPARE_RECORDS 256u
#define RECORDS_OF(block, slot) ((ulong)(block) * ((slot) / 4u + SPARE_RECORDS))

#if RECORDS

#define RECORD_SPAN 1024u

typedef struct {
    __global uint *places;   // of the chunk, like the next two
    __global uint *offsets;
    __global uint2 *starts;
    __local uint *mask;      // of starts in the span, RECORD_SPAN bits; the fields from here on are uniform:
    uint span;               // where it begins in the chunk
    uint started;            // sequences that start before it
    uint begin;              // of the chunk in its window
    uint length;             // of the chunk
    uint literals;           // of the chunk, before the batch
} Records;

// Writes the span, and continues with the next one.
INLINE void record_span(Team t, Records *r) {
    uint mask = r->mask[t.lane];
    uint count = popcount(mask);
    uint upto = team_scan(t, count);
    if (r->span + 32u * t.lane < (r->length + 255u & ~255u)) {
        r->starts[r->span / 32u + t.lane] = UINT2(mask, r->started + upto - count - 1u);
    }
    r->started += team_max(t, upto);
    r->mask[t.lane] = 0u;
    r->span += RECORD_SPAN;
    team_sync(t);
}

INLINE void record_start(Records *r, uint place) {
    uint bit = place - r->span;
    if (bit < RECORD_SPAN) atomic_or(&r->mask[bit >> 5], 1u << (bit & 31u));
}

INLINE void record_sequence(Records *r, uint index, uint match, uint matched, uint offset) {
    r->places[index] = match | matched << 20;
    r->offsets[index] = offset | matched >> 12 << 24;
}

// Records a batch, whose first sequence is number `first` of `sequences`. Returns false if it breaks a rule.
INLINE bool record_batch(Team t, Records *r, Output *out, Sequence even, Sequence odd, uint first, uint sequences) {
    Batch b = batch_places(t, out, &even, &odd);
    uint at = out->position - r->begin;
    uint own = first + 2u * t.lane;
    if (own < sequences && !b.bad) {
        record_sequence(r, own, b.match0 - r->begin, at + b.start0 - r->literals - b.literals0, even.offset);
    }
    if (own + 1u < sequences && !b.bad) {
        record_sequence(r, own + 1u, b.match1 - r->begin, at + b.start1 - r->literals - b.literals1, odd.offset);
    }
    // The starts of lanes without a sequence are not in the batch.
    uint place0 = b.start0 < b.total ? at + b.start0 : 0xffffffffu;
    uint place1 = b.start1 < b.total ? at + b.start1 : 0xffffffffu;
    uint spans = (at + b.total) / RECORD_SPAN - r->span / RECORD_SPAN;
    #pragma unroll 1
    for (uint i = 0u; i < spans; i++) {
        record_start(r, place0);
        record_start(r, place1);
        team_sync(t);
        record_span(t, r);
    }
    record_start(r, place0);
    record_start(r, place1);
    team_sync(t);
    out->position += b.total;
    out->literal += b.literals;
    r->literals += b.literals;
    return !b.bad;
}

#endif
