// From suffixes sorted by their first characters to all suffixes sorted, by prefix doubling (Manber and Myers, "Suffix
// arrays: a new method for on-line string searches", 1990; the rank of a group is where it begins, as in Larsson and
// Sadakane, "Faster suffix sorting", 2007).
//
// A suffix's rank is the number of suffixes in the groups before its own, where a group is what the sort so far cannot
// tell apart: suffixes with the same first `depth` characters. A suffix alone in its group is done. The others are in a
// list of small groups, or in one of large groups, of more than GROUP: element e of the small list is at index e of the
// block's part of the arrays, element e of the large list at index slot - 1 - e. Together they are at most as long as
// the block. A round takes the rank of the suffix `depth` on as an element's key (1 more, and 0 for the empty suffix),
// sorts each group by it, and so doubles the depth. All elements of a group are at least `depth` long.
//
// Small groups are sorted in workgroup memory, where each element counts the smaller ones of its group. Large ones go
// through the radix sort of `bwt_sort` by (high, low), with `high` the group's rank, whose low bits it can leave out.
// Each tile of either list reserves room in the lists of the next round with an atomic addition: the order of
// groups in a list is left to chance, and matters to nothing.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 4
//   buffers: sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_rank=N*4, sort_state=1088
//   local_mem: 19456
//   note: 28 bytes a byte: two copies of the elements, and ranks
// }
