// BWT payloads, second stage: decodes segments into runs of labels.
//
// A segment is decoded before the list at its start is known, so labels, which are positions in that list, represent
// bytes.
//
// @pz_cost {
//   threads: ((N/1024+1)/96+8)*96
//   passes: 1
//   buffers: payload=N+256, results=32,
//            bwt_blocks=512, bwt_segments=N/1024*20+20, bwt_tables=208896,
//            bwt_histories=N+32768, bwt_lists=N/4+256, bwt_links=N*4+N/16+64
//   local_mem: 31380
//   note: a lane decodes a segment; the time is the latency of a run, times the runs of the longest segment
// }
// @pz_import bwt

#if TEAM_PTX
// Start the load here: compilers delay a load until its first use, and would then wait for it.
inline uint load_now(__global const uint *p) {
    uint r;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(r) : "l"((ulong)p) : "memory");
    return r;
}
#define LOAD_NOW(p) load_now(p)
#else
#define LOAD_NOW(p) (*(p))
#endif

// A lane's list in units of 16 bytes. The first unit is in registers, the next NEAR units are in workgroup memory, and
// the rest, which is needed less often, is in the place of the finished list.
#define UNITS 15u
#define GET_UNIT(unit) ((unit) <= NEAR ? list[((unit) - 1u) * THREADS] : final[unit])
#define PUT_UNIT(unit, value) \
    if ((unit) <= NEAR) list[((unit) - 1u) * THREADS] = (value); else final[unit] = (value)
// The place of eight starts of a table, spread so that the first eights of tables are in different banks.
#define EIGHT(table, i) ((table) * 4u + (((i) + ((table) >> 1)) & 3u))
// KEPT distinct rank tables, and as many run tables, are in workgroup memory. The others are read from device memory.
#define KEPT_TABLES (2u * KEPT)

// A segment's words, in pairs. A run takes at most two words, so they are ready before it begins. The load of the next
// pair starts when a run begins, and the wait for it is at the run's end.
typedef struct {
    __global const uint2 *pairs; // of the payload, from the pair with the segment's first word on
    uint2 now;
    uint2 after;
    uint2 coming;
    uint loaded; // pairs
    uint end;    // of the segment
    uint odd;    // whether the next word is the second of `now`
    uint left;   // words
    uint taken;  // since words_begin
} Words;

inline void words_start(Words *w, __global const uint *payload, size_t first, uint count) {
    w->pairs = (__global const uint2 *)(payload + (first & ~(size_t)1));
    w->odd = (uint)first & 1u;
    w->left = count;
    w->end = count > 0u ? (w->odd + count + 1u) >> 1 : 0u;
    w->now = w->end > 0u ? w->pairs[0] : UINT2(0u);
    w->after = w->end > 1u ? w->pairs[1] : UINT2(0u);
    w->coming = w->end > 2u ? w->pairs[2] : UINT2(0u);
    w->loaded = 3u;
    w->taken = 0u;
}

// Called before a run.
inline void words_begin(Words *w) {
    if (w->taken > 1u && w->loaded - 1u < w->end) w->coming = w->pairs[w->loaded - 1u];
    w->taken = 0u;
}

// Called after a run.
inline void words_end(Words *w) {
    uint taken = w->odd + w->taken;
    bool next = taken > 1u;
    w->now = next ? w->after : w->now;
    w->after = next ? w->coming : w->after;
    w->loaded += next ? 1u : 0u;
    w->odd = taken & 1u;
    w->taken = taken;
}

inline ulong refill(Words *w, ulong x) {
    bool takes = x >> 32 == 0 && w->left > 0u;
    uint at = w->odd + w->taken;
    uint word = at == 0u ? w->now.x : at == 1u ? w->now.y : w->after.x;
    w->left -= takes ? 1u : 0u;
    w->taken += takes ? 1u : 0u;
    return takes ? x << 32 | word : x;
}

// A logarithm of the smaller of the value and 255: 16 times the exponent, plus the four bits after the highest one, as
// in floating-point numbers. For 0 it is 0.
inline uint log_scale(uint value) {
    return max(as_uint((float)min(value, 255u)) >> 19, 127u << 4) - (127u << 4);
}

// The number of the eight starts that are at most v, which is in both halves of vv.
inline uint up_to(uint4 starts, uint vv) {
    uint high = 0x80008000u;
    uint4 r = (UINT4(vv | high) - starts) & high;
    return popcount(r.x | r.y >> 1 | r.z >> 2 | r.w >> 3);
}

// The state after removing the token that covers `start` up to `end`. The state's low bits are v.
inline ulong without(ulong state, uint v, uint start, uint end) {
    return (state >> 12) * (end - start) + (v - start);
}

