// The lazy parse of LZ77: takes the best match of a few neighbouring positions, by the rule of the module
// codec::lz77::lazy. A step measures all candidate matches at the same time: PAIR_LANES lanes compare each of them;
// then one lane each continues those of 16 bytes and more; then all lanes of the segment continue those of LANE_BYTES
// and more.
//
// The variants are for two and four candidates, and for eight: four by each of two hashes. Among equally good matches,
// one by the longer hash wins. `found` and `rows` come from lz77/latest. With two candidates, `found` holds a row of
// distances for each position. With four, `rows` holds the rows, and `found` the index of a position's row, with bit 24
// set if the row is not empty.
//
// Constants: CANDIDATES of each hash, 2 or 4; FOUR, whether it is 4; TWO_HASHES, whether there are two hashes; LAZY,
// the number of further positions to try.
//
// @pz_cost two {
//   threads: N/262144*128
//   passes: 1
//   buffers: jobs=32, contents=N, found_two=N*8, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
//
// @pz_cost four {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, rows_four=N*16, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
//
// @pz_cost eight {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, rows_four=N*16, found_second=N*4,
//            rows_four_second=N*16, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment
// @pz_import lz77_common_length

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
// @pz_if FOUR
@group(0) @binding(2) var<storage, read> found: array<u32>;
@group(0) @binding(3) var<storage, read> rows: array<vec4<u32>>;
// @pz_if TWO_HASHES
@group(0) @binding(4) var<storage, read> found_second: array<u32>;
@group(0) @binding(5) var<storage, read> rows_second: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(7) var<storage, read_write> match_counts: array<u32>;
// @pz_else
@group(0) @binding(4) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> match_counts: array<u32>;
// @pz_end
// @pz_else
@group(0) @binding(2) var<storage, read> found: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> match_counts: array<u32>;
// @pz_end

// Whether position `at` has candidates, and the distance to its candidate `k`.
// @pz_if FOUR
fn has_any(at: u32) -> bool {
    return found[at] >> 24u != 0u;
}
fn distance_to(slot_start: u32, at: u32, k: u32) -> u32 {
    let place = found[slot_start + at];
    if place >> 24u == 0u {
        return 0u;
    }
    return rows[slot_start + (place & 0xffffffu)][k];
}
// @pz_else
fn has_any(at: u32) -> bool {
    return any(found[at] != vec2<u32>());
}
fn distance_to(slot_start: u32, at: u32, k: u32) -> u32 {
    return found[slot_start + at][k];
}
// @pz_end
// @pz_if TWO_HASHES
fn distance_to_second(slot_start: u32, at: u32, k: u32) -> u32 {
    let place = found_second[slot_start + at];
    if place >> 24u == 0u {
        return 0u;
    }
    return rows_second[slot_start + (place & 0xffffffu)][k];
}
// @pz_end

// The number of offsets of a position: the cheap one, which an earlier match of the segment had, and the candidates
// of one hash or two. Then the positions measured at the same time, and the lanes and words for each offset.
// @pz_if TWO_HASHES
const CHOICES = 2u * CANDIDATES + 1u;
// @pz_else
const CHOICES = CANDIDATES + 1u;
// @pz_end
const PAIRS = CHOICES * (LAZY + 1u);
const PAIR_LANES = select(select(1u, 2u, PAIRS * 2u <= LANES), 4u, PAIRS * 4u <= LANES);
const AT_ONCE = min(LAZY + 1u, LANES / PAIR_LANES / CHOICES);
const COMPARED = 4u / PAIR_LANES;
// A multiple of 16.
const LANE_BYTES = 80u;

// The lane's offset for position `at`; 0 if there is none.
fn offset_at(slot_start: u32, at: u32, has: bool, cheap: u32) -> u32 {
    let pair = part_lane / PAIR_LANES;
    let choice = pair % CHOICES;
    if !has || pair / CHOICES >= AT_ONCE || at > pos + LAZY || at >= last {
        return 0u;
    }
    if choice == 0u {
        return select(recent, cheap, at == pos);
    }
// @pz_if TWO_HASHES
    if choice > CANDIDATES {
        return distance_to_second(slot_start, at, choice - CANDIDATES - 1u);
    }
// @pz_end
    return distance_to(slot_start, at, choice - 1u);
}

