// Sorts the positions of blocks by (hash, position), for the candidates of LZ77: those of a position are earlier ones whose
// bytes have the same hash.
//
// It is a least-significant-digit radix sort of one or two passes, stable. Each pass counts
// the digits of each tile of positions (`count`), sums the counts of a digit over the tiles of the block (`scan`), and
// moves the tiles' entries to their places (`place`), ordered by digit in workgroup memory first, so that what is
// written is in runs.
//
// An entry is the upper half of the hash's product, whose upper HASH_BITS bits are the hash and eight others the tag, and
// the position. A block's sorted entries are contiguous from the start of its part; positions with fewer than
// eight bytes from themselves on have none.
//
// Constants: HASH_BYTES; FIRST, whether entries come from the contents; DIGIT_SHIFT and DIGIT_BITS, of the
// pass; TILE, entries of a workgroup.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 6
//   buffers: jobs=32, contents=N, sort_histogram=N+2048, sort_digits=2048, entries_first=N*8
//   local_mem: 29184
// }

// @pz_import team

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

// Number of positions of a block that take part.
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
fn hash_at(start: u32, pos: u32) -> u32 {
    let word = start + (pos >> 2u);
    let shift = (pos & 3u) * 8u;
    let a = source[word];
    let b = source[word + 1u];
    let c = source[start + (pos + 7u >> 2u)];
    let low = a >> shift | b << 1u << (31u - shift);
    let high = b >> shift | c << 1u << (31u - shift);
    const BITS = 64u - 8u * HASH_BYTES;
    let x_low = low << BITS;
    let x_high = high << BITS | low >> 1u >> (31u - BITS);
    return multiply_high(x_low, 0x85ebca87u) + x_low * 0x9e3779b1u + x_high * 0x85ebca87u;
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
@compute @workgroup_size(THREADS)
fn count(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let group = wg.y * wgs.x + wg.x;
    let block = group / args.tiles;
    let tile = group % args.tiles;
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
    for (var i = first + local_index; i < end; i += THREADS) {
        atomicAdd(&bins[digit_of(entry_at(start, i).x)], 1u);
    }
    workgroupBarrier();
    let to = block * args.tiles * RADIX + tile;
    for (var d = local_index; d < RADIX; d += THREADS) {
        tile_counts[to + d * args.tiles] = atomicLoad(&bins[d]);
    }
}

// A team for each digit of each block: sums of its counts over the tiles before, and in `digit_counts` over all.
@compute @workgroup_size(THREADS)
fn scan(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let row = (wg.y * wgs.x + wg.x) * TEAMS + team_index;
    if team_uniform(u32(row >= args.blocks * RADIX)) != 0u {
        return;
    }
    let start = row * args.tiles;
    var before = 0u;
    var i = 0u;
    loop {
        if team_uniform(u32(i >= args.tiles)) != 0u {
            break;
        }
        let at = i + lane;
        let valid = at < args.tiles;
        let mine = select(0u, scanned[start + min(at, args.tiles - 1u)], valid);
        let sum = team_scan(mine);
        if valid {
            scanned[start + at] = before + sum - mine;
        }
        before += team_broadcast(sum, 31u);
        i += 32u;
    }
    if lane == 0u {
        digit_counts[row] = before;
    }
}

// First the number of a digit's entries in the part of a team; then that of those in the parts before it.
var<workgroup> counts: array<u32, TEAMS * RADIX>;
// Where a digit's entries begin in the tile, and how far from there they are to go.
var<workgroup> starts: array<u32, RADIX>;
var<workgroup> moves: array<u32, RADIX>;
var<workgroup> sums: array<u32, PARTS>;
var<workgroup> digit_sums: array<u32, PARTS>;
var<workgroup> ordered: array<vec2<u32>, TILE>;

// A workgroup for each tile of each block.
@compute @workgroup_size(THREADS)
fn place(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let group = wg.y * wgs.x + wg.x;
    let block = group / args.tiles;
    let tile = group % args.tiles;
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
        counts[i] = 0u;
    }
    workgroupBarrier();
    let own = team_index * RADIX;
    let base = first + team_index * (STEPS * 32u) + lane;
    var ranks: array<u32, STEPS>;
    var step = 0u;
    loop {
        if team_uniform(step) >= STEPS {
            break;
        }
        let index = base + step * 32u;
        let valid = index < end;
        var digit = RADIX;
        var before = 0u;
        if valid {
            digit = digit_of(entry_at(start, index).x);
            before = counts[own + digit];
        }
        let same = team_match(digit, DIGIT_BITS + 1u);
        team_sync();
        if valid && same >> lane == 1u {
            counts[own + digit] = before + countOneBits(same);
        }
        team_sync();
        ranks[step] = before + countOneBits(same & team_before());
        step += 1u;
    }
    workgroupBarrier();

    var part = team_index;
    loop {
        if team_uniform(part) >= PARTS {
            break;
        }
        let digit = part * 32u + lane;
        var sum = 0u;
        for (var t = 0u; t < TEAMS; t++) {
            let n = counts[t * RADIX + digit];
            counts[t * RADIX + digit] = sum;
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
    workgroupBarrier();

    for (var s = 0u; s < STEPS; s++) {
        let index = base + s * 32u;
        if index < end {
            let entry = entry_at(start, index);
            let digit = digit_of(entry.x);
            ordered[starts[digit] + counts[own + digit] + ranks[s]] = entry;
        }
    }
    workgroupBarrier();
    let to = block * args.slot;
    for (var i = local_index; i < end - first; i += THREADS) {
        let entry = ordered[i];
        entries[to + i + moves[digit_of(entry.x)]] = entry;
    }
}
