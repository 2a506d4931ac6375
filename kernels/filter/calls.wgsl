// Undoes the filter of calls in programs: turns absolute targets back into distances.
//
// One workgroup per 256 pages, one work item per page. The workgroup copies 64 bytes of each page at a time to
// workgroup memory, so that adjacent work items load adjacent bytes.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 3
//   buffers: jobs=32, contents=N
//   local_mem: 17408
// }
// @pz_import filter_calls

// Bytes of a page in workgroup memory at a time.
const PART = 64u;
// The words of these, and the next one. The number is odd, so that work items use different banks.
const PART_WORDS = 17u;

struct Args {
    blocks: u32,
    slot: u32,
    count: u32,
    stage: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read_write> contents: array<vec4<u32>>;

var<workgroup> parts: array<u32, PART_WORDS * THREADS>;

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
    let in_block = workgroup_index % args.count * CALLS_PAGE * THREADS;
    if in_block >= content_len {
        return;
    }
    let unit = (in_block >> unit_log) << unit_log;
    let len = min(content_len - unit, 1u << unit_log);
    let first = in_block - unit;
    let base = block * (args.slot / 16u) + unit / 16u;
    let page = first + local_index * CALLS_PAGE;
    let end = min(len, page + CALLS_PAGE);
    var carried = 0u;
    var c: Calls;
    for (var part = 0u; part < CALLS_PAGE; part += PART) {
        for (var i = local_index; i < PART / 16u * THREADS; i += THREADS) {
            let at = first + i / 4u * CALLS_PAGE + part + i % 4u * 16u;
            let to = i / 4u * PART_WORDS + i % 4u * 4u;
            if at < len {
                let v = contents[base + at / 16u];
                for (var w = 0u; w < 4u; w++) {
                    parts[to + w] = v[w];
                }
            }
        }
        workgroupBarrier();
        let own = local_index * PART_WORDS;
        let at = page + part;
        if at < end {
            if part > 0u {
                parts[own] = carried;
            }
            parts[own + 16u] = 0u;
            if at + PART < end {
                parts[own + 16u] = contents[base + (at + PART) / 16u].x;
            }
            for (var k = 0u; k < 16u; k += 4u) {
                for (var w = 0u; w < 5u; w++) {
                    c.words[w] = parts[own + k + w];
                }
                change_calls(&c, at + 4u * k, end, word, false);
                for (var w = 0u; w < 5u; w++) {
                    parts[own + k + w] = c.words[w];
                }
            }
            carried = parts[own + 16u];
        }
        workgroupBarrier();
        for (var i = local_index; i < PART / 16u * THREADS; i += THREADS) {
            let to = first + i / 4u * CALLS_PAGE + part + i % 4u * 16u;
            let four = i / 4u * PART_WORDS + i % 4u * 4u;
            if to < len {
                contents[base + to / 16u] =
                    vec4<u32>(parts[four], parts[four + 1u], parts[four + 2u], parts[four + 3u]);
            }
        }
    }
}
