// The optimal parse of LZ77: finds the cheapest path through each segment, by the prices of its chunk's symbols. The
// rule is that of codec::lz77::optimal; `lz77_low` and `lz77_high` hold the candidates.
//
// Each work item parses one segment and visits its positions in order: with a team per segment, most lanes would be
// idle at each position. A workgroup's segments are neighbours, so mostly of the same chunk. A sampling pass parses
// only each 2^SPACING_LOG-th segment; `segments` counts the parsed segments of a block.
//
// Rings in workgroup memory hold the best known step to each of the next RING - 1 positions, a word each:
// `price << 11 | 127 - length << 4 | source`. The source is 0 to 2 for a recent offset, else 3 + place in the list.
// Among words with equal prices, the one with the longer step is less. That step came first, so the smaller word
// follows the rule. Prices are modulo 2^21, which is 4,096 bits each way. A literal costs at most 20 bits, so RING
// positions cost less than FAR: an unknown position's price is that of the position RING before it, plus FAR. And a
// position costs at most 1,400 bits more than a later one, because the parse also tries matches that end in between.
// Candidates longer than all earlier ones at a position are records. Each reachable length belongs to the first record
// of at least that length.
//
// `entries` is free by now, and receives the match that reaches each position: offset | length - 3 << 24, and symbol of
// the offset if it is recent, else 3, | literals before the match << 2. The entry for position p is at p - 1. If a
// literal leads to the segment's end, its entry there has offset 0 and the literals.
//
// Matches are longer than one byte, so only the literal at the previous position can still change the step to the next
// position. The parse tries that literal first. The loads for the next position then run during the rest of the work at
// the previous one.
//
// A match at a recent offset continues at the next position without a comparison, because the parse keeps its length
// beside the offset, 0 if unknown. It is unknown after a listed match, which may be the inherited rest of a longer one.
//
// Some drivers stop an invocation after 65,535 iterations. So `parse` can handle a part of the positions, save its
// state in `lz77_states`, and continue from there. For each of the last RING positions, a workgroup has a row of
// states there: recent offsets | length << 24, and literals since the last match | matches << 15. Then come RING / 4
// rows for the rings, and two for the rest.
//
// Constants: SEGMENT_LOG, 12 to 14; SPACING_LOG, at most the logarithm of a chunk's number of segments; CHUNKS, the
// chunks of a workgroup's segments; NICE_LENGTH, at most RING; EVERY_LENGTH, at most 66; COUNT, whether to count
// symbols for the next pass.
//
// @pz_cost {
//   threads: N/262144*16
//   passes: 4
//   buffers: jobs=32, contents=N, lz77_low=N*16, lz77_high=N*16, lz77_symbols=N/65536*4608, entries=N*8, lz77_states=N/4096*2592,
//            matches=N*3, match_counts=N/64
//   local_mem: 12768
// }
// @pz_import lz77_chunk_prices
// @pz_import lz77_long_length
// @pz_import lz77_price_table
// @pz_import lz77_words

#define ALL 0xffffffffu
#define LONGEST 256u
#define RING 128u
// A position's records, and one more that the loop may read.
#define RECORDS 12u
#define ROWS (RING + RING / 4u + 2u)
// Fields of words in rings.
#define SOURCE_MASK 15u
#define OFFSET_MASK 0xffffffu
#define FAR (2680u * BIT * ONE_PRICE)

// Takes a candidate as a record if it is longer than all before.
#define CANDIDATE(its_length, its_offset, its_source, symbol)                                        \
    if ((its_length) > longest) {                                                                    \
        longest = its_length;                                                                        \
        offset = its_offset;                                                                         \
        source = its_source;                                                                         \
        record = base + table[TABLE_OFFSETS + (symbol)] * ONE_PRICE + source;                        \
        record_prices[records * THREADS + lane] = record;                                            \
        record_lengths[records * THREADS + lane] = longest;                                          \
        near |= longest < 35u ? 1u << (longest - 3u) : 0;                                            \
        far |= longest >= 35u && longest < 67u ? 1u << (longest - 35u) : 0;                          \
        records++;                                                                                   \
    }

