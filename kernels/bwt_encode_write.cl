// Writes payloads: the words of each segment (`codec/bwt/segments.rs`), the descriptions of directory and tables
// (`payload.rs`, `tables.rs`, `binary.rs`), and all of it together.
//
// @pz_cost {
//   threads_per_element: 0.125
//   passes: 4
//   buffers: jobs=32, sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4, encode_state=256,
//            encode_segments=N/64+64, encode_lists=N/32+512, encode_tables=393216, encode_starts=393216,
//            encode_fresh=12288, encode_described=N/64+263168, start_rows=N/64+4, payload=N+256, results=32
//   local_mem: 2048
//   note: sort_position_a holds segments' words; a segment has at most as many as bytes
// }

// @pz_import bwt_encode

// Room for the descriptions of the directory, and of the tables of ranks and lengths, in this order.
#define DIRECTORY_ROOM(slot) ((slot) / 64u + 1024u)
#define RANKS_ROOM 98304u
#define RUNS_ROOM 163840u
#define DESCRIBED_ROOM(slot) (DIRECTORY_ROOM(slot) + RANKS_ROOM + RUNS_ROOM)

// x / d, and the rest, where x has 64 bits and d is below 2^13.
inline ulong divide(ulong x, uint d, uint *rest) {
    uint high = (uint)(x >> 32);
    uint q = high / d;
    uint r = high - q * d;
    uint middle = r << 16 | ((uint)x >> 16);
    uint q1 = middle / d;
    r = middle - q1 * d;
    uint low = r << 16 | ((uint)x & 0xffffu);
    uint q0 = low / d;
    *rest = low - q0 * d;
    return (ulong)q << 32 | q1 << 16 | q0;
}

inline ulong put(ulong x, uint start, uint freq) {
    uint rest;
    ulong quotient = divide(x, freq, &rest);
    return (quotient << 12) + rest + start;
}

// A lane for each segment, whose words go backward from the end of its bytes' part.
__kernel void code(
    __global const uint *jobs, __global const uint *begins, __global const uint *infos, __global const uint *intervals,
    __global uint *state, __global uint *segments, __global uint *words, uint slot, uint parts)
{
    uint block = (uint)get_group_id(0) / parts;
    uint s = (uint)get_group_id(0) % parts * THREADS + (uint)get_local_id(0);
    state += block * ENCODE_STATE;
    uint segment_count = state[ENCODE_SEGMENTS];
    if (s >= segment_count) return;
    uint len = jobs[block * 8u];
    uint runs = state[ENCODE_RUNS];
    begins += (size_t)block * slot;
    infos += (size_t)block * slot;
    words += (size_t)block * slot;
    __global uint *segment = segments + ((size_t)block * SEGMENTS(slot) + s) * SEGMENT_WORDS;
    intervals += ((size_t)block * SETS + segment[SEGMENT_SET]) * CELLS;
    uint first = segment[SEGMENT_RUN];
    uint end = s + 1 < segment_count ? segment[SEGMENT_WORDS + SEGMENT_RUN] : runs;
    uint least = segment[SEGMENT_BEGIN];
    uint most = s + 1 < segment_count ? segment[SEGMENT_WORDS + SEGMENT_BEGIN] : len;
    uint to = most;
    bool full = false;
    ulong x = 1;
    uint behind = most;
    for (uint run = end; run-- > first;) {
        uint begin = begins[run];
        uint info = infos[run];
        uint length = behind - begin;
        behind = begin;
        Token rank = rank_token(info >> 8 & 255u);
        Token lasts = run_token(length);
        uint rank_interval = intervals[(info >> 16 & 255u) * 32u + rank.token];
        uint run_interval = intervals[(RANK_CONTEXTS + (info >> 24)) * 32u + lasts.token];
        uint rank_freq = rank_interval >> 16;
        uint run_freq = run_interval >> 16;
        if (lasts.bits > 0) {
            if (x >> (64u - lasts.bits) != 0) {
                if (to > least) words[--to] = (uint)x;
                else full = true;
                x >>= 32;
            }
            x = x << lasts.bits | lasts.raw;
        }
        if (x >> (40u - rank.bits) >= rank_freq * run_freq) {
            if (to > least) words[--to] = (uint)x;
            else full = true;
            x >>= 32;
        }
        x = put(x, run_interval & 0xffffu, run_freq);
        x = x << rank.bits | rank.raw;
        x = put(x, rank_interval & 0xffffu, rank_freq);
    }
    if (to > least) words[--to] = (uint)x;
    else full = true;
    if (x >> 32 != 0) {
        if (to > least) words[--to] = (uint)(x >> 32);
        else full = true;
    }
    segment[SEGMENT_CODED] = most - to;
    if (full) atomic_or(&state[ENCODE_FULL], 1u);
}

