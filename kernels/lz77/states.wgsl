// Codes the symbols of streams whose model is FSE, from the last to the first. A team codes the literals of a chunk
// (`literal_states`) or its sequences (`sequence_states`). For literals, the chunks of a workgroup belong to one group
// and share tables.
//
// The output for two literals of a lane's row goes to `matches`, which is free by now, in the order of rows: bits
// from the top down | number of bits. The output for a sequence is added to its words: a token gets 1 << count | bits
// from bit 19 on; an offset becomes 1 << k | extra bits, and 1 << count | bits from bit 23 on.
//
// @pz_cost {
//   threads: N/262144*128
//   passes: 2
//   buffers: jobs=32, contents=N, payload=N+256, matches=N*3, lz77_models=N/65536*16512,
//            lz77_tokens=N+N/4+N/16+N/64+N/64+256, lz77_offsets=N+N/4+N/16+N/64+N/64+256, lz77_streams=N/65536*1024
//   local_mem: 11776
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
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> models: array<u32>;
@group(0) @binding(4) var<storage, read_write> chunks: array<u32>;
// literal_states
@group(0) @binding(2) var<storage, read> literals: array<u32>;
@group(0) @binding(3) var<storage, read_write> literal_codes: array<vec2<u32>>;
// sequence_states
@group(0) @binding(2) var<storage, read_write> tokens: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> offsets: array<vec2<u32>>;

// Tables for literals, which all teams of a workgroup share, or for tokens. There are two states in a word.
var<workgroup> codes: array<u32, 256>;
var<workgroup> next: array<u32, 1024>;
var<workgroup> offset_codes: array<u32, 64>;
var<workgroup> offset_next: array<u32, 128>;

// Bits, and their number.
var<private> encoded: vec2<u32>;

// One step from `state` with a symbol's code: the index of the next state.
fn encode(code: u32, state: u32) -> u32 {
    let n = (state + (code & 0xfffffu)) >> 16u;
    encoded = vec2(state & ((1u << n) - 1u), n);
    return (state >> n) + bitcast<u32>(bitcast<i32>(code) >> 20u);
}

fn encode_main(symbol: u32, state: u32) -> u32 {
    let i = encode(codes[symbol & 255u], state);
    return next[i >> 1u & 1023u] >> (16u * (i & 1u)) & 0xffffu;
}

fn encode_offset(symbol: u32, state: u32) -> u32 {
    let i = encode(offset_codes[symbol], state);
    return offset_next[i >> 1u & 127u] >> (16u * (i & 1u)) & 0xffffu;
}

fn load_main(model: u32, first: u32, step: u32) {
    for (var i = first; i < 256u; i += step) {
        codes[i] = models[model + MODEL_CODES + i];
    }
    for (var i = first; i < 1024u; i += step) {
        next[i] = models[model + MODEL_NEXT + i];
    }
}

var<private> literal_state: u32;

// Codes two literals of a row. Coding runs backward, so the second one comes first.
fn encode_pair(two: u32) -> u32 {
    literal_state = encode_main(two >> 8u, literal_state);
    let second = encoded;
    literal_state = encode_main(two, literal_state);
    let n = second.y + encoded.y;
    return (second.x | encoded.x << second.y) << ((32u - n) & 31u) | n;
}

fn encode_row(symbols: u32) -> vec2<u32> {
    let second = encode_pair(symbols >> 16u);
    return vec2(encode_pair(symbols), second);
}

// The literals of a row: the word of the lane, shifted.
fn literal_word(at: u32, shift: u32, first: u32) -> u32 {
    var word = literals[first + at];
    if shift != 0u {
        var before = 0u;
        if at > 0u {
            before = literals[first + at - 1u];
        }
        word = word << (8u * shift) | before >> (32u - 8u * shift);
    }
    return word;
}

// Rows of literals to load ahead. A team mostly waits for memory.
const AHEAD = 4u;

fn literal_words(row: u32, shift: u32, first: u32) -> vec4<u32> {
    let at = 32u * (max(row, AHEAD) - AHEAD) + lane;
    return vec4(
        literal_word(at + 96u, shift, first), literal_word(at + 64u, shift, first),
        literal_word(at + 32u, shift, first), literal_word(at, shift, first),
    );
}

// The chunk of a team.
struct Task {
    exists: bool,
    begin: u32,
    end: u32,
    block: u32,
    chunk: u32,
    chunk_at: u32,
    model: u32,
}

fn find_task(block: u32, chunk: u32) -> Task {
    let begin = chunk << args.chunk_log;
    var end = 0u;
    if block < args.blocks {
        end = min(min(jobs[8u * block], args.slot), begin + (1u << args.chunk_log));
    }
    end = team_uniform(end);
    let model = block * args.model_stride + (chunk >> args.group_log) * 3u * MODEL_WORDS;
    return Task(begin < end, begin, end, block, chunk, block * args.chunk_stride + chunk * CHUNK_WORDS, model);
}

