// Packs the payloads of a batch, so that a single copy brings all of them to the host.
//
// @pz_cost {
//   threads: (N+256)/16384*256
//   passes: 2
//   buffers: payload=N+256, results=32, packed_starts=8, packed=N+256
//   local_mem: 2048
//   note: packed_starts holds two words for each block: where its payload begins, and its length, in units of 16 bytes
// }

typedef struct {
    uint status, payload_len, content_crc, payload_crc, reserved[4];
} Result;

// The length of a block's payload in units of 16 bytes; 0 if the block failed.
inline uint units(__global const Result *results, uint block, uint slot) {
    return results[block].status == 0 ? (min(results[block].payload_len, slot + 256) + 15) / 16 : 0;
}

// One workgroup: each work item sums the lengths of consecutive blocks.
__kernel void place(__global const Result *results, __global uint2 *packed_starts, uint blocks, uint slot) {
    SHARED uint sums[2][THREADS];
    uint lane = (uint)get_local_id(0);
    if (get_group_id(0) != 0) return;
    uint share = (blocks + THREADS - 1) / THREADS;
    uint begin = min(lane * share, blocks);
    uint end = min(begin + share, blocks);
    uint sum = 0;
    for (uint b = begin; b < end; b++) sum += units(results, b, slot);
    sums[0][lane] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint from = 0;
    for (uint by = 1; by < THREADS; by *= 2) {
        uint before = lane >= by ? sums[from][lane - by] : 0;
        sums[from ^ 1][lane] = sums[from][lane] + before;
        from ^= 1;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    uint start = sums[from][lane] - sum;
    for (uint b = begin; b < end; b++) {
        uint len = units(results, b, slot);
        packed_starts[b] = UINT2(start, len);
        start += len;
    }
}

// The mask that keeps the `rest` - `before` bytes of the payload in a word, and clears the others.
inline uint keep(uint rest, uint before) {
    return rest <= before ? 0u : rest - before >= 4 ? 0xffffffffu : (1u << 8 * (rest - before)) - 1;
}

// `count` workgroups for each block, each for UNITS units of 16 bytes.
__kernel void gather(__global const Result *results, __global const uint2 *packed_starts, __global const uint4 *payload,
    __global uint4 *packed, uint blocks, uint slot, uint count) {
    uint group = (uint)get_group_id(0);
    uint block = group / count;
    if (block >= blocks) return;
    uint2 place = packed_starts[block];
    uint first = group % count * UNITS;
    uint end = min(first + UNITS, place.y);
    uint len = results[block].payload_len;
    payload += (ulong)block * ((slot + 256) / 16);
    for (uint i = first + (uint)get_local_id(0); i < end; i += THREADS) {
        uint4 unit = payload[i];
        uint rest = len - i * 16;
        if (rest < 16) unit &= UINT4(keep(rest, 0), keep(rest, 4), keep(rest, 8), keep(rest, 12));
        packed[(ulong)place.x + i] = unit;
    }
}