// Writes binary decisions. A model is `fast` | `slow` << 16.
typedef struct {
    __global uchar *out;
    uint len;
    uint room;
    ulong low;
    uint range;
    uint cache;
    uint pending;
    bool first;
} Writer;

#define NEW_MODEL 0x80008000u

inline void shift_out(Writer *w) {
    if (w->low < 0xff000000u || w->low > 0xffffffffu) {
        uint carry = (uint)(w->low >> 32);
        uint byte = w->cache;
        for (; w->pending > 0; w->pending--) {
            if (!w->first) {
                if (w->len < w->room) w->out[w->len] = (uchar)(byte + carry);
                w->len++;
            }
            w->first = false;
            byte = 0xff;
        }
        w->cache = (uint)(w->low >> 24) & 255u;
    }
    w->pending++;
    w->low = (w->low & 0x00ffffffu) << 8;
}

inline void put_bit(Writer *w, __local uint *model, bool bit) {
    uint m = *model;
    uint fast = m & 0xffffu;
    uint slow = m >> 16;
    uint bound = (w->range >> 16) * ((fast + slow) >> 1);
    if (bit) {
        w->low += bound;
        w->range -= bound;
        fast -= fast >> 4;
        slow -= slow >> 6;
    } else {
        w->range = bound;
        fast += (0xffffu - fast) >> 4;
        slow += (0xffffu - slow) >> 6;
    }
    *model = fast | slow << 16;
    while (w->range < 1u << 24) {
        w->range <<= 8;
        shift_out(w);
    }
}

inline void put_raw(Writer *w, uint count, uint value) {
    for (uint i = count; i-- > 0;) {
        w->range >>= 1;
        if ((value >> i & 1u) != 0) w->low += w->range;
        if (w->range < 1u << 24) {
            w->range <<= 8;
            shift_out(w);
        }
    }
}

// Models: 30 of the length, then 31 of the high bit.
inline void put_number(Writer *w, __local uint *model, uint value) {
    uint target = value + 1;
    uint top = 31u - clz(target);
    uint length = 0;
    while (length < 30) {
        bool longer = top > length;
        put_bit(w, &model[length], longer);
        if (!longer) break;
        length++;
    }
    if (length == 0) return;
    put_bit(w, &model[30 + length], (target >> (length - 1) & 1u) != 0);
    put_raw(w, length - 1, low_bits(target, length - 1));
}

inline void finish(Writer *w) {
    ulong high = w->low + w->range - 1;
    for (uint bits = 32; bits-- > 0;) {
        ulong rounded = high >> bits << bits;
        if (rounded >= w->low) {
            w->low = rounded;
            break;
        }
    }
    for (uint i = 0; i < 5; i++) shift_out(w);
    while (w->len > 0 && w->len <= w->room && w->out[w->len - 1] == 0) w->len--;
}

inline void describe_directory(
    Writer *w, __local uint *models, __global const uint *segments, uint count, uint len, uint segment_log)
{
    __local uint *shorter = models;
    __local uint *more = models + 1;
    __local uint *less = models + 62;
    __local uint *words = models + 123;
    __local uint *sets = models + 184;
    uint usual = 1u << segment_log;
    uint set_before = 0;
    for (uint s = 0; s < count; s++) {
        __global const uint *segment = segments + s * SEGMENT_WORDS;
        uint begin = segment[SEGMENT_BEGIN];
        uint end = s + 1 < count ? segment[SEGMENT_WORDS + SEGMENT_BEGIN] : len;
        uint bytes = end - begin;
        if (len - begin > min(usual, 8192u)) {
            put_bit(w, shorter, bytes < usual);
            if (bytes < usual) put_number(w, less, usual - bytes);
            else put_number(w, more, bytes - usual);
        }
        put_number(w, words, segment[SEGMENT_CODED]);
        uint set = segment[SEGMENT_SET];
        uint node = 1;
        for (uint bit = 3; bit-- > 0;) {
            bool b = (set >> bit & 1u) != 0;
            put_bit(w, &sets[set_before * 8u + node], b);
            node = node << 1 | (b ? 1u : 0u);
        }
        set_before = set;
    }
}

