// The lazy parse of LZ77 with four candidates per position, from lz77/latest_four.
//
// @pz_cost {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, rows_four=N*16, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_lazy
