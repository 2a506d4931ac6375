// Writes the words of chunks' streams, rows of 32 lanes at a time, by the rule of the format: before a row, each lane that
// the decoder will then find with fewer than 32 bits gets the next word of the stream. A team has a chunk.
//
// @pz_cost {
//   threads_per_element: 0.000488281
//   passes: 1
//   buffers: jobs=32, contents=N, payload=N+256, matches=N*2, lz77_models=N/4+N/64+16640,
//            lz77_tokens=N+N/4+N/16+N/64+N/64+256, lz77_offsets=N+N/4+N/16+N/64+N/64+256, lz77_streams=N/64+1024,
//            lz77_words=N+N/2+N/4+N/64+1024
//   local_mem: 4612
// }
