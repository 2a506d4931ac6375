// @pz_cost {
//   threads_per_element: 0.00048828125
//   passes: 1
//   buffers: jobs=32, payload=N+256, results=32, lz77_chunks=N/64+64
//   local_mem: 256
//   note: at least a chunk for each 64 KiB, and a team for each block
// }
