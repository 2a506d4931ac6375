// BWT payloads: the second stage. Segments become runs of labels.
//
// A segment is decoded before the list at its start is known: positions in that list, labels, stand for bytes.
//
// @pz_cost {
//   threads_per_element: 0.001
//   passes: 1
//   buffers: payload=N+256, results=32,
//            bwt_blocks=512, bwt_segments=N/32+32, bwt_tables=208896,
//            bwt_histories=N+32768, bwt_lists=N/4+256, bwt_links=N*4+N/16+64
//   local_mem: 31380
//   note: a lane decodes a segment; what bounds it is the latency of a run times the runs of the longest segment
// }
// @pz_import bwt

// Units of 16 bytes of a lane's list: the first is in registers, NEAR more are in workgroup memory, and the others,
// which are needed less, where the list is to be in the end.
#define UNITS 15u
#define GET_UNIT(unit) ((unit) <= NEAR ? list[((unit) - 1u) * THREADS] : final[unit])
#define PUT_UNIT(unit, value) \
    if ((unit) <= NEAR) list[((unit) - 1u) * THREADS] = (value); else final[unit] = (value)
// The place of 8 starts of a table, so that tables' first eights are in different banks.
#define EIGHT(table, i) ((table) * 4u + (((i) + ((table) >> 1)) & 3u))
// Different tables of ranks, and of runs, that are in workgroup memory; the others, if there are more, are read from
// device memory.
#define KEPT_TABLES (2u * KEPT)

typedef struct {
    __global const uint *words;
    uint next;  // what to load next
    uint count; // of the segment
    uint taken;
    uint ahead0;
    uint ahead1;
} Words;

inline ulong refill(Words *w, ulong x) {
    if (x >> 32 == 0 && w->taken < w->count) {
        x = x << 32 | w->ahead0;
        w->taken += 1u;
        w->ahead0 = w->ahead1;
        w->ahead1 = w->next < w->count ? w->words[w->next] : 0u;
        w->next += 1u;
    }
    return x;
}

inline uint log_scale(uint value) {
    uint v = clamp(value, 1u, 255u);
    uint e = 31u - clz(v);
    uint scale = 16u * e + ((v << (7u - e) & 127u) >> 3);
    return value >= 255u ? 127u : scale;
}

// How many of eight starts are at most v, which stands in both halves of vv.
inline uint up_to(uint4 starts, uint vv) {
    uint high = 0x80008000u;
    uint4 r = ((uint4)(vv | high) - starts) & high;
    return popcount(r.x | r.y >> 1 | r.z >> 2 | r.w >> 3);
}

// Takes a token from the state, whose low bits are v, when `count` starts of its table are at most v. Tables in workgroup
// memory and in device memory are read by the same code in different address spaces.
#define TAKE_TOKEN(space, place)                                                            \
    space const ushort *starts = (space const ushort *)tables;                              \
    uint token = count - 1u;                                                                \
    uint start = starts[place(table, token >> 3) * 8u + (token & 7u)];                      \
    uint end = starts[place(table, (count & 31u) >> 3) * 8u + (count & 7u)];                \
    *state = (*state >> 12) * (end - start) + (v - start);                                  \
    return token;
#define IN_ORDER(table, i) ((table) * 4u + (i))

// The token that the state's low bits are in, and the state without it. `eights` has the starts that begin the second,
// third and fourth eight of each table.
inline uint take_token(__local const uint4 *tables, __local const uint2 *eights, uint table, ulong *state) {
    uint v = (uint)*state & 4095u;
    uint vv = v | v << 16;
    uint2 begins = eights[table];
    uint eight = popcount(((vv | 0x80008000u) - begins.x) & 0x80008000u) + (v >= begins.y ? 1u : 0u);
    uint count = 8u * eight + up_to(tables[EIGHT(table, eight)], vv);
    TAKE_TOKEN(__local, EIGHT)
}

inline uint take_token_far(__global const uint4 *tables, uint table, ulong *state) {
    uint v = (uint)*state & 4095u;
    uint vv = v | v << 16;
    uint count = up_to(tables[IN_ORDER(table, 0u)], vv);
    if (count == 8u) {
        count += up_to(tables[IN_ORDER(table, 1u)], vv);
        if (count == 16u) {
            count += up_to(tables[IN_ORDER(table, 2u)], vv);
            if (count == 24u) count += up_to(tables[IN_ORDER(table, 3u)], vv);
        }
    }
    TAKE_TOKEN(__global, IN_ORDER)
}

inline uint4 shift_in(uint4 unit, uint next) {
    return (uint4)(unit.x >> 8 | unit.y << 24, unit.y >> 8 | unit.z << 24, unit.z >> 8 | unit.w << 24,
                   unit.w >> 8 | next << 24);
}