inline void describe_tables(
    Writer *w, __local uint *models, __global uint *exponents, __global const uint *fresh, uint sets, uint first,
    uint columns, uint tokens)
{
    __local uint *is_fresh = models;
    __local uint *present = models + 4;
    __local uint *zero = models + 12;
    __local uint *sign = models + 27;
    __local uint *more = models + 42;
    for (uint set = 0; set < sets; set++) {
        __global uint *of_set = exponents + set * CELLS;
        __global const uint *fresh_of_set = fresh + set * CONTEXTS;
        for (uint column = 0; column < columns; column++) {
            for (uint row = 0; row < 32; row++) {
                uint at = first + row * columns + column;
                uint above_at = row > 0 ? at - columns : at - 1;
                uint left_at = column > 0 ? at - 1 : above_at;
                bool has_near = row > 0 || column > 0;
                uint above_fresh = row > 0 ? fresh_of_set[at - columns] : 0;
                uint left_fresh = column > 0 ? fresh_of_set[at - 1] : 0;
                bool f = fresh_of_set[at] != 0;
                put_bit(w, &is_fresh[above_fresh * 2 + left_fresh], f);
                if (!f) {
                    // As a decoder has it, which counts where the tables that follow are told from this one.
                    for (uint t = 0; t < tokens; t++) of_set[at * 32u + t] = has_near ? of_set[above_at * 32u + t] : 0;
                    continue;
                }
                bool before_present = true;
                int before = 0;
                for (uint t = 0; t < tokens; t++) {
                    int q = (int)of_set[at * 32u + t];
                    int a = has_near ? (int)of_set[above_at * 32u + t] : 0;
                    int b = has_near ? (int)of_set[left_at * 32u + t] : 0;
                    put_bit(w, &present[(a > 0 ? 4 : 0) + (b > 0 ? 2 : 0) + (before_present ? 1 : 0)], q > 0);
                    before_present = q > 0;
                    if (q == 0) continue;
                    int guess = 4;
                    uint kind = 4;
                    if (a > 0 && b > 0) {
                        guess = (a + b + 1) / 2;
                        kind = min(2u, 31u - clz(abs(a - b) + 1u));
                    } else if (a > 0 || b > 0) {
                        guess = a + b;
                        kind = 3;
                    }
                    int difference = q - guess;
                    uint context = kind * 3 + min(2u, abs(before));
                    put_bit(w, &zero[context], difference != 0);
                    if (difference != 0) {
                        put_bit(w, &sign[kind * 3 + (before < 0 ? 0 : before > 0 ? 2 : 1)], difference < 0);
                        uint size = abs(difference);
                        uint n = 1;
                        while (n < 7) {
                            bool larger = size > n;
                            put_bit(w, &more[context * 6 + n - 1], larger);
                            if (!larger) break;
                            n++;
                        }
                        if (n == 7) put_raw(w, 6, size - 7);
                    }
                    before = difference;
                }
            }
        }
    }
}

// A workgroup for each of the three descriptions of a block, of which one work item writes.
__kernel void describe(
    __global const uint *jobs, __global uint *state, __global const uint *segments, __global uint *exponents,
    __global const uint *fresh, __global uint *described, uint slot, uint parts, uint start_log, uint segment_log)
{
    __local uint models[256];
    uint block = (uint)get_group_id(0) / 3u;
    uint which = (uint)get_group_id(0) % 3u;
    uint index = (uint)get_local_id(0);
    state += block * ENCODE_STATE;
    segments += (size_t)block * SEGMENTS(slot) * SEGMENT_WORDS;
    exponents += (size_t)block * SETS * CELLS;
    fresh += block * SETS * CONTEXTS;
    for (uint i = index; i < 256; i += THREADS) models[i] = NEW_MODEL;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (index > 0) return;
    uint begin = which == 0 ? 0 : which == 1 ? DIRECTORY_ROOM(slot) : DIRECTORY_ROOM(slot) + RANKS_ROOM;
    Writer w;
    w.out = (__global uchar *)described + (size_t)block * DESCRIBED_ROOM(slot) + begin;
    w.len = 0;
    w.room = which == 0 ? DIRECTORY_ROOM(slot) : which == 1 ? RANKS_ROOM : RUNS_ROOM;
    w.low = 0;
    w.range = 0xffffffffu;
    w.cache = 0;
    w.pending = 1;
    w.first = true;
    uint sets = state[ENCODE_SETS];
    if (which == 0) describe_directory(&w, models, segments, state[ENCODE_SEGMENTS], jobs[block * 8u], segment_log);
    else if (which == 1) describe_tables(&w, models, exponents, fresh, sets, 0, 4, 28);
    else describe_tables(&w, models, exponents, fresh, sets, RANK_CONTEXTS, 8, 29);
    finish(&w);
    state[ENCODE_LENGTHS + which] = min(w.len, w.room);
    if (w.len > w.room) atomic_or(&state[ENCODE_FULL], 1u);
}

inline uint row_bits(uint len) {
    return len > 1 ? 32u - clz(len - 1) : 0;
}

inline uint symbols_of(__global const uint *state) {
    uint symbols = 0;
    for (uint i = 0; i < 8; i++) symbols += popcount(state[ENCODE_USED + i]);
    return symbols;
}

