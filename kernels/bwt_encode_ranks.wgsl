// Ranks of runs: how many other symbols occur before a run's symbol does again (`codec/bwt/runs.rs`).
//
// Runs are ranked in chunks of 256, from right to left, by the list of all symbols in the order in which they occur
// next; a segment's list is the one at its first run. The list at the end of a chunk follows from where each symbol first
// occurs behind it: first occurrences in each chunk (`firsts`), in each group of chunks (`group_firsts`), those behind
// each group (`group_next`), and behind each chunk (`next`). Symbols that do not occur any more come last: those
// that the block has, ascending, then the others.
//
// @pz_cost {
//   threads_per_element: 0.125
//   passes: 5
//   buffers: sort_low_a=N*4, sort_low_b=N*4, encode_groups=N/32+1024, encode_state=256,
//            encode_segments=N/64+64, encode_lists=N/32+512
//   local_mem: 8192
//   note: sort_low_b holds 256 words for each chunk
// }

// Not written yet: plans for WebGPU decline.
