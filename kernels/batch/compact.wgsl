// Packs the payloads of a batch, so that a single copy brings all of them to the host.
//
// @pz_cost {
//   threads: (N+256)/16384*256
//   passes: 2
//   buffers: payload=N+256, results=32, packed_starts=8, packed=N+256
//   local_mem: 2048
//   note: packed_starts holds two words for each block: where its payload begins, and its length, in units of 16 bytes
// }

struct Result {
    status: u32,
    payload_len: u32,
    content_crc: u32,
    payload_crc: u32,
    reserved: array<u32, 4>,
}

struct Args {
    blocks: u32,
    slot: u32,
    count: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> results: array<Result>;

// The length of a block's payload in units of 16 bytes; 0 if the block failed.
fn units(block: u32) -> u32 {
    let len = min(results[block].payload_len, args.slot + 256u);
    return select(0u, (len + 15u) / 16u, results[block].status == 0u);
}

@group(0) @binding(1) var<storage, read_write> placed: array<vec2<u32>>;

var<workgroup> sums: array<u32, 2u * THREADS>;

// One workgroup: each work item sums the lengths of consecutive blocks.
// @pz_entry
fn place(local_index: u32, workgroup_index: u32) {
    if workgroup_index != 0u {
        return;
    }
    let share = (args.blocks + THREADS - 1u) / THREADS;
    let begin = min(local_index * share, args.blocks);
    let end = min(begin + share, args.blocks);
    var sum = 0u;
    for (var b = begin; b < end; b++) {
        sum += units(b);
    }
    sums[local_index] = sum;
    workgroupBarrier();
    var from_half = 0u;
    for (var by = 1u; by < THREADS; by *= 2u) {
        var total = sums[from_half + local_index];
        if local_index >= by {
            total += sums[from_half + local_index - by];
        }
        from_half = THREADS - from_half;
        sums[from_half + local_index] = total;
        workgroupBarrier();
    }
    var start = sums[from_half + local_index] - sum;
    for (var b = begin; b < end; b++) {
        let len = units(b);
        placed[b] = vec2<u32>(start, len);
        start += len;
    }
}

@group(0) @binding(1) var<storage, read> packed_starts: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> payload: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> packed: array<vec4<u32>>;

// The mask that keeps the `rest` - `before` bytes of the payload in a word, and clears the others.
fn keep(rest: u32, before: u32) -> u32 {
    let here = min(max(rest, before) - before, 4u);
    return select((1u << (8u * (here & 3u))) - 1u, 0xffffffffu, here == 4u);
}

// `count` workgroups for each block, each for UNITS units of 16 bytes.
// @pz_entry
fn gather(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let place = packed_starts[block];
    let first = workgroup_index % args.count * UNITS;
    let end = min(first + UNITS, place.y);
    let len = results[block].payload_len;
    let data = block * ((args.slot + 256u) / 16u);
    for (var i = first + local_index; i < end; i += THREADS) {
        var unit = payload[data + i];
        let rest = len - i * 16u;
        if rest < 16u {
            unit &= vec4<u32>(keep(rest, 0u), keep(rest, 4u), keep(rest, 8u), keep(rest, 12u));
        }
        packed[place.x + i] = unit;
    }
}
