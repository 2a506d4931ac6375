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

#define CLASSES 256u

// The class of a chunk's decoding time: 0 for the longest. Chunks that do not exist are in the last class.
inline uint class_of(__global const uint *lz77_chunks, uint number, uint max_chunks, uint per_block, uint stride) {
    __global const uint *head = lz77_chunks + CHUNK_WORDS * ((ulong)(number / per_block) * (max_chunks + 1u));
    uint chunk = number % per_block * stride;
    if (chunk >= head[BLOCK_CHUNKS]) return CLASSES - 1u;
    uint log = head[BLOCK_LOGS] & 255u;
    uint length = min(1u << log, head[BLOCK_LEN] - (chunk << log));
    __global const uint *descriptor = head + CHUNK_WORDS * (chunk + 1u);
    // A sequence takes about as long as five bytes, a literal about as long as half a byte.
    uint time = length + 5u * descriptor[CHUNK_SEQUENCES] + descriptor[CHUNK_LITERALS] / 2u;
    return CLASSES - 1u - min(time >> (log - 5u), CLASSES - 1u);
}

__kernel void lz77_order(__global const uint *lz77_chunks, __global uint *order, uint count, uint max_chunks, uint per_block,
                         uint stride, uint round) {
    SHARED uint places[CLASSES];
    uint item = (uint)get_local_id(0);
    if (get_group_id(0) != 0) return;
    for (uint c = item; c < CLASSES; c += THREADS) places[c] = 0u;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = item; i < count; i += THREADS) atomic_inc(&places[class_of(lz77_chunks, i, max_chunks, per_block, stride)]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0u) {
        uint sum = 0u;
        for (uint c = 0u; c < CLASSES; c++) {
            uint own = places[c];
            places[c] = sum;
            sum += own;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = item; i < count; i += THREADS) {
        uint place = atomic_inc(&places[class_of(lz77_chunks, i, max_chunks, per_block, stride)]);
        uint first = place / round * round;
        uint last = min(first + round, count) - 1u;
        if (place / round % 2u == 1u) place = last - (place - first);
        order[min(place, count - 1u)] = i;
    }
}
