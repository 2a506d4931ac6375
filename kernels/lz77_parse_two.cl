// The lazy parse of LZ77 with the candidates of two hashes: `entries` and `found` of the longer one, which comes first where
// matches are equally good, and `entries_second` and `found_second` of the shorter one. See lz77_parse.
//
// @pz_cost {
//   threads_per_element: 0.004
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, entries_second=N*8, found_second=N*4,
//            matches=N*2, match_counts=N/64
//   local_mem: 256
// }

// @pz_import lz77_lazy
