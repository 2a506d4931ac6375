// Finds LZ77 candidates: for each position, the CANDIDATES latest earlier positions of its window with the same hash.
//
// One pass of lz77/sort has ordered the entries of a block by a digit, which is the upper bits of the hash, and then by
// position. A team handles the entries of one digit in one window. It visits them in order, 32 at a time, with a table
// of the latest entries for each value of the hash's other bits, as a CPU would. Matches between lanes show which of
// the 32 are candidates of one another.
//
// An entry gets a row of distances, nearest candidate first; a distance is 0 if the candidate has another tag or does
// not exist. Rows are written in the entries' order, and a row of two replaces its entry. Then `gather` uses the sorted
// index of each position: it moves rows of one or two distances into the order of positions; for rows of four, it sets
// bit 24 in the indices of rows that are not empty. So all writes are sequential.
//
// Constants: CANDIDATES, 1, 2 or 4; TWO, whether there are at least two; FOUR, whether there are four; HASH_BITS;
// DIGIT_BITS, the number of its upper bits in the digit; TILE, the positions that one count of `histogram` covers.
//
// @pz_cost one {
//   threads: max(N/2048*256, 8192)
//   passes: 2
//   buffers: jobs=32, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4, rows_one=N*4
//   local_mem: 4096
// }
//
// @pz_cost two {
//   threads: max(N/2048*256, 8192)
//   passes: 2
//   buffers: jobs=32, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4, found_two=N*8
//   local_mem: 16384
// }
//
// @pz_cost four {
//   threads: max(N/2048*256, 8192)
//   passes: 4
//   buffers: jobs=32, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4, rows_four=N*16
//   local_mem: 32768
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

// latest
@group(0) @binding(0) var<storage, read> histogram: array<u32>;
@group(0) @binding(1) var<storage, read> digits: array<u32>;
// @pz_if IN_PLACE
@group(0) @binding(2) var<storage, read_write> entries: array<vec2<u32>>;
// @pz_else
@group(0) @binding(2) var<storage, read> entries: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> rows: array<Row>;
// @pz_end
// gather
@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> sorted_rows: array<Row>;
@group(0) @binding(2) var<storage, read_write> places: array<u32>;
// @pz_if IN_PLACE
@group(0) @binding(3) var<storage, read_write> found: array<Row>;
// @pz_end

var<workgroup> table: array<Row, TEAMS * SLOTS>;

// A row of candidates, or of distances.
// @pz_if FOUR
alias Row = vec4<u32>;
fn row_pushed(row: Row, first: u32) -> Row {
    return vec4(first, row.xyz);
}
// @pz_else
// @pz_if TWO
alias Row = vec2<u32>;
fn row_pushed(row: Row, first: u32) -> Row {
    return vec2(first, row.x);
}
// @pz_else
alias Row = u32;
fn row_pushed(row: Row, first: u32) -> Row {
    return first;
}
// @pz_end
// @pz_end

// `lanes` without the highest one.
fn without_last(lanes: u32) -> u32 {
    return lanes & ~(0x80000000u >> countLeadingZeros(lanes | 1u));
}

// The row with the entry of the highest of `lanes` in front, if there is such a lane.
fn pushed(row: Row, entry: u32, lanes: u32) -> Row {
    let other = team_shuffle(entry, 31u - countLeadingZeros(lanes | 1u));
    if lanes == 0u {
        return row;
    }
    return row_pushed(row, other);
}

// Where the team's part of `table` begins, and its last entry.
var<private> own: u32;
var<private> last: u32;

fn load(at: u32) -> vec2<u32> {
    return entries[min(at + lane, last)];
}

fn place_of(entry: vec2<u32>) -> u32 {
    return entry.x >> (32u - HASH_BITS) & (SLOTS - 1u);
}

// The lanes that have an entry with the same place in the table.
fn matching(entry: vec2<u32>, at: u32) -> u32 {
    let valid = team_ballot(at + lane <= last);
    return team_match(place_of(entry), PLACE_BITS) & valid;
}

