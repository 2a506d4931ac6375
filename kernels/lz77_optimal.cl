// The optimal parse of LZ77: the cheapest way through a segment, by the prices of its chunk's symbols. The rule is that of
// codec::lz77::optimal; candidates are those in `lz77_lists`.
//
// A side of a team, 16 lanes, has a segment and goes through its positions in order: with two segments a team each instruction
// does more, as a position does not need more lanes. What is known of the positions ahead, LONGEST at most, is in rings in
// workgroup memory. At a position the lanes first compare the recent offsets and have a candidate each. Those
// candidates that are longer than all before them, the records, divide the lengths that can be reached: each length
// belongs to the first record that is as long, so that lanes try many lengths at the same time, each at a place of its own.
// A side that has come to its segment's end waits for the other one.
//
// `entries`, not needed any more, take how positions are reached by matches: offset | length - 3 << 24, and symbol of the
// offset if it is recent, else 3, | literals before the match << 2. At position p it stands at p - 1.
//
// Constants: SEGMENT_LOG, at most 14; NICE_LENGTH; EVERY_LENGTH, at most 66; COUNT, whether symbols are counted for the
// next pass.
//
// @pz_cost {
//   threads_per_element: 0.002
//   passes: 2
//   buffers: jobs=32, contents=N, lz77_lists=N*32, lz77_symbols=N/8+4608, entries=N*8, matches=N*3, match_counts=N/64
//   local_mem: 29508
// }
// @pz_import team
// @pz_import lz77_words
// @pz_import lz77_chunk_prices

#define LONGEST 256u
#define RING 256u
#define UNREACHED 0xffffffffu
#define ALL 0xffffffffu
#define SIDE 16u
#define SIDE_MASK 0xffffu
// Lanes that compare a recent offset, each four bytes; and where lanes have the candidates of the list.
#define LANES 5u
#define FIRST_LISTED 3u
#define LAST_LISTED 10u

// How the parse stands.
typedef struct {
    // The cheapest ways found to the positions ahead: prices, and offset | length - 3 << 24, or 0 for a literal.
    uint prices[RING];
    uint steps[RING];
    // Positions behind: recent offsets; literals since the last match | matches << 15.
    uint4 states[RING];
    // Of symbols.
    ushort symbols[PRICE_WORDS];
    // Of each record: price before that of its length; offset | length - 3 << 24.
    uint record_prices[12];
    uint records[12];
} Ways;

inline uint log2_floor(uint x) {
    return 31u - clz(x);
}

// The match code of a length, and the price of its extra bits.
inline uint length_code(uint length) {
    return length < 22u ? length - 2u : 17u + log2_floor(length - 14u);
}

inline uint length_bits(uint length) {
    return length < 22u ? 0 : log2_floor(length - 14u) * BIT;
}

// The price of the extra bits of a run of literals.
inline uint run_bits(uint run) {
    if (run < 7u) return 0;
    uint log = log2_floor(run - 6u);
    return log < 7u ? (3u + log) * BIT : 12u * BIT;
}

// The symbol of an offset that is not recent.
inline uint offset_symbol(uint offset) {
    uint x = offset + 3u, k = log2_floor(x) - 1u;
    return 3u + 2u * (k - 1u) + (x >> k & 1u);
}

// A way to the position `length` on from `at`.
inline void attempt(__local Ways *w, uint at, uint length, uint price, uint step) {
    uint place = (at + length) & (RING - 1u);
    if (price < w->prices[place]) {
        w->prices[place] = price;
        w->steps[place] = step;
    }
}

// A way by a match of `length`, whose code has the price at `code` and extra bits that cost `bits`, by the record of this rank.
inline void attempt_record(__local Ways *w, uint at, uint rank, uint length, uint code, uint bits) {
    uint record = w->records[rank], its = (record >> 24) + 3u;
    if (length == its || (length <= EVERY_LENGTH && its < NICE_LENGTH)) {
        uint price = w->record_prices[rank] + w->symbols[code] + bits;
        attempt(w, at, length, price, (record & 0xffffffu) | (length - 3u) << 24);
    }
}

