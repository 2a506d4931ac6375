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

// Words of workgroup memory for each team: a table for tokens or literals, and one for offsets.
#define CODES (256u + 64u)
#define NEXT (2048u + 256u)

// Loads so many words of the states of symbols.
inline void load_next(Team t, __global const uint *model, uint words, __local ushort *next) {
    for (uint i = t.lane; i < words; i += 32u) {
        uint two = model[MODEL_NEXT + i];
        next[2u * i] = (ushort)two;
        next[2u * i + 1u] = (ushort)(two >> 16);
    }
}

// One step: gives the bits and their number, and changes the state.
inline uint encode(__local const uint *codes, __local const ushort *next, uint symbol, uint *state, uint *count) {
    uint code = codes[symbol];
    uint n = (*state + (code & 0xfffffu)) >> 16;
    uint bits = *state & ((1u << n) - 1u);
    uint index = (*state >> n) + (uint)((int)code >> 20);
    *count = n;
    *state = next[index & 2047u];
    return bits;
}

// Two literals of a lane's row; backward, the second comes first.
inline uint encode_pair(
    __local const uint *codes, __local const ushort *next, uint first, uint second, bool has_first, bool has_second,
    uint *state
) {
    uint n = 0, bits = 0;
    if (has_second) bits = encode(codes, next, second, state, &n);
    if (has_first) {
        uint count;
        bits |= encode(codes, next, first, state, &count) << n;
        n += count;
    }
    return bits << ((32u - n) & 31u) | n;
}

__kernel void states(
    __global const uint *restrict jobs,
    __global const uint *restrict models,
    __global const uint *restrict literals,
    __global uint2 *restrict literal_codes,
    __global uint *restrict tokens,
    __global uint *restrict offsets,
    __global uint *restrict chunks,
    uint blocks, uint slot, uint chunk_log, uint chunks_per_block, uint literal_stride, uint group_log, uint sequence_stride,
    uint chunk_stride, uint model_stride
) {
    TEAM_START(team);
    __local uint all_codes[TEAMS * CODES];
    __local ushort all_next[TEAMS * NEXT];
    __local uint *codes = all_codes + team.index * CODES, *offset_codes = codes + 256;
    __local ushort *next = all_next + team.index * NEXT, *offset_next = next + 2048;
    uint at = (uint)get_group_id(0) * TEAMS + team.index;
    uint part = at & 1u, chunk = (at >> 1) % chunks_per_block, block = (at >> 1) / chunks_per_block;
    if (block >= blocks) return;
    uint begin = chunk << chunk_log, end = min(min(jobs[8u * block], slot), begin + (1u << chunk_log));
    if (begin >= end) return;
    chunks += (ulong)block * chunk_stride + chunk * CHUNK_WORDS;
    models += (ulong)block * model_stride + (chunk >> group_log) * 3u * MODEL_WORDS;

    if (part == 0u) {
        uint n = team_uniform(team, chunks[CHUNK_LITERALS]);
        if (n == 0u || team_uniform(team, models[MODEL_MODE]) != MODE_FSE) return;
        for (uint i = team.lane; i < 256u; i += 32u) codes[i] = models[MODEL_CODES + i];
        load_next(team, models, 1024u, next);
        team_sync(team);
        uint size = 1u << models[MODEL_LOG];
        uint shift = (end - begin - n) & 3u, last = n + shift;
        uint rows = (last + 127u) >> 7;
        literals += (ulong)block * literal_stride + (begin >> 2);
        literal_codes += ((ulong)block * slot + begin) >> 2;
        uint state = size;
        // Of each row the word, and the one before it for the shift, are loaded a row ahead.
        uint word_at = 32u * (rows - 1u) + team.lane;
        uint word = literals[word_at];
        uint before = shift != 0u && word_at > 0u ? literals[word_at - 1u] : 0u;
        for (uint row = rows; row-- > 0u;) {
            uint symbols = shift != 0u ? word << (8u * shift) | before >> (32u - 8u * shift) : word;
            uint place_at = word_at;
            if (row > 0u) {
                word_at -= 32u;
                word = literals[word_at];
                before = shift != 0u && word_at > 0u ? literals[word_at - 1u] : 0u;
            }
            uint2 pair;
            uint place = place_at << 2;
            if (row > 0u && (row << 7) + 128u <= last) {
                pair.y = encode_pair(codes, next, symbols >> 16 & 255u, symbols >> 24, true, true, &state);
                pair.x = encode_pair(codes, next, symbols & 255u, symbols >> 8 & 255u, true, true, &state);
            } else {
                bool a = place >= shift && place < last, b = place + 1u >= shift && place + 1u < last;
                bool c = place + 2u >= shift && place + 2u < last, d = place + 3u >= shift && place + 3u < last;
                pair.y = encode_pair(codes, next, symbols >> 16 & 255u, symbols >> 24, c, d, &state);
                pair.x = encode_pair(codes, next, symbols & 255u, symbols >> 8 & 255u, a, b, &state);
            }
            literal_codes[place_at] = pair;
        }
        chunks[CHUNK_STATES + team.lane] = state - size;
        return;
    }

    uint n = team_uniform(team, chunks[CHUNK_SEQUENCES]);
    __global const uint *token_model = models + MODEL_WORDS, *offset_model = models + 2u * MODEL_WORDS;
    bool codes_tokens = team_uniform(team, token_model[MODEL_MODE]) == MODE_FSE;
    bool codes_offsets = team_uniform(team, offset_model[MODEL_MODE]) == MODE_FSE;
    if (n == 0u || !(codes_tokens || codes_offsets)) return;
    if (codes_tokens) {
        for (uint i = team.lane; i < 256u; i += 32u) codes[i] = token_model[MODEL_CODES + i];
        load_next(team, token_model, 1024u, next);
    }
    if (codes_offsets) {
        for (uint i = team.lane; i < 64u; i += 32u) offset_codes[i] = offset_model[MODEL_CODES + i];
        load_next(team, offset_model, 128u, offset_next);
    }
    team_sync(team);
    uint token_size = 1u << token_model[MODEL_LOG], offset_size = 1u << offset_model[MODEL_LOG];
    uint room = sequence_room(1u << chunk_log);
    tokens += (ulong)block * sequence_stride + (ulong)chunk * room;
    offsets += (ulong)block * sequence_stride + (ulong)chunk * room;
    uint token_state = token_size, offset_state = offset_size;
    uint batches = (n + 63u) >> 6;
    for (uint batch = batches; batch-- > 0u;) {
        uint even = 64u * batch + 2u * team.lane;
        for (uint odd = 2; odd-- > 0u;) {
            uint i = even + odd;
            if (i < n) {
                if (codes_tokens) {
                    uint token = tokens[i], count;
                    uint bits = encode(codes, next, token_symbol(token & 511u, token >> 9), &token_state, &count);
                    tokens[i] = token | (1u << count | bits) << 19;
                }
                if (codes_offsets) {
                    uint offset = offsets[i], count;
                    uint bits = encode(offset_codes, offset_next, offset & 63u, &offset_state, &count);
                    offsets[i] = (1u << offset_bits(offset & 63u) | offset >> 6) | (1u << count | bits) << 23;
                }
            }
        }
    }
    chunks[CHUNK_STATES + 32u + team.lane] = token_state - token_size;
    chunks[CHUNK_STATES + 64u + team.lane] = offset_state - offset_size;
}