// Finds the candidates of 32 entries, and enters the entries in the table.
fn exchange(entry: vec2<u32>, same: u32, at: u32) {
    let valid = at + lane <= last;
    let place = own + place_of(entry);
    let pos = entry.y;
    // The tag above the position. If two tags are equal, their difference is the distance. If they differ, or there
    // is no entry, it is larger than any distance.
    let tagged = (entry.x << 24u) + pos + 1u;
    var row = table[place];
    let lanes = same & team_before();
// @pz_if FOUR
    let third = without_last(without_last(lanes));
    row = pushed(row, tagged, without_last(third));
    row = pushed(row, tagged, third);
// @pz_end
// @pz_if TWO
    row = pushed(row, tagged, without_last(lanes));
// @pz_end
    row = pushed(row, tagged, lanes);
    team_sync();
    if valid && same >> lane == 1u {
        table[place] = row_pushed(row, tagged);
    }
    team_sync();
    let reach = pos & ((1u << args.window_log) - 1u);
    let distances = Row(tagged) - row;
    if valid {
// @pz_if IN_PLACE
        entries[at + lane] = select(Row(), distances, distances <= Row(reach));
// @pz_else
        rows[at + lane] = select(Row(), distances, distances <= Row(reach));
// @pz_end
    }
}

// @pz_entry
fn latest(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let windows = ((args.slot - 1u) >> args.window_log) + 1u;
    let index = workgroup_index * TEAMS + team_index;
    let digit = index % RADIX;
    let window = index / RADIX % windows;
    let block = index / RADIX / windows;
    if block >= args.blocks {
        return;
    }
    // Finds where the digit's entries begin, and where those of the window begin and end among them.
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
        table[own + i] = Row();
    }
    team_sync();

    let from_start = block * args.slot + before;
    last = from_start + end - 1u;
    var at = from_start + begin;
// @pz_if TEAM_SUBGROUP
    // Loads four times 32 entries ahead.
    var a = load(at);
    var b = load(at + 32u);
    var c = load(at + 64u);
    var d = load(at + 96u);
    loop {
        if team_uniform(at) > last {
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

// The sorted indices of four positions.
fn places_at(from_start: u32, at: vec4<u32>, count: u32) -> vec4<u32> {
    var place = vec4<u32>();
    if at.x < count {
        place.x = places[from_start + at.x];
    }
    if at.y < count {
        place.y = places[from_start + at.y];
    }
    if at.z < count {
        place.z = places[from_start + at.z];
    }
    if at.w < count {
        place.w = places[from_start + at.w];
    }
    return place;
}

fn put(from_start: u32, at: u32, count: u32, place: u32, row: Row) {
    if at < count {
// @pz_if FOUR
        places[from_start + at] = place | select(0u, 1u << 24u, any(row != Row()));
// @pz_else
// @pz_if TWO
        found[from_start + at] = row;
// @pz_else
        places[from_start + at] = row;
// @pz_end
// @pz_end
    }
}

// A workgroup for each THREADS * 8 positions of each block.
// @pz_entry
fn gather(local_index: u32, workgroup_index: u32) {
    let groups = (args.slot + THREADS * 8u - 1u) / (THREADS * 8u);
    let block = workgroup_index / groups;
    if block >= args.blocks {
        return;
    }
    let count = max(jobs[block * 8u], 7u) - 7u;
    let from_start = block * args.slot;
    // Load first, so that all loads run at once.
    let at_low = workgroup_index % groups * THREADS * 8u + local_index + vec4(0u, 1u, 2u, 3u) * THREADS;
    let at_high = at_low + 4u * THREADS;
    let low = places_at(from_start, at_low, count);
    let high = places_at(from_start, at_high, count);
    let a = sorted_rows[from_start + low.x];
    let b = sorted_rows[from_start + low.y];
    let c = sorted_rows[from_start + low.z];
    let d = sorted_rows[from_start + low.w];
    let e = sorted_rows[from_start + high.x];
    let f = sorted_rows[from_start + high.y];
    let g = sorted_rows[from_start + high.z];
    let h = sorted_rows[from_start + high.w];
    put(from_start, at_low.x, count, low.x, a);
    put(from_start, at_low.y, count, low.y, b);
    put(from_start, at_low.z, count, low.z, c);
    put(from_start, at_low.w, count, low.w, d);
    put(from_start, at_high.x, count, high.x, e);
    put(from_start, at_high.y, count, high.y, f);
    put(from_start, at_high.z, count, high.z, g);
    put(from_start, at_high.w, count, high.w, h);
}
