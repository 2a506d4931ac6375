// Undoes zigzag and rotation that no transposition undoes along the way.
//
// @pz_cost {
//   threads: N/16384*256
//   passes: 3
//   buffers: jobs=32, contents=N
//   local_mem: 0
// }
// @pz_import filter_words

struct Args {
    blocks: u32,
    slot: u32,
    count: u32,
    stage: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read_write> contents: array<vec4<u32>>;

// `count` workgroups for each block, each for 16,384 bytes. A work item handles 16 bytes at a time.
// @pz_entry
fn words(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let undo = block * JOB_WORDS + JOB_UNDO + args.stage;
    let word = jobs[undo];
    if !changes_words(word) {
        return;
    }
    if args.stage > 0u {
        if is_undone_while_moving(jobs[undo - 1u], word) {
            return;
        }
    }
    let len = min(jobs[block * JOB_WORDS], args.slot);
    for (var k = 0u; k < 4u; k++) {
        let i = workgroup_index % args.count * 1024u + k * 256u + local_index;
        if 16u * i >= len {
            return;
        }
        // Units are multiples of 16 bytes, except the block's last one, where the elements end with the block.
        let place = block * (args.slot / 16u) + i;
        contents[place] = undone_words(word, contents[place], len - 16u * i);
    }
}