// The token that the state's low bits select, and the state without it. `eights` holds the starts of the second,
// third and fourth group of eight in each table.
inline uint take_token(__local const uint4 *tables, __local const uint2 *eights, uint table, ulong *state) {
    __local const ushort *starts = (__local const ushort *)tables;
    uint v = (uint)*state & 4095u;
    uint vv = v | v << 16;
    uint2 begins = eights[table];
    uint eight = popcount(((vv | 0x80008000u) - begins.x) & 0x80008000u) + (v >= begins.y ? 1u : 0u);
    uint place = EIGHT(table, eight);
    uint following = EIGHT(table, eight + 1u) * 8u;
    // At least 1, because the first of the eight is at most v.
    uint count = up_to(tables[place], vv);
    uint at = place * 8u + count;
    *state = without(*state, v, starts[at - 1u], starts[count < 8u ? at : following]);
    return 8u * eight + count - 1u;
}

// The same with a table in device memory.
inline uint take_token_far(__global const uint4 *tables, uint table, ulong *state) {
    __global const ushort *starts = (__global const ushort *)(tables + table * 4u);
    uint v = (uint)*state & 4095u;
    uint vv = v | v << 16;
    __global const uint4 *eights = tables + table * 4u;
    uint count = up_to(eights[0], vv) + up_to(eights[1], vv) + up_to(eights[2], vv) + up_to(eights[3], vv);
    *state = without(*state, v, starts[count - 1u], starts[count & 31u]);
    return count - 1u;
}

inline uint4 shift_in(uint4 unit, uint next) {
    return UINT4(unit.x >> 8 | unit.y << 24, unit.y >> 8 | unit.z << 24, unit.z >> 8 | unit.w << 24,
                   unit.w >> 8 | next << 24);
}

// The mask, for the word at byte `from`, of its bytes among the first `count`.
inline uint first_bytes(uint count, uint from) {
    return count <= from ? 0u : count >= from + 4u ? 0xffffffffu : (1u << (8u * (count - from))) - 1u;
}

