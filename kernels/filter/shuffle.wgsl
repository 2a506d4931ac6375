// Undoes the transposition of bytes or bits, or looks elements up in lists of values, from one buffer to another.
// Blocks that a module will restore become zeros, and other blocks are copied. If the next stage to undo changes the
// elements that have moved, undoes that too.
//
// @pz_cost {
//   threads: N/16384*256
//   passes: 3
//   buffers: jobs=32, contents=N, filtered=N
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
@group(0) @binding(1) var<storage, read> before: array<u32>;
@group(0) @binding(2) var<storage, read_write> after: array<vec4<u32>>;

// Four bytes from byte `at` of the planes, which begin at word `planes`. All four exist.
fn word_at(planes: u32, at: u32) -> u32 {
    let shift = 8u * (at & 3u);
    let low = before[planes + at / 4u];
    if shift == 0u {
        return low;
    }
    return (low >> shift) | (before[planes + at / 4u + 1u] << (32u - shift));
}

// Two bytes of the planes, both of which exist; more may follow them.
fn half_at(planes: u32, at: u32) -> u32 {
    let shift = 8u * (at & 3u);
    var half = before[planes + at / 4u] >> shift;
    if shift == 24u {
        half |= before[planes + at / 4u + 1u] << 8u;
    }
    return half & 0xffffu;
}

fn byte_at(planes: u32, at: u32) -> u32 {
    return (before[planes + at / 4u] >> (8u * (at & 3u))) & 255u;
}

// Bytes a0, b0, a1, b1.
fn interleaved(a: u32, b: u32) -> u32 {
    return (a & 255u) | ((a & 0xff00u) << 8u) | ((b & 255u) << 8u) | ((b & 0xff00u) << 16u);
}

// Bytes 0 and 2.
fn even(a: u32) -> u32 {
    return (a & 255u) | ((a >> 8u) & 0xff00u);
}

// Bytes of two elements, from two planes.
fn pair_at(planes: u32, at: u32, elements: u32) -> u32 {
    return half_at(planes, at) | (half_at(planes, at + elements) << 16u);
}

// 16 bytes of elements of 2, 4 or 8 bytes, beginning with number `element` of `elements`.
fn moved(planes: u32, width: u32, element: u32, elements: u32) -> vec4<u32> {
    if width == 2u {
        let a = word_at(planes, element);
        let b = word_at(planes, element + elements);
        let c = word_at(planes, element + 4u);
        let d = word_at(planes, element + 4u + elements);
        return vec4<u32>(
            interleaved(a, b), interleaved(a >> 16u, b >> 16u), interleaved(c, d), interleaved(c >> 16u, d >> 16u),
        );
    }
    if width == 4u {
        let a = word_at(planes, element);
        let b = word_at(planes, element + elements);
        let c = word_at(planes, element + 2u * elements);
        let d = word_at(planes, element + 3u * elements);
        let first = vec2<u32>(interleaved(a, b), interleaved(c, d));
        let second = vec2<u32>(interleaved(a >> 16u, b >> 16u), interleaved(c >> 16u, d >> 16u));
        return vec4<u32>(
            (first.x & 0xffffu) | (first.y << 16u),
            (first.x >> 16u) | (first.y & 0xffff0000u),
            (second.x & 0xffffu) | (second.y << 16u),
            (second.x >> 16u) | (second.y & 0xffff0000u),
        );
    }
    let a = pair_at(planes, element, elements);
    let b = pair_at(planes, element + 2u * elements, elements);
    let c = pair_at(planes, element + 4u * elements, elements);
    let d = pair_at(planes, element + 6u * elements, elements);
    return vec4<u32>(
        even(a) | (even(b) << 16u),
        even(c) | (even(d) << 16u),
        even(a >> 8u) | (even(b >> 8u) << 16u),
        even(c >> 8u) | (even(d >> 8u) << 16u),
    );
}

// The four bytes from `at` of a unit of `len` bytes, one by one. Bytes after the elements are in place.
fn gathered(planes: u32, at: u32, len: u32, of_bits: bool, width: u32, elements: u32) -> u32 {
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
    return result;
}

