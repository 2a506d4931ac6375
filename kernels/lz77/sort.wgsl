// Sorts the positions of blocks by (hash, position), to find LZ77 candidates: the candidates of a position are
// earlier positions whose bytes have the same hash.
//
// It is a stable radix sort of one or two passes, lowest digit first. Each pass counts the digits of each tile of
// positions (`count`), sums the counts of a digit over the tiles of the block (`scan`), and moves the tiles' entries
// (`place`). Before that, it orders the entries of a tile by digit in workgroup memory, so that it writes whole runs.
//
// An entry has two words. The first is the upper half of the hash's product: its upper HASH_BITS bits are the hash,
// and eight other bits the tag. The second is the position. A block's sorted entries are contiguous from the start of
// its part. A position with fewer than eight bytes up to the block's end has no entry.
//
// Constants: HASH_BYTES; FIRST, whether entries come from the contents; PLACES, whether this pass also writes the
// sorted index of each position; DIGIT_SHIFT and DIGIT_BITS, of the pass; TILE, entries of a workgroup.
//
// @pz_cost entries {
//   threads: max(N/2048*512, 8192)
//   passes: 6
//   buffers: jobs=32, contents=N, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8
//   local_mem: 26688
// }
//
// @pz_cost places {
//   threads: max(N/2048*512, 8192)
//   passes: 6
//   buffers: jobs=32, contents=N, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4
//   local_mem: 26688
// }
// @pz_import team
// @pz_import tile_scan

const RADIX = 1u << DIGIT_BITS;
const DIGIT_MASK = RADIX - 1u;
const PARTS = RADIX / 32u;
// Entries of a team's part of a tile, in steps of one for each lane.
const STEPS = TILE / TEAMS / 32u;

struct Args {
    slot: u32,
    tiles: u32,
    blocks: u32,
    window_log: u32,
}

var<immediate> args: Args;

// count, place
@group(0) @binding(0) var<storage, read> jobs: array<u32>;
// @pz_if FIRST
@group(0) @binding(1) var<storage, read> source: array<u32>;
// @pz_else
@group(0) @binding(1) var<storage, read> source: array<vec2<u32>>;
// @pz_end
// count
@group(0) @binding(2) var<storage, read_write> tile_counts: array<u32>;
// scan
@group(0) @binding(0) var<storage, read_write> scanned: array<u32>;
@group(0) @binding(1) var<storage, read_write> digit_counts: array<u32>;
// place
@group(0) @binding(2) var<storage, read> histogram: array<u32>;
@group(0) @binding(3) var<storage, read> digits: array<u32>;
@group(0) @binding(4) var<storage, read_write> entries: array<vec2<u32>>;
// @pz_if PLACES
@group(0) @binding(5) var<storage, read_write> places: array<u32>;
// @pz_end

// The number of a block's positions that have entries.
fn entry_count(block: u32) -> u32 {
    return max(jobs[block * 8u], 7u) - 7u;
}

fn digit_of(hash: u32) -> u32 {
    return hash >> DIGIT_SHIFT & DIGIT_MASK;
}

// @pz_if FIRST
// The upper half of a product of 64 bits.
fn multiply_high(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u);
}

// The upper half of the lower 64 bits of the product of the first HASH_BYTES bytes, moved to the top of 64 bits, and
// 0x9e3779b185ebca87.
fn hash_of(low: u32, high: u32) -> u32 {
    const IS_SHORT = HASH_BYTES <= 4u;
    const BITS = 64u - 8u * HASH_BYTES & 31u;
    let x_low = select(low << BITS, 0u, IS_SHORT);
    let x_high = select(high << BITS | low >> 1u >> (31u - BITS), low << BITS, IS_SHORT);
    return multiply_high(x_low, 0x85ebca87u) + x_low * 0x9e3779b1u + x_high * 0x85ebca87u;
}

fn hash_at(start: u32, pos: u32) -> u32 {
    let word = start + (pos >> 2u);
    let shift = (pos & 3u) * 8u;
    let a = source[word];
    let b = source[word + 1u];
    let c = source[start + (pos + 7u >> 2u)];
    let low = a >> shift | b << 1u << (31u - shift);
    let high = b >> shift | c << 1u << (31u - shift);
    return hash_of(low, high);
}