#define LISTED(word, place)                                                                          \
    if ((word) != 0) {                                                                               \
        uint listed = min(((word) >> 24) + 3u, len - i), distance = (word) & 0xffffffu;              \
        CANDIDATE(listed, distance, 3u + (place), offset_symbol(distance))                           \
    }

// Where position `p` is in the rings.
#define PLACE(p) (((p) & (RING - 1u)) * THREADS + lane)

// Loads the data of position `p`.
#define ASK_FOR(p)                                                                                   \
    {                                                                                                \
        uint there = start + (p), its_reach = there - window_start;                                  \
        uint from_a = recent_a <= its_reach && known_a == 0 ? there - recent_a : there;                              \
        uint from_b = recent_b <= its_reach && known_b == 0 ? there - recent_b : there;                              \
        uint from_c = recent_c <= its_reach && known_c == 0 ? there - recent_c : there;                              \
        own = contents[min(there >> 2, most_word)];                                                  \
        own_next = contents[min((there >> 2) + 1u, most_word)];                                      \
        at_a = contents[min(from_a >> 2, most_word)];                                                \
        next_a = contents[min((from_a >> 2) + 1u, most_word)];                                       \
        at_b = contents[min(from_b >> 2, most_word)];                                                \
        next_b = contents[min((from_b >> 2) + 1u, most_word)];                                       \
        at_c = contents[min(from_c >> 2, most_word)];                                                \
        next_c = contents[min((from_c >> 2) + 1u, most_word)];                                       \
        list_a = UINT4(0);                                                                           \
        if ((p) < last) {                                                                            \
            list_a = low[p];                                                                         \
            list_b = high[p];                                                                        \
        }                                                                                            \
    }

