// A kernel that does not compile, for tests of devices.
//
// @pz_cost {
//   threads: N
//   passes: 1
//   buffers: output=N
//   local_mem: 0
// }

__kernel void broken(__global uint *output) {
    output[0] = nothing_of_that_name;
}
