// Cuts the transform of each block into runs, and the runs into segments (`codec/bwt/runs.rs`).
//
// sort_high_a: where each run begins. sort_low_a: its symbol; later also rank << 8 | rank context << 16 | length
// context << 24. A segment is eight words: first run, first byte, and what later kernels add.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 4
//   buffers: jobs=32, transform=N, sort_counts=N/4+1024, sort_high_a=N*4, sort_low_a=N*4,
//            encode_state=256, encode_segments=N/64+64
//   local_mem: 512
//   note: the arrays of the sort are used again
// }

// Not written yet: plans for WebGPU decline.
