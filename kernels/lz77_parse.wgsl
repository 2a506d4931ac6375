// Parses of LZ77: the matches of a segment, by a team for each segment.
//
// `greedy` takes the first match found; `lazy` the best one of a few neighbouring positions. The rules are those of the
// modules codec::lz77::greedy and codec::lz77::lazy; `found` and `entries` are what lz77_find makes, and candidates
// are verified here. Thirty-two positions are looked at at once for one that may have a match; all the matches that a
// step of `lazy` chooses among are measured at the same time, each by LANES lanes, and those of 16 bytes and more then by
// all lanes.
//
// The list of segment s of a block begins at entry s * segment length / 4 of the block's part of `matches`. An entry is
// two words: start in the segment and length << 16; offset.
//
// Constants: SEGMENT_LOG, at most 15; WINDOW_LOG; for `lazy`, CANDIDATES and LAZY, the further positions looked at.
//
// @pz_cost {
//   threads_per_element: 0.004
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, matches=N*2, match_counts=N/64
//   local_mem: 256
// }

