// Candidates of LZ77 from sorted entries: for each position the latest earlier position of its window whose bytes have the same hash.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 1
//   buffers: jobs=32, entries=N*8, found=N*4
//   local_mem: 0
// }
// @pz_import lz77_neighbours
