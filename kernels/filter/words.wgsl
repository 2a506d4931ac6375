// Undoes the filters that change each element by itself: zigzag and rotation.
//
// @pz_cost {
//   threads: N/4096*256
//   passes: 3
//   buffers: jobs=32, contents=N
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
@group(0) @binding(1) var<storage, read_write> contents: array<vec2<u32>>;

// An element of at most 32 bits.
fn undone(id: u32, v: u32, bits: u32, by: u32, mask: u32) -> u32 {
    if id == FILTER_ZIGZAG {
        return ((v >> 1u) ^ (0u - (v & 1u))) & mask;
    }
    return ((v >> by) | (v << (bits - by))) & mask;
}

// An element of 64 bits.
fn undone_pair(id: u32, v: vec2<u32>, by: u32) -> vec2<u32> {
    if id == FILTER_ZIGZAG {
        let sign = 0u - (v.x & 1u);
        return vec2<u32>(((v.x >> 1u) | (v.y << 31u)) ^ sign, (v.y >> 1u) ^ sign);
    }
    let turned = select(v, v.yx, by >= 32u);
    let rest = by & 31u;
    if rest == 0u {
        return turned;
    }
    return (turned >> vec2<u32>(rest)) | (turned.yx << vec2<u32>(32u - rest));
}

// `count` workgroups for each block, each for 4096 bytes. A work item has 8 bytes at a time.
// @pz_entry
fn words(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let word = jobs[block * JOB_WORDS + JOB_UNDO + args.stage];
    let id = filter_id(word);
    let width = filter_width(word);
    let by = filter_parameter(word);
    if id != FILTER_ZIGZAG && id != FILTER_ROTATE {
        return;
    }
    let len = min(jobs[block * JOB_WORDS], args.slot);
    let bits = 8u * width;
    let mask = select((1u << (bits & 31u)) - 1u, 0xffffffffu, width >= 4u);
    for (var k = 0u; k < 2u; k++) {
        let chunk = workgroup_index % args.count * 512u + k * 256u + local_index;
        let at = 8u * chunk;
        if at >= len {
            return;
        }
        // Units are whole multiples of 8 bytes, but for the block's last: elements end where the block does.
        let place = block * (args.slot / 8u) + chunk;
        var parts = contents[place];
        if width == 8u {
            if at + 8u <= len {
                parts = undone_pair(id, parts, by);
            }
        } else {
            for (var i = 0u; i < 8u; i += width) {
                if at + i + width <= len {
                    let shift = 8u * (i & 3u);
                    let v = undone(id, (parts[i / 4u] >> shift) & mask, bits, by, mask);
                    parts[i / 4u] = (parts[i / 4u] & ~(mask << shift)) | (v << shift);
                }
            }
        }
        contents[place] = parts;
    }
}
