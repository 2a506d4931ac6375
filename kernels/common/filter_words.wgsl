// Undoes the filters that change each element by itself: rotation and zigzag, including zigzag after differences.
//
// @pz_import filter

fn undoes_zigzag(word: u32) -> bool {
    return filter_id(word) == FILTER_ZIGZAG || filter_has_zigzag(word);
}

fn changes_words(word: u32) -> bool {
    return undoes_zigzag(word) || filter_id(word) == FILTER_ROTATE;
}

// Whether the kernel that undoes the transposition `moved` also undoes stage `word`, while elements are in registers.
fn is_undone_while_moving(moved: u32, word: u32) -> bool {
    return filter_id(moved) == FILTER_TRANSPOSE && changes_words(word) && filter_bytes(moved) == filter_width(word);
}

// An element of 64 bits.
fn undone_long(is_zigzag: bool, v: vec2<u32>, by: u32) -> vec2<u32> {
    if is_zigzag {
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

// The undone elements of 16 bytes, of which the first `valid` exist. An incomplete last element stays as it is.
fn undone_words(word: u32, v: vec4<u32>, valid: u32) -> vec4<u32> {
    let is_zigzag = undoes_zigzag(word);
    let width = filter_width(word);
    let bits = 8u * width;
    let by = filter_parameter(word) & (bits - 1u);
    var changed: vec4<u32>;
    if width == 8u {
        changed = vec4<u32>(undone_long(is_zigzag, v.xy, by), undone_long(is_zigzag, v.zw, by));
    } else {
        // All elements of a word at once: `ones` has a 1 in each.
        let full = 0xffffffffu >> (32u - bits);
        let ones = 0xffffffffu / full;
        if is_zigzag {
            changed = ((v >> vec4<u32>(1u)) & vec4<u32>(~(ones << (bits - 1u)))) ^ ((v & vec4<u32>(ones)) * full);
        } else {
            let low = vec4<u32>((full >> by) * ones);
            changed = ((v >> vec4<u32>(by)) & low) | ((v << vec4<u32>((bits - by) & 31u)) & ~low);
        }
    }
    if valid >= 16u {
        return changed;
    }
    let end = valid / width * width;
    let starts = vec4<u32>(0u, 4u, 8u, 12u);
    let bytes = min(max(vec4<u32>(end), starts) - starts, vec4<u32>(4u));
    let part = (vec4<u32>(1u) << ((8u * bytes) & vec4<u32>(31u))) - 1u;
    let mask = select(part, vec4<u32>(0xffffffffu), bytes == vec4<u32>(4u));
    return (changed & mask) | (v & ~mask);
}
