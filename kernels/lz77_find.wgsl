// Candidates of LZ77: for each position of a block, earlier ones whose bytes have the same hash.
//
// Positions are sorted by (hash, position): a least-significant-digit radix sort of two passes, stable. Each pass counts
// the digits of each tile of positions (`count`), sums the counts of a digit over the tiles of the block (`scan`), and
// moves the tiles' entries to their places (`place`), ordered by digit in workgroup memory first, so that what is
// written is in runs. Behind the second pass the entries before an entry are the most recent earlier positions of the
// same hash, and `link` tells each position of them.
//
// An entry is the upper half of the hash's product, whose upper HASH_BITS bits are the hash and whose lower eight are the tag,
// and the position. A block's sorted entries are contiguous from the start of its part; positions with fewer than
// eight bytes from themselves on have none.
//
// `found` has a word for each position, 0 if it has no candidate in its window with the same tag. Else with CANDIDATES =
// 1 it is the distance; with more, the entry's place among the sorted ones, and from bit 24 on a bit for each of
// the entries before it, nearest first, that is a candidate.
//
// Constants: HASH_BYTES, HASH_BITS; FIRST, whether entries come from the contents; DIGIT_SHIFT and DIGIT_BITS, of the
// pass; TILE, entries of a workgroup; CANDIDATES; WINDOW_LOG.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 7
//   buffers: jobs=32, contents=N, sort_histogram=N+2048, sort_digits=2048,
//            entries_first=N*8, entries=N*8, found=N*4
//   local_mem: 27648
// }

