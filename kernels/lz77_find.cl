// Sorts the positions of blocks by (hash, position), to find LZ77 candidates: the candidates of a position are
// earlier positions whose bytes have the same hash. The code is in lz77_sort.
//
// @pz_cost {
//   threads: max(N/2048*512, 8192)
//   passes: 12
//   buffers: jobs=32, contents=N, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8
//   local_mem: 26688
// }
// @pz_import lz77_sort