// The mask of those of the first `count` bytes that are in the word at byte `from`.
inline uint first_bytes(uint count, uint from) {
    return count <= from ? 0u : count >= from + 4u ? 0xffffffffu : (1u << (8u * (count - from))) - 1u;
}

// A lane decodes a segment, and writes its runs as label | begin << 8 and the list that it leaves.
__kernel void segments(__global const uint *payload, __global uint *results, __global const uint *bwt_blocks,
                       __global uint *bwt_segments, __global const uint4 *bwt_tables, 
                       __global uint *bwt_histories, __global uint4 *bwt_lists, __global uint *bwt_links, uint slot, uint blocks,
                       uint groups) {
    __local uint4 tables[KEPT_TABLES * 4u];
    __local uint numbers[CONTEXTS / 4u]; // of tables, a byte for each context
    __local uint2 eights[KEPT_TABLES];
    __local uint4 lists[NEAR * THREADS];
    __local uint4 masks[17]; // so many bytes
    __local uint shared_go;
    uint block = (uint)get_group_id(0) / groups;
    if (block >= blocks) return;
    uint group = (uint)get_group_id(0) % groups;
    uint local_index = (uint)get_local_id(0);
    __global const uint *info = bwt_blocks + block * BLOCK_WORDS;

    // The set of tables of this group, and its segments in the order.
    uint set = 0u;
    uint first = 0u;
    for (; set < MAX_SETS; set++) {
        uint size = info[BLOCK_SET_SIZES + set];
        uint its = (size + THREADS - 1u) / THREADS;
        if (group < its) break;
        group -= its;
        first += size;
    }
    for (uint i = local_index; i < 17u; i += THREADS) {
        masks[i] = (uint4)(first_bytes(i, 0u), first_bytes(i, 4u), first_bytes(i, 8u), first_bytes(i, 12u));
    }
    if (local_index == 0u) shared_go = set < MAX_SETS && results[block * RESULT_WORDS] == 0u ? 1u : 0u;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (shared_go == 0u) return;
    uint place = group * THREADS + local_index;
    bool has_segment = place < info[BLOCK_SET_SIZES + set];
    place += first;
    __global const uint4 *source = bwt_tables + (size_t)block * (TABLES_OF / 4u) + set * (CONTEXTS * 4u);
    __global const uint *all_numbers = (__global const uint *)(bwt_tables + (size_t)block * (TABLES_OF / 4u)) + NUMBERS_AT
        + set * CONTEXTS;
    for (uint i = local_index; i < CONTEXTS / 4u; i += THREADS) {
        uint four = 0u;
        for (uint k = 0u; k < 4u; k++) four |= min(all_numbers[4u * i + k] & 0xffffu, 255u) << (8u * k);
        numbers[i] = four;
    }
    for (uint i = local_index; i < CONTEXTS; i += THREADS) {
        uint number = all_numbers[i];
        uint table = (number & 0xffffu) + (i < RANK_CONTEXTS ? 0u : KEPT);
        if (number >= NUMBER_IS_FIRST && (number & 0xffffu) < KEPT) {
            for (uint k = 0u; k < 4u; k++) tables[EIGHT(table, k)] = source[4u * i + k];
            eights[table] = (uint2)((source[4u * i + 1u].x & 0xffffu) | source[4u * i + 2u].x << 16,
                                    source[4u * i + 3u].x & 0xffffu);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!has_segment) return;

    uint segment = bwt_segments[SEGMENTS_AT(block, slot) + ORDER_AT(slot) + place];
    __global uint *entry = bwt_segments + SEGMENTS_AT(block, slot) + segment * SEGMENT_WORDS;
    uint at = entry[0];
    uint end = entry[1];
    Words w;
    w.words = payload + (size_t)info[BLOCK_PAYLOAD] * 4u + info[BLOCK_WORDS_AT] + entry[2];
    w.count = entry[3] & 0xffffu;
    w.taken = 0u;
    w.ahead0 = w.count > 0u ? w.words[0] : 0u;
    w.ahead1 = w.count > 1u ? w.words[1] : 0u;
    w.next = 2u;

    // Histories of 32 lanes are interleaved.
    __global uint *histories = bwt_histories + ((size_t)block * (slot + 32768u) / 4u)
        + (size_t)(place >> 5) * 8192u + (place & 31u);
    for (uint label = 0u; label < 256u; label++) histories[label * 32u] = log_scale(label + 1u) << 8 | 8u << 24;
    __local uint4 *list = lists + local_index;
    uint4 front = (uint4)(0x03020100u, 0x07060504u, 0x0b0a0908u, 0x0f0e0d0cu);
    __global uint4 *final = bwt_lists + (size_t)block * (slot / 64u + 16u) + segment * 16u;
    for (uint unit = 1u; unit <= UNITS; unit++) {
        PUT_UNIT(unit, front + 0x10101010u * unit);
    }

    __global uint4 *out = (__global uint4 *)(bwt_links + block * LINKS_OF(slot) + RUNS_AT(at, segment));
    uint4 runs = (uint4)(0u);
    uint rank_mean = 24u << 8;
    uint run_mean = 10u << 8;
    ulong x = refill(&w, 0);
    x = refill(&w, x);
    uint history = histories[0];
    uint bad = 30u;
    uint count = 0u;
    while (count < MAX_RUNS) {
        uint symbol = front.x & 255u;
        // The symbol of the next run but where a rank is 0, which it need not be.
        uint second = front.x >> 8 & 255u;
        uint history_of_second = histories[second * 32u];
        uint h = history & 0xffffu;
        uint j = history >> 16;
        uint rank_context = min(31u, (6u * h + 2u * rank_mean) >> 13) * 4u + min(3u, rank_mean >> 13);
        uint run_context = RANK_CONTEXTS + min(31u, (7u * j + run_mean) >> 12) * 8u + min(7u, h >> 11);

        uint rank_table = byte_of_list(numbers, rank_context);
        uint run_table = byte_of_list(numbers, run_context);

        uint token = 0u;
        if (rank_table < KEPT) {
            token = take_token(tables, eights, rank_table, &x);
        } else {
            token = take_token_far(source, rank_context, &x);
        }
        uint rank = token + 1u;
        if (token >= 8u) {
            uint bits = ((token - 8u) >> 2) + 1u;
            rank = (((4u + (token & 3u)) << bits) + ((uint)x & ((1u << bits) - 1u)) + 1u) & 255u;
            x >>= bits;
        }
        if (run_table < KEPT) {
            token = take_token(tables, eights, KEPT + run_table, &x);
        } else {
            token = take_token_far(source, run_context, &x);
        }
        x = refill(&w, x);
        uint length = token + 1u;
        if (token >= 8u) {
            if (token < 28u) {
                uint bits = ((token - 8u) >> 1) + 2u;
                length = ((2u + (token & 1u)) << bits) + ((uint)x & ((1u << bits) - 1u)) + 1u;
                x >>= bits;
            } else {
                uint v = (uint)x;
                if (v < MAX_RUNS) {
                    bad = 31u;
                    break;
                }
                length = v == 0xffffffffu ? v : v + 1u;
                x >>= 32;
            }
            x = refill(&w, x);
        }

        uint rank_log = log_scale(rank);
        rank_log = rank == 0u ? 0u : rank_log;
        uint run_log = log_scale(length);
        history = history - (history >> 3 & 0x1fff1fffu) + (rank_log << 5 | run_log << 21);
        histories[symbol * 32u] = history;
        history = rank == 0u ? history : history_of_second;
        rank_mean = rank_mean - (rank_mean >> 3) + (rank_log << 5);
        run_mean = run_mean - (run_mean >> 3) + (run_log << 5);

        // Symbols move one place to the front, up to the rank.
        uint units = rank >> 4;
        uint4 unit = front;
        for (uint i = 0u; i < units; i++) {
            uint4 next = GET_UNIT(i + 1u);
            uint4 shifted = shift_in(unit, next.x);
            if (i == 0u) {
                front = shifted;
            } else {
                PUT_UNIT(i, shifted);
            }
            unit = next;
        }
        // Those before the rank move, the symbol comes behind them, the others stay.
        uint4 before = masks[rank & 15u];
        uint4 upto = masks[(rank & 15u) + 1u];
        uint4 changed = (shift_in(unit, 0u) & before) | ((uint4)(symbol * 0x01010101u) & ~before);
        unit = (changed & upto) | (unit & ~upto);
        if (units == 0u) {
            front = unit;
        } else {
            PUT_UNIT(units, unit);
        }

        if (length > end - at) {
            bad = 32u;
            break;
        }
        runs = (uint4)(runs.yzw, symbol | at << 8);
        count += 1u;
        if ((count & 3u) == 0u) {
            *out = runs;
            out += 1;
            // At most as many runs as bytes: what `out` points at is the segment's own.
        }
        at += length;
        if (at == end) {
            bad = x == 1 && w.taken == w.count ? 0u : 33u;
            break;
        }
    }
    if (bad != 0u) {
        results[block * RESULT_WORDS] = bad;
        return;
    }
    if ((count & 3u) != 0u) {
        for (uint i = count & 3u; i < 4u; i++) runs = (uint4)(runs.yzw, 0u);
        *out = runs;
    }
    entry[2] = count;
    final[0] = front;
    for (uint unit = 1u; unit <= NEAR; unit++) final[unit] = list[(unit - 1u) * THREADS];
}
