// A loop of any length, for tests.
//
// @pz_cost {
//   threads: N/4
//   passes: 1
//   buffers: values=N
//   local_mem: 0
// }
__kernel void turns(__global uint *values, uint turns, uint len) {
    const uint at = (uint)get_global_id(0);
    if (at >= len) return;
    uint v = values[at];
    for (uint i = 0u; i < turns; i++) v = v * 1664525u + 1013904223u + (v >> 16);
    values[at] = v;
}
