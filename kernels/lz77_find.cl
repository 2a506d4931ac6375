// Sorts the positions of blocks by (hash, position), for the candidates of LZ77: those of a position are earlier ones whose
// bytes have the same hash. The kernel is that of lz77_sort.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 6
//   buffers: jobs=32, contents=N, sort_histogram=N+2048, sort_digits=2048, entries_first=N*8
//   local_mem: 35328
// }
// @pz_import lz77_sort
