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

#define LOCAL_WORDS (256u + 256u + 64u)

// Repeats its operand for both halves of a row of four literals or two sequences.
#if TEAM_PTX
#define HALVES(part) for (uint part = 0; part < 2u; part++)
#else
#define HALVES(part) _Pragma("nounroll") for (uint part = 0; part < 2u; part++)
#endif

// Rows of literals to load ahead. A team mostly waits for memory, and there are no more teams than chunks.
#if TEAM_PTX
#define AHEAD 8u
#else
#define AHEAD 1u
#endif

// A lane's part of a stream.
typedef struct {
    uint partial;     // its unfinished word, filled from the top
    uint filled;      // bits of that
    uint place;       // where it goes
    uint next_place;  // and the next word's place, if `is_ahead`
    bool is_ahead;
    uint end;         // the end of this lane's last word that is not 0
    uint total;       // words that the decoder has taken, all lanes together
} Writer;

// Writes the upper `len` bits of `bits`; the other bits are 0.
inline void write_row(Team t, Writer *w, __global uint *restrict out, uint room, uint bits, uint len) {
    bool takes = w->filled > 0u && !w->is_ahead;
    uint takers = team_ballot(t, takes);
    if (takes) {
        w->next_place = w->total + popcount(takers & team_before(t));
        w->is_ahead = true;
    }
    w->total += popcount(takers);
    uint word = w->partial | bits >> w->filled;
    uint filled = w->filled + len;
    if (filled > 31u) {
        if (w->place < room) out[w->place] = word;
        if (word != 0u) w->end = max(w->end, w->place + 1u);
        // Keep the bits that did not fit. Less than a word was free.
        word = bits << (32u - w->filled);
        w->place = w->next_place;
        w->is_ahead = false;
    }
    w->partial = word;
    w->filled = filled & 31u;
}

// Writes a symbol's code and its extra bits.
inline void write_coded(Team t, Writer *w, __global uint *restrict out, uint room, uint code, uint bits, uint extra) {
    uint len = code & 31u;
    write_row(t, w, out, room, (code - len) | extra << ((32u - len - bits) & 31u), len + bits);
}

// Turns a code that is stored as 1 << count | bits into bits from the top down | count.
inline uint marked_code(uint x) {
    uint count = log2_floor(x);
    return (x - (1u << count)) << ((32u - count) & 31u) | count;
}

// `is_coded` tells whether the symbol's code is stored with it.
inline void write_token(
    Team t, Writer *w, __global uint *restrict out, uint room, __local const uint *codes, uint token, bool is_coded,
    bool is_active
) {
    uint literals = token & 511u, length = token >> 9 & 1023u, extra;
    uint bits = token_extra(literals, length, &extra);
    uint code = is_coded ? marked_code(max(token >> 19, 1u)) : codes[token_symbol(literals, length)];
    if (!is_active) {
        code = 0u;
        bits = 0u;
        extra = 0u;
    }
    write_coded(t, w, out, room, code, bits, extra);
}

inline void write_offset(
    Team t, Writer *w, __global uint *restrict out, uint room, __local const uint *codes, uint offset, bool is_coded,
    bool is_active
) {
    uint code, bits, extra;
    if (is_coded) {
        bits = log2_floor(max(offset & 0x7fffffu, 1u));
        extra = (offset & 0x7fffffu) - (1u << bits);
        code = marked_code(max(offset >> 23, 1u));
    } else {
        code = codes[offset & 63u];
        bits = offset_bits(offset & 63u);
        extra = offset >> 6;
    }
    if (!is_active) {
        code = 0u;
        bits = 0u;
        extra = 0u;
    }
    write_coded(t, w, out, room, code, bits, extra);
}

// A lane's input from a row of literals: their codes; or their word, and the previous word for the shift. After the
// last row it is 0.
inline uint2 load_row(
    __global const uint *literals, __global const uint2 *literal_codes, uint row, uint rows, uint lane, bool is_coded, uint shift
) {
    uint2 v = UINT2(0u, 0u);
    uint at = 32u * row + lane;
    if (row < rows) {
        if (is_coded) {
            v = literal_codes[at];
        } else {
            v.x = literals[at];
            if (shift != 0u && at > 0u) v.y = literals[at - 1u];
        }
    }
    return v;
}
#if FSE
#define LOAD_ROW(row) load_row(literals, literal_codes, row, rows, team.lane, log > 0u, shift)
#else
#define LOAD_ROW(row) load_row(literals, 0, row, rows, team.lane, false, shift)
#endif