// @pz_entry
fn literal_states(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    // The chunks of a workgroup belong to one group.
    let per_block = (args.chunks_per_block + TEAMS - 1u) / TEAMS;
    let task = find_task(workgroup_index / per_block, workgroup_index % per_block * TEAMS + team_index);
    if workgroup_index / per_block < args.blocks {
        load_main(task.model, local_index, THREADS);
    }
    workgroupBarrier();
    let n = select(0u, chunks[task.chunk_at + CHUNK_LITERALS], task.exists);
    if n == 0u || models[task.model + MODEL_MODE] != MODE_FSE {
        return;
    }
    let size = 1u << models[task.model + MODEL_LOG];
    literal_state = size;
    let shift = (task.end - task.begin - n) & 3u;
    let last = n + shift;
    let literals_at = task.block * args.literal_stride + (task.begin >> 2u);
    let codes_at = (task.block * args.slot + task.begin) >> 2u;
    var row = (last + 127u) >> 7u;
    var ahead = vec4(0u);
    var is_loaded = false;
    while row > 0u {
        if row > AHEAD && row << 7u <= last {
            // Whole rows, none of them the first.
            var now = ahead;
            if !is_loaded {
                now = literal_words(row, shift, literals_at);
                is_loaded = true;
            }
            ahead = literal_words(row - AHEAD, shift, literals_at);
            let at = codes_at + 32u * (row - AHEAD) + lane;
            literal_codes[at + 96u] = encode_row(now.x);
            literal_codes[at + 64u] = encode_row(now.y);
            literal_codes[at + 32u] = encode_row(now.z);
            literal_codes[at] = encode_row(now.w);
            row -= AHEAD;
            continue;
        }
        row--;
        let word_at = 32u * row + lane;
        let symbols = literal_word(word_at, shift, literals_at);
        var pair = vec2(0u);
        // Coding runs backward, so the last one comes first.
        for (var i = 4u; i > 0u; i--) {
            let place = (word_at << 2u) + i - 1u;
            if place >= shift && place < last {
                literal_state = encode_main(symbols >> (8u * (i - 1u)), literal_state);
                // Join the bits of the next literal, if this is the first of a pair.
                let so_far = select(pair.x, pair.y, i > 2u);
                let len = (so_far & 31u) + encoded.y;
                let bits = (so_far & ~31u) >> encoded.y | encoded.x << ((32u - encoded.y) & 31u);
                if i > 2u {
                    pair.y = bits | len;
                } else {
                    pair.x = bits | len;
                }
            }
        }
        literal_codes[codes_at + word_at] = pair;
    }
    chunks[task.chunk_at + CHUNK_STATES + lane] = literal_state - size;
}

// @pz_entry
fn sequence_states(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let at = workgroup_index;
    let task = find_task(at / args.chunks_per_block, at % args.chunks_per_block);
    if !task.exists {
        return;
    }
    let token_model = task.model + MODEL_WORDS;
    let offset_model = task.model + 2u * MODEL_WORDS;
    load_main(token_model, lane, 32u);
    for (var i = lane; i < 64u; i += 32u) {
        offset_codes[i] = models[offset_model + MODEL_CODES + i];
    }
    for (var i = lane; i < 128u; i += 32u) {
        offset_next[i] = models[offset_model + MODEL_NEXT + i];
    }
    team_sync();
    let codes_tokens = models[token_model + MODEL_MODE] == MODE_FSE;
    let codes_offsets = models[offset_model + MODEL_MODE] == MODE_FSE;
    let n = chunks[task.chunk_at + CHUNK_SEQUENCES];
    if n == 0u || !(codes_tokens || codes_offsets) {
        return;
    }
    let size = 1u << models[token_model + MODEL_LOG];
    let offset_size = 1u << models[offset_model + MODEL_LOG];
    var state = size;
    var offset_state = offset_size;
    // There is room for whole batches of 64.
    let room = sequence_room(1u << args.chunk_log);
    let sequences_at = (task.block * args.sequence_stride + task.chunk * room) >> 1u;
    var pair = 32u * ((n - 1u) >> 6u) + lane;
    var next_tokens = tokens[sequences_at + pair];
    var next_offsets = offsets[sequences_at + pair];
    for (var batch = (n + 63u) >> 6u; batch > 0u; batch--) {
        var token = next_tokens;
        var offset = next_offsets;
        let at = sequences_at + pair;
        let has_first = 2u * pair < n;
        let has_second = 2u * pair + 1u < n;
        if batch > 1u {
            pair -= 32u;
            next_tokens = tokens[sequences_at + pair];
            next_offsets = offsets[sequences_at + pair];
        }
        if codes_tokens && has_first {
            if has_second {
                state = encode_main(token_symbol(token.y & 511u, token.y >> 9u), state);
                token.y |= (1u << encoded.y | encoded.x) << 19u;
            }
            state = encode_main(token_symbol(token.x & 511u, token.x >> 9u), state);
            token.x |= (1u << encoded.y | encoded.x) << 19u;
            tokens[at] = token;
        }
        if codes_offsets && has_first {
            if has_second {
                offset_state = encode_offset(offset.y & 63u, offset_state);
                let extra = 1u << offset_bits(offset.y & 63u) | offset.y >> 6u;
                offset.y = extra | (1u << encoded.y | encoded.x) << 23u;
            }
            offset_state = encode_offset(offset.x & 63u, offset_state);
            let extra = 1u << offset_bits(offset.x & 63u) | offset.x >> 6u;
            offset.x = extra | (1u << encoded.y | encoded.x) << 23u;
            offsets[at] = offset;
        }
    }
    chunks[task.chunk_at + CHUNK_STATES + 32u + lane] = state - size;
    chunks[task.chunk_at + CHUNK_STATES + 64u + lane] = offset_state - offset_size;
}
