// Gathers the keys for a round of prefix doubling (bwt/sort_refine). An element's key is 1 plus the rank of the
// suffix `depth` bytes on, or 0 if that is the empty suffix.
//
// @pz_cost {
//   threads: min(N/4096*256, 262144)
//   passes: 2*log2(N/8)
//   buffers: sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_rank=N*4, sort_state=1088
//   local_mem: 0
//   note: random reads, four in flight at a time
// }

// @pz_import bwt_sort_state

// The number of keys that a work item, and a workgroup, gathers at once.
#define GATHERS 4u
#define GATHERED (GATHERS * THREADS)

// Writes the keys of the small list's elements.
__kernel void gather_small(
    __global const uint *position, __global const uint *rank, __global uint *low, __global const uint *state,
    uint slot, uint parts, uint parity, uint depth)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint len = state[block * STATE_WORDS + STATE_LEN];
    uint count = state[block * STATE_WORDS + STATE_SMALL + 2 * parity];
    size_t base = (size_t)block * slot;
    position += base;
    rank += base;
    low += base;
    for (uint e = part * GATHERED + (uint)get_local_id(0); e < count; e += parts * GATHERED) {
        // Start all loads before waiting for the first.
        uint places[GATHERS];
        uint keys[GATHERS];
        #pragma unroll
        for (uint i = 0; i < GATHERS; i++) places[i] = position[min(e + i * THREADS, count - 1)] + depth;
        #pragma unroll
        for (uint i = 0; i < GATHERS; i++) keys[i] = places[i] < len ? rank[places[i]] + 1 : 0;
        #pragma unroll
        for (uint i = 0; i < GATHERS; i++) {
            if (e + i * THREADS < count) low[e + i * THREADS] = keys[i];
        }
    }
}

// Writes the keys of the large list's elements, which move to the other copy. Empties the next round's lists.
__kernel void gather_large(
    __global const uint *high, __global const uint *position, __global uint *high_out, __global uint *low_out,
    __global uint *position_out, __global const uint *rank, __global uint *state,
    uint slot, uint parts, uint parity, uint depth)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint len = state[block * STATE_WORDS + STATE_LEN];
    uint count = state[block * STATE_WORDS + STATE_LARGE + 2 * parity];
    if (part == 0 && index < 2) state[block * STATE_WORDS + STATE_SMALL + 2 * (1 - parity) + index] = 0;
    size_t base = (size_t)block * slot;
    high += base;
    position += base;
    high_out += base;
    low_out += base;
    position_out += base;
    rank += base;
    for (uint e = part * GATHERED + index; e < count; e += parts * GATHERED) {
        uint places[GATHERS];
        uint heads[GATHERS];
        uint keys[GATHERS];
        #pragma unroll
        for (uint i = 0; i < GATHERS; i++) {
            uint at = slot - 1 - min(e + i * THREADS, count - 1);
            places[i] = position[at];
            heads[i] = high[at];
        }
        #pragma unroll
        for (uint i = 0; i < GATHERS; i++) keys[i] = places[i] + depth < len ? rank[places[i] + depth] + 1 : 0;
        #pragma unroll
        for (uint i = 0; i < GATHERS; i++) {
            uint at = slot - 1 - (e + i * THREADS);
            if (e + i * THREADS < count) {
                high_out[at] = heads[i];
                low_out[at] = keys[i];
                position_out[at] = places[i];
            }
        }
    }
}
