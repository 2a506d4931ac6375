// Finds LZ77 candidates from sorted entries: the entries before an entry are the latest earlier positions with the
// same hash.
//
// `found` has a word for each position: 0 if no candidate in its window has the same tag; otherwise the entry's
// sorted index, and bit 24.
//
// Constants: CANDIDATES; HASH_BITS; SAME, the bits of an entry's first word that candidates have in common: hash and
// tag.
//
// @pz_cost {
//   threads: N
//   passes: 1
//   buffers: jobs=32, entries=N*8, found=N*4
//   local_mem: 0
// }

struct Args {
    slot: u32,
    blocks: u32,
    window_log: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;

// The number of a block's positions that have entries.
fn entry_count(block: u32) -> u32 {
    return max(jobs[block * 8u], 7u) - 7u;
}

// A work item for each entry.
// @pz_entry
fn link(local_index: u32, workgroup_index: u32) {
    let groups = (args.slot + THREADS - 1u) / THREADS;
    let block = workgroup_index / groups;
    if block >= args.blocks {
        return;
    }
    let index = workgroup_index % groups * THREADS + local_index;
    if index >= entry_count(block) {
        return;
    }
    let start = block * args.slot;
    let entry = source[start + index];
    let pos = entry.y;
    let reach = pos & ((1u << args.window_log) - 1u);
    var result = 0u;
    for (var k = 0u; k < min(CANDIDATES, index); k++) {
        let other = source[start + index - 1u - k];
        // Entries of the same hash and window are adjacent, so there are no more.
        if (other.x ^ entry.x) >> (32u - HASH_BITS) != 0u || pos - other.y > reach {
            break;
        }
        if ((other.x ^ entry.x) & SAME) == 0u {
            result = 1u << 24u | index;
            break;
        }
    }
    found[start + pos] = result;
}
