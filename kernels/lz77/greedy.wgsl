// The greedy parse of LZ77: takes the first match found in a segment, by the rules of the module codec::lz77::greedy.
// `found` comes from lz77/latest; this kernel verifies the candidates. Each lane of a segment checks one position for a
// possible match. Then they compare its bytes, most of them forward and the rest backward.
//
// @pz_cost {
//   threads: N/262144*128
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read> found: array<u32>;
@group(0) @binding(3) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> match_counts: array<u32>;

// The number of lanes that compare forward; the rest compare backward.
const FORWARD = LANES / 4u * 3u;

// @pz_entry
fn greedy(local_index: u32, workgroup_index: u32) {
    let block = segment_start(local_index, workgroup_index);
    let slot_start = block * args.slot;
    loop {
        let is_active = pos < last;
        if !team_any(is_active) {
            break;
        }
        let mine = select(0u, min(pos + part_lane, last - 1u), is_active);
        let bytes = bytes_at(i32(mine));
        var offset = found[slot_start + mine];
        if is_active && recent != 0u && bytes_at(i32(mine - recent)) == bytes {
            offset = recent;
        }
        if is_active && pos == anchor && second != 0u && part_lane == 0u && bytes_at(i32(pos - second)) == bytes {
            offset = second;
        }
        let hits = part_ballot(is_active && offset != 0u && pos + part_lane < last);
        let has = hits != 0u;
        let lead = select(0u, countTrailingZeros(hits), has);
        let at = pos + lead;
        offset = part_shuffle(offset, lead);

        let room_back = select(0u, min(at - offset - window_start, at - anchor), has);
        let is_forward = part_lane < FORWARD;
        let back = 4u * (part_lane - FORWARD);
        let p = select(i32(at - back) - 4i, i32(at + 4u * part_lane), is_forward);
        // Bytes after the end, or before the first byte that the match may take, count as different.
        var differ = 0x80000001u;
        if select(back < room_back, has && u32(p) < end, is_forward) {
            differ = difference(p, offset);
        }
        let n = select(equal_last(differ), equal_first(differ), is_forward);
        let ends = part_ballot(differ != 0u);
        let ends_ahead = ends & ((1u << FORWARD) - 1u);
        let ends_back = ends >> FORWARD;

        var end_lane = select(FORWARD - 1u, countTrailingZeros(ends_ahead), ends_ahead != 0u);
        var length = 4u * end_lane + part_shuffle(n, end_lane);
        length = extended(at, offset, length, has && ends_ahead == 0u);
        let takes = has && length >= 4u;

        end_lane = select(LANES - FORWARD - 1u, countTrailingZeros(ends_back), ends_back != 0u);
        var before = 4u * end_lane + part_shuffle(n, FORWARD + end_lane);
        before = extended_back(at, offset, room_back, before, takes && ends_back == 0u);

        if takes {
            take(at, before, length, offset);
        } else {
            pos = select(pos + LANES, at + 1u, has);
        }
    }
    segment_end();
}
