// @pz_cost {
//   threads_per_element: 0.00048828125
//   passes: 256
//   buffers: contents=N, payload=N+256, results=32, lz77_chunks=N/64+64, lz77_tables=N/4+N/32+17440
//   local_mem: 24576
//   note: at least a chunk for each 64 KiB, and a team for each; as many passes as a window has chunks, most often 1;
//         workgroup memory is that of four teams without FSE, or two with
// }
