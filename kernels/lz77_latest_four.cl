// Finds LZ77 candidates: for each position, the latest four earlier positions of its window with the same hash.
//
// @pz_cost {
//   threads: max(N/2048*256, 8192)
//   passes: 4
//   buffers: jobs=32, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4, rows_four=N*16
//   local_mem: 32768
// }
// @pz_import lz77_table
