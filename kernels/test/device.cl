// A kernel for tests of devices: arguments, constants, and more workgroups than fit in a row.
//
// @pz_cost {
//   threads: N/4
//   passes: 1
//   buffers: output=N
//   local_mem: 0
// }

#ifndef ADD
#define ADD 0u
#endif

// output[i] = i * factor + ADD for all i below count
__kernel void count_up(__global uint *output, uint count, uint factor) {
    uint i = (uint)get_global_id(0);
    if (i < count) output[i] = i * factor + ADD;
}
