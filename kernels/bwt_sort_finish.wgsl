// Writes the transform and the stored rows of blocks whose suffixes have their ranks.
//
// The row of the suffix with rank k is k + 1, for row 0 is that of the empty suffix; the transform leaves out the row of
// the whole block.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 2
//   buffers: jobs=32, contents=N, sort_rank=N*4, sort_low_b=N*4, transform=N, start_rows=N/64+4
//   local_mem: 0
//   note: sort_low_b holds the transform's bytes, a word each, until they are packed
// }
