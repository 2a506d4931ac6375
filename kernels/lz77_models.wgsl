// Chooses the models of groups and makes their tables and descriptions. A team has one model of a group.
//
// Every number here is the one that the processor's encoder gets: equal counts give equal models.
//
// @pz_cost {
//   threads_per_element: 0.00146485
//   passes: 4
//   buffers: jobs=32, lz77_counts=N/16+4096, lz77_models=N/4+N/64+16640
//   local_mem: 20484
// }
