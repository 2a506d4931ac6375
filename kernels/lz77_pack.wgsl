// Puts payloads together: header, directory, and the chunks' records, of tables and words.
//
// @pz_cost {
//   threads_per_element: 0.00390625
//   passes: 2
//   buffers: jobs=32, lz77_models=N/4+N/64+16640, lz77_streams=N/64+1024, lz77_words=N+N/2+N/4+N/64+1024,
//            payload=N+256, results=32
//   local_mem: 256
// }
