// The lazy parse of LZ77 with four candidates by each of two hashes. Of equally good matches, one by the longer hash
// comes first. lz77/latest_four makes `found` and `rows_four` from the longer hash, `found_second` and
// `rows_four_second` from the shorter one.
//
// @pz_cost {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, rows_four=N*16, found_second=N*4,
//            rows_four_second=N*16, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_lazy
