// Sorts LZ77 chunks for decoding, the slowest first.
//
// Then chunks that run at the same time take about equally long, and the last ones are quick. Each compute unit takes a
// workgroup of the first `round` chunks, then one of the next `round`, and so on. In every second round the order is
// reversed: otherwise the first compute unit would get the slowest workgroup of every round. One workgroup sorts the
// numbers of all chunks by an estimate of their time. The order of chunks with equal estimates is unspecified and
// irrelevant.
//
// @pz_cost {
//   threads: 1024
//   passes: 1
//   buffers: lz77_chunks=N/65536*16+16, lz77_order=N/65536*4
//   local_mem: 1024
//   note: a chunk for each 64 KiB, with a work item each up to the limit of one workgroup; there is memory for sixteen
//     times as many
// }
// @pz_import lz77_chunks

struct Args {
    count: u32,
    max_chunks: u32,
    per_block: u32,
    stride: u32,
    round: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> lz77_chunks: array<u32>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;

const CLASSES: u32 = 256u;

var<workgroup> places: array<atomic<u32>, CLASSES>;

// The class of a chunk's decoding time: 0 for the longest. Chunks that do not exist are in the last class.
fn class_of(number: u32) -> u32 {
    let head = CHUNK_WORDS * (number / args.per_block) * (args.max_chunks + 1u);
    let chunk = number % args.per_block * args.stride;
    if chunk >= lz77_chunks[head + BLOCK_CHUNKS] {
        return CLASSES - 1u;
    }
    let log = lz77_chunks[head + BLOCK_LOGS] & 255u;
    let length = min(1u << log, lz77_chunks[head + BLOCK_LEN] - (chunk << log));
    let descriptor = head + CHUNK_WORDS * (chunk + 1u);
    // A sequence takes about as long as five bytes, a literal about as long as half a byte.
    let time = length + 5u * lz77_chunks[descriptor + CHUNK_SEQUENCES] + lz77_chunks[descriptor + CHUNK_LITERALS] / 2u;
    return CLASSES - 1u - min(time >> (log - 5u), CLASSES - 1u);
}

// @pz_entry
fn lz77_order(local_index: u32, workgroup_index: u32) {
    let count = select(0u, args.count, workgroup_index == 0u);
    for (var c = local_index; c < CLASSES; c += THREADS) {
        atomicStore(&places[c], 0u);
    }
    workgroupBarrier();
    for (var i = local_index; i < count; i += THREADS) {
        atomicAdd(&places[class_of(i)], 1u);
    }
    workgroupBarrier();
    if local_index == 0u {
        var sum = 0u;
        for (var c = 0u; c < CLASSES; c++) {
            let own = atomicLoad(&places[c]);
            atomicStore(&places[c], sum);
            sum += own;
        }
    }
    workgroupBarrier();
    for (var i = local_index; i < count; i += THREADS) {
        var place = atomicAdd(&places[class_of(i)], 1u);
        let first = place / args.round * args.round;
        let last = min(first + args.round, count) - 1u;
        if place / args.round % 2u == 1u {
            place = last - (place - first);
        }
        order[min(place, count - 1u)] = i;
    }
}
