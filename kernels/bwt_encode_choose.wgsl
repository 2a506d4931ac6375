// Which segments share a set of tables, which contexts of a set share a table, and the tables (`codec/bwt/choose.rs` and
// `tables.rs`).
//
// encode_tables: what each token costs in each context of each set, in 1/256 bit; in the end the exponents.
// encode_starts: each token's interval, start | frequency << 16. encode_fresh: contexts that begin a table.
//
// @pz_cost {
//   threads_per_element: 0.125
//   passes: 18
//   buffers: jobs=32, encode_state=256, encode_segments=N/64+64, encode_counts=N*3+49152,
//            encode_sums=393216, encode_tables=393216, encode_starts=393216, encode_fresh=12288
//   local_mem: 17152
//   note: eight sets of tables for each block, however short it is
// }

// Not written yet: plans for WebGPU decline.
