// Candidates of LZ77 where a position has one: the latest earlier position of its window whose bytes have the same hash.
//
// The entries of a block are ordered by a digit, the upper bits of the hash, and then by position: one pass of lz77_find.
// A team has those of a digit and a window. It goes through them in order with a table of the latest entry for each value
// of the hash's other bits, as a processor would, 32 at a time: what is the latest among those themselves their match
// tells. `found` gets the distance for each position, 0 where the candidate has another tag, or is none.
//
// Constants: HASH_BITS; DIGIT_BITS, of them; TILE, positions that a count of `histogram` is of.
//
// @pz_cost {
//   threads_per_element: 0.25
//   passes: 1
//   buffers: jobs=32, sort_histogram=N+2048, sort_digits=2048, entries_first=N*8, found=N*4
//   local_mem: 33028
// }
// @pz_import team

const RADIX = 1u << DIGIT_BITS;
const PLACE_BITS = HASH_BITS - DIGIT_BITS;
const SLOTS = 1u << PLACE_BITS;

struct Args {
    slot: u32,
    tiles: u32,
    blocks: u32,
    window_log: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> histogram: array<u32>;
@group(0) @binding(1) var<storage, read> digits: array<u32>;
@group(0) @binding(2) var<storage, read> entries: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> found: array<u32>;

var<workgroup> table: array<u32, TEAMS * SLOTS>;

// Of the team: where in `table` its part begins, where its block's part of `found` does, and the last entry it has.
var<private> own: u32;
var<private> to: u32;
var<private> last: u32;

fn load(at: u32) -> vec2<u32> {
    return entries[min(at + lane, last)];
}

fn place_of(entry: vec2<u32>) -> u32 {
    return entry.x >> (32u - HASH_BITS) & (SLOTS - 1u);
}

// The lanes that have an entry of the same place.
fn matching(entry: vec2<u32>, at: u32) -> u32 {
    let valid = team_ballot(at + lane <= last);
    return team_match(place_of(entry), PLACE_BITS) & valid;
}

// Finds the latest positions of 32 entries, and enters these.
fn exchange(entry: vec2<u32>, same: u32, at: u32) {
    let valid = at + lane <= last;
    let place = own + place_of(entry);
    let pos = entry.y;
    // The tag above the position. Of equal tags the difference is the distance; of others, or to no entry, it is more than
    // any.
    let tagged = (entry.x << 24u) + pos + 1u;
    var before = table[place];
    team_sync();
    if valid && same >> lane == 1u {
        table[place] = tagged;
    }
    team_sync();
    let earlier = same & team_before();
    let other = team_shuffle(tagged, 31u - countLeadingZeros(earlier | 1u));
    if earlier != 0u {
        before = other;
    }
    let distance = tagged - before;
    if valid {
        found[to + pos] = select(0u, distance, distance <= (pos & ((1u << args.window_log) - 1u)));
    }
}

@compute @workgroup_size(THREADS)
fn latest(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let windows = ((args.slot - 1u) >> args.window_log) + 1u;
    let index = (wg.y * wgs.x + wg.x) * TEAMS + team_index;
    let digit = index % RADIX;
    let window = index / RADIX % windows;
    let block = index / RADIX / windows;
    if block >= args.blocks {
        return;
    }
    // Where the digit's entries begin, and among them those of the window.
    var before = 0u;
    for (var d = lane; d < RADIX; d += 32u) {
        before += select(0u, digits[block * RADIX + d], d < digit);
    }
    before = team_sum(before);
    let counts = (block * RADIX + digit) * args.tiles;
    let tile = (window << args.window_log) / TILE;
    let next_tile = tile + (1u << args.window_log) / TILE;
    let begin = team_uniform(histogram[counts + tile]);
    var behind = digits[block * RADIX + digit];
    if next_tile < args.tiles {
        behind = histogram[counts + next_tile];
    }
    let end = team_uniform(behind);
    if begin >= end {
        return;
    }
    own = team_index * SLOTS;
    for (var i = lane; i < SLOTS; i += 32u) {
        table[own + i] = 0u;
    }
    team_sync();

    to = block * args.slot;
    let from_start = to + before;
    last = from_start + end - 1u;
    var at = from_start + begin;
// @pz_if TEAM_SUBGROUP
    // Four rows of 32 entries are loaded ahead.
    var a = load(at);
    var b = load(at + 32u);
    var c = load(at + 64u);
    var d = load(at + 96u);
    loop {
        if at > last {
            break;
        }
        let now_a = a;
        let now_b = b;
        let now_c = c;
        let now_d = d;
        a = load(at + 128u);
        b = load(at + 160u);
        c = load(at + 192u);
        d = load(at + 224u);
        let same_a = matching(now_a, at);
        let same_b = matching(now_b, at + 32u);
        let same_c = matching(now_c, at + 64u);
        let same_d = matching(now_d, at + 96u);
        exchange(now_a, same_a, at);
        exchange(now_b, same_b, at + 32u);
        exchange(now_c, same_c, at + 64u);
        exchange(now_d, same_d, at + 96u);
        at += 128u;
    }
// @pz_else
    loop {
        if team_uniform(at) > last {
            break;
        }
        let entry = load(at);
        exchange(entry, matching(entry, at), at);
        at += 32u;
    }
// @pz_end
}
