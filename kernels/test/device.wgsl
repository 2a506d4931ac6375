// A kernel for tests of devices: arguments, constants, and more workgroups than fit in a row.
//
// @pz_cost {
//   threads: N/4
//   passes: 1
//   buffers: output=N
//   local_mem: 0
// }

// @pz_if ADD
// @pz_else
const ADD: u32 = 0u;
// @pz_end

struct CountUp { count: u32, factor: u32 }
var<immediate> args: CountUp;
@group(0) @binding(0) var<storage, read_write> output: array<u32>;

// output[i] = i * factor + ADD for all i below count
// @pz_entry
fn count_up(local_index: u32, workgroup_index: u32) {
    let i = workgroup_index * THREADS + local_index;
    if i < args.count {
        output[i] = i * args.factor + ADD;
    }
}