// @pz_entry
fn lazy(local_index: u32, workgroup_index: u32) {
    let slot_start = segment_start(local_index, workgroup_index) * args.slot;
    let pair = part_lane / PAIR_LANES;
    let part = part_lane % PAIR_LANES;
    let choice = pair % CHOICES;
    loop {
        let is_active = pos < last;
        if !team_any(is_active) {
            break;
        }
        let mine = select(0u, min(pos + part_lane, last - 1u), is_active);
        let bytes = bytes_at(i32(mine));
        var hit = has_any(slot_start + mine);
// @pz_if TWO_HASHES
        hit |= found_second[slot_start + mine] >> 24u != 0u;
// @pz_end
        if is_active && recent != 0u && bytes_at(i32(mine - recent)) == bytes {
            hit = true;
        }
        if is_active && pos == anchor && second != 0u && part_lane == 0u && bytes_at(i32(pos - second)) == bytes {
            hit = true;
        }
        let hits = part_ballot(is_active && hit && pos + part_lane < last);
        let has = hits != 0u;
        pos += select(select(0u, LANES, is_active), countTrailingZeros(hits), has);
        let cheap = select(recent, second, pos == anchor);

        var best_at = pos;
        var best_length = 0u;
        var best_offset = 0u;
        var best_gain = 0i;
        // A position without a match does not look ahead.
        var goes = has;
        var first = 0u;
        var next_offset = offset_at(slot_start, pos + pair / CHOICES, has, cheap);
        loop {
            if !team_any(goes && first <= LAZY) {
                break;
            }
            let ahead = first + pair / CHOICES;
            let at = pos + ahead;
            let offset = select(0u, next_offset, goes);
            // This load runs while the current offsets are measured.
            next_offset = 0u;
            if first + AT_ONCE <= LAZY {
                next_offset = offset_at(slot_start, at + AT_ONCE, has, cheap);
            }
            let bits = select(i32(firstLeadingBit(offset + 3u)), -1i, choice == 0u);
            var open = offset != 0u;
            if first != 0u {
                // A match that beats the best so far must have equal bytes where the shortest such match ends.
                let least = best_gain + 1i + 3i * i32(at - best_at);
                let needed = max(u32(least + bits) / 4u + 1u, 4u);
                open = open && at + needed <= end;
                if open {
                    open = difference(i32(at + needed) - 4i, offset) == 0u;
                }
            }
            // The number of equal bytes in this lane's part.
            var n = 0u;
            if open {
                n = common_length(at + 4u * part * COMPARED, offset);
            }
            let ends = part_ballot(n < 4u * COMPARED);
            let own_ends = ends >> (pair * PAIR_LANES) & ((1u << PAIR_LANES) - 1u);
            let end_part = select(0u, countTrailingZeros(own_ends), own_ends != 0u);
            let end_n = part_shuffle(n, pair * PAIR_LANES + end_part);
            var length = select(16u, 4u * COMPARED * end_part + end_n, own_ends != 0u);
            length = select(0u, min(length, end - at), open);
            open = open && part == 0u && own_ends == 0u && at + 16u < end;
            n = 16u;
            while open && n < LANE_BYTES {
                let equal = common_length(at + n, offset);
                n += equal;
                open = equal == 4u * COMPARED && at + n < end;
                length = min(n, end - at);
            }
            // Continue the long matches one after another.
            var more = part_ballot(open);
            loop {
                let is_more = more != 0u;
                if !team_any(is_more) {
                    break;
                }
                let lead = select(0u, countTrailingZeros(more), is_more);
                more &= more - 1u;
                let its_at = part_shuffle(at, lead);
                let its_offset = part_shuffle(offset, lead);
                let whole = extended(its_at, its_offset, LANE_BYTES, is_more);
                if is_more && pair * PAIR_LANES == lead {
                    length = whole;
                }
            }
            // Find the best match of each position. Of those with equal gain, the first wins; the cheap offset comes
            // first.
            var key = 0u;
            if length >= 4u {
                let gain = 4i * i32(length) - bits;
                if gain >= 3i {
                    key = u32(gain) << 6u | (63u - choice);
                }
            }
            for (var i = 0u; i < AT_ONCE; i++) {
                let most = part_max(select(0u, key, pair / CHOICES == i));
                let lead = (i * CHOICES + 63u - (most & 63u)) * PAIR_LANES;
                let its_length = part_shuffle(length, lead);
                let its_offset = part_shuffle(offset, lead);
                let gain = i32(most >> 6u);
                let distance = first + i;
                let least = best_gain + 1i + 3i * i32(pos + distance - best_at);
                if goes && select(best_gain != 0i && gain > least, gain != 0i, distance == 0u) {
                    best_at = pos + distance;
                    best_gain = gain;
                    best_length = its_length;
                    best_offset = its_offset;
                }
            }
            goes = goes && best_gain != 0i;
            first += AT_ONCE;
        }
        let takes = best_gain != 0i;
        let room = select(0u, min(best_at - best_offset - window_start, best_at - anchor), takes);
        let before = extended_back(best_at, best_offset, room, 0u, takes);
        if takes {
            take(best_at, before, best_length, best_offset);
        } else {
            pos += select(0u, 1u, has);
        }
    }
    segment_end();
}