fn source_start(block: u32) -> u32 {
    return block * (args.slot >> 2u);
}

fn entry_at(start: u32, index: u32) -> vec2<u32> {
    return vec2(hash_at(start, index), index);
}
// @pz_else
fn source_start(block: u32) -> u32 {
    return block * args.slot;
}

fn entry_at(start: u32, index: u32) -> vec2<u32> {
    return source[start + index];
}
// @pz_end

var<workgroup> bins: array<atomic<u32>, RADIX>;

// A workgroup for each tile of each block.
// @pz_entry
fn count(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.tiles;
    let tile = workgroup_index % args.tiles;
    if block >= args.blocks {
        return;
    }
    for (var d = local_index; d < RADIX; d += THREADS) {
        atomicStore(&bins[d], 0u);
    }
    workgroupBarrier();
    let start = source_start(block);
    let first = tile * TILE;
    let end = min(first + TILE, entry_count(block));
// @pz_if FIRST
    // Four positions share three words.
    for (var i = first + 4u * local_index; i < end; i += 4u * THREADS) {
        let word = i >> 2u;
        let a = source[start + word];
        let b = source[start + word + 1u];
        let c = source[start + min(word + 2u, (args.slot >> 2u) - 1u)];
        atomicAdd(&bins[digit_of(hash_of(a, b))], 1u);
        if i + 1u < end {
            atomicAdd(&bins[digit_of(hash_of(a >> 8u | b << 24u, b >> 8u | c << 24u))], 1u);
        }
        if i + 2u < end {
            atomicAdd(&bins[digit_of(hash_of(a >> 16u | b << 16u, b >> 16u | c << 16u))], 1u);
        }
        if i + 3u < end {
            atomicAdd(&bins[digit_of(hash_of(a >> 24u | b << 8u, b >> 24u | c << 8u))], 1u);
        }
    }
// @pz_else
    for (var i = first + local_index; i < end; i += THREADS) {
        atomicAdd(&bins[digit_of(entry_at(start, i).x)], 1u);
    }
// @pz_end
    workgroupBarrier();
    let to = block * args.tiles * RADIX + tile;
    for (var d = local_index; d < RADIX; d += THREADS) {
        tile_counts[to + d * args.tiles] = atomicLoad(&bins[d]);
    }
}

// Sums a digit's counts over the earlier tiles, and over all tiles in `digit_counts`. One team per digit of a block.
// @pz_entry
fn scan(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let row = workgroup_index * TEAMS + team_index;
    if team_uniform(u32(row >= args.blocks * RADIX)) != 0u {
        return;
    }
    let total = scan_tiles(row * args.tiles, args.tiles);
    if lane == 0u {
        digit_counts[row] = total;
    }
}

// Holds in turn: for each team and digit, the number of the digit's entries in the team's part of the tile; then the
// number of those in earlier parts; then the entries by digit, all first words before all second words.
var<workgroup> shared_words: array<u32, max(TEAMS * RADIX, 2u * TILE)>;
// Where a digit's entries begin in the tile, and the distance from there to their destination.
var<workgroup> starts: array<u32, RADIX>;
var<workgroup> moves: array<u32, RADIX>;
var<workgroup> sums: array<u32, PARTS>;
var<workgroup> digit_sums: array<u32, PARTS>;

// The rank of an entry among its digit's entries in its team's part, whose counts begin at `own`.
fn rank(own: u32, entry: vec2<u32>, valid: bool) -> u32 {
    let counter = own + digit_of(entry.x);
    let same = team_match(digit_of(entry.x), DIGIT_BITS) & team_ballot(valid);
    let before = shared_words[counter];
    team_sync();
    if valid && same >> lane == 1u {
        shared_words[counter] = before + countOneBits(same);
    }
    team_sync();
    return before + countOneBits(same & team_before());
}

// The place of the entry in the tile.
fn place_in_tile(own: u32, entry: vec2<u32>, rank: u32) -> u32 {
    let digit = digit_of(entry.x);
    return starts[digit] + shared_words[own + digit] + rank;
}

// Keeps the entry for place `at` of the tile.
fn keep(block: u32, entry: vec2<u32>, at: u32, valid: bool) {
    if valid {
        shared_words[at] = entry.x;
        shared_words[TILE + at] = entry.y;
// @pz_if PLACES
        places[block * args.slot + entry.y] = at + moves[digit_of(entry.x)];
// @pz_end
    }
}

