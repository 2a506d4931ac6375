// Counts the literals of groups. A workgroup has 32 KiB of a chunk's literals at most.
//
// @pz_cost {
//   threads_per_element: 0.0078125
//   passes: 1
//   buffers: jobs=32, contents=N, payload=N+256, lz77_streams=N/64+1024, lz77_counts=N/16+4096
//   local_mem: 8192
// }