__kernel void parse(__global const uint *restrict jobs, __global const uint *restrict contents,
                    __global const uint *restrict lists, __global uint *restrict symbols, __global uint2 *ways,
                    __global uint2 *restrict matches, __global uint *restrict match_counts, uint slot, uint segments,
                    uint blocks, uint window_log, uint chunk_log, uint symbol_stride) {
    TEAM_START(team);
    __local Ways all_ways[TEAMS * 2u];
    uint side = team.lane / SIDE, lane = team.lane % SIDE, shift = side * SIDE;
    __local Ways *w = &all_ways[team.index * 2u + side];
    uint index = ((uint)get_group_id(0) * TEAMS + team.index) * 2u + side;
    if (index - side >= blocks * segments) return;
    bool is_there = index < blocks * segments;
    uint block = is_there ? index / segments : 0, number = is_there ? index % segments : 0;
    uint block_len = is_there ? jobs[(size_t)block * 8] : 0;
    uint start = number << SEGMENT_LOG, end = max(start, min(start + (1u << SEGMENT_LOG), block_len));
    uint len = end - start, words = slot >> 2;
    bool active = len != 0;
    // Positions from here on have no candidates.
    uint last = max(min(end, block_len < 8u ? 0 : block_len - 7u), start) - start;
    uint window_start = start >> window_log << window_log;
    contents += (size_t)block * words;
    lists += ((size_t)block * slot + start) * 8;
    ways += (size_t)block * slot + start;
    matches += ((size_t)block * (slot >> 3) + ((size_t)number << (SEGMENT_LOG - 3))) * 3;
    symbols += (size_t)block * symbol_stride + (start >> chunk_log) * SYMBOL_WORDS;

    for (uint k = lane; k < PRICE_WORDS; k += SIDE) w->symbols[k] = (ushort)symbols[k];
    for (uint k = lane; k < RING; k += SIDE) w->prices[k] = UNREACHED;
    team_sync(team);
    if (lane == 0) {
        w->prices[0] = w->symbols[RUNS];
        w->steps[0] = 0;
    }
    team_sync(team);

    // The recent offsets, the literals since the last match, and the matches of the way to the position.
    bool is_first = (start & ((1u << chunk_log) - 1u)) == 0;
    uint4 recent = is_first ? (uint4)(1, 4, 8, 0) : (uint4)(0, 0, 0, 0);
    uint run = active ? UNREACHED : 0, count = 0;
    // The prices of extra bits of that run, and of the whole run before its match is known; those of one literal more.
    uint extra = 0, run_price = 0, next_extra = 0, next_price = w->symbols[RUNS];
    // What the lane compares at each position, and the lengths that it tries.
    uint part = lane % LANES, slot_of = lane / LANES;
    // Masks instead of conditions: what lanes with each of the three offsets have, and what lanes with each candidate.
    uint compares_a = slot_of == 0 ? ALL : 0, compares_b = slot_of == 1 ? ALL : 0, compares_c = slot_of == 2 ? ALL : 0;
    uint has_a = lane == 0 ? ALL : 0, has_b = lane == 1 ? ALL : 0, has_c = lane == 2 ? ALL : 0;
    uint after_a = lane > 0 ? ALL : 0, after_b = lane > 1 ? ALL : 0, after_c = lane > 2 ? ALL : 0;
    uint after_listed = lane > FIRST_LISTED ? ALL : 0;
    uint before_mask = (1u << lane) - 1u, upper_mask = (1u << (SIDE + lane)) - 1u;
    bool is_listed = lane >= FIRST_LISTED && lane <= LAST_LISTED;
    uint listed_next = is_listed && 0 < last ? lists[lane - FIRST_LISTED] : 0;

    uint i = 0;
    bool goes_on = team_any(team, active);
    while (goes_on) {
        uint place = i & (RING - 1u);
        uint listed = listed_next;
        listed_next = is_listed && i + 1u < last ? lists[8u * (i + 1u) + lane - FIRST_LISTED] : 0;
        uint price = w->prices[place], step = w->steps[place];
        if (active) {
            if (step != 0) {
                uint4 before = w->states[(i - (step >> 24) - 3u) & (RING - 1u)];
                uint offset = step & 0xffffffu;
                uint symbol = offset == before.x ? 0 : offset == before.y ? 1 : offset == before.z ? 2 : 3;
                if (lane == 0) ways[i - 1] = (uint2)(step, symbol | (before.w & 0x7fffu) << 2);
                recent = symbol == 3 ? (uint4)(offset, before.x, before.y, 0) : before;
                count = (before.w >> 15) + 1u;
                run = 0;
                extra = 0;
                run_price = w->symbols[RUNS];
            } else {
                run++;
                extra = next_extra;
                run_price = next_price;
            }
        }
        active = active && i != len;
        uint pos = start + i;
        next_extra = run_bits(run + 1u);
        next_price = w->symbols[RUNS + min(run + 1u, 7u)] + next_extra;
        uint byte = active ? contents[pos >> 2] >> ((pos & 3u) * 8u) & 255u : 0;
        uint base = price - run_price;
        uint literal = base + w->symbols[LITERALS + byte] + next_price;
        base += w->symbols[RUNS] + extra;

        // The recent offsets.
        uint limit = min(end, pos + LONGEST);
        uint offset = (recent.x & compares_a) | (recent.y & compares_b) | (recent.z & compares_c);
        uint at = pos + 4u * part;
        uint differ = 1;
        if (i < last && offset != 0 && offset <= pos - window_start && at < limit)
            differ = read32(contents, words, at) ^ read32(contents, words, at - offset);
        uint ends = team_ballot(team, differ != 0) >> shift & SIDE_MASK;
        uint own_ends = slot_of < 3 ? ends >> (LANES * slot_of) & ((1u << LANES) - 1u) : 1u;
        uint lead = own_ends != 0 ? trailing_zeros(own_ends) : LANES - 1u;
        uint equal = differ != 0 ? trailing_zeros(differ) >> 3 : 4u;
        uint length = 4u * lead + team_shuffle(team, equal, shift + LANES * slot_of + lead);
        // Those that may be longer, one after the other.
        uint more = (ends & 0x1fu) == 0 ? 1u : 0;
        more |= (ends & 0x3e0u) == 0 ? 2u : 0;
        more |= (ends & 0x7c00u) == 0 ? 4u : 0;
        bool are_more = team_any(team, more != 0);
        while (are_more) {
            bool open = more != 0;
            uint its = open ? trailing_zeros(more) : 3u;
            more &= more - 1u;
            uint its_offset = its == 0 ? recent.x : its == 1 ? recent.y : recent.z;
            uint known = 4u * LANES;
            bool is_open = true;
            while (is_open) {
                uint p = pos + known + 4u * lane;
                // Behind the end nothing is equal.
                uint d = open && p < limit ? read32(contents, words, p) ^ read32(contents, words, p - its_offset) : 1u;
                uint its_ends = team_ballot(team, d != 0) >> shift & SIDE_MASK;
                uint its_lead = its_ends != 0 ? trailing_zeros(its_ends) : SIDE - 1u;
                uint its_equal = team_shuffle(team, d != 0 ? trailing_zeros(d) >> 3 : 4u, shift + its_lead);
                if (open) known += 4u * its_lead + its_equal;
                open = open && its_ends == 0;
                is_open = team_any(team, open);
            }
            if (slot_of == its) length = known;
            are_more = team_any(team, more != 0);
        }
        length = min(length, limit - pos);

        // The records, and which of their lengths are 3 to 34 and 35 to 66.
        uint records = 0, near = 0, far = 0;
#if TEAM_PTX
        if (team_any(team, listed != 0 || length > 2))
#endif
        {
            uint length_a = team_shuffle(team, length, shift);
            uint length_b = team_shuffle(team, length, shift + LANES);
            uint length_c = team_shuffle(team, length, shift + 2u * LANES);
            uint listed_length = listed != 0 ? min((listed >> 24) + 3u, len - i) : 0;
            length = (length_a & has_a) | (length_b & has_b) | (length_c & has_c) | (listed_length & after_c);
            uint shorter = team_shuffle_up(team, length, 1) & after_listed;
            uint tried = max(max(length_a & after_a, length_b & after_b), max(length_c & after_c, max(shorter, 2u)));
            bool is_record = lane <= LAST_LISTED && length > tried;
            records = team_ballot(team, is_record) >> shift & SIDE_MASK;
            if (is_record) {
                offset = (recent.x & has_a) | (recent.y & has_b) | (recent.z & has_c) | (listed & 0xffffffu);
                uint symbol = lane < 3 ? lane : offset_symbol(offset);
                uint rank = popcount(records & before_mask);
                w->record_prices[rank] = base + w->symbols[OFFSETS + symbol];
                w->records[rank] = offset | (length - 3u) << 24;
            }
            uint near_bit = is_record && length < 35u ? 1u << (length - 3u) : 0;
            uint far_bit = is_record && length >= 35u && length < 67u ? 1u << (length - 35u) : 0;
            uint first_near = team_sum(team, side == 0 ? near_bit : 0), second_near = team_sum(team, side != 0 ? near_bit : 0);
            uint first_far = team_sum(team, side == 0 ? far_bit : 0), second_far = team_sum(team, side != 0 ? far_bit : 0);
            near = side == 0 ? first_near : second_near;
            far = side == 0 ? first_far : second_far;
        }
        if (lane == 0) w->prices[place] = UNREACHED;
        team_sync(team);
        uint next = active ? i + 1u : i;
        if (records != 0) {
            uint n = popcount(records), row = TOKENS + 32u * min(run, 7u);
            uint longest = (w->records[n - 1u] >> 24) + 3u;
            if (longest >= NICE_LENGTH) next = i + longest;
            uint rank = popcount(near & before_mask), its = 3u + lane;
            if (rank < n) attempt_record(w, i, rank, its, row + 1u + lane, 0);
            if (longest >= 3u + SIDE) {
                rank = popcount(near & upper_mask);
                its += SIDE;
                if (rank < n) attempt_record(w, i, rank, its, row + length_code(its), length_bits(its));
            }
            if (longest >= 35u) {
                rank = popcount(near) + popcount(far & before_mask);
                its = 35u + lane;
                if (rank < n) attempt_record(w, i, rank, its, row + length_code(its), length_bits(its));
                rank = popcount(near) + popcount(far & upper_mask);
                its += SIDE;
                if (rank < n) attempt_record(w, i, rank, its, row + length_code(its), length_bits(its));
                // Longer ones are tried at the lengths of records only.
                rank = popcount(near) + popcount(far) + lane;
                if (rank < n) {
                    its = (w->records[rank] >> 24) + 3u;
                    attempt_record(w, i, rank, its, row + length_code(its), length_bits(its));
                }
            }
        }
        if (lane == SIDE - 1u && active) attempt(w, i, 1, literal, 0);
        if (lane == 0) w->states[place] = (uint4)(recent.x, recent.y, recent.z, run | count << 15);
        team_sync(team);
        if (next > i + 1u) {
            // What lies between is not gone through.
            for (uint p = i + 1u + lane; p < next; p += SIDE) w->prices[p & (RING - 1u)] = UNREACHED;
            listed_next = is_listed && next < last ? lists[8u * next + lane - FIRST_LISTED] : 0;
        }
        i = next;
        goes_on = team_any(team, active);
    }

    // Backward along the cheapest way.
    team_sync(team);
    if (lane == 0 && is_there) match_counts[(size_t)block * (slot >> 8) + number] = count;
#if COUNT
    __local uint *histogram = (__local uint *)w->states;
    for (uint k = lane; k < COUNT_WORDS; k += SIDE) histogram[k] = 0;
    team_sync(team);
    uint literals = run;
#endif
    uint stop = len - run;
    for (uint left = count; left > 0; left--) {
        uint2 way = ways[stop - 1u];
        uint length = (way.x >> 24) + 3u, before = way.y >> 2, symbol = way.y & 3u;
        uint from = stop - length;
        if (lane == 0) matches[left - 1u] = (uint2)(from | length << 16, way.x & 0xffffffu);
#if COUNT
        for (uint p = stop + lane; p < stop + literals; p += SIDE) {
            uint pos = start + p;
            atomic_inc(&histogram[LITERALS + (contents[pos >> 2] >> ((pos & 3u) * 8u) & 255u)]);
        }
        if (lane == 0) atomic_inc(&histogram[TOKENS + 32u * min(before, 7u) + length_code(length)]);
        if (lane == 1) atomic_inc(&histogram[OFFSETS + (symbol < 3 ? symbol : offset_symbol(way.x & 0xffffffu))]);
        literals = before;
#endif
        stop = from - before;
    }
#if COUNT
    for (uint p = stop + lane; p < stop + literals; p += SIDE) {
        uint pos = start + p;
        atomic_inc(&histogram[LITERALS + (contents[pos >> 2] >> ((pos & 3u) * 8u) & 255u)]);
    }
    team_sync(team);
    for (uint k = lane; k < COUNT_WORDS; k += SIDE) {
        uint n = histogram[k];
        if (n != 0) atomic_add(&symbols[SYMBOL_COUNTS + k], n);
    }
#endif
}
