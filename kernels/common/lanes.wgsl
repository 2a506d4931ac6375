// The lane stream of a chunk: 32 lanes take 32-bit words from one sequence, in lane order.
//
// The words pass through a ring of 128 in workgroup memory. Each lane loads two of the next 64 words early, so that
// no row waits for device memory. The kernel declares `payload`.
// @pz_import team

const RING: u32 = 128u;
var<workgroup> ring: array<u32, TEAMS * RING>; // a ring for each team

var<private> in_high: u32;         // the next 64 bits, the first on top; bits that are not held are 0
var<private> in_low: u32;
var<private> in_held: u32;         // number of bits
var<private> in_taken: u32;        // index of the next word that a lane takes
var<private> in_limit: u32;        // when `in_taken` is here, the ring has room for 64 words
var<private> in_end: u32;          // number of words
var<private> in_first: u32;        // the first word in `payload`
var<private> in_staged: vec2<u32>; // loaded and not yet put in the ring

// A word of the stream; 0 from the end on.
fn lanes_word(index: u32) -> u32 {
    if index < in_end {
        return payload[in_first + index];
    }
    return 0u;
}

// Starts on `count` words.
fn lanes_start(first: u32, count: u32) {
    in_high = 0u;
    in_low = 0u;
    in_held = 0u;
    in_taken = 0u;
    in_limit = RING / 2u;
    in_end = count;
    in_first = first;
    for (var i = lane; i < RING; i += 32u) {
        ring[team_index * RING + i] = lanes_word(i);
    }
    in_staged = vec2(lanes_word(RING + lane), lanes_word(RING + 32u + lane));
    team_sync();
}

// The word that this lane takes if it needs one. All lanes call this once a row.
fn lanes_next_word(need: bool) -> u32 {
    let takers = team_ballot(need);
    // The ballot's ordering is enough: the words that this replaces were taken before it, and the new words are not
    // taken in this row.
    if in_taken >= in_limit {
        let slot = team_index * RING + ((in_limit - 64u) & (RING - 1u));
        ring[slot + lane] = in_staged.x;
        ring[slot + 32u + lane] = in_staged.y;
        in_limit += 64u;
        in_staged = vec2(lanes_word(in_limit + 64u + lane), lanes_word(in_limit + 96u + lane));
    }
    let word = ring[team_index * RING + ((in_taken + countOneBits(takers & team_before())) & (RING - 1u))];
    in_taken += countOneBits(takers);
    return word;
}

// Begins a row if `is_row`, which is the same in all lanes: each lane with fewer than 32 bits takes a word.
fn lanes_refill_if(is_row: bool) {
    let need = in_held < 32u && is_row;
    let word = lanes_next_word(need);
    in_high |= select(0u, word >> (in_held & 31u), need);
    in_low = select(in_low, (word << ((31u - in_held) & 31u)) << 1u, need);
    in_held += select(0u, 32u, need);
}

// Begins a row.
fn lanes_refill() {
    lanes_refill_if(true);
}

// Takes `count` bits, at most 31, after a look at `in_high`.
fn lanes_skip(count: u32) {
    in_high = in_high << count | (in_low >> 1u) >> (31u - count);
    in_low <<= count;
    in_held -= count;
}

// Whether every word has been taken and only bits 0 are left; uniform.
fn lanes_at_end() -> bool {
    return !team_any((in_high | in_low) != 0u || in_taken < in_end);
}

// The first `count` of 32 bits, at most 31.
fn first_bits(bits: u32, count: u32) -> u32 {
    return (bits >> 1u) >> (31u - count);
}
