// The lazy parse of LZ77 with the candidates of two hashes, four of each: `found_four` by the longer one, which comes first
// where matches are equally good, and `found_second` by the shorter one. Both are what lz77_latest_four finds.
//
// @pz_cost {
//   threads_per_element: 0.004
//   passes: 1
//   buffers: jobs=32, contents=N, found_four=N*16, found_second=N*16, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_lazy