// Each lane decodes a segment, and writes its runs as label | begin << 8, and its final list.
__kernel void segments(__global const uint *payload, __global uint *results, __global const uint *bwt_blocks,
                       __global uint *bwt_segments, __global const uint4 *bwt_tables, 
                       __global uint *bwt_histories, __global uint4 *bwt_lists, __global uint *bwt_links, uint slot, uint blocks,
                       uint groups) {
    SHARED uint4 tables[KEPT_TABLES * 4u];
    SHARED uint numbers[CONTEXTS / 4u]; // table numbers, a byte for each context
    SHARED uint2 eights[KEPT_TABLES];
    SHARED uint4 lists[NEAR * THREADS];
    SHARED uint4 masks[17]; // masks[n] covers the first n bytes
    SHARED uint shared_go;
    // The first groups of all blocks come first. This spreads groups with work, and the longest segments, over all
    // processors.
    uint block = (uint)get_group_id(0) % blocks;
    uint group = (uint)get_group_id(0) / blocks;
    if (group >= groups) return;
    uint local_index = (uint)get_local_id(0);
    __global const uint *info = bwt_blocks + block * BLOCK_WORDS;

    // This group's set of tables, and the place of its segments in the decoding order.
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
        masks[i] = UINT4(first_bytes(i, 0u), first_bytes(i, 4u), first_bytes(i, 8u), first_bytes(i, 12u));
    }
    if (local_index == 0u) shared_go = set < MAX_SETS && results[block * RESULT_WORDS] == 0u ? 1u : 0u;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (shared_go == 0u) return;
    uint place = group * THREADS + local_index;
    bool has_segment = place < info[BLOCK_SET_SIZES + set];
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
            eights[table] = UINT2((source[4u * i + 1u].x & 0xffffu) | source[4u * i + 2u].x << 16,
                                    source[4u * i + 3u].x & 0xffffu);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    // Lanes without a segment read the first one and do nothing: some compilers would treat a branch around all of this
    // as uniform for the workgroup.
    place = first + (has_segment ? place : 0u);
    uint segment = bwt_segments[SEGMENTS_AT(block, slot) + ORDER_AT(slot) + place];
    __global uint *entry = bwt_segments + SEGMENTS_AT(block, slot) + segment * SEGMENT_WORDS;
    uint at = entry[0];
    uint end = entry[1];
    Words w;
    words_start(&w, payload, (size_t)info[BLOCK_PAYLOAD] * 4u + info[BLOCK_WORDS_AT] + entry[2],
                has_segment ? entry[3] & 0xffffu : 0u);

    // Histories of 32 lanes are interleaved.
    __global uint *histories = bwt_histories + ((size_t)block * (slot + 32768u) / 4u)
        + (size_t)(place >> 5) * 8192u + (place & 31u);
    uint labels = has_segment ? 256u : 0u;
    for (uint label = 0u; label < labels; label++) histories[label * 32u] = log_scale(label + 1u) << 8 | 8u << 24;
    __local uint4 *list = lists + local_index;
    uint4 front = UINT4(0x03020100u, 0x07060504u, 0x0b0a0908u, 0x0f0e0d0cu);
    __global uint4 *final = bwt_lists + (size_t)block * (slot / 64u + 16u) + segment * 16u;
    uint units = has_segment ? UNITS : 0u;
    for (uint unit = 1u; unit <= units; unit++) {
        PUT_UNIT(unit, front + 0x10101010u * unit);
    }

    __global uint4 *out = (__global uint4 *)(bwt_links + block * LINKS_OF(slot) + RUNS_AT(at, segment));
    uint4 runs = UINT4(0u);
    uint rank_mean = 24u << 8;
    uint run_mean = 10u << 8;
    ulong x = refill(&w, 0);
    x = refill(&w, x);
    words_end(&w);
    uint history = histories[0];
    uint bad = has_segment ? 30u : 0u;
    uint count = 0u;
    uint most = has_segment ? MAX_RUNS : 0u;
    while (count < most) {
        uint symbol = front.x & 255u;
        // Unless the next rank is 0, the list's second symbol may come next: load its history early.
        uint second = front.x >> 8 & 255u;
        uint history_of_second = LOAD_NOW(histories + second * 32u);
        words_begin(&w);
        uint h = history & 0xffffu;
        uint j = history >> 16;
        uint rank_context = min(31u, (6u * h + 2u * rank_mean) >> 13) * 4u + min(3u, rank_mean >> 13);
        uint run_context = RANK_CONTEXTS + min(31u, (7u * j + run_mean) >> 12) * 8u + min(7u, h >> 11);
        uint rank_table = ((__local const uchar *)numbers)[rank_context];
        uint run_table = ((__local const uchar *)numbers)[run_context];

        uint token = 0u;
        if (rank_table < KEPT) {
            token = take_token(tables, eights, rank_table, &x);
        } else {
            token = take_token_far(source, rank_context, &x);
        }
        uint bits = token < 8u ? 0u : (token - 4u) >> 2;
        uint rank = token < 8u ? token : (4u + (token & 3u)) << bits;
        rank = (rank + ((uint)x & ((1u << bits) - 1u)) + 1u) & 255u;
        x >>= bits;
        if (run_table < KEPT) {
            token = take_token(tables, eights, KEPT + run_table, &x);
        } else {
            token = take_token_far(source, run_context, &x);
        }
        x = refill(&w, x);
        uint length = token + 1u;
        if (token >= 8u) {
            if (token < 28u) {
                bits = ((token - 8u) >> 1) + 2u;
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
        uint run_log = log_scale(length);
        history = history - (history >> 3 & 0x1fff1fffu) + (rank_log << 5 | run_log << 21);
        histories[symbol * 32u] = history;
        history = rank == 0u ? history : history_of_second;
        rank_mean = rank_mean - (rank_mean >> 3) + (rank_log << 5);
        run_mean = run_mean - (run_mean >> 3) + (run_log << 5);

        // Symbols move one place to the front, up to the rank.
        uint4 before = masks[rank & 15u];
        uint4 upto = masks[(rank & 15u) + 1u];
        units = rank >> 4;
        uint4 unit = front;
        if (units > 0u) {
            uint4 next = GET_UNIT(1u);
            front = shift_in(unit, next.x);
            unit = next;
        }
        // Read all before writing any, so that the loads overlap.
        for (uint i = 1u; i < units; i += 4u) {
            uint second_unit = min(i + 2u, units);
            uint third = min(i + 3u, units);
            uint fourth = min(i + 4u, units);
            uint4 next0 = GET_UNIT(i + 1u);
            uint4 next1 = GET_UNIT(second_unit);
            uint4 next2 = GET_UNIT(third);
            uint4 next3 = GET_UNIT(fourth);
            PUT_UNIT(i, shift_in(unit, next0.x));
            if (i + 1u < units) {
                PUT_UNIT(i + 1u, shift_in(next0, next1.x));
            }
            if (i + 2u < units) {
                PUT_UNIT(i + 2u, shift_in(next1, next2.x));
            }
            if (i + 3u < units) {
                PUT_UNIT(i + 3u, shift_in(next2, next3.x));
            }
            // After the last unit, all of these repeat that unit.
            unit = next3;
        }
        // The symbols before the rank move back, this symbol goes to the front, and the rest stays.
        uint4 changed = (shift_in(unit, 0u) & before) | (UINT4(symbol * 0x01010101u) & ~before);
        unit = (changed & upto) | (unit & ~upto);
        if (units == 0u) {
            front = unit;
        } else {
            PUT_UNIT(units, unit);
        }
        words_end(&w);

        if (length > end - at) {
            bad = 32u;
            break;
        }
        runs = FOLLOWED_BY(runs, symbol | at << 8);
        count += 1u;
        if ((count & 3u) == 0u) {
            *out = runs;
            out += 1;
            // There are at most as many runs as bytes, so `out` stays within the segment's own part.
        }
        at += length;
        if (at == end) {
            bad = x == 1 && w.left == 0u ? 0u : 33u;
            break;
        }
    }
    if (bad != 0u) results[block * RESULT_WORDS] = bad;
    if (count > 0u && bad == 0u) {
        if ((count & 3u) != 0u) {
            for (uint i = count & 3u; i < 4u; i++) runs = FOLLOWED_BY(runs, 0u);
            *out = runs;
        }
        entry[2] = count;
        final[0] = front;
        for (uint unit = 1u; unit <= NEAR; unit++) final[unit] = list[(unit - 1u) * THREADS];
    }
}
