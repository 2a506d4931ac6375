// A loop of any length, for tests.
//
// @pz_cost {
//   threads: N/4
//   passes: 1
//   buffers: values=N
//   local_mem: 0
// }
struct Args {
    turns: u32,
    len: u32,
}

@group(0) @binding(0) var<storage, read_write> values: array<u32>;
var<immediate> args: Args;

// @pz_entry
fn turns(local_index: u32, workgroup_index: u32) {
    let at = workgroup_index * THREADS + local_index;
    if at >= args.len {
        return;
    }
    var v = values[at];
    for (var i = 0u; i < args.turns; i++) {
        v = v * 1664525u + 1013904223u + (v >> 16u);
    }
    values[at] = v;
}
