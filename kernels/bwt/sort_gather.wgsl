// Gathers the keys for a round of prefix doubling (bwt/sort_refine). An element's key is 1 plus the rank of the
// suffix `depth` bytes on, or 0 if that is the empty suffix.
//
// @pz_cost {
//   threads: min(N/4096*256, 262144)
//   passes: 2*log2(N/8)
//   buffers: sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_rank=N*4, sort_state=1088
//   local_mem: 0
//   note: random reads, four in flight at a time
// }

// @pz_import bwt_sort_state

// The number of keys that a work item, and a workgroup, gathers at once.
const GATHERS = 4u;
const GATHERED = GATHERS * THREADS;

struct Args { slot: u32, parts: u32, parity: u32, depth: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> small_position: array<u32>;
@group(0) @binding(1) var<storage, read> small_rank: array<u32>;
@group(0) @binding(2) var<storage, read_write> small_low: array<u32>;
@group(0) @binding(3) var<storage, read> small_state: array<u32>;

// Writes the keys of the small list's elements.
// @pz_entry
fn gather_small(local_index: u32, workgroup_index: u32) {
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&small_state) / STATE_WORDS {
        return;
    }
    let len = small_state[block * STATE_WORDS + STATE_LEN];
    let count = small_state[block * STATE_WORDS + STATE_SMALL + 2u * args.parity];
    let base = block * args.slot;
    for (var e = workgroup_index % parts * GATHERED + local_index; e < count; e += parts * GATHERED) {
        // Start all loads before waiting for the first.
        var places: array<u32, GATHERS>;
        var gathered: array<u32, GATHERS>;
        for (var i = 0u; i < GATHERS; i++) {
            places[i] = small_position[base + min(e + i * THREADS, count - 1u)] + args.depth;
        }
        for (var i = 0u; i < GATHERS; i++) {
            gathered[i] = 0u;
            if places[i] < len {
                gathered[i] = small_rank[base + places[i]] + 1u;
            }
        }
        for (var i = 0u; i < GATHERS; i++) {
            if e + i * THREADS < count {
                small_low[base + e + i * THREADS] = gathered[i];
            }
        }
    }
}

@group(0) @binding(0) var<storage, read> large_high: array<u32>;
@group(0) @binding(1) var<storage, read> large_position: array<u32>;
@group(0) @binding(2) var<storage, read_write> large_high_out: array<u32>;
@group(0) @binding(3) var<storage, read_write> large_low_out: array<u32>;
@group(0) @binding(4) var<storage, read_write> large_position_out: array<u32>;
@group(0) @binding(5) var<storage, read> large_rank: array<u32>;
@group(0) @binding(6) var<storage, read_write> large_state: array<u32>;

// Writes the keys of the large list's elements, which move to the other copy. Empties the next round's lists.
// @pz_entry
fn gather_large(local_index: u32, workgroup_index: u32) {
    let parts = args.parts;
    let part = workgroup_index % parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&large_state) / STATE_WORDS {
        return;
    }
    let slot = args.slot;
    let len = large_state[block * STATE_WORDS + STATE_LEN];
    let count = large_state[block * STATE_WORDS + STATE_LARGE + 2u * args.parity];
    if part == 0u && local_index < 2u {
        large_state[block * STATE_WORDS + STATE_SMALL + 2u * (1u - args.parity) + local_index] = 0u;
    }
    let base = block * slot;
    let last = base + slot - 1u;
    for (var e = part * GATHERED + local_index; e < count; e += parts * GATHERED) {
        var places: array<u32, GATHERS>;
        var group_heads: array<u32, GATHERS>;
        var gathered: array<u32, GATHERS>;
        for (var i = 0u; i < GATHERS; i++) {
            let at = last - min(e + i * THREADS, count - 1u);
            places[i] = large_position[at];
            group_heads[i] = large_high[at];
        }
        for (var i = 0u; i < GATHERS; i++) {
            gathered[i] = 0u;
            if places[i] + args.depth < len {
                gathered[i] = large_rank[base + places[i] + args.depth] + 1u;
            }
        }
        for (var i = 0u; i < GATHERS; i++) {
            if e + i * THREADS < count {
                let at = last - e - i * THREADS;
                large_high_out[at] = group_heads[i];
                large_low_out[at] = gathered[i];
                large_position_out[at] = places[i];
            }
        }
    }
}
