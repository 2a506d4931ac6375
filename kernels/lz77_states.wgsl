// Codes the symbols of streams whose model is FSE, from the last to the first. A team has the literals of a chunk, or its
// sequences.
//
// What two literals of a lane's row give goes to `matches`, which are not needed any more: bits from the top down | number
// of bits, in the order of rows. What sequences give is added to their words: to a token 1 << count | bits from bit 19 on;
// an offset becomes 1 << k | extra bits, and 1 << count | bits from bit 23 on.
//
// @pz_cost {
//   threads_per_element: 0.000976563
//   passes: 1
//   buffers: jobs=32, contents=N, payload=N+256, matches=N*2, lz77_models=N/4+N/64+16640,
//            lz77_tokens=N+N/4+N/16+N/64+N/64+256, lz77_offsets=N+N/4+N/16+N/64+N/64+256, lz77_streams=N/64+1024
//   local_mem: 11780
// }
