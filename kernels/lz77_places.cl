// Sorts the positions of blocks by the upper digit of their hashes and then by position, and writes each position's
// sorted index to `found`. The code is one pass of lz77_sort.
//
// @pz_cost {
//   threads: max(N/2048*512, 8192)
//   passes: 6
//   buffers: jobs=32, contents=N, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4
//   local_mem: 26688
// }
// @pz_import lz77_sort
