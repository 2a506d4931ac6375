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

// Rows of literals to load ahead. A team mostly waits for memory, and there are no more teams than chunks.
#if TEAM_PTX
#define AHEAD 8u
#else
#define AHEAD 1u
#endif

// Loads this many words of the states of symbols.
inline void load_next(uint first, uint step, __global const uint *model, uint words, __local ushort *next) {
    for (uint i = first; i < words; i += step) {
        uint two = model[MODEL_NEXT + i];
        next[2u * i] = (ushort)two;
        next[2u * i + 1u] = (ushort)(two >> 16);
    }
}

// One step: returns the bits and their number, and changes the state.
inline uint encode(__local const uint *codes, __local const ushort *next, uint symbol, uint *state, uint *count) {
    uint code = codes[symbol];
    uint n = (*state + (code & 0xfffffu)) >> 16;
    uint bits = *state & ((1u << n) - 1u);
    uint index = (*state >> n) + (uint)((int)code >> 20);
    *count = n;
    *state = next[index & 2047u];
    return bits;
}

// Codes two literals of a lane's row. Coding runs backward, so the second one comes first.
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

// A lane's input from a row of literals: its word, and the previous word for the shift.
typedef struct {
    uint word, before;
} Row;

inline Row load_row(__global const uint *literals, uint at, uint shift) {
    Row row;
    row.word = literals[at];
    row.before = shift != 0u && at > 0u ? literals[at - 1u] : 0u;
    return row;
}

inline uint row_symbols(Row row, uint shift) {
    return row.word << (8u * shift) | row.before >> 1 >> (31u - 8u * shift);
}

// Computes the place of the team's chunk.
#define CHUNK                                                                                              \
    uint begin = chunk << chunk_log, end = min(min(jobs[8u * block], slot), begin + (1u << chunk_log));    \
    if (begin >= end) return;                                                                              \
    chunks += (ulong)block * chunk_stride + chunk * CHUNK_WORDS

// Finds the team's chunk, and the group's models.
#define START                                                                                              \
    uint at = (uint)get_group_id(0) * TEAMS + team.index;                                                  \
    uint chunk = at % chunks_per_block, block = at / chunks_per_block;                                     \
    if (block >= blocks) return;                                                                           \
    CHUNK;                                                                                                 \
    models += (ulong)block * model_stride + (chunk >> group_log) * 3u * MODEL_WORDS

__kernel void literal_states(
    __global const uint *restrict jobs,
    __global const uint *restrict models,
    __global const uint *restrict literals,
    __global uint2 *restrict literal_codes,
    __global uint *restrict chunks,
    uint blocks, uint slot, uint chunk_log, uint chunks_per_block, uint literal_stride, uint group_log, uint sequence_stride,
    uint chunk_stride, uint model_stride
) {
    TEAM_START(team);
    SHARED uint codes[256];
    SHARED ushort next[2048];
    // The chunks of a workgroup belong to one group.
    uint per_block = (chunks_per_block + TEAMS - 1u) / TEAMS;
    uint block = (uint)get_group_id(0) / per_block;
    if (block >= blocks) return;
    uint chunk = (uint)get_group_id(0) % per_block * TEAMS;
    models += (ulong)block * model_stride + (chunk >> group_log) * 3u * MODEL_WORDS;
    if (models[MODEL_MODE] != MODE_FSE) return;
    for (uint i = (uint)get_local_id(0); i < 256u; i += THREADS) codes[i] = models[MODEL_CODES + i];
    load_next((uint)get_local_id(0), THREADS, models, 1024u, next);
    barrier(CLK_LOCAL_MEM_FENCE);
    chunk += team.index;
    CHUNK;
    uint n = team_uniform(team, chunks[CHUNK_LITERALS]);
    if (n == 0u) return;
    uint size = 1u << models[MODEL_LOG];
    uint shift = (end - begin - n) & 3u, last = n + shift;
    literals += (ulong)block * literal_stride + (begin >> 2);
    literal_codes += ((ulong)block * slot + begin) >> 2;
    uint state = size;
    uint row = (last + 127u) >> 7;
    Row ahead[AHEAD];
    while (row > 0u) {
        if (row > AHEAD && row << 7 <= last) {
            // Whole rows, none of them the first.
#if TEAM_PTX
#pragma unroll
#endif
            for (uint i = 0; i < AHEAD; i++) ahead[i] = load_row(literals, 32u * (row - 1u - i) + team.lane, shift);
            while (row > AHEAD) {
                Row now[AHEAD];
#if TEAM_PTX
#pragma unroll
#endif
                for (uint i = 0; i < AHEAD; i++) {
                    now[i] = ahead[i];
                    ahead[i] = load_row(literals, 32u * (uint)max((int)(row - 1u - AHEAD - i), 0) + team.lane, shift);
                }
#if TEAM_PTX
#pragma unroll
#endif
                for (uint i = 0; i < AHEAD; i++) {
                    uint symbols = row_symbols(now[i], shift);
                    uint2 pair;
                    pair.y = encode_pair(codes, next, symbols >> 16 & 255u, symbols >> 24, true, true, &state);
                    pair.x = encode_pair(codes, next, symbols & 255u, symbols >> 8 & 255u, true, true, &state);
                    literal_codes[32u * (row - 1u - i) + team.lane] = pair;
                }
                row -= AHEAD;
            }
        }
        row--;
        uint word_at = 32u * row + team.lane, place = word_at << 2;
        uint symbols = row_symbols(load_row(literals, word_at, shift), shift);
        bool a = place >= shift && place < last, b = place + 1u >= shift && place + 1u < last;
        bool c = place + 2u >= shift && place + 2u < last, d = place + 3u >= shift && place + 3u < last;
        uint2 pair;
        pair.y = encode_pair(codes, next, symbols >> 16 & 255u, symbols >> 24, c, d, &state);
        pair.x = encode_pair(codes, next, symbols & 255u, symbols >> 8 & 255u, a, b, &state);
        literal_codes[word_at] = pair;
    }
    chunks[CHUNK_STATES + team.lane] = state - size;
}

