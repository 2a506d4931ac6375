// Codes the symbols of streams whose model is FSE, from the last to the first. A team has the literals of a chunk, or its
// sequences.
//
// What two literals of a lane's row give goes to `matches`, which are not needed any more: bits from the top down | number
// of bits, in the order of rows. What sequences give is added to their words: to a token 1 << count | bits from bit 19 on;
// an offset becomes 1 << k | extra bits, and 1 << count | bits from bit 23 on.
//
// @pz_cost {
//   threads_per_element: 0.000976563
//   passes: 1
//   buffers: jobs=32, contents=N, payload=N+256, matches=N*2, lz77_models=N/4+N/64+16640,
//            lz77_tokens=N+N/4+N/16+N/64+N/64+256, lz77_offsets=N+N/4+N/16+N/64+N/64+256, lz77_streams=N/64+1024
//   local_mem: 11780
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
@group(0) @binding(2) var<storage, read> literals: array<u32>;
@group(0) @binding(3) var<storage, read_write> literal_codes: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(5) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(6) var<storage, read_write> chunks: array<u32>;

// Tables for literals or tokens, and for offsets behind them.
const OFFSET_CODES = 256u;
const OFFSET_NEXT = 2048u;
var<workgroup> codes: array<u32, 320>;
var<workgroup> next: array<u32, 2304>;

// Bits, and their number.
var<private> encoded: vec2<u32>;

// One step from `state`: returns the next state.
fn encode(symbol: u32, state: u32, first: u32) -> u32 {
    let code = codes[symbol];
    let n = (state + (code & 0xfffffu)) >> 16u;
    encoded = vec2(state & ((1u << n) - 1u), n);
    let index = (state >> n) + bitcast<u32>(bitcast<i32>(code) >> 20u);
    return next[first + (index & 2047u)];
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

@compute @workgroup_size(THREADS)
fn states(
    @builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let at = wg.y * wgs.x + wg.x;
    let part = at & 1u;
    let chunk = (at >> 1u) % args.chunks_per_block;
    let block = (at >> 1u) / args.chunks_per_block;
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
    let offset_model = model + 2u * MODEL_WORDS;
    let main_model = model + part * MODEL_WORDS;
    let codes_main = models[main_model + MODEL_MODE] == MODE_FSE;
    let codes_offsets = part == 1u && models[offset_model + MODEL_MODE] == MODE_FSE;
    for (var i = lane; i < 256u; i += 32u) {
        codes[i] = models[main_model + MODEL_CODES + i];
    }
    for (var i = lane; i < 1024u; i += 32u) {
        let two = models[main_model + MODEL_NEXT + i];
        next[2u * i] = two & 0xffffu;
        next[2u * i + 1u] = two >> 16u;
    }
    for (var i = lane; i < 64u; i += 32u) {
        codes[OFFSET_CODES + i] = models[offset_model + MODEL_CODES + i];
    }
    for (var i = lane; i < 128u; i += 32u) {
        let two = models[offset_model + MODEL_NEXT + i];
        next[OFFSET_NEXT + 2u * i] = two & 0xffffu;
        next[OFFSET_NEXT + 2u * i + 1u] = two >> 16u;
    }
    team_sync();
    let size = 1u << models[main_model + MODEL_LOG];
    var state = size;

    if part == 0u {
        let n = chunks[chunk_at + CHUNK_LITERALS];
        if n == 0u || !codes_main {
            return;
        }
        let shift = (end - begin - n) & 3u;
        let last = n + shift;
        let rows = (last + 127u) >> 7u;
        let literals_at = block * args.literal_stride + (begin >> 2u);
        let codes_at = (block * args.slot + begin) >> 2u;
        for (var row = rows; row > 0u; row--) {
            let word_at = 32u * (row - 1u) + lane;
            let symbols = literal_word(word_at, shift, literals_at);
            var pair = vec2(0u);
            // Backward, the last comes first.
            for (var i = 4u; i > 0u; i--) {
                let place = (word_at << 2u) + i - 1u;
                if place >= shift && place < last {
                    state = encode(symbols >> (8u * (i - 1u)) & 255u, state, 0u);
                    // To the bits of the literal behind it, if this is the first of a pair.
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
        chunks[chunk_at + CHUNK_STATES + lane] = state - size;
        return;
    }

    let n = chunks[chunk_at + CHUNK_SEQUENCES];
    if n == 0u || !(codes_main || codes_offsets) {
        return;
    }
    let offset_size = 1u << models[offset_model + MODEL_LOG];
    var offset_state = offset_size;
    let sequences_at = block * args.sequence_stride + chunk * sequence_room(1u << args.chunk_log);
    for (var step = 2u * ((n + 63u) >> 6u); step > 0u; step--) {
        let i = 64u * ((step - 1u) >> 1u) + 2u * lane + ((step - 1u) & 1u);
        if i < n {
            if codes_main {
                let token = tokens[sequences_at + i];
                state = encode(token_symbol(token & 511u, token >> 9u), state, 0u);
                tokens[sequences_at + i] = token | (1u << encoded.y | encoded.x) << 19u;
            }
            if codes_offsets {
                let offset = offsets[sequences_at + i];
                offset_state = encode(OFFSET_CODES + (offset & 63u), offset_state, OFFSET_NEXT);
                let extra = 1u << offset_bits(offset & 63u) | offset >> 6u;
                offsets[sequences_at + i] = extra | (1u << encoded.y | encoded.x) << 23u;
            }
        }
    }
    chunks[chunk_at + CHUNK_STATES + 32u + lane] = state - size;
    chunks[chunk_at + CHUNK_STATES + 64u + lane] = offset_state - offset_size;
}
