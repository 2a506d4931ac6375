// Candidates of LZ77 from sorted entries: for each position the latest two earlier positions of its window whose bytes have the same hash.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 1
//   buffers: jobs=32, entries=N*8, found_two=N*8
//   local_mem: 0
// }
// @pz_import lz77_neighbours