// Codes a lane's token.
inline uint encode_token(__local const uint *codes, __local const ushort *next, uint token, uint *state) {
    uint count, bits = encode(codes, next, token_symbol(token & 511u, token >> 9), state, &count);
    return token | (1u << count | bits) << 19;
}

inline uint encode_offset(__local const uint *codes, __local const ushort *next, uint offset, uint *state) {
    uint count, bits = encode(codes, next, offset & 63u, state, &count);
    return (1u << offset_bits(offset & 63u) | offset >> 6) | (1u << count | bits) << 23;
}

__kernel void sequence_states(
    __global const uint *restrict jobs,
    __global const uint *restrict models,
    __global uint *restrict tokens,
    __global uint *restrict offsets,
    __global uint *restrict chunks,
    uint blocks, uint slot, uint chunk_log, uint chunks_per_block, uint literal_stride, uint group_log, uint sequence_stride,
    uint chunk_stride, uint model_stride
) {
    TEAM_START(team);
    SHARED uint all_codes[TEAMS * (256u + 64u)];
    SHARED ushort all_next[TEAMS * (2048u + 256u)];
    __local uint *codes = all_codes + team.index * (256u + 64u), *offset_codes = codes + 256;
    __local ushort *next = all_next + team.index * (2048u + 256u), *offset_next = next + 2048;
    START;
    uint n = team_uniform(team, chunks[CHUNK_SEQUENCES]);
    __global const uint *token_model = models + MODEL_WORDS, *offset_model = models + 2u * MODEL_WORDS;
    bool codes_tokens = team_uniform(team, token_model[MODEL_MODE]) == MODE_FSE;
    bool codes_offsets = team_uniform(team, offset_model[MODEL_MODE]) == MODE_FSE;
    if (n == 0u || !(codes_tokens || codes_offsets)) return;
    if (codes_tokens) {
        for (uint i = team.lane; i < 256u; i += 32u) codes[i] = token_model[MODEL_CODES + i];
        load_next(team.lane, 32u, token_model, 1024u, next);
    }
    if (codes_offsets) {
        for (uint i = team.lane; i < 64u; i += 32u) offset_codes[i] = offset_model[MODEL_CODES + i];
        load_next(team.lane, 32u, offset_model, 128u, offset_next);
    }
    team_sync(team);
    uint token_size = 1u << token_model[MODEL_LOG], offset_size = 1u << offset_model[MODEL_LOG];
    ulong sequences_at = (ulong)block * sequence_stride + (ulong)chunk * sequence_room(1u << chunk_log);
    __global uint2 *token_pairs = (__global uint2 *)(tokens + sequences_at);
    __global uint2 *offset_pairs = (__global uint2 *)(offsets + sequences_at);
    uint token_state = token_size, offset_state = offset_size;
    // There is room for whole batches of 64.
    uint at_pair = 32u * ((n - 1u) >> 6) + team.lane;
    uint2 next_tokens = token_pairs[at_pair], next_offsets = offset_pairs[at_pair];
    for (uint batch = (n + 63u) >> 6; batch-- > 0u; at_pair -= 32u) {
        uint2 token = next_tokens, offset = next_offsets;
        if (batch > 0u) {
            next_tokens = token_pairs[at_pair - 32u];
            next_offsets = offset_pairs[at_pair - 32u];
        }
        bool has_first = 2u * at_pair < n, has_second = 2u * at_pair + 1u < n;
        if (codes_tokens && has_first) {
            if (has_second) token.y = encode_token(codes, next, token.y, &token_state);
            token.x = encode_token(codes, next, token.x, &token_state);
            token_pairs[at_pair] = token;
        }
        if (codes_offsets && has_first) {
            if (has_second) offset.y = encode_offset(offset_codes, offset_next, offset.y, &offset_state);
            offset.x = encode_offset(offset_codes, offset_next, offset.x, &offset_state);
            offset_pairs[at_pair] = offset;
        }
    }
    chunks[CHUNK_STATES + 32u + team.lane] = token_state - token_size;
    chunks[CHUNK_STATES + 64u + team.lane] = offset_state - offset_size;
}
