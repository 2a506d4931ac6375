// Applies a stage of filters, from one buffer to another, and with it zigzag or rotation before a transposition, and
// zigzag after differences. Calls of programs get absolute targets. Blocks without such a stage are copied.
//
// @pz_cost {
//   threads: N/16384*256
//   passes: 3
//   buffers: jobs=32, contents=N, filtered=N, payload=N+256
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
@group(0) @binding(1) var<storage, read> before: array<u32>;
@group(0) @binding(2) var<storage, read_write> after: array<vec4<u32>>;

// Further changes of elements: bits of the stage's word beside its order.
fn has_zigzag(word: u32) -> bool {
    return (word & 64u) != 0u;
}

fn has_rotation(word: u32) -> bool {
    return (word & 128u) != 0u;
}

// Zigzag, or rotation to the left by `by`, of the elements of two words.
fn changed(is_zigzag: bool, width: u32, by: u32, v: vec2<u32>) -> vec2<u32> {
    let bits = 8u * width;
    let turn = by & (bits - 1u);
    if width == 8u {
        if is_zigzag {
            let sign = 0u - (v.y >> 31u);
            return vec2<u32>((v.x << 1u) ^ sign, ((v.y << 1u) | (v.x >> 31u)) ^ sign);
        }
        let turned = select(v, v.yx, turn >= 32u);
        let rest = turn & 31u;
        if rest == 0u {
            return turned;
        }
        return (turned << vec2<u32>(rest)) | (turned.yx >> vec2<u32>(32u - rest));
    }
    // `ones` has a 1 in each element.
    let full = 0xffffffffu >> (32u - bits);
    let ones = 0xffffffffu / full;
    if is_zigzag {
        return ((v << vec2<u32>(1u)) & vec2<u32>(~ones)) ^ (((v >> vec2<u32>(bits - 1u)) & vec2<u32>(ones)) * full);
    }
    let low = vec2<u32>(((1u << turn) - 1u) * ones);
    return ((v << vec2<u32>(turn)) & ~low) | ((v >> vec2<u32>((bits - turn) & 31u)) & low);
}

// Four bytes from byte `at` of a unit, which lie before a word that exists; 0 for those before the unit. The unit
// begins at word `unit`.
fn word_before(unit: u32, at: i32) -> u32 {
    if at <= -4 {
        return 0u;
    }
    if at < 0 {
        return before[unit] << (8u * u32(-at));
    }
    let shift = 8u * (u32(at) & 3u);
    let low = before[unit + u32(at) / 4u];
    if shift == 0u {
        return low;
    }
    return (low >> shift) | (before[unit + u32(at) / 4u + 1u] << (32u - shift));
}

fn pair_before(unit: u32, at: i32) -> vec2<u32> {
    return vec2<u32>(word_before(unit, at), word_before(unit, at + 4));
}

// Subtracts `low` and `high` from the elements of two words, or combines them by exclusive or.
fn subtracted(v: vec2<u32>, other: vec2<u32>, is_xor: bool, width: u32) -> vec2<u32> {
    if is_xor {
        return v ^ other;
    }
    if width == 8u {
        return vec2<u32>(v.x - other.x, v.y - other.y - select(0u, 1u, v.x < other.x));
    }
    let bits = 8u * width;
    let top = vec2<u32>((0xffffffffu / (0xffffffffu >> (32u - bits))) << (bits - 1u));
    return ((v | top) - (other & ~top)) ^ ((v ^ ~other) & top);
}