// Where everything goes. One work item for a block.
__kernel void measure(
    __global const uint *jobs, __global uint *state, __global uint *segments, __global uint *results,
    uint slot, uint blocks, uint start_log)
{
    uint block = (uint)get_group_id(0) * THREADS + (uint)get_local_id(0);
    if (block >= blocks) return;
    state += block * ENCODE_STATE;
    segments += (size_t)block * SEGMENTS(slot) * SEGMENT_WORDS;
    uint len = jobs[block * 8u];
    uint words = 0;
    for (uint s = 0; s < state[ENCODE_SEGMENTS]; s++) {
        segments[s * SEGMENT_WORDS + SEGMENT_BEFORE] = words;
        words += segments[s * SEGMENT_WORDS + SEGMENT_CODED];
    }
    uint rows = ((len - 1) >> start_log) + 1;
    uint header = 3 + symbols_of(state) + (rows * row_bits(len) + 7) / 8 + 9;
    for (uint i = 0; i < 3; i++) header += state[ENCODE_LENGTHS + i];
    header = (header + 3) & ~3u;
    state[ENCODE_HEADER] = header;
    state[ENCODE_WORDS] = words;
    bool fits = state[ENCODE_FULL] == 0 && header + 4 * words <= slot + 256;
    results[block * 8u] = fits ? 0 : 1;
    results[block * 8u + 1] = fits ? header + 4 * words : 0;
}

// Writes the payloads of the blocks that fit.
__kernel void assemble(
    __global const uint *jobs, __global const uint *state, __global const uint *segments, __global const uint *lists,
    __global const uint *described, __global const uint *rows, __global const uint *words, __global uint *payload,
    uint slot, uint parts, uint start_log, uint segment_log)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    state += block * ENCODE_STATE;
    uint len = jobs[block * 8u];
    uint header = state[ENCODE_HEADER];
    if (state[ENCODE_FULL] != 0 || header + 4 * state[ENCODE_WORDS] > slot + 256) return;
    segments += (size_t)block * SEGMENTS(slot) * SEGMENT_WORDS;
    lists += (size_t)block * SEGMENTS(slot) * 64u;
    rows += (size_t)block * (slot / 256 + 1);
    words += (size_t)block * slot;
    payload += (size_t)block * (slot / 4 + 64);
    __global const uchar *text = (__global const uchar *)described + (size_t)block * DESCRIBED_ROOM(slot);

    uint symbols = symbols_of(state);
    uint bits = row_bits(len);
    uint row_count = ((len - 1) >> start_log) + 1;
    uint rows_at = 3 + symbols;
    uint lengths_at = rows_at + (row_count * bits + 7) / 8;
    uint directory_at = lengths_at + 9;
    uint ranks_at = directory_at + state[ENCODE_LENGTHS];
    uint runs_at = ranks_at + state[ENCODE_LENGTHS + 1];
    uint end = runs_at + state[ENCODE_LENGTHS + 2];
    for (uint i = part * THREADS + index; i < header / 4; i += parts * THREADS) {
        uint v = 0;
        for (uint k = 0; k < 4; k++) {
            uint at = i * 4 + k;
            uint byte = 0;
            if (at >= end) {
                byte = 0;
            } else if (at >= runs_at) {
                byte = text[DIRECTORY_ROOM(slot) + RANKS_ROOM + at - runs_at];
            } else if (at >= ranks_at) {
                byte = text[DIRECTORY_ROOM(slot) + at - ranks_at];
            } else if (at >= directory_at) {
                byte = text[at - directory_at];
            } else if (at >= lengths_at) {
                uint j = at - lengths_at;
                byte = state[ENCODE_LENGTHS + j / 3] >> (8 * (j % 3));
            } else if (at >= rows_at) {
                // All rows that have bits in this byte.
                uint from = (at - rows_at) * 8;
                for (uint r = from / bits; r < row_count && r * bits < from + 8; r++) {
                    uint row = rows[r] - 1;
                    uint begin = r * bits;
                    byte |= begin >= from ? row << (begin - from) : row >> (from - begin);
                }
            } else if (at >= 3) {
                byte = lists[(at - 3) >> 2] >> (8 * ((at - 3) & 3u));
            } else {
                byte = at == 0 ? (segment_log - 10) | (start_log - 8) << 4
                    : at == 1 ? state[ENCODE_SETS] - 1 : symbols - 1;
            }
            v |= (byte & 255u) << (8 * k);
        }
        payload[i] = v;
    }
    uint segment_count = state[ENCODE_SEGMENTS];
    for (uint s = part; s < segment_count; s += parts) {
        __global const uint *segment = segments + s * SEGMENT_WORDS;
        uint most = s + 1 < segment_count ? segment[SEGMENT_WORDS + SEGMENT_BEGIN] : len;
        uint coded = segment[SEGMENT_CODED];
        uint to = header / 4 + segment[SEGMENT_BEFORE];
        for (uint i = index; i < coded; i += THREADS) payload[to + i] = words[most - coded + i];
    }
}
