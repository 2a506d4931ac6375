// The contexts of runs, by the histories of their symbols, and how often each token occurs in each
// (`codec/bwt/segments.rs`).
//
// @pz_cost {
//   threads_per_element: 0.125
//   passes: 2
//   buffers: jobs=32, sort_high_a=N*4, sort_low_a=N*4, encode_state=256, encode_segments=N/64+64,
//            encode_lists=N/32+512, encode_counts=N*3+49152
//   local_mem: 24584
//   note: counts of all tokens in all contexts for each segment, 16 bits each
// }

// Not written yet: plans for WebGPU decline.
