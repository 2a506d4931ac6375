// Assembles payloads: header, directory, and the chunks' records with their tables and words.
//
// @pz_cost {
//   threads: N/65536*256
//   passes: 2
//   buffers: jobs=32, lz77_models=N/65536*16512, lz77_streams=N/65536*1024, lz77_words=N+N/2+N/4+N/64+1024,
//            payload=N+256, results=32
//   local_mem: 256
// }
// @pz_import team
// @pz_import lz77_code

#define STATUS_DOES_NOT_FIT 1u

// Words that a work item copies at a time.
#define AHEAD 8u

// Bits of a group's tables before the descriptions: the modes, and the symbols of constant models.
inline uint head_bits(__global const uint *models) {
    uint bits = 8u;
    for (uint i = 0; i < 3u; i++) bits += models[i * MODEL_WORDS + MODEL_MODE] == MODE_CONSTANT ? 8u : 0u;
    return bits;
}

// Computes where the records of a block go, and the length of its payload. One team per block.
__kernel void measure(
    __global const uint *restrict jobs,
    __global const uint *restrict models,
    __global uint *restrict chunks,
    __global uint *restrict results,
    uint blocks, uint slot, uint chunk_log, uint chunks_per_block, uint group_log, uint window_log, uint chunk_stride,
    uint model_stride, uint word_stride
) {
    TEAM_START(team);
    uint block = (uint)get_group_id(0) * TEAMS + team.index;
    if (block >= blocks) return;
    uint len = team_uniform(team, min(jobs[8u * block], slot));
    uint n = (len + (1u << chunk_log) - 1u) >> chunk_log;
    models += (ulong)block * model_stride;
    chunks += (ulong)block * chunk_stride;
    uint words = 1u + 2u * n;
    for (uint i = 0; i < n; i += 32u) {
        uint chunk = i + team.lane, record = 0, tables = 0;
        if (chunk < n) {
            if ((chunk & ((1u << group_log) - 1u)) == 0u) {
                __global const uint *group = models + (chunk >> group_log) * 3u * MODEL_WORDS;
                uint bits = head_bits(group);
                for (uint j = 0; j < 3u; j++) bits += group[j * MODEL_WORDS + MODEL_BITS];
                tables = (bits + 31u) >> 5;
            }
            record = tables + chunks[chunk * CHUNK_WORDS + CHUNK_STREAM];
        }
        uint end = team_scan(team, record);
        if (chunk < n) {
            chunks[chunk * CHUNK_WORDS + CHUNK_RECORD] = words + end - record;
            chunks[chunk * CHUNK_WORDS + CHUNK_TABLES] = tables;
        }
        words += team_broadcast(team, end, 31u);
    }
    if (team.lane == 0u) {
        results[8u * block] = 4u * words < len ? 0u : STATUS_DOES_NOT_FIT;
        results[8u * block + 1u] = 4u * words;
    }
}

// 32 bits of a description from bit `at` on; it may be negative, and go past the end.
inline uint description_bits(__global const uint *model, int at) {
    int bits = (int)model[MODEL_BITS];
    if (at <= -32 || at >= bits) return 0u;
    int word = at >> 5;
    uint shift = (uint)at & 31u, value = 0;
    if (word >= 0) value = model[MODEL_DESCRIPTION + (uint)word] << shift;
    if (shift != 0u && 32 * (word + 1) < bits) value |= model[MODEL_DESCRIPTION + (uint)(word + 1)] >> (32u - shift);
    return value;
}

// Word `i` of a group's tables.
inline uint table_word(__global const uint *models, uint i) {
    uint value = 0;
    int at = 32 * (int)i;
    if (i == 0u) {
        uint place = 16u;
        for (uint j = 0; j < 3u; j++) {
            uint mode = models[j * MODEL_WORDS + MODEL_MODE];
            value |= mode << (24u + 2u * j);
            if (mode == MODE_CONSTANT) {
                value |= models[j * MODEL_WORDS + MODEL_CONSTANT] << place;
                place -= 8u;
            }
        }
    }
    int begin = (int)head_bits(models);
    for (uint mode = MODE_HUFFMAN; mode <= MODE_FSE; mode++) {
        for (uint j = 0; j < 3u; j++) {
            __global const uint *model = models + j * MODEL_WORDS;
            if (model[MODEL_MODE] == mode) {
                value |= description_bits(model, at - begin);
                begin += (int)model[MODEL_BITS];
            }
        }
    }
    // Bits fill bytes from the top, and bytes fill words from the bottom.
    return value >> 24 | (value >> 8 & 0xff00u) | (value << 8 & 0xff0000u) | value << 24;
}

// Writes the payloads that fit. One workgroup per chunk.
__kernel void pack(
    __global const uint *restrict jobs,
    __global const uint *restrict models,
    __global const uint *restrict chunks,
    __global const uint *restrict words,
    __global const uint *restrict results,
    __global uint *restrict payload,
    uint blocks, uint slot, uint chunk_log, uint chunks_per_block, uint group_log, uint window_log, uint chunk_stride,
    uint model_stride, uint word_stride
) {
    uint lane = (uint)get_local_id(0);
    uint at = (uint)get_group_id(0);
    uint chunk = at % chunks_per_block, block = at / chunks_per_block;
    if (block >= blocks) return;
    uint len = min(jobs[8u * block], slot);
    if (chunk << chunk_log >= len || results[8u * block] != 0u) return;
    payload += (ulong)block * ((slot + 256u) >> 2);
    models += (ulong)block * model_stride + (chunk >> group_log) * 3u * MODEL_WORDS;
    words += (ulong)block * word_stride + (ulong)chunk * stream_room(1u << chunk_log);
    chunks += (ulong)block * chunk_stride + chunk * CHUNK_WORDS;
    uint stream = chunks[CHUNK_STREAM], record = chunks[CHUNK_RECORD], tables = chunks[CHUNK_TABLES];
    if (lane == 0u) {
        if (chunk == 0u) {
            // A short block needs no larger window than itself.
            uint needed = max(len > 1u ? log2_floor(len - 1u) + 1u : 0u, 16u);
            uint c = min(chunk_log, needed);
            payload[0] = c | max(min(window_log, needed), c) << 8 | group_log << 16;
        }
        uint literals = chunks[CHUNK_LITERALS], sequences = chunks[CHUNK_SEQUENCES];
        payload[1u + 2u * chunk] = (tables + stream) | literals << 22;
        payload[2u + 2u * chunk] = literals >> 10 | sequences << 11;
    }
    payload += record;
    for (uint i = lane; i < tables; i += THREADS) payload[i] = table_word(models, i);
    payload += tables;
    uint i = lane;
    // Load first, so that all loads run at once.
    for (; i + (AHEAD - 1u) * THREADS < stream; i += AHEAD * THREADS) {
        uint w[AHEAD];
#pragma unroll
        for (uint j = 0; j < AHEAD; j++) w[j] = words[i + j * THREADS];
#pragma unroll
        for (uint j = 0; j < AHEAD; j++) payload[i + j * THREADS] = w[j];
    }
    for (; i < stream; i += THREADS) payload[i] = words[i];
}
