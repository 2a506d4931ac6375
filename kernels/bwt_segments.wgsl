// BWT payloads: the second stage. Segments become runs of labels, and those the transform.
//
// A segment is decoded before the list at its start is known: positions in that list stand for bytes. Then the lists
// are composed, one after another, and the runs written out as bytes.
//
// @pz_cost {
//   threads_per_element: 0.02
//   passes: 3
//   buffers: payload=N+256, contents=N, results=32,
//            bwt_blocks=512, bwt_segments=N/32+32, bwt_tables=196608,
//            bwt_histories=N+32768, bwt_lists=N/4+256, bwt_links=N*4+N/16+64
//   local_mem: 47624
//   note: a lane decodes a segment; what bounds it is the latency of a run times the runs of the longest segment
// }
