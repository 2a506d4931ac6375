// Changes the targets in calls of programs from distances to absolute places, or back.
//
// @pz_import filter

// Bytes of a page. Pages are independent of each other.
const CALLS_PAGE = 1024u;

// Four words of a page, and the next one.
struct Calls {
    words: array<u32, 5>,
    // How many of the next bytes belong to an earlier instruction.
    busy: u32,
}

// Adds `by` to a number, or subtracts it.
fn moved_number(number: u32, by: u32, forward: bool) -> u32 {
    return select(number - by, number + by, forward);
}

// Changes the 16 bytes at `at` of a unit, whose page ends at `end`.
fn change_calls(c: ptr<function, Calls>, at: u32, end: u32, word: u32, forward: bool) {
    let is_arm = filter_width(word) == 4u;
    for (var k = 0u; k < 4u; k++) {
        let v = (*c).words[k];
        if is_arm {
            let number = moved_number(v, at / 4u + k, forward) & 0x03ffffffu;
            if (v >> 26u) == 0x25u && at + 4u * k + 4u <= end {
                (*c).words[k] = (v & 0xfc000000u) | number;
            }
            continue;
        }
        // Most words have no opcode.
        let other = (v & 0xfefefefeu) ^ 0xe8e8e8e8u;
        if ((other - 0x01010101u) & ~other & 0x80808080u) == 0u {
            (*c).busy = max((*c).busy, 4u) - 4u;
            continue;
        }
        for (var b = 0u; b < 4u; b++) {
            if (*c).busy != 0u {
                (*c).busy -= 1u;
                continue;
            }
            let first = (*c).words[k];
            let second = (*c).words[k + 1u];
            let place = at + 4u * k + b + 5u;
            let shift = 8u * b;
            let sign = (second >> shift) & 255u;
            if ((first >> shift) & 254u) != 0xe8u {
                continue;
            }
            if ((sign + 1u) & 255u) > 1u || place > end {
                // Skip three bytes: if the filter changed one of them, it might look like an instruction.
                (*c).busy = 3u;
                continue;
            }
            var number = second;
            if b < 3u {
                number = (first >> (shift + 8u)) | (second << (24u - shift));
            }
            // The sign fills all bits from the 24th on.
            number = bitcast<u32>(bitcast<i32>(moved_number(number, place, forward) << 7u) >> 7u);
            if b < 3u {
                let kept = 0xffffffffu << (shift + 8u);
                (*c).words[k] = (first & ~kept) | (number << (shift + 8u));
                (*c).words[k + 1u] = (second & kept) | (number >> (24u - shift));
            } else {
                (*c).words[k + 1u] = number;
            }
            (*c).busy = 4u;
        }
    }
}
