// Sorts the positions of blocks by the upper digit of their hashes and then by position, and tells in `found` where each
// position's entry is. The kernel is that of lz77_sort, one pass of it.
//
// @pz_cost {
//   threads: max(N/2048*512, 8192)
//   passes: 6
//   buffers: jobs=32, contents=N, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4
//   local_mem: 35328
// }
// @pz_import lz77_sort
