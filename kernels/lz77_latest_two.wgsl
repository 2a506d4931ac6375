// Finds LZ77 candidates: for each position, the latest two earlier positions of its window with the same hash.
//
// @pz_cost {
//   threads: max(N/2048*256, 8192)
//   passes: 2
//   buffers: jobs=32, sort_histogram=N/1024*1024, sort_digits=1024, entries_first=N*8, found=N*4, found_two=N*8
//   local_mem: 8192
// }
// @pz_import lz77_table
