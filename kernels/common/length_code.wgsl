// The prefix codes that describe code lengths: see src/format/lz77.md.
//
// The workgroup builds a table of 25 codes with 128 entries each before it uses them. The kernel declares `payload`.
const LENGTH_CODES: u32 = 25u;
const LENGTH_SYMBOLS: u32 = 13u;

// Bits of each length in each code, three bits for each: ten lengths in the first word, three in the second. 0: the
// length is not in the code.
const LENGTH_CODE_BITS = array<vec2<u32>, 25>(
    vec2(0x24b2cbb0u, 0x0d2u), vec2(0x2dbaefb9u, 0x11bu), vec2(0x3ffab759u, 0x1ffu), vec2(0x3ffa4494u, 0x1ffu),
    vec2(0x3eb8c72bu, 0x1ffu), vec2(0x3ead992eu, 0x1ffu), vec2(0x2fd615fcu, 0x1ffu), vec2(0x2c9217fdu, 0x1fdu),
    vec2(0x3e9197fcu, 0x1ffu), vec2(0x36ccadfeu, 0x1feu), vec2(0x35892dfcu, 0x1fdu), vec2(0x2d854ffeu, 0x1ffu),
    vec2(0x2c65dffcu, 0x1f6u), vec2(0x2349dffdu, 0x1ecu), vec2(0x23325ffdu, 0x1ecu), vec2(0x1a4e5ffdu, 0x1ecu),
    vec2(0x1992edfcu, 0x1acu), vec2(0x1376fffcu, 0x162u), vec2(0x0cb77ffbu, 0x1a3u), vec2(0x1cbb7ffcu, 0x159u),
    vec2(0x1dbffffbu, 0x199u), vec2(0x25bb7ffbu, 0x10bu), vec2(0x2ddffffau, 0x10cu), vec2(0x25bb7ffbu, 0x05cu),
    vec2(0x2edb7ffau, 0x064u),
);

// Four entries to a word.
const LENGTH_CODE_WORDS: u32 = 800u;
var<workgroup> length_codes: array<atomic<u32>, LENGTH_CODE_WORDS>;

fn length_code_bits(row: vec2<u32>, length: u32) -> u32 {
    let word = select(row.x, row.y, length >= 10u);
    return (word >> (3u * select(length, length - 10u, length >= 10u))) & 7u;
}

// All work items of the workgroup call this, and then need a barrier.
fn length_code_build(index: u32) {
    for (var i = index; i < LENGTH_CODE_WORDS; i += THREADS) {
        atomicStore(&length_codes[i], 0u);
    }
    workgroupBarrier();
    for (var i = index; i < LENGTH_CODES * LENGTH_SYMBOLS; i += THREADS) {
        let row = LENGTH_CODE_BITS[i / LENGTH_SYMBOLS];
        let length = i % LENGTH_SYMBOLS;
        let bits = length_code_bits(row, length);
        if bits == 0u {
            continue;
        }
        // In a canonical code, shorter codes come first, and among codes of equal length the smaller values.
        var place = i / LENGTH_SYMBOLS * 128u;
        for (var other = 0u; other < LENGTH_SYMBOLS; other++) {
            let b = length_code_bits(row, other);
            let is_before = b != 0u && (b < bits || (b == bits && other < length));
            place += select(0u, 128u >> b, is_before);
        }
        let entry = length << 3u | bits;
        if bits <= 5u {
            for (var j = 0u; j < (32u >> bits); j++) {
                atomicStore(&length_codes[(place >> 2u) + j], entry * 0x01010101u);
            }
        } else {
            let two = select(entry, entry * 0x0101u, bits == 6u);
            atomicOr(&length_codes[place >> 2u], two << (8u * (place & 3u)));
        }
    }
}

// The entry for the first of 32 bits in a code: `length << 3 | bits`.
fn length_code_entry(code: u32, bits: u32) -> u32 {
    let place = code * 128u + (bits >> 25u);
    return (atomicLoad(&length_codes[place >> 2u]) >> (8u * (place & 3u))) & 255u;
}

// Reads the bits of a description on one lane, from the top of each byte down.
var<private> description_first: u32;    // its first word in `payload`
var<private> description_count: u32;    // number of words
var<private> description_index: u32;    // of the word in the first of the next
var<private> description_words: vec3<u32>; // with the first byte on top; 0 after the last
var<private> description_position: u32; // in bits

fn description_word(i: u32) -> u32 {
    if i >= description_count {
        return 0u;
    }
    let v = payload[description_first + i];
    return v << 24u | (v & 0xff00u) << 8u | ((v >> 8u) & 0xff00u) | v >> 24u;
}

fn description_start(first: u32, count: u32) {
    description_first = first;
    description_count = count;
    description_index = 0u;
    description_position = 0u;
    description_words = vec3(description_word(0u), description_word(1u), description_word(2u));
}

// The next 32 bits; 0 where there are none.
fn description_peek() -> u32 {
    let used = description_position & 31u;
    let w = description_words;
    return w.x << used | (w.y >> 1u) >> (31u - used);
}

// Takes at most 32 bits.
fn description_skip(count: u32) {
    description_position += count;
    if description_position >> 5u != description_index {
        description_index++;
        let next = description_word(description_index + 2u);
        description_words = vec3(description_words.y, description_words.z, next);
    }
}

fn description_read(count: u32) -> u32 {
    let v = select((description_peek() >> 1u) >> ((31u - count) & 31u), 0u, count == 0u);
    description_skip(count);
    return v;
}

fn description_is_short() -> bool {
    return description_position > 32u * description_count;
}
