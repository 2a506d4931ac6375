// BWT payloads: everything before the words, but for the tables' descriptions.
//
// @pz_cost {
//   threads_per_element: 0.0003
//   passes: 3
//   buffers: jobs=32, payload=N+256, results=32,
//            bwt_blocks=512, bwt_state=3840, bwt_rows=N/64,
//            bwt_segments=N/32+32
//   local_mem: 3328
//   note: header and arrange have a team for each block, directory one lane: a chain of some 30 decisions a segment
// }
