// Cuts the matches of a block into the sequences of its chunks, and collects the literals. A team has a chunk.
//
// The literals of a chunk stand where its contents do in a block: in `payload`, which is not needed yet. Without matches
// they are the contents.
//
// A sequence is a word in `lz77_tokens`, literals | length << 9, and one in `lz77_offsets`: first its offset, then
// symbol | extra bits << 6.
//
// @pz_cost {
//   threads_per_element: 0.000488281
//   passes: 2
//   buffers: jobs=32, contents=N, matches=N*2, match_counts=N/64, payload=N+256,
//            lz77_tokens=N+N/4+N/16+N/64+N/64+256, lz77_offsets=N+N/4+N/16+N/64+N/64+256,
//            lz77_streams=N/64+1024, lz77_counts=N/16+4096
//   local_mem: 2944
// }