// Sums up the counts over the parts of earlier teams, and over lower digits.
fn sum_counts(local_index: u32, block: u32, tile: u32) {
    var part = team_index;
    loop {
        if team_uniform(part) >= PARTS {
            break;
        }
        let digit = part * 32u + lane;
        var sum = 0u;
        for (var t = 0u; t < TEAMS; t++) {
            let n = shared_words[t * RADIX + digit];
            shared_words[t * RADIX + digit] = sum;
            sum += n;
        }
        let upto = team_scan(sum);
        let total = digits[block * RADIX + digit];
        let total_upto = team_scan(total);
        starts[digit] = upto - sum;
        moves[digit] = total_upto - total;
        if lane == 31u {
            sums[part] = upto;
            digit_sums[part] = total_upto;
        }
        part += TEAMS;
    }
    workgroupBarrier();
    let tile_starts = block * args.tiles * RADIX + tile;
    for (var digit = local_index; digit < RADIX; digit += THREADS) {
        var from_start = starts[digit];
        var distance = moves[digit];
        for (var p = 0u; p < digit / 32u; p++) {
            from_start += sums[p];
            distance += digit_sums[p];
        }
        starts[digit] = from_start;
        moves[digit] = distance + histogram[tile_starts + digit * args.tiles] - from_start;
    }
}

// A workgroup for each tile of each block.
// @pz_entry
fn place(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let block = workgroup_index / args.tiles;
    let tile = workgroup_index % args.tiles;
    if block >= args.blocks {
        return;
    }
    let start = source_start(block);
    let first = tile * TILE;
    let end = min(first + TILE, entry_count(block));
    if first >= end {
        return;
    }
    for (var i = local_index; i < TEAMS * RADIX; i += THREADS) {
        shared_words[i] = 0u;
    }
    let own = team_index * RADIX;
    let base = first + team_index * (STEPS * 32u) + lane;
// @pz_if TEAM_SUBGROUP
    // STEPS is 4. Load first, so that all loads run at once.
    let at = vec4(base, base + 32u, base + 64u, base + 96u);
    let valid = at < vec4(end);
    let clamped = min(at, vec4(end - 1u));
    let a = entry_at(start, clamped.x);
    let b = entry_at(start, clamped.y);
    let c = entry_at(start, clamped.z);
    let d = entry_at(start, clamped.w);
    workgroupBarrier();
    let rank_a = rank(own, a, valid.x);
    let rank_b = rank(own, b, valid.y);
    let rank_c = rank(own, c, valid.z);
    let rank_d = rank(own, d, valid.w);
    workgroupBarrier();
    sum_counts(local_index, block, tile);
    workgroupBarrier();
    let to_a = place_in_tile(own, a, rank_a);
    let to_b = place_in_tile(own, b, rank_b);
    let to_c = place_in_tile(own, c, rank_c);
    let to_d = place_in_tile(own, d, rank_d);
    workgroupBarrier();
    keep(block, a, to_a, valid.x);
    keep(block, b, to_b, valid.y);
    keep(block, c, to_c, valid.z);
    keep(block, d, to_d, valid.w);
// @pz_else
    workgroupBarrier();
    var places: array<u32, STEPS>;
    var step = 0u;
    loop {
        if team_uniform(step) >= STEPS {
            break;
        }
        let index = base + step * 32u;
        places[step] = rank(own, entry_at(start, min(index, end - 1u)), index < end);
        step += 1u;
    }
    workgroupBarrier();
    sum_counts(local_index, block, tile);
    workgroupBarrier();
    for (var s = 0u; s < STEPS; s++) {
        let entry = entry_at(start, min(base + s * 32u, end - 1u));
        places[s] = place_in_tile(own, entry, places[s]);
    }
    workgroupBarrier();
    for (var s = 0u; s < STEPS; s++) {
        let index = base + s * 32u;
        keep(block, entry_at(start, min(index, end - 1u)), places[s], index < end);
    }
// @pz_end
    workgroupBarrier();
    let to = block * args.slot;
    for (var i = local_index; i < end - first; i += THREADS) {
        let hash = shared_words[i];
        entries[to + i + moves[digit_of(hash)]] = vec2(hash, shared_words[TILE + i]);
    }
}
