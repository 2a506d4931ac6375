// Writes payloads: the words of each segment (`codec/bwt/segments.rs`), the descriptions of directory and tables
// (`payload.rs`, `tables.rs`, `binary.rs`), and all of it together.
//
// @pz_cost {
//   threads_per_element: 0.125
//   passes: 4
//   buffers: jobs=32, sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4, encode_state=256,
//            encode_segments=N/64+64, encode_lists=N/32+512, encode_tables=393216, encode_starts=393216,
//            encode_fresh=12288, encode_described=N/64+263168, start_rows=N/64+4, payload=N+256, results=32
//   local_mem: 2048
//   note: sort_position_a holds segments' words; a segment has at most as many as bytes
// }

// Not written yet: plans for WebGPU decline.
