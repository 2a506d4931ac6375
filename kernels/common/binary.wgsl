// Decoder of binary coded numbers, for one work item. Models are words: fast | slow << 16. The importing file has them
// in `state`, in workgroup memory, and the bytes in `payload`.

const MODEL_NEW = 0x80008000u;
const NUMBER_MODELS = 61u; // length[0..30], high[1..31]

var<private> payload_at: u32;  // the payload, in words
var<private> next_at: u32;     // the next byte
var<private> end_at: u32;      // from here on there are zeros
var<private> code_range: u32;
var<private> code: u32;

fn byte_of(at: u32) -> u32 {
    return (payload[payload_at + (at >> 2u)] >> (8u * (at & 3u))) & 255u;
}

fn next_byte() -> u32 {
    var byte = 0u;
    if next_at < end_at {
        byte = byte_of(next_at);
        next_at += 1u;
    }
    return byte;
}

fn binary_start() {
    code_range = 0xffffffffu;
    code = 0u;
    for (var i = 0u; i < 4u; i++) {
        code = (code << 8u) | next_byte();
    }
}

fn normalise() {
    if code_range < 0x1000000u {
        code_range <<= 8u;
        code = (code << 8u) | next_byte();
    }
}

fn binary_bit(model: u32) -> u32 {
    var fast = state[model] & 0xffffu;
    var slow = state[model] >> 16u;
    let bound = (code_range >> 16u) * ((fast + slow) >> 1u);
    let bit = select(0u, 1u, code >= bound);
    if bit != 0u {
        code -= bound;
        code_range -= bound;
        fast -= fast >> 4u;
        slow -= slow >> 6u;
    } else {
        code_range = bound;
        fast += (65535u - fast) >> 4u;
        slow += (65535u - slow) >> 6u;
    }
    state[model] = fast | (slow << 16u);
    // A model stays within 39 and 65496, so what is left of a range from 2^24 is more than 2^13: two steps do.
    normalise();
    normalise();
    return bit;
}

fn binary_raw(count: u32) -> u32 {
    var value = 0u;
    for (var i = 0u; i < count; i++) {
        code_range >>= 1u;
        let bit = select(0u, 1u, code >= code_range);
        if bit != 0u {
            code -= code_range;
        }
        value = (value << 1u) | bit;
        normalise();
    }
    return value;
}

fn binary_number(models: u32) -> u32 {
    var length = 0u;
    while length < 30u {
        if binary_bit(models + length) == 0u {
            break;
        }
        length += 1u;
    }
    if length == 0u {
        return 0u;
    }
    let high = binary_bit(models + 30u + length);
    let low = binary_raw(length - 1u);
    return (((2u | high) << (length - 1u)) | low) - 1u;
}
