// A kernel that does not compile, for tests of devices.
//
// @pz_cost {
//   threads: N
//   passes: 1
//   buffers: output=N
//   local_mem: 0
// }

@group(0) @binding(0) var<storage, read_write> output: array<u32>;
@compute @workgroup_size(THREADS)
fn broken() {
    output[0] = nothing_of_that_name;
}
