// BWT payloads: the descriptions of tables, and the tables.
//
// @pz_cost {
//   threads_per_element: 0.012
//   passes: 2
//   buffers: jobs=32, payload=N+256, results=32,
//            bwt_blocks=512, bwt_state=3840, bwt_tables=196608
//   local_mem: 6144
//   note: describe is a chain of a few decisions for each exponent, two lanes a block; tables have a team each
// }