// 8 bytes from byte `at` of a unit of `len` bytes, whose elements stay in their places.
fn in_place(unit: u32, at: u32, len: u32, word: u32) -> vec2<u32> {
    let id = filter_id(word);
    let width = filter_width(word);
    let w = unit + at / 4u;
    let old = vec2<u32>(before[w], before[w + 1u]);
    var v = old;
    let is_xor = id == FILTER_XOR;
    if is_xor || id == FILTER_DELTA {
        let by = i32(width * max(filter_parameter(word), 1u));
        let other_at = i32(at) - by;
        var other = pair_before(unit, other_at);
        v = subtracted(v, other, is_xor, width);
        if !is_xor && (filter_order(word) & 3u) == 2u {
            other = subtracted(other, pair_before(unit, other_at - by), false, width);
            v = subtracted(v, other, false, width);
        }
    }
    let is_zigzag = id == FILTER_ZIGZAG || (id == FILTER_DELTA && has_zigzag(word));
    if is_zigzag || id == FILTER_ROTATE {
        v = changed(is_zigzag, width, filter_parameter(word), v);
    }
    // An incomplete last element stays as it is.
    let starts = vec2<u32>(at, at + 4u);
    let bytes = min(max(vec2<u32>(len / width * width), starts) - starts, vec2<u32>(4u));
    let part = (vec2<u32>(1u) << ((8u * bytes) & vec2<u32>(31u))) - 1u;
    let mask = select(part, vec2<u32>(0xffffffffu), bytes == vec2<u32>(4u));
    return (v & mask) | (old & ~mask);
}

fn byte_at(unit: u32, at: u32) -> u32 {
    return (before[unit + at / 4u] >> (8u * (at & 3u))) & 255u;
}

// Byte `part` of element `element`, changed as the pass does before the move.
fn byte_of(unit: u32, element: u32, part: u32, width: u32, word: u32) -> u32 {
    if !has_zigzag(word) && !has_rotation(word) {
        return byte_at(unit, element * width + part);
    }
    var v = vec2<u32>(0u);
    for (var b = 0u; b < min(width, 8u); b++) {
        v[b / 4u] |= byte_at(unit, element * width + b) << (8u * (b & 3u));
    }
    v = changed(has_zigzag(word), width, filter_parameter(word), v);
    return (v[(part / 4u) & 1u] >> (8u * (part & 3u))) & 255u;
}

// The four bytes from `at` of a unit of `len` bytes after the move, one by one: planes of `elements` bytes, or bits.
// Bytes after the planes stay in place.
fn gathered(unit: u32, at: u32, len: u32, word: u32, of_bits: bool, width: u32, elements: u32) -> u32 {
    var result = 0u;
    let plane_len = max(select(elements, elements / 8u, of_bits), 1u);
    for (var b = 0u; b < 4u; b++) {
        let to = at + b;
        if to >= len {
            break;
        }
        let plane = to / plane_len;
        let place = to % plane_len;
        var byte = 0u;
        if to >= elements * width {
            byte = byte_at(unit, to);
        } else if of_bits {
            for (var bit = 0u; bit < 8u; bit++) {
                byte |= ((byte_at(unit, (8u * place + bit) * width + plane / 8u) >> (plane & 7u)) & 1u) << bit;
            }
        } else {
            byte = byte_of(unit, place, plane, width, word);
        }
        result |= byte << (8u * b);
    }
    return result;
}

// Byte `part` of each of four words.
fn parts_of(a: u32, b: u32, c: u32, d: u32, part: u32) -> u32 {
    let shift = 8u * part;
    return ((a >> shift) & 255u) | (((b >> shift) & 255u) << 8u) | (((c >> shift) & 255u) << 16u)
        | (((d >> shift) & 255u) << 24u);
}

// Bytes 0 and 2 of two words, in this order.
fn even(a: u32, b: u32) -> u32 {
    return (a & 255u) | ((a >> 8u) & 0xff00u) | ((b & 255u) << 16u) | ((b & 0xff0000u) << 8u);
}

// Moves 16 elements of 2, 4 or 8 bytes, which begin at word `begin`, to their planes; their place in the first plane is
// `to`.
fn move_elements(begin: u32, to: u32, width: u32, word: u32, plane_units: u32) {
    var words: array<u32, 32>;
    let changes = has_zigzag(word) || has_rotation(word);
    for (var i = 0u; i < 2u * width; i++) {
        var v = vec2<u32>(before[begin + 2u * i], before[begin + 2u * i + 1u]);
        if changes {
            v = changed(has_zigzag(word), width, filter_parameter(word), v);
        }
        words[2u * i] = v.x;
        words[2u * i + 1u] = v.y;
    }
    for (var plane = 0u; plane < width; plane++) {
        var planes: vec4<u32>;
        for (var i = 0u; i < 4u; i++) {
            if width == 2u {
                planes[i] = even(words[2u * i] >> (8u * plane), words[2u * i + 1u] >> (8u * plane));
            } else {
                // The words from one element to the next, and the first element's word with this part.
                let by = width / 4u;
                let at = 4u * by * i + plane / 4u;
                planes[i] = parts_of(words[at], words[at + by], words[at + 2u * by], words[at + 3u * by], plane & 3u);
            }
        }
        after[to + plane * plane_units] = planes;
    }
}

