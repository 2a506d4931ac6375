// The lazy parse of LZ77 with two candidates per position, from lz77/latest_two.
//
// @pz_cost {
//   threads: N/262144*128
//   passes: 1
//   buffers: jobs=32, contents=N, found_two=N*8, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_lazy
