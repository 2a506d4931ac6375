// Writes the words of chunks' streams, in rows of 32 lanes. The rule of the format: before a row, each lane that the
// decoder will find with fewer than 32 bits gets the next word of the stream. A team has a chunk.
//
// @pz_cost {
//   threads: N/131072*64
//   passes: 1
//   buffers: jobs=32, contents=N, payload=N+256, matches=N*3, lz77_models=N/65536*16512,
//            lz77_tokens=N+N/4+N/16+N/64+N/64+256, lz77_offsets=N+N/4+N/16+N/64+N/64+256, lz77_streams=N/65536*1024,
//            lz77_words=N+N/2+N/4+N/64+1024
//   local_mem: 4608
// }
// @pz_import team
// @pz_import lz77_code

struct Args {
    blocks: u32,
    slot: u32,
    chunk_log: u32,
    chunks_per_block: u32,
    literal_stride: u32,
    group_log: u32,
    sequence_stride: u32,
    chunk_stride: u32,
    model_stride: u32,
    word_stride: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> models: array<u32>;
@group(0) @binding(2) var<storage, read> literals: array<u32>;
// @pz_if FSE
@group(0) @binding(3) var<storage, read> literal_codes: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> tokens: array<u32>;
@group(0) @binding(5) var<storage, read> offsets: array<u32>;
@group(0) @binding(6) var<storage, read_write> chunks: array<u32>;
@group(0) @binding(7) var<storage, read_write> words: array<u32>;
// @pz_else
@group(0) @binding(3) var<storage, read> tokens: array<u32>;
@group(0) @binding(4) var<storage, read> offsets: array<u32>;
@group(0) @binding(5) var<storage, read_write> chunks: array<u32>;
@group(0) @binding(6) var<storage, read_write> words: array<u32>;
// @pz_end

var<workgroup> codes: array<u32, 256>;
var<workgroup> token_codes: array<u32, 256>;
var<workgroup> offset_codes: array<u32, 64>;

// A lane's part of a stream.
var<private> partial: u32;    // its unfinished word, filled from the top
var<private> filled: u32;     // bits of that
var<private> place: u32;      // where it goes
var<private> next_place: u32; // and the next word's place, if `is_ahead`
var<private> is_ahead: bool;
var<private> stream_end: u32; // the end of this lane's last word that is not 0
var<private> total: u32;      // words that the decoder has taken, all lanes together
// Where the chunk's words begin, and the room for them, in words.
var<private> words_at: u32;
var<private> room: u32;

// Writes the upper `len` bits of `bits`; the other bits are 0.
fn write_row(bits: u32, len: u32) {
    let takes = filled > 0u && !is_ahead;
    let takers = team_ballot(takes);
    if takes {
        next_place = total + countOneBits(takers & team_before());
        is_ahead = true;
    }
    total += countOneBits(takers);
    var word = partial | bits >> filled;
    let sum = filled + len;
    if sum > 31u {
        if place < room {
            words[words_at + place] = word;
        }
        if word != 0u {
            stream_end = max(stream_end, place + 1u);
        }
        // Keep the bits that did not fit. Less than a word was free.
        word = bits << (32u - filled);
        place = next_place;
        is_ahead = false;
    }
    partial = word;
    filled = sum & 31u;
}

// Writes a symbol's code and its extra bits.
fn write_coded(code: u32, bits: u32, extra: u32, is_active: bool) {
    let len = code & 31u;
    let all = (code - len) | extra << ((32u - len - bits) & 31u);
    write_row(select(0u, all, is_active), select(0u, len + bits, is_active));
}

// Turns a code that is stored as 1 << count | bits into bits from the top down | count.
fn marked_code(x: u32) -> u32 {
    let count = log2_floor(x);
    return (x - (1u << count)) << ((32u - count) & 31u) | count;
}

// `is_coded` tells whether the symbol's code is stored with it.
fn write_token(token: u32, is_coded: bool, is_active: bool) {
    let count = token & 511u;
    let length = token >> 9u & 1023u;
    let extra = token_extra(count, length);
    var code = 0u;
    if is_coded {
        code = marked_code(max(token >> 19u, 1u));
    } else {
        code = token_codes[token_symbol(count, length) & 255u];
    }
    write_coded(code, extra.x, extra.y, is_active);
}

fn write_offset(offset: u32, is_coded: bool, is_active: bool) {
    var code = 0u;
    var bits = 0u;
    var extra = 0u;
    if is_coded {
        let marked = max(offset & 0x7fffffu, 1u);
        bits = log2_floor(marked);
        extra = marked - (1u << bits);
        code = marked_code(max(offset >> 23u, 1u));
    } else {
        code = offset_codes[offset & 63u];
        bits = offset_bits(offset & 63u);
        extra = offset >> 6u;
    }
    write_coded(code, bits, extra, is_active);
}

// The place of a chunk's literals or of their codes.
struct Source {
    is_coded: bool,
    rows: u32,
    shift: u32,
    last: u32,
    literals_at: u32,
    codes_at: u32,
}

// A lane's input from a row of literals: their codes; or their word, and the previous word for the shift. After the
// last row it is 0.
fn load_row(source: Source, row: u32) -> vec2<u32> {
    let at = 32u * row + lane;
    var v = vec2(0u);
    if row < source.rows {
        var is_done = false;
// @pz_if FSE
        if source.is_coded {
            v = literal_codes[source.codes_at + at];
            is_done = true;
        }
// @pz_end
        if !is_done {
            v.x = literals[source.literals_at + at];
            if source.shift != 0u && at > 0u {
                v.y = literals[source.literals_at + at - 1u];
            }
        }
    }
    return v;
}

// The code of a literal, if the literal belongs to the chunk.
fn literal_code(source: Source, symbol: u32, at: u32) -> u32 {
    return select(0u, codes[symbol & 255u], at >= source.shift && at < source.last);
}

fn write_literals(source: Source, row: u32, v: vec2<u32>) {
    var len = v & vec2(31u);
    var bits = v - len;
    if !source.is_coded {
        let symbols = v.x << (8u * source.shift) | v.y >> 1u >> (31u - 8u * source.shift);
        let at = (32u * row + lane) << 2u;
        let a = literal_code(source, symbols, at);
        let b = literal_code(source, symbols >> 8u, at + 1u);
        let c = literal_code(source, symbols >> 16u, at + 2u);
        let d = literal_code(source, symbols >> 24u, at + 3u);
        let first = vec2(a, c);
        let second = vec2(b, d);
        let first_len = first & vec2(31u);
        let second_len = second & vec2(31u);
        len = first_len + second_len;
        bits = (first - first_len) | (second - second_len) >> first_len;
    }
    write_row(bits.x, len.x);
    write_row(bits.y, len.y);
}

// @pz_entry
fn write_words(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let at = workgroup_index;
    let chunk = at % args.chunks_per_block;
    let block = at / args.chunks_per_block;
    if block >= args.blocks {
        return;
    }
    let begin = chunk << args.chunk_log;
    let end = team_uniform(min(min(jobs[8u * block], args.slot), begin + (1u << args.chunk_log)));
    if begin >= end {
        return;
    }
    let chunk_at = block * args.chunk_stride + chunk * CHUNK_WORDS;
    let model = block * args.model_stride + (chunk >> args.group_log) * 3u * MODEL_WORDS;
    let token_model = model + MODEL_WORDS;
    let offset_model = model + 2u * MODEL_WORDS;
    words_at = block * args.word_stride + chunk * stream_room(1u << args.chunk_log);
    room = stream_room(end - begin);
    for (var i = lane; i < 256u; i += 32u) {
        codes[i] = models[model + MODEL_CODES + i];
        token_codes[i] = models[token_model + MODEL_CODES + i];
    }
    for (var i = lane; i < 64u; i += 32u) {
        offset_codes[i] = models[offset_model + MODEL_CODES + i];
    }
    team_sync();

    partial = 0u;
    filled = 0u;
    place = lane;
    next_place = 0u;
    is_ahead = false;
    stream_end = 0u;
    total = 32u;
    // An empty row after these rows changes nothing, because sequences follow. So no row needs a condition.
    let literal_count = team_uniform(chunks[chunk_at + CHUNK_LITERALS]);
    let shift = (end - begin - literal_count) & 3u;
    let last = literal_count + shift;
    let rows = select(0u, (last + 127u) >> 7u, literal_count > 0u);
// @pz_if FSE
    var log = 0u;
    var state = 0u;
    if literal_count > 0u {
        log = models[model + MODEL_LOG];
    }
    if log > 0u {
        state = chunks[chunk_at + CHUNK_STATES + lane];
    }
    write_row(state << ((32u - log) & 31u), log);
// @pz_end
    let codes_at = (block * args.slot + begin) >> 2u;
    let literals_at = block * args.literal_stride + (begin >> 2u);
    var is_coded = false;
// @pz_if FSE
    is_coded = log > 0u;
// @pz_end
    // Load the inputs of rows ahead: a team mostly waits for memory.
    let first = Source(is_coded, rows, shift, last, literals_at, codes_at);
    var a = load_row(first, 0u);
    var b = load_row(first, 1u);
    for (var row = 0u; row < rows; row += 2u) {
        let now_a = a;
        let now_b = b;
        a = load_row(first, row + 2u);
        b = load_row(first, row + 3u);
        write_literals(first, row, now_a);
        write_literals(first, row + 1u, now_b);
    }

    let n = team_uniform(chunks[chunk_at + CHUNK_SEQUENCES]);
    var coded_tokens = false;
    var coded_offsets = false;
// @pz_if FSE
    let token_log = models[token_model + MODEL_LOG];
    let offset_log = models[offset_model + MODEL_LOG];
    coded_tokens = token_log > 0u;
    coded_offsets = offset_log > 0u;
    var states = 0u;
    if coded_tokens {
        states = chunks[chunk_at + CHUNK_STATES + 32u + lane] << offset_log;
    }
    if coded_offsets {
        states |= chunks[chunk_at + CHUNK_STATES + 64u + lane];
    }
    write_row(states << ((32u - token_log - offset_log) & 31u), token_log + offset_log);
// @pz_end
    let sequences_at = block * args.sequence_stride + chunk * sequence_room(1u << args.chunk_log);
    // Even sequences of each batch, then odd ones.
    let steps = 2u * ((n + 63u) >> 6u);
    for (var step = 0u; step < steps; step++) {
        let i = 64u * (step >> 1u) + 2u * lane + (step & 1u);
        var token = 0u;
        var offset = 0u;
        if i < n {
            token = tokens[sequences_at + i];
            offset = offsets[sequences_at + i];
        }
        write_token(token, coded_tokens, i < n);
        write_offset(offset, coded_offsets, i < n);
    }
    // Finish the words that the decoder takes, even empty ones.
    if place < room {
        words[words_at + place] = partial;
    }
    if partial != 0u {
        stream_end = max(stream_end, place + 1u);
    }
    if is_ahead && next_place < room {
        words[words_at + next_place] = 0u;
    }
    let stream = min(team_max(stream_end), room);
    if lane == 0u {
        chunks[chunk_at + CHUNK_STREAM] = stream;
    }
}