// Four words of a unit, which begins at word `unit`, from byte `at` on.
fn four_words(unit: u32, at: u32) -> vec4<u32> {
    let w = unit + at / 4u;
    return vec4<u32>(before[w], before[w + 1u], before[w + 2u], before[w + 3u]);
}

// Changes the calls of the page that begins at byte `first` of a unit of `len` bytes, on its way from word `unit` to
// place `to`.
fn change_page(unit: u32, to: u32, first: u32, len: u32, word: u32) {
    let end = min(len, first + CALLS_PAGE);
    let v = four_words(unit, first);
    var c = Calls(array<u32, 5>(v.x, v.y, v.z, v.w, 0u), 0u);
    for (var at = first; at < end; at += 16u) {
        let next = four_words(unit, select(at, at + 16u, at + 16u < end));
        c.words[4] = next.x;
        change_calls(&c, at, end, word, true);
        after[to + at / 16u] = vec4<u32>(c.words[0], c.words[1], c.words[2], c.words[3]);
        c.words = array<u32, 5>(c.words[4], next.y, next.z, next.w, 0u);
    }
}

// `count` workgroups for each block, each for 16,384 bytes.
// @pz_entry
fn forward(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let word = jobs[block * JOB_WORDS + JOB_UNDO + args.stage];
    let content_len = min(jobs[block * JOB_WORDS], args.slot);
    let unit_log = clamp(jobs[block * JOB_WORDS + JOB_UNIT_LOG], 18u, 20u);
    let in_block = workgroup_index % args.count * 16384u;
    if in_block >= content_len {
        return;
    }
    let unit = (in_block >> unit_log) << unit_log;
    let len = min(content_len - unit, 1u << unit_log);
    let first = in_block - unit;
    let source = block * (args.slot / 4u) + unit / 4u;
    let to = block * (args.slot / 16u) + unit / 16u;
    if filter_id(word) == FILTER_CALLS {
        // Sixteen pages.
        let at = first + local_index * CALLS_PAGE;
        if local_index < 16u && at < len {
            change_page(source, to, at, len, word);
        }
        return;
    }
    let of_bits = filter_id(word) == FILTER_BIT_TRANSPOSE;
    let moves = of_bits || filter_id(word) == FILTER_TRANSPOSE;
    let width = select(filter_bytes(word), filter_width(word), of_bits);
    // Elements; if bits move, a multiple of eight.
    let elements = select(len / width, len / (8u * width) * 8u, of_bits);
    // All workgroups of a unit take the same way.
    let is_usual = moves && !of_bits && (width == 2u || width == 4u || width == 8u);
    if is_usual && len % (16u * width) == 0u {
        let some = min(len - first, 16384u) / (16u * width);
        for (var i = local_index; i < some; i += 256u) {
            let begin = source + first / 4u + 4u * width * i;
            let place = to + first / 16u / width + i;
            // Calls with a constant width, so that words stay in registers.
            if width == 2u {
                move_elements(begin, place, 2u, word, elements / 16u);
            } else if width == 4u {
                move_elements(begin, place, 4u, word, elements / 16u);
            } else {
                move_elements(begin, place, 8u, word, elements / 16u);
            }
        }
        return;
    }
    for (var k = 0u; k < 4u; k++) {
        let at = first + 16u * (k * 256u + local_index);
        if at >= len {
            return;
        }
        var v: vec4<u32>;
        if moves {
            for (var i = 0u; i < 4u; i++) {
                v[i] = gathered(source, at + 4u * i, len, word, of_bits, width, elements);
            }
        } else {
            v = vec4<u32>(in_place(source, at, len, word), in_place(source, at + 8u, len, word));
        }
        after[to + at / 16u] = v;
    }
}
