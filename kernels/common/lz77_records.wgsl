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

const SPARE_RECORDS: u32 = 256u;

// @pz_if RECORDS

const RECORD_SPAN: u32 = 1024u;
var<workgroup> record_mask: array<atomic<u32>, TEAMS * 32u>; // of starts in the span
// Uniform:
var<private> record_at: u32;       // of the chunk's first record
var<private> record_starts: u32;   // where its words in `lz77_starts` begin
var<private> record_begin: u32;    // of the chunk in its window
var<private> record_length: u32;   // of the chunk
var<private> record_span: u32;     // where the span begins in the chunk
var<private> record_started: u32;  // sequences that start before it
var<private> record_literals: u32; // of the chunk, before the batch

// Writes the span, and continues with the next one.
fn record_flush() {
    let mask = atomicLoad(&record_mask[team_index * 32u + lane]);
    let count = countOneBits(mask);
    let upto = team_scan(count);
    if record_span + 32u * lane < ((record_length + 255u) & ~255u) {
        let at = record_starts + record_span / 16u + 2u * lane;
        lz77_starts[at] = mask;
        lz77_starts[at + 1u] = record_started + upto - count - 1u;
    }
    record_started += team_max(upto);
    atomicStore(&record_mask[team_index * 32u + lane], 0u);
    record_span += RECORD_SPAN;
    team_sync();
}

fn record_start(place: u32) {
    let bit = place - record_span;
    if bit < RECORD_SPAN {
        atomicOr(&record_mask[team_index * 32u + (bit >> 5u)], 1u << (bit & 31u));
    }
}

fn record_sequence(index: u32, first: u32, matched: u32, offset: u32) {
    lz77_places[record_at + index] = first | matched << 20u;
    lz77_distances[record_at + index] = offset | (matched >> 12u) << 24u;
}

// Records a batch, whose first sequence is number `first` of `sequences`. Returns whether it breaks a rule.
fn record_batch(even: Sequence, odd: Sequence, first: u32, sequences: u32) -> bool {
    let b = batch_places(even, odd);
    let at = position - record_begin;
    let own = first + 2u * lane;
    if own < sequences && !b.bad {
        record_sequence(own, b.match0 - record_begin, at + b.start0 - record_literals - b.literals0, even.offset);
    }
    if own + 1u < sequences && !b.bad {
        record_sequence(own + 1u, b.match1 - record_begin, at + b.start1 - record_literals - b.literals1, odd.offset);
    }
    // The starts of lanes without a sequence are not in the batch.
    let place0 = select(0xffffffffu, at + b.start0, b.start0 < b.total);
    let place1 = select(0xffffffffu, at + b.start1, b.start1 < b.total);
    let spans = team_uniform((at + b.total) / RECORD_SPAN - record_span / RECORD_SPAN);
    for (var i = 0u; i < spans; i++) {
        record_start(place0);
        record_start(place1);
        team_sync();
        record_flush();
    }
    record_start(place0);
    record_start(place1);
    team_sync();
    position += b.total;
    literal += b.literals;
    record_literals += b.literals;
    return b.bad;
}

// @pz_end
