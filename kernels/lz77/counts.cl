// Counts the literals of groups. Each workgroup counts at most 32 KiB of a chunk's literals.
//
// @pz_cost {
//   threads: N/262144*2048
//   passes: 1
//   buffers: jobs=32, contents=N, payload=N+256, lz77_streams=N/65536*1024, lz77_counts=N/65536*3072
//   local_mem: 16384
// }
// @pz_import lz77_code

// Each counter has 16 copies side by side, for different lanes, because equal symbols in neighbouring lanes are common
// and would contend.
#define COPIES 16u
#define PIECE_LOG 15u
#define AHEAD 8u

inline void count_word(__local uint *histogram, uint w, uint copy) {
    atomic_inc(&histogram[(w & 255u) * COPIES + copy]);
    atomic_inc(&histogram[(w >> 8 & 255u) * COPIES + copy]);
    atomic_inc(&histogram[(w >> 16 & 255u) * COPIES + copy]);
    atomic_inc(&histogram[(w >> 24) * COPIES + copy]);
}

__kernel void count(
    __global const uint *restrict jobs,
    __global const uint *restrict literals,
    __global const uint *restrict chunks,
    __global uint *restrict counts,
    uint blocks, uint slot, uint chunk_log, uint chunks_per_block, uint literal_stride, uint group_log, uint chunk_stride, uint count_stride
) {
    SHARED uint histogram[256u * COPIES];
    uint lane = (uint)get_local_id(0);
    uint pieces = 1u << (chunk_log - PIECE_LOG);
    uint at = (uint)get_group_id(0);
    uint piece = at % pieces, chunk = at / pieces % chunks_per_block, block = at / pieces / chunks_per_block;
    if (block >= blocks) return;
    if (chunk << chunk_log >= min(jobs[8u * block], slot)) return;
    uint n = chunks[(ulong)block * chunk_stride + chunk * CHUNK_WORDS + CHUNK_LITERALS];
    uint begin = piece << PIECE_LOG, end = min(n, begin + (1u << PIECE_LOG));
    if (begin >= end) return;
    literals += (ulong)block * literal_stride + (chunk << chunk_log >> 2);
    counts += (ulong)block * count_stride + (chunk >> group_log) * 3u * COUNT_WORDS;
    for (uint i = lane; i < 256u * COPIES; i += THREADS) histogram[i] = 0u;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint copy = lane & (COPIES - 1u);
    uint i = (begin >> 2) + lane;
    // Load first, so that all loads run at once.
    for (; i + (AHEAD - 1u) * THREADS < end >> 2; i += AHEAD * THREADS) {
        uint w[AHEAD];
#pragma unroll
        for (uint j = 0; j < AHEAD; j++) w[j] = literals[i + j * THREADS];
#pragma unroll
        for (uint j = 0; j < AHEAD; j++) count_word(histogram, w[j], copy);
    }
    for (; i < end >> 2; i += THREADS) {
        count_word(histogram, literals[i], copy);
    }
    if (lane < (end & 3u)) {
        atomic_inc(&histogram[(literals[end >> 2] >> (8u * lane) & 255u) * COPIES]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (i = lane; i < 256u; i += THREADS) {
        uint sum = 0;
        for (uint j = 0; j < COPIES; j++) sum += histogram[i * COPIES + ((j + lane) & (COPIES - 1u))];
        if (sum != 0u) atomic_add(&counts[i], sum);
    }
}
