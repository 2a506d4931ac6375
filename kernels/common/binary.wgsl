// Decodes binary coded numbers, for one work item. A model is a word: fast | slow << 16. The importing file has the
// models in `state`, in workgroup memory, and the bytes in `payload`.

const MODEL_NEW = 0x80008000u;
const NUMBER_MODELS = 61u; // length[0..30], high[1..31]

var<private> payload_at: u32;   // the payload, in words
var<private> end_at: u32;       // zeros follow from this byte on
var<private> code_range: u32;
var<private> code: u32;
var<private> ahead_high: u32;   // the next bytes, the first on top
var<private> ahead_low: u32;
var<private> ahead_held: u32;   // number of bits of them, more than 32
var<private> ahead_coming: u32; // the next word, loaded long before it is needed
var<private> ahead_loaded: u32; // words of the payload loaded so far

fn binary_word() -> u32 {
    let at = 4u * ahead_loaded;
    var word = 0u;
    if at < end_at {
        word = payload[payload_at + ahead_loaded];
        if end_at - at < 4u {
            word &= (1u << (8u * (end_at - at))) - 1u;
        }
    }
    ahead_loaded += 1u;
    return (word << 24u) | ((word << 8u) & 0xff0000u) | ((word >> 8u) & 0xff00u) | (word >> 24u);
}

// Removes the first 0 to 31 bits.
fn ahead_shift(bits: u32) {
    ahead_high = (ahead_high << bits) | ((ahead_low >> 1u) >> (31u - bits));
    ahead_low <<= bits;
}

// Continues at byte `at` of the payload, whose end is `end`.
fn binary_open(at: u32, end: u32) {
    end_at = end;
    ahead_loaded = at >> 2u;
    ahead_high = binary_word();
    ahead_low = binary_word();
    ahead_shift(8u * (at & 3u));
    ahead_held = 64u - 8u * (at & 3u);
    ahead_coming = binary_word();
}

// The index of the next byte.
fn binary_at() -> u32 {
    return 4u * (ahead_loaded - 1u) - ahead_held / 8u;
}

// After bytes are taken, adds the next word if there is room.
fn binary_fill() {
    if ahead_held <= 32u {
        let room = 32u - ahead_held;
        ahead_high |= (ahead_coming >> 1u) >> (31u - room);
        ahead_low = ahead_coming << room;
        ahead_held += 32u;
        ahead_coming = binary_word();
    }
}

fn binary_start() {
    code_range = 0xffffffffu;
    code = ahead_high;
    ahead_high = ahead_low;
    ahead_low = 0u;
    ahead_held -= 32u;
    binary_fill();
}

fn normalise() {
    let bits = select(0u, 8u, code_range < 0x1000000u) + select(0u, 8u, code_range < 0x10000u);
    code_range <<= bits;
    code = (code << bits) | ((ahead_high >> 1u) >> (31u - bits));
    ahead_shift(bits);
    ahead_held -= bits;
    binary_fill();
}

fn binary_bit(model: u32) -> u32 {
    let both = state[model];
    let bound = (code_range >> 16u) * (((both & 0xffffu) + (both >> 16u)) >> 1u);
    let bit = code >= bound;
    code -= select(0u, bound, bit);
    code_range = select(bound, code_range - bound, bit);
    // A bit 1 moves `fast` by a 16th and `slow` by a 64th of their values towards 0; a bit 0 moves them likewise
    // towards 65535.
    let left = select(~both, both, bit);
    let step = ((left >> 4u) & 0xfffu) | ((left >> 6u) & 0x3ff0000u);
    state[model] = select(both + step, both - step, bit);
    // A model stays between 39 and 65496, so a range of at least 2^24 shrinks to more than 2^13 at worst, and two bytes
    // refill it.
    normalise();
    return select(0u, 1u, bit);
}

fn binary_raw(count: u32) -> u32 {
    var value = 0u;
    for (var i = 0u; i < count; i++) {
        code_range >>= 1u;
        let bit = code >= code_range;
        code -= select(0u, code_range, bit);
        value = (value << 1u) | select(0u, 1u, bit);
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