// 16 bytes from byte `at` of a unit of `len` bytes that begins at word `unit` and has a list of values.
fn looked_up(unit: u32, at: u32, len: u32, word: u32) -> vec4<u32> {
    let width = list_width(word);
    let index = list_index(word);
    let elements = len / width;
    let list = unit + list_start(word, elements) * (width / 4u);
    let entries = list_capacity(word, elements);
    let mask = (1u << (8u * index)) - 1u;
    var v: vec4<u32>;
    for (var i = 0u; i < 4u; i++) {
        let element = (at + 4u * i) / width;
        // An incomplete last element stays as it is.
        if element >= elements {
            v[i] = before[unit + at / 4u + i];
            continue;
        }
        let start = element * index;
        let place = (before[unit + start / 4u] >> (8u * (start & 3u))) & mask;
        v[i] = 0u;
        if place < entries {
            v[i] = before[list + place * (width / 4u) + select(0u, i & 1u, width == 8u)];
        }
    }
    return v;
}

// Moves the 16,384 bytes from `first` of a unit that begins at `planes`, where all bytes belong to moved elements. A
// constant `width` avoids divisions.
fn move_piece(local_index: u32, planes: u32, width: u32, first: u32, elements: u32, next: u32, changes: bool) {
    for (var k = 0u; k < 4u; k++) {
        let at = first + 16u * (k * 256u + local_index);
        var v = moved(planes, width, at / width, elements);
        if changes {
            v = undone_words(next, v, 16u);
        }
        after[planes / 4u + at / 16u] = v;
    }
}

// `count` workgroups for each block, each for 16,384 bytes. A work item handles 16 bytes at a time.
// @pz_entry
fn unshuffle(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let undo = block * JOB_WORDS + JOB_UNDO + args.stage;
    let word = jobs[undo];
    var next = 0u;
    if args.stage < 2u {
        next = jobs[undo + 1u];
    }
    let of_bits = filter_id(word) == FILTER_BIT_TRANSPOSE;
    let moves = of_bits || filter_id(word) == FILTER_TRANSPOSE;
    let changes = is_undone_while_moving(word, next);
    let width = select(filter_bytes(word), filter_width(word), of_bits);
    let is_usual = !of_bits && moves && (width == 2u || width == 4u || width == 8u);
    let content_len = min(jobs[block * JOB_WORDS], args.slot);
    let unit_log = clamp(jobs[block * JOB_WORDS + JOB_UNIT_LOG], 18u, 20u);
    let begin = workgroup_index % args.count * 16384u;
    if begin >= content_len {
        return;
    }
    let unit = (begin >> unit_log) << unit_log;
    let len = min(content_len - unit, 1u << unit_log);
    let first = begin - unit;
    let planes = block * (args.slot / 4u) + unit / 4u;
    // Elements; if bits move, a multiple of eight.
    let elements = select(len / width, len / (8u * width) * 8u, of_bits);
    // All workgroups of a unit except the last take this way.
    if is_usual && first + 16384u <= elements * width {
        if width == 2u {
            move_piece(local_index, planes, 2u, first, elements, next, changes);
        } else if width == 4u {
            move_piece(local_index, planes, 4u, first, elements, next, changes);
        } else {
            move_piece(local_index, planes, 8u, first, elements, next, changes);
        }
        return;
    }
    for (var k = 0u; k < 4u; k++) {
        let at = first + 16u * (k * 256u + local_index);
        if at >= len {
            return;
        }
        var v: vec4<u32>;
        if filter_id(word) == FILTER_MODULE {
            v = vec4<u32>(0u);
        } else if filter_id(word) == FILTER_DICTIONARY && len >= MIN_LISTED {
            v = looked_up(planes, at, len, word);
        } else if !moves {
            let w = planes + at / 4u;
            v = vec4<u32>(before[w], before[w + 1u], before[w + 2u], before[w + 3u]);
        } else if is_usual && at + 16u <= elements * width {
            v = moved(planes, width, at / width, elements);
        } else {
            for (var b = 0u; b < 4u; b++) {
                v[b] = gathered(planes, at + 4u * b, len, of_bits, width, elements);
            }
        }
        if changes {
            v = undone_words(next, v, len - at);
        }
        after[planes / 4u + at / 16u] = v;
    }
}
