// @pz_cost {
//   threads_per_element: 0.00048828125
//   passes: 1
//   buffers: payload=N+256, results=32, lz77_chunks=N/64+64, lz77_tables=N/4+N/32+17440
//   local_mem: 27040
//   note: at least a chunk for each 64 KiB, and a team for each; workgroup memory is that of two teams
// }
