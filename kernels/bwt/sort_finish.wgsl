// Writes the transform and the stored rows, once every suffix of a block has its rank.
//
// The suffix with rank k is in row k + 1, because row 0 belongs to the empty suffix. The transform omits the row of the
// whole block.
//
// @pz_cost {
//   threads: min(N/4096*256, 262144)
//   passes: 2
//   buffers: jobs=32, contents=N, sort_rank=N*4, sort_low_b=N*4, transform=N, start_rows=N/64+4
//   local_mem: 0
//   note: WGSL stores no bytes, so there sort_low_b holds a word for each byte of the transform until they are packed
// }

struct Args { slot: u32, parts: u32, start_log: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read> rank: array<u32>;
@group(0) @binding(3) var<storage, read_write> wide: array<u32>;

// Moves each byte to its place in the transform.
// @pz_entry
fn place(local_index: u32, workgroup_index: u32) {
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let len = jobs[block * 8u];
    let base = block * args.slot;
    let whole = rank[base];
    for (var p = workgroup_index % parts * THREADS + local_index; p < len; p += parts * THREADS) {
        let r = rank[base + p];
        let to = select(select(r, r + 1u, r < whole), 0u, p == 0u);
        let source = base + select(p, len, p == 0u) - 1u;
        wide[base + to] = contents[source >> 2u] >> (8u * (source & 3u)) & 255u;
    }
}

@group(0) @binding(1) var<storage, read> ranks: array<u32>;
@group(0) @binding(2) var<storage, read> placed: array<u32>;
@group(0) @binding(3) var<storage, read_write> transform: array<u32>;
@group(0) @binding(4) var<storage, read_write> rows: array<u32>;

// Packs the bytes, and stores the row of every (1 << start_log)-th suffix.
// @pz_entry
fn pack(local_index: u32, workgroup_index: u32) {
    let slot = args.slot;
    let parts = args.parts;
    let start_log = args.start_log;
    let block = workgroup_index / parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let len = jobs[block * 8u];
    let base = block * slot;
    let rows_base = block * (slot / 256u + 1u);
    for (var i = workgroup_index % parts * THREADS + local_index; i * 4u < len; i += parts * THREADS) {
        var v = 0u;
        for (var k = 0u; k < 4u; k++) {
            if i * 4u + k < len {
                v |= (placed[base + i * 4u + k] & 255u) << (8u * k);
            }
        }
        transform[base / 4u + i] = v;
        let p = i << start_log;
        if p < len && p >> start_log == i {
            rows[rows_base + i] = ranks[base + p] + 1u;
        }
    }
}
