// Sorts all suffixes of each block by their first eight bytes, and lists of suffixes by pairs of numbers: a stable radix
// sort, lowest digit first, of (high, low) with the suffix's position. A pass counts the digits of each tile
// (`histogram`), sums the counts up (`scan`), and moves the elements (`scatter`): no workgroup waits for another.
//
// Each block has its own list. Element e of a list is at index slot - 1 - e of the block's part of the arrays, so that
// the lists of `bwt_sort_refine` can grow from the other end. Before the first pass the suffixes are in the order of
// their lengths, so a suffix that is cut off by the block's end, and padded with zeros, comes before longer ones with
// the same key.
//
// The state of a block: its length, the lengths of its lists in the order small, large for even and then for odd
// rounds, and from STATE_DIGITS on how many elements have each digit.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 25
//   buffers: jobs=32, contents=N,
//            sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_counts=N/4+1024, sort_state=1088
//   local_mem: 27648
//   note: 24 bytes a byte for two copies of the elements; counts of 256 digits for every tile of 4096 elements
// }