__kernel void parse(__global const uint *restrict jobs, __global const uint *restrict contents,
                    __global const uint4 *restrict low, __global const uint4 *restrict high,
                    __global const uint *restrict symbols, __global uint2 *restrict paths, __global uint4 *restrict states,
                    __global uint *restrict match_counts, uint slot, uint segments, uint blocks, uint window_log,
                    uint chunk_log, uint symbol_stride, uint state_stride, uint first, uint steps) {
    SHARED uint ring[RING * THREADS];
    SHARED uint record_prices[RECORDS * THREADS], record_lengths[RECORDS * THREADS];
    SHARED uint tables[CHUNKS * TABLE_WORDS] __attribute__((aligned(16)));
    uint lane = (uint)get_local_id(0);
    uint groups = (segments + THREADS - 1u) / THREADS;
    uint block = (uint)get_group_id(0) / groups, first_number = (uint)get_group_id(0) % groups * THREADS;
    if (block >= blocks) return;
    uint number = (first_number + lane) << SPACING_LOG;
    uint block_len = jobs[(size_t)block * 8];
    uint start = number << SEGMENT_LOG, end = max(start, min(start + (1u << SEGMENT_LOG), block_len));
    uint len = first_number + lane < segments ? end - start : 0, words = slot >> 2;
    contents += (size_t)block * words;
    low += (size_t)block * slot + start;
    high += (size_t)block * slot + start;
    __global const uint *low_words = (__global const uint *)low, *high_words = (__global const uint *)high;
    paths += (size_t)block * slot + start;
    symbols += (size_t)block * symbol_stride;
    match_counts += (size_t)block * (slot >> 8);
    uint lanes = min(segments - first_number, THREADS);
    states += (size_t)block * state_stride + first_number * ROWS + lane;

    uint first_chunk = first_number >> (chunk_log - SEGMENT_LOG - SPACING_LOG);
    for (uint c = 0; c < CHUNKS; c++) {
        if ((first_chunk + c) << chunk_log >= block_len) break;
        for (uint k = lane; k < TABLE_WORDS; k += THREADS)
            tables[c * TABLE_WORDS + k] = table_word(symbols + (first_chunk + c) * SYMBOL_WORDS, k);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const uint *table =
        tables + (len != 0 ? (start >> chunk_log) - first_chunk : 0) * TABLE_WORDS;

    // Positions from here on have no candidates.
    uint last = max(min(end, block_len < 8u ? 0 : block_len - 7u), start) - start;
    uint window_start = start >> window_log << window_log;
    // Not a constant, because compilers would unroll the loops over it, and use too many registers.
    uint rows = state_stride != 0 ? RING : 0;
    // The position; the recent offsets there, the known lengths of their matches, the literals since the last match,
    // the number of matches, and the price; then the farthest position reached so far.
    uint i = 0;
    uint recent_a = 0, recent_b = 0, recent_c = 0, known_a = 0, known_b = 0, known_c = 0;
    uint run = 0, count = 0, price = table[TABLE_RUNS] * ONE_PRICE, reached = 0;
    if (first == 0) {
        if ((start & ((1u << chunk_log) - 1u)) == 0) {
            recent_a = 1u;
            recent_b = 4u;
            recent_c = 8u;
        }
        for (uint k = 0; k < rows; k++) ring[PLACE(k)] = price + FAR;
        if (first_number + lane < segments) match_counts[number] = 0;
    } else if (len != 0) {
        for (uint k = 0; k < rows / 4u; k++) {
            uint4 four = states[(RING + k) * lanes];
            ring[PLACE(4u * k)] = four.x;
            ring[PLACE(4u * k + 1u)] = four.y;
            ring[PLACE(4u * k + 2u)] = four.z;
            ring[PLACE(4u * k + 3u)] = four.w;
        }
        uint4 a = states[(RING + RING / 4u) * lanes], b = states[(RING + RING / 4u + 1u) * lanes];
        i = a.x;
        run = a.y & 0x7fffu;
        count = a.y >> 15;
        price = a.z;
        reached = a.w;
        recent_a = b.x & OFFSET_MASK;
        recent_b = b.y & OFFSET_MASK;
        recent_c = b.z & OFFSET_MASK;
        known_a = b.x >> 24;
        known_b = b.y >> 24;
        known_c = b.z >> 24;
    }

    uint stop = len != 0 ? min(first + steps, len) : 0;
    // The loaded data of a position: its bytes, those at the recent offsets, and its list.
    uint own = 0, own_next = 0, at_a = 0, next_a = 0, at_b = 0, next_b = 0, at_c = 0, next_c = 0;
    uint4 list_a = UINT4(0), list_b = UINT4(0);
    uint most_word = words - 1u;
    ASK_FOR(i)
    while (i < stop) {
        uint pos = start + i, place = PLACE(i), shift = (pos & 3u) * 8u;
        uint bytes = bytes_of(own, own_next, shift);
        uint extra = run_bits(run), row = min(run, 7u);
        uint base = price - (table[TABLE_RUNS + row] + extra) * ONE_PRICE;
        uint literal = half_of(table[TABLE_LITERALS + ((bytes & 255u) >> 1)], bytes) + table[TABLE_RUNS + min(run + 1u, 7u)];
        literal = base + (literal + run_bits(run + 1u)) * ONE_PRICE + 126u * ONE_LENGTH;
        base += (table[TABLE_RUNS] + extra) * ONE_PRICE;
        ring[place] = price + FAR;

        // The best step to the next position.
        uint arrival = ring[PLACE(i + 1u)];
        if ((int)(literal - arrival) < 0) arrival = literal;
        uint arrival_length = 127u - (arrival / ONE_LENGTH & 127u), arrival_source = arrival & SOURCE_MASK;
        uint4 before = UINT4(0);
        uint listed_word = 0;
        if (arrival_length != 1u) {
            uint from = i + 1u - arrival_length;
            before = states[(from & (RING - 1u)) * lanes];
            if (arrival_source >= 3u) listed_word = low_words[4u * from + (arrival_source - 3u & 3u)];
            if (arrival_source >= 7u) listed_word = high_words[4u * from + arrival_source - 7u];
        }

        // The records, and which of their lengths are 3 to 34 and 35 to 66.
        uint records = 0, near = 0, far = 0, longest = 2, offset = 0, source = 0, record = 0;
        uint length_a = 0, length_b = 0, length_c = 0;
        if (i < last) {
            uint room = min(len - i, LONGEST), reach = pos - window_start;
            uint differ_a = bytes_of(at_a, next_a, ((pos - recent_a) & 3u) * 8u) ^ bytes;
            uint differ_b = bytes_of(at_b, next_b, ((pos - recent_b) & 3u) * 8u) ^ bytes;
            uint differ_c = bytes_of(at_c, next_c, ((pos - recent_c) & 3u) * 8u) ^ bytes;
            if (recent_a == 0 || recent_a > reach || known_a != 0) differ_a = 1u;
            if (recent_b == 0 || recent_b > reach || known_b != 0) differ_b = 1u;
            if (recent_c == 0 || recent_c > reach || known_c != 0) differ_c = 1u;
            length_a = differ_a << 8 != 0 ? known_a : 3u;
            length_b = differ_b << 8 != 0 ? known_b : 3u;
            length_c = differ_c << 8 != 0 ? known_c : 3u;
            uint more = (differ_a == 0 ? 1u : 0) | (differ_b == 0 ? 2u : 0) | (differ_c == 0 ? 4u : 0);
            while (more != 0) {
                uint its = more & -more;
                more ^= its;
                uint its_offset = its == 1u ? recent_a : its == 2u ? recent_b : recent_c;
                uint length = long_length(contents, words, pos, its_offset, 4u, room);
                length_a = its == 1u ? length : length_a;
                length_b = its == 2u ? length : length_b;
                length_c = its == 4u ? length : length_c;
            }
            length_a = min(length_a, room);
            length_b = min(length_b, room);
            length_c = min(length_c, room);
            CANDIDATE(length_a, recent_a, 0u, 0u)
            CANDIDATE(length_b, recent_b, 1u, 1u)
            CANDIDATE(length_c, recent_c, 2u, 2u)
            LISTED(list_a.x, 0u)
            LISTED(list_a.y, 1u)
            LISTED(list_a.z, 2u)
            LISTED(list_a.w, 3u)
            if (list_a.w != 0) {
                LISTED(list_b.x, 4u)
                LISTED(list_b.y, 5u)
                LISTED(list_b.z, 6u)
                LISTED(list_b.w, 7u)
            }
        }

        uint at = i;
        bool is_taken = longest >= NICE_LENGTH;
        if (is_taken) {
            uint symbol = source;
            if (source >= 3u) symbol = offset == recent_a ? 0 : offset == recent_b ? 1u : offset == recent_c ? 2u : 3u;
            price = (record & ~(ONE_PRICE - 1u)) + token_price(table, row, longest);
            // Reset the positions in between, with FAR measured from the new price.
            uint behind = max(reached + 1u, i + (longest & (RING - 1u)));
            for (uint p = i + 1u; p < behind; p++) ring[PLACE(p)] = price + FAR;
            i += longest;
            reached = i;
            known_a = known_b = known_c = 0;
            paths[i - 1u] = UINT2(offset | (longest - 3u) << 24, symbol | run << 2);
            recent_c = symbol == 3u ? recent_b : recent_c;
            recent_b = symbol == 3u ? recent_a : recent_b;
            recent_a = symbol == 3u ? offset : recent_a;
            count++;
            run = 0;
        } else {
            states[(i & (RING - 1u)) * lanes] =
                UINT4(recent_a | length_a << 24, recent_b | length_b << 24, recent_c | length_c << 24, run | count << 15);
            reached = max(reached, i + longest);
            i++;
            known_a = max(length_a, 1u) - 1u;
            known_b = max(length_b, 1u) - 1u;
            known_c = max(length_c, 1u) - 1u;
            price = arrival & ~(ONE_PRICE - 1u);
            run++;
            if (arrival_length != 1u) {
                uint old_a = before.x & OFFSET_MASK, old_b = before.y & OFFSET_MASK, old_c = before.z & OFFSET_MASK;
                uint its = listed_word & OFFSET_MASK;
                its |= (old_a & (arrival_source == 0 ? ALL : 0)) | (old_b & (arrival_source == 1u ? ALL : 0))
                    | (old_c & (arrival_source == 2u ? ALL : 0));
                uint symbol = its == old_a ? 0 : its == old_b ? 1u : its == old_c ? 2u : 3u;
                paths[at] = UINT2(its | (arrival_length - 3u) << 24, symbol | (before.w & 0x7fffu) << 2);
                // The remainders of those matches.
                known_a = max(before.x >> 24, arrival_length) - arrival_length;
                known_b = max(before.y >> 24, arrival_length) - arrival_length;
                known_c = max(before.z >> 24, arrival_length) - arrival_length;
                bool is_new = symbol == 3u;
                recent_a = is_new ? its : old_a;
                recent_b = is_new ? old_a : old_b;
                recent_c = is_new ? old_b : old_c;
                known_c = is_new ? known_b : known_c;
                known_b = is_new ? known_a : known_b;
                known_a = is_new ? 0 : known_a;
                count = (before.w >> 15) + 1u;
                run = 0;
            }
        }
        ASK_FOR(i)

        if (!is_taken) {
            // Tries four lengths at a time, so that their loads overlap.
            __local const uint *prices = table + LENGTHS_ROW * row;
            uint most = min(longest, EVERY_LENGTH), left = near, far_left = far, rank = lane;
            for (uint length = 3u; length <= most; length += 4u) {
                uint rank_b = rank + (left & 1u) * THREADS, rank_c = rank_b + (left >> 1 & 1u) * THREADS;
                uint rank_d = rank_c + (left >> 2 & 1u) * THREADS;
                uint place_a = (place + length * THREADS) & (RING * THREADS - 1u);
                uint place_b = (place + length * THREADS + THREADS) & (RING * THREADS - 1u);
                uint place_c = (place + length * THREADS + 2u * THREADS) & (RING * THREADS - 1u);
                uint place_d = (place + length * THREADS + 3u * THREADS) & (RING * THREADS - 1u);
                uint4 four = *(__local const uint4 *)(prices + length - 3u);
                uint price_a = record_prices[rank] + four.x, price_b = record_prices[rank_b] + four.y;
                uint price_c = record_prices[rank_c] + four.z, price_d = record_prices[rank_d] + four.w;
                uint old_a = ring[place_a], old_b = ring[place_b], old_c = ring[place_c], old_d = ring[place_d];
                if ((int)(price_a - old_a) < 0) ring[place_a] = price_a;
                if ((int)(price_b - old_b) < 0 && length + 1u <= most) ring[place_b] = price_b;
                if ((int)(price_c - old_c) < 0 && length + 2u <= most) ring[place_c] = price_c;
                if ((int)(price_d - old_d) < 0 && length + 3u <= most) ring[place_d] = price_d;
                rank = rank_d + (left >> 3 & 1u) * THREADS;
                left = left >> 4 | far_left << 28;
                far_left >>= 4;
            }
            // Try longer lengths only at records, the last ones.
            for (uint r = records; r > 0 && longest > EVERY_LENGTH; r--) {
                uint length = record_lengths[(r - 1u) * THREADS + lane];
                if (length <= EVERY_LENGTH) break;
                uint its = record_prices[(r - 1u) * THREADS + lane] + token_price(table, row, length) + (127u - length) * ONE_LENGTH;
                uint there = PLACE(at + length);
                if ((int)(its - ring[there]) < 0) ring[there] = its;
            }
        }
    }
    if (len != 0 && i == len) {
        match_counts[number] = count;
        if (run != 0) paths[i - 1u] = UINT2(0, run << 2);
    }

    // Saves the state for the next part.
    if (len == 0 || first + steps > (1u << SEGMENT_LOG)) return;
    for (uint k = 0; k < rows / 4u; k++)
        states[(RING + k) * lanes] =
            UINT4(ring[PLACE(4u * k)], ring[PLACE(4u * k + 1u)], ring[PLACE(4u * k + 2u)], ring[PLACE(4u * k + 3u)]);
    states[(RING + RING / 4u) * lanes] =
        UINT4(i, run | count << 15, price, reached);
    states[(RING + RING / 4u + 1u) * lanes] =
        UINT4(recent_a | known_a << 24, recent_b | known_b << 24, recent_c | known_c << 24, 0);
}

// Follows the cheapest path of each segment backward.
__kernel void trace(__global const uint *restrict jobs, __global const uint2 *restrict paths,
                    __global uint2 *restrict matches, __global const uint *restrict match_counts,
#if COUNT
                    __global const uint *restrict contents, __global uint *restrict symbols,
#endif
                    uint slot, uint segments, uint blocks, uint chunk_log, uint symbol_stride) {
#if COUNT
    SHARED uint histogram[CHUNKS * COUNT_WORDS];
#endif
    uint lane = (uint)get_local_id(0);
    uint groups = (segments + THREADS - 1u) / THREADS;
    uint block = (uint)get_group_id(0) / groups, first_number = (uint)get_group_id(0) % groups * THREADS;
    if (block >= blocks) return;
    uint number = (first_number + lane) << SPACING_LOG;
    uint block_len = jobs[(size_t)block * 8];
    uint start = number << SEGMENT_LOG, end = max(start, min(start + (1u << SEGMENT_LOG), block_len));
    uint len = first_number + lane < segments ? end - start : 0;
    paths += (size_t)block * slot + start;
    matches += ((size_t)block * (slot >> 3) + ((size_t)number << (SEGMENT_LOG - 3))) * 3;
    match_counts += (size_t)block * (slot >> 8);
#if COUNT
    contents += (size_t)block * (slot >> 2);
    symbols += (size_t)block * symbol_stride;
    uint first_chunk = first_number >> (chunk_log - SEGMENT_LOG - SPACING_LOG);
    for (uint k = lane; k < CHUNKS * COUNT_WORDS; k += THREADS) histogram[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    __local uint *counts = histogram + (len != 0 ? (start >> chunk_log) - first_chunk : 0) * COUNT_WORDS;
#endif
    uint left = len != 0 ? match_counts[number] : 0, stop = len, literals = 0;
    if (len != 0) {
        uint2 path = paths[len - 1u];
        if (path.x == 0) literals = min(path.y >> 2, len);
        stop = len - literals;
    }
    // Never reads or writes outside the segment, even if it has no path.
    bool goes_on = len != 0;
    while (goes_on) {
#if COUNT
        for (uint p = stop; p < stop + literals; p++) {
            uint pos = start + p;
            atomic_inc(&counts[LITERALS + (contents[pos >> 2] >> ((pos & 3u) * 8u) & 255u)]);
        }
#endif
        goes_on = left > 0 && stop > 0;
        if (goes_on) {
            uint2 path = paths[stop - 1u];
            uint length = min((path.x >> 24) + 3u, stop), offset = path.x & 0xffffffu, symbol = path.y & 3u;
            literals = min(path.y >> 2, stop - length);
            left--;
            stop -= length;
            matches[left] = UINT2(stop | length << 16, offset);
#if COUNT
            atomic_inc(&counts[TOKENS + 32u * min(literals, 7u) + length_code(length)]);
            atomic_inc(&counts[OFFSETS + (symbol < 3u ? symbol : offset_symbol(offset))]);
#endif
            stop -= literals;
        }
    }
#if COUNT
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint c = 0; c < CHUNKS; c++) {
        if ((first_chunk + c) << chunk_log >= block_len) break;
        for (uint k = lane; k < COUNT_WORDS; k += THREADS) {
            uint n = histogram[c * COUNT_WORDS + k];
            if (n != 0) atomic_add(&symbols[(first_chunk + c) * SYMBOL_WORDS + SYMBOL_COUNTS + k], n);
        }
    }
#endif
}