__kernel void write_words(
    __global const uint *restrict jobs,
    __global const uint *restrict models,
    __global const uint *restrict literals,
#if FSE
    __global const uint2 *restrict literal_codes,
#endif
    __global const uint *restrict tokens,
    __global const uint *restrict offsets,
    __global uint *restrict chunks,
    __global uint *restrict words,
    uint blocks, uint slot, uint chunk_log, uint chunks_per_block, uint literal_stride, uint group_log, uint sequence_stride,
    uint chunk_stride, uint model_stride, uint word_stride
) {
    TEAM_START(team);
    SHARED uint memory[TEAMS * LOCAL_WORDS];
    __local uint *codes = memory + team.index * LOCAL_WORDS, *token_codes = codes + 256, *offset_codes = codes + 512;
    uint at = (uint)get_group_id(0) * TEAMS + team.index;
    uint chunk = at % chunks_per_block, block = at / chunks_per_block;
    if (block >= blocks) return;
    uint begin = chunk << chunk_log, end = min(min(jobs[8u * block], slot), begin + (1u << chunk_log));
    if (begin >= end) return;
    chunks += (ulong)block * chunk_stride + chunk * CHUNK_WORDS;
    models += (ulong)block * model_stride + (chunk >> group_log) * 3u * MODEL_WORDS;
    words += (ulong)block * word_stride + (ulong)chunk * stream_room(1u << chunk_log);
    uint room = stream_room(end - begin);
    __global const uint *token_model = models + MODEL_WORDS, *offset_model = models + 2u * MODEL_WORDS;
    for (uint i = team.lane; i < 256u; i += 32u) codes[i] = models[MODEL_CODES + i];
    for (uint i = team.lane; i < 256u; i += 32u) token_codes[i] = token_model[MODEL_CODES + i];
    for (uint i = team.lane; i < 64u; i += 32u) offset_codes[i] = offset_model[MODEL_CODES + i];
    team_sync(team);

    Writer w = {0u, 0u, team.lane, 0u, false, 0u, 32u};
    // An empty row after these rows changes nothing, because sequences follow. So no row needs a condition.
    uint n = team_uniform(team, chunks[CHUNK_LITERALS]);
    uint shift = (end - begin - n) & 3u, last = n + shift;
    uint rows = n > 0u ? (last + 127u) >> 7 : 0u;
    literals += (ulong)block * literal_stride + (begin >> 2);
    uint log = 0;
#if FSE
    log = n > 0u ? team_uniform(team, models[MODEL_LOG]) : 0u;
    literal_codes += ((ulong)block * slot + begin) >> 2;
    write_row(team, &w, words, room, log > 0u ? chunks[CHUNK_STATES + team.lane] << (32u - log) : 0u, log);
#endif
    uint2 ahead[AHEAD];
#if TEAM_PTX
#pragma unroll
#endif
    for (uint i = 0; i < AHEAD; i++) ahead[i] = LOAD_ROW(i);
    // This loop runs at least once: if it could be skipped, its barriers would be conditional, which some compilers get
    // wrong.
    uint row = 0;
    do {
        uint2 now[AHEAD];
#if TEAM_PTX
#pragma unroll
#endif
        for (uint i = 0; i < AHEAD; i++) {
            now[i] = ahead[i];
            ahead[i] = LOAD_ROW(row + AHEAD + i);
        }
#if TEAM_PTX
#pragma unroll
#endif
        for (uint i = 0; i < AHEAD; i++) {
            uint symbols = now[i].x << (8u * shift) | now[i].y >> 1 >> (31u - 8u * shift);
            HALVES(part) {
                uint bits, len;
                if (log > 0u) {
                    uint pair = part == 0u ? now[i].x : now[i].y;
                    len = pair & 31u;
                    bits = pair - len;
                } else {
                    uint at = ((32u * (row + i) + team.lane) << 2) + 2u * part, two = symbols >> (16u * part);
                    uint a = at >= shift && at < last ? codes[two & 255u] : 0u;
                    uint b = at + 1u >= shift && at + 1u < last ? codes[two >> 8 & 255u] : 0u;
                    uint a_len = a & 31u, b_len = b & 31u;
                    len = a_len + b_len;
                    bits = (a - a_len) | (b - b_len) >> a_len;
                }
                write_row(team, &w, words, room, bits, len);
            }
        }
        row += AHEAD;
    } while (row < rows);

    n = team_uniform(team, chunks[CHUNK_SEQUENCES]);
    bool coded_tokens = false, coded_offsets = false;
#if FSE
    uint token_log = token_model[MODEL_LOG], offset_log = offset_model[MODEL_LOG], logs = token_log + offset_log;
    coded_tokens = token_log > 0u;
    coded_offsets = offset_log > 0u;
    uint token_state = coded_tokens ? chunks[CHUNK_STATES + 32u + team.lane] : 0u;
    uint offset_state = coded_offsets ? chunks[CHUNK_STATES + 64u + team.lane] : 0u;
    write_row(team, &w, words, room, (token_state << offset_log | offset_state) << ((32u - logs) & 31u), logs);
#endif
    ulong sequences_at = (ulong)block * sequence_stride + (ulong)chunk * sequence_room(1u << chunk_log);
    __global const uint2 *token_pairs = (__global const uint2 *)(tokens + sequences_at);
    __global const uint2 *offset_pairs = (__global const uint2 *)(offsets + sequences_at);
    uint batches = (n + 63u) >> 6;
    uint2 next_tokens = token_pairs[team.lane], next_offsets = offset_pairs[team.lane];
    for (uint batch = 0; batch < batches; batch++) {
        uint2 t = next_tokens, o = next_offsets;
        if (batch + 1u < batches) {
            next_tokens = token_pairs[32u * batch + 32u + team.lane];
            next_offsets = offset_pairs[32u * batch + 32u + team.lane];
        }
        uint i = 64u * batch + 2u * team.lane;
        HALVES(part) {
            bool is_active = i + part < n;
            write_token(team, &w, words, room, token_codes, part == 0u ? t.x : t.y, coded_tokens, is_active);
            write_offset(team, &w, words, room, offset_codes, part == 0u ? o.x : o.y, coded_offsets, is_active);
        }
    }
    // Finish the words that the decoder takes, even empty ones.
    if (w.place < room) words[w.place] = w.partial;
    if (w.partial != 0u) w.end = max(w.end, w.place + 1u);
    if (w.is_ahead && w.next_place < room) words[w.next_place] = 0u;
    uint stream = min(team_max(team, w.end), room);
    if (team.lane == 0u) chunks[CHUNK_STREAM] = stream;
}
