// Undoes what filters do to calls in programs: puts distances instead of places into them.
//
// A work item has a page of 1,024 bytes.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 3
//   buffers: jobs=32, contents=N
//   local_mem: 0
// }
// @pz_import filter_calls

struct Args {
    blocks: u32,
    slot: u32,
    count: u32,
    stage: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read_write> contents: array<vec4<u32>>;

// `count` workgroups for each block, each for 2^18 bytes, which lie in one unit.
// @pz_entry
fn calls(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let word = jobs[block * JOB_WORDS + JOB_UNDO + args.stage];
    if filter_id(word) != FILTER_CALLS {
        return;
    }
    let content_len = min(jobs[block * JOB_WORDS], args.slot);
    let unit_log = clamp(jobs[block * JOB_WORDS + JOB_UNIT_LOG], 18u, 20u);
    let in_block = (workgroup_index % args.count * 256u + local_index) * CALLS_PAGE;
    if in_block >= content_len {
        return;
    }
    let unit = (in_block >> unit_log) << unit_log;
    let len = min(content_len - unit, 1u << unit_log);
    let base = block * (args.slot / 16u) + unit / 16u;
    let first = in_block - unit;
    let end = min(len, first + CALLS_PAGE);
    let v = contents[base + first / 16u];
    var c = Calls(array<u32, 5>(v.x, v.y, v.z, v.w, 0u), 0u);
    for (var at = first; at < end; at += 16u) {
        let next = contents[base + select(at, at + 16u, at + 16u < end) / 16u];
        c.words[4] = next.x;
        change_calls(&c, at, end, word, false);
        contents[base + at / 16u] = vec4<u32>(c.words[0], c.words[1], c.words[2], c.words[3]);
        c.words = array<u32, 5>(c.words[4], next.y, next.z, next.w, 0u);
    }
}
