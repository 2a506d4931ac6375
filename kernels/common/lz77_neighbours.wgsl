// Candidates of LZ77 from entries sorted by (hash, position): those before an entry are the most recent earlier positions of
// the same hash. A position gets a row of distances, the nearest candidate first, 0 where a candidate has another tag, or
// there is none: the same rows as those of lz77_table.
//
// Constants: CANDIDATES, 1, 2 or 4; TWO, whether there are at least two; FOUR, whether there are four; SAME, the bits of an
// entry's first word that are the same in candidates: hash and tag.

struct Args {
    slot: u32,
    blocks: u32,
    window_log: u32,
}

var<immediate> args: Args;

// @pz_if FOUR
alias Row = vec4<u32>;
// @pz_else
// @pz_if TWO
alias Row = vec2<u32>;
// @pz_else
alias Row = u32;
// @pz_end
// @pz_end

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> entries: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> found: array<Row>;

// The distance to the entry `k` places before number `index` of those from `start` on, if it is a candidate; `reach` is the
// farthest that may be.
fn distance_to(start: u32, entry: vec2<u32>, index: u32, k: u32, reach: u32) -> u32 {
    if index < k {
        return 0u;
    }
    let other = entries[start + index - k];
    let distance = entry.y - other.y;
    return select(0u, distance, ((other.x ^ entry.x) & SAME) == 0u && distance <= reach);
}

// A work item for each entry.
@compute @workgroup_size(THREADS)
fn link_rows(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let groups = (args.slot + THREADS - 1u) / THREADS;
    let group = wg.y * wgs.x + wg.x;
    let block = group / groups;
    if block >= args.blocks {
        return;
    }
    let index = group % groups * THREADS + local_index;
    if index >= max(jobs[block * 8u], 7u) - 7u {
        return;
    }
    let start = block * args.slot;
    let entry = entries[start + index];
    let reach = entry.y & ((1u << args.window_log) - 1u);
    var row = Row();
// @pz_if FOUR
    row.x = distance_to(start, entry, index, 1u, reach);
    row.y = distance_to(start, entry, index, 2u, reach);
    row.z = distance_to(start, entry, index, 3u, reach);
    row.w = distance_to(start, entry, index, 4u, reach);
// @pz_else
// @pz_if TWO
    row.x = distance_to(start, entry, index, 1u, reach);
    row.y = distance_to(start, entry, index, 2u, reach);
// @pz_else
    row = distance_to(start, entry, index, 1u, reach);
// @pz_end
// @pz_end
    found[start + entry.y] = row;
}
