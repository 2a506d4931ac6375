// The greedy parse of LZ77: the matches of a segment, by a team for each segment. It takes the first match found; the rules
// are those of the module codec::lz77::greedy, and `found` is what lz77_latest makes. Candidates are verified here.
// Thirty-two positions are looked at at once for one that may have a match.
//
// @pz_cost {
//   threads_per_element: 0.004
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, matches=N*2, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read> found: array<u32>;
@group(0) @binding(3) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> match_counts: array<u32>;

@compute @workgroup_size(THREADS)
fn greedy(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let is_there = segment_start(local_index, wg.y * wgs.x + wg.x);
    if team_uniform(u32(is_there)) == 0u {
        return;
    }
    let slot_start = from_word * 4u;
    loop {
        if team_uniform(u32(pos < last)) == 0u {
            break;
        }
        let mine = min(pos + lane, last - 1u);
        let bytes = read32(mine);
        var offset = found[slot_start + mine];
        if recent != 0u && read32(mine - recent) == bytes {
            offset = recent;
        }
        if pos == anchor && second != 0u && lane == 0u && read32(pos - second) == bytes {
            offset = second;
        }
        let hits = team_ballot(offset != 0u && pos + lane < last);
        if hits == 0u {
            pos += 32u;
            continue;
        }
        let lead = countTrailingZeros(hits);
        let at = pos + lead;
        offset = team_broadcast(offset, lead);
        let length = extended(at, offset, 0u);
        if team_uniform(length) < 4u {
            pos = at + 1u;
            continue;
        }
        take(at, length, offset);
    }
    segment_end();
}
