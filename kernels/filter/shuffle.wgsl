// Undoes the transposition of bytes or bits: copies the contents to `filtered`, and back to their places.
//
// @pz_cost {
//   threads: N/4096*256
//   passes: 6
//   buffers: jobs=32, contents=N, filtered=N
//   local_mem: 0
// }
// @pz_import filter

struct Args {
    blocks: u32,
    slot: u32,
    count: u32,
    stage: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;

fn is_shuffled(word: u32) -> bool {
    return filter_id(word) == FILTER_TRANSPOSE || filter_id(word) == FILTER_BIT_TRANSPOSE;
}

@group(0) @binding(1) var<storage, read> whole: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> saved: array<vec4<u32>>;

// `count` workgroups for each block, each for 4096 bytes.
// @pz_entry
fn save(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    if !is_shuffled(jobs[block * JOB_WORDS + JOB_UNDO + args.stage]) {
        return;
    }
    let i = workgroup_index % args.count * 256u + local_index;
    if 16u * i >= min(jobs[block * JOB_WORDS], args.slot) {
        return;
    }
    let at = block * (args.slot / 16u) + i;
    saved[at] = whole[at];
}

@group(0) @binding(1) var<storage, read> filtered: array<u32>;
@group(0) @binding(2) var<storage, read_write> contents: array<u32>;

// A byte of the planes, which begin at word `planes`.
fn byte_at(planes: u32, at: u32) -> u32 {
    return (filtered[planes + at / 4u] >> (8u * (at & 3u))) & 255u;
}

// `count` workgroups for each block, each for 4096 bytes. A work item has a word at a time.
// @pz_entry
fn restore(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let word = jobs[block * JOB_WORDS + JOB_UNDO + args.stage];
    if !is_shuffled(word) {
        return;
    }
    let of_bits = filter_id(word) == FILTER_BIT_TRANSPOSE;
    let width = select(filter_bytes(word), filter_width(word), of_bits);
    let content_len = min(jobs[block * JOB_WORDS], args.slot);
    let unit_log = clamp(jobs[block * JOB_WORDS + JOB_UNIT_LOG], 18u, 20u);
    for (var k = 0u; k < 4u; k++) {
        let i = workgroup_index % args.count * 1024u + k * 256u + local_index;
        if 4u * i >= content_len {
            return;
        }
        let unit = ((4u * i) >> unit_log) << unit_log;
        let len = min(content_len - unit, 1u << unit_log);
        // Elements, of which eight go together if bits move.
        let elements = select(len / width, len / (8u * width) * 8u, of_bits);
        let planes = block * (args.slot / 4u) + unit / 4u;
        let at = 4u * i - unit;
        var element = at / width;
        var part = at % width;
        var result = 0u;
        for (var b = 0u; b < 4u; b++) {
            if at + b >= len {
                break;
            }
            var byte = 0u;
            if element >= elements {
                byte = byte_at(planes, at + b);
            } else if of_bits {
                for (var bit = 0u; bit < 8u; bit++) {
                    let plane = byte_at(planes, (8u * part + bit) * (elements / 8u) + element / 8u);
                    byte |= ((plane >> (element & 7u)) & 1u) << bit;
                }
            } else {
                byte = byte_at(planes, part * elements + element);
            }
            result |= byte << (8u * b);
            part++;
            if part == width {
                part = 0u;
                element++;
            }
        }
        contents[block * (args.slot / 4u) + i] = result;
    }
}
