// What the tests of devices run: arguments, constants, and more workgroups than fit into a row.
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
@compute @workgroup_size(THREADS)
fn count_up(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let i = (wg.y * wgs.x + wg.x) * THREADS + local_index;
    if i < args.count {
        output[i] = i * args.factor + ADD;
    }
}
