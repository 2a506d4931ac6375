// Undoes differences of adjacent elements of 1, 2 or 4 bytes: each becomes the sum of itself and all before it.
//
// One workgroup of 256 per unit, which goes from tile to tile. In a tile, each work item holds 32 bytes in registers.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 6
//   buffers: jobs=32, contents=N
//   local_mem: 2048
// }
// @pz_import filter

// Words per work item.
const WORDS = 8u;

struct Args {
    blocks: u32,
    slot: u32,
    count: u32,
    stage: u32,
    turn: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read_write> contents: array<vec4<u32>>;

// Sums of work items, later prefix sums. Two copies: one to read, one to write.
var<workgroup> sums: array<u32, 2u * THREADS>;

// Adds each element of a word to one of another; `high` has the elements' highest bits.
fn added(a: u32, b: u32, high: u32) -> u32 {
    return ((a & ~high) + (b & ~high)) ^ ((a ^ b) & high);
}

// The prefix sums of the elements of `w`.
fn summed(w: u32, width: u32, high: u32) -> u32 {
    var sum = w;
    if width == 1u {
        sum = added(sum, sum << 8u, high);
    }
    if width <= 2u {
        sum = added(sum, sum << 16u, high);
    }
    return sum;
}

// `count` workgroups per block, enough for units of 2^18 bytes. With longer units, some have nothing to do.
// @pz_entry
fn adjacent_sums(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let word = jobs[block * JOB_WORDS + JOB_UNDO + args.stage];
    if !sums_are_adjacent(word) || args.turn >= filter_order(word) {
        return;
    }
    let content_len = min(jobs[block * JOB_WORDS], args.slot);
    let unit_log = clamp(jobs[block * JOB_WORDS + JOB_UNIT_LOG], 18u, 20u);
    let number = workgroup_index % args.count;
    if number >= ((content_len + (1u << unit_log) - 1u) >> unit_log) {
        return;
    }
    let start = number << unit_log;
    let width = filter_width(word);
    let bits = 8u * width;
    let full = 0xffffffffu >> (32u - bits);
    let ones = 0xffffffffu / full;
    let high = ones << (bits - 1u);
    // An incomplete last element stays as it is.
    let len = min(content_len - start, 1u << unit_log) / width * width;
    let unit = block * (args.slot / 16u) + start / 16u;
    var carried = 0u;
    var half = 0u;
    for (var tile = 0u; tile < len; tile += 4u * WORDS * THREADS) {
        let at = tile + 4u * WORDS * local_index;
        let place = unit + at / 16u;
        var low = vec4<u32>(0u);
        var rest = vec4<u32>(0u);
        if at < len {
            // The load is within the slot, which is a multiple of 256 bytes.
            low = contents[place];
            rest = contents[place + 1u];
        }
        var words: array<u32, WORDS>;
        var total = 0u;
        for (var i = 0u; i < 4u; i++) {
            words[i] = summed(low[i], width, high);
            words[i + 4u] = summed(rest[i], width, high);
            total += (words[i] >> (32u - bits)) + (words[i + 4u] >> (32u - bits));
        }
        half = THREADS - half;
        sums[half + local_index] = total;
        workgroupBarrier();
        for (var by = 1u; by < THREADS; by *= 4u) {
            for (var k = 1u; k < 4u; k++) {
                if local_index >= k * by {
                    total += sums[half + local_index - k * by];
                }
            }
            half = THREADS - half;
            sums[half + local_index] = total;
            workgroupBarrier();
        }
        var before = carried;
        if local_index > 0u {
            before += sums[half + local_index - 1u];
        }
        carried += sums[half + THREADS - 1u];
        for (var i = 0u; i < WORDS; i++) {
            words[i] = added(words[i], (before & full) * ones, high);
            before = words[i] >> (32u - bits);
        }
        if at < len {
            for (var i = 0u; i < 4u; i++) {
                low[i] = within(at + 4u * i, len, words[i], low[i]);
                rest[i] = within(at + 16u + 4u * i, len, words[i + 4u], rest[i]);
            }
            contents[place] = low;
            contents[place + 1u] = rest;
        }
    }
}
