// Writes the descriptions of a payload's directory and tables (`payload.rs`, `tables.rs` and `binary.rs` in
// `codec/bwt`).
//
// @pz_cost {
//   threads: 96
//   passes: 1
//   buffers: jobs=32, encode_state=256, encode_segments=N/8192*32+32, encode_tables=393216, encode_fresh=12288,
//            encode_described=N/64+263168
//   local_mem: 1024
//   note: three lanes a block, each a chain of dependent decisions
// }

// @pz_import bwt_encode

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

// Models: 30 for the length, then 31 for the highest bit after the leading one.
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

// No table: all exponents are 0.
#define NONE 0xffffffffu

inline void describe_tables(
    Writer *w, __local uint *models, __global const uint *exponents, __global const uint *fresh, uint sets, uint first,
    uint columns, uint tokens)
{
    __local uint *is_fresh = models;
    __local uint *present = models + 4;
    __local uint *zero = models + 12;
    __local uint *sign = models + 27;
    __local uint *more = models + 42;
    // For each row, the number of the equal table: at first in the column to the left, then in this one. A table that
    // is not fresh has the exponents of its equal table.
    __local uint *equal_to = models + 132;
    for (uint set = 0; set < sets; set++) {
        __global const uint *of_set = exponents + set * CELLS;
        __global const uint *fresh_of_set = fresh + set * CONTEXTS;
        for (uint column = 0; column < columns; column++) {
            uint before_row = NONE;
            for (uint row = 0; row < 32; row++) {
                uint at = first + row * columns + column;
                uint before_column = column > 0 ? equal_to[row] : NONE;
                uint above = row > 0 ? before_row : before_column;
                uint left = column > 0 ? before_column : above;
                // Uses the table's own address, because CUDA's compiler turns `at` into (ulong)(at - n) + n, which is
                // wrong if `at` is less than n.
                __global const uint *own = fresh_of_set + at;
                uint above_fresh = row > 0 ? own[-(int)columns] : 0;
                uint left_fresh = column > 0 ? own[-1] : 0;
                bool f = own[0] != 0;
                put_bit(w, &is_fresh[above_fresh * 2 + left_fresh], f);
                before_row = f ? at : above;
                equal_to[row] = before_row;
                if (!f) continue;
                // Load the next token's data early.
                int next_q = (int)of_set[at * 32u];
                int next_a = above != NONE ? (int)of_set[above * 32u] : 0;
                int next_b = left != NONE ? (int)of_set[left * 32u] : 0;
                bool before_present = true;
                int before = 0;
                for (uint t = 0; t < tokens; t++) {
                    int q = next_q;
                    int a = next_a;
                    int b = next_b;
                    next_q = (int)of_set[at * 32u + t + 1u];
                    next_a = above != NONE ? (int)of_set[above * 32u + t + 1u] : 0;
                    next_b = left != NONE ? (int)of_set[left * 32u + t + 1u] : 0;
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

// One workgroup per description, three for each block. One of its work items writes.
__kernel void describe(
    __global const uint *jobs, __global uint *state, __global const uint *segments,
    __global const uint *exponents, __global const uint *fresh, __global uint *described, uint slot, uint segment_log)
{
    SHARED uint models[256];
    uint block = (uint)get_group_id(0) / 3u;
    uint which = (uint)get_group_id(0) % 3u;
    uint index = (uint)get_local_id(0);
    state += block * ENCODE_STATE;
    segments += SEGMENTS_AT(block, slot);
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
