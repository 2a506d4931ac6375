// The lazy parse of LZ77 with the candidates of two hashes, four of each: those of the longer one come first where matches
// are equally good. `found` and `rows_four` are what lz77_latest_four makes of the longer one, `found_second` and
// `rows_four_second` of the shorter one.
//
// @pz_cost {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, rows_four=N*16, found_second=N*4,
//            rows_four_second=N*16, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_lazy
