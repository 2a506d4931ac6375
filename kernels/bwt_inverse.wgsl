// The inverse of the Burrows-Wheeler transform, from many stored rows.
//
// `bwt_links` gets, for each place of the transform, the place that a walk goes to from there, and the byte that
// it meets; `bwt_steps` the same for four steps, so that a walk takes one random read for four bytes. The transform is
// in `contents`, which the walks then overwrite. At most 2^24 bytes a block, so that a place leaves room for a byte.
//
// @pz_cost {
//   threads_per_element: 0.3
//   passes: 5
//   buffers: jobs=32, contents=N, results=32, bwt_blocks=512, bwt_rows=N/64, bwt_walks=N/64,
//            bwt_counts=N/8+1024, bwt_links=N*4+N/16+64, bwt_steps=N*8
//   local_mem: 8320
//   note: random reads of 8 bytes bound it, one for four bytes in steps, about four of nearby ones in compose
// }
