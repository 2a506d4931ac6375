// Chooses the models of groups and makes their tables and descriptions. A team has one model of a group.
//
// Every number here is the one that the processor's encoder gets: equal counts give equal models.
//
// @pz_cost {
//   threads_per_element: 0.00146485
//   passes: 4
//   buffers: jobs=32, lz77_counts=N/16+4096, lz77_models=N/4+N/64+16640
//   local_mem: 20484
// }
// @pz_import team
// @pz_import lz77_code

#define DESCRIPTION_WORDS (MODEL_CODES - MODEL_DESCRIPTION)

#define ROUNDS 8u  // A lane has symbols lane, lane + 32, and so on.
#if TEAM_PTX
#define EACH(k) for (uint k = 0; k < ROUNDS; k++)
#else
#define EACH(k) _Pragma("nounroll") for (uint k = 0; k < ROUNDS; k++)
#endif

typedef struct {
    uint symbols, raw_bits, huffman_bits, fse_log;
} Alphabet;

// The prefix codes of code lengths: for each context, and each length, bits | code << 3.
__constant ushort LENGTH_CODES[25 * 13] = {
    0, 502, 510, 229, 84, 237, 92, 245, 100, 108, 2, 10, 35,
    1, 1015, 486, 1023, 494, 213, 502, 221, 229, 237, 35, 43, 100,
    1, 35, 229, 43, 51, 237, 486, 983, 991, 999, 1007, 1015, 1023,
    100, 2, 10, 18, 108, 116, 486, 983, 991, 999, 1007, 1015, 1023,
    35, 229, 100, 43, 108, 1, 486, 237, 494, 999, 1007, 1015, 1023,
    486, 229, 100, 108, 1, 35, 43, 237, 494, 999, 1007, 1015, 1023,
    100, 983, 991, 18, 1, 108, 229, 486, 999, 237, 1007, 1015, 1023,
    229, 999, 1007, 35, 1, 84, 92, 100, 108, 237, 245, 1015, 1023,
    100, 983, 991, 35, 1, 43, 108, 116, 486, 999, 1007, 1015, 1023,
    454, 999, 1007, 462, 18, 1, 51, 470, 478, 486, 494, 1015, 1023,
    100, 999, 1007, 486, 2, 10, 18, 108, 229, 494, 237, 1015, 1023,
    486, 983, 991, 999, 100, 18, 1, 108, 229, 237, 1007, 1015, 1023,
    100, 999, 1007, 1015, 229, 35, 1, 43, 108, 237, 486, 494, 1023,
    229, 999, 1007, 1015, 237, 35, 2, 10, 43, 100, 108, 245, 1023,
    229, 999, 1007, 1015, 237, 84, 92, 1, 35, 100, 108, 245, 1023,
    229, 999, 1007, 1015, 237, 100, 35, 2, 10, 43, 108, 245, 1023,
    84, 1015, 1023, 486, 494, 229, 92, 100, 1, 35, 108, 237, 502,
    100, 999, 1007, 1015, 1023, 229, 237, 35, 43, 2, 10, 108, 245,
    35, 999, 1007, 1015, 1023, 486, 229, 237, 100, 1, 43, 108, 494,
    100, 999, 1007, 1015, 1023, 486, 494, 229, 108, 35, 1, 43, 237,
    35, 983, 991, 999, 1007, 1015, 1023, 229, 237, 43, 1, 51, 486,
    35, 999, 1007, 1015, 1023, 486, 494, 229, 237, 100, 43, 1, 108,
    18, 983, 991, 999, 1007, 1015, 1023, 486, 229, 237, 100, 1, 108,
    35, 999, 1007, 1015, 1023, 486, 494, 229, 237, 100, 108, 43, 1,
    18, 999, 1007, 1015, 1023, 470, 478, 486, 494, 229, 100, 108, 1,
};

// ---- Huffman

// Sorts the `n` symbols that occur: count << 8 | symbol, rising, in `keys`.
inline void sort_symbols(Team t, __local const uint *counts, __local uint *keys, __local uint *unsorted) {
    uint n = 0;
    EACH(k) {
        uint symbol = 32u * k + t.lane, count = counts[symbol];
        uint present = team_ballot(t, count > 0u);
        if (count > 0u) unsorted[n + popcount(present & team_before(t))] = count << 8 | symbol;
        n += popcount(present);
    }
    team_sync(t);
    uint mine[ROUNDS], rank[ROUNDS];
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        uint i = 32u * k + t.lane;
        mine[k] = i < n ? unsorted[i] : 0xffffffffu;
        rank[k] = 0u;
    }
    for (uint i = 0; i < n; i++) {
        uint key = unsorted[i];
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) rank[k] += key < mine[k] ? 1u : 0u;
    }
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        if (32u * k + t.lane < n) keys[rank[k]] = mine[k];
    }
    team_sync(t);
}

// Huffman's algorithm over sorted keys, on one lane: numbers of inner nodes of each depth in `inner`, of 16 words; false if
// a code would be longer than `limit`.
inline bool minimum_redundancy(
    uint n, __local const uint *keys, uint limit, __local uint *weights, __local uint *parents, __local uint *inner
) {
    uint leaf = 0, root = 0;
    uint leaf_weight = keys[0] >> 8, root_weight = 0xffffffffu;
    for (uint made = 0; made + 1u < n; made++) {
        uint weight = 0;
        if (root == made) root_weight = 0xffffffffu;
        for (uint i = 0; i < 2u; i++) {
            if (leaf < n && leaf_weight <= root_weight) {
                weight += leaf_weight;
                leaf++;
                leaf_weight = leaf < n ? keys[leaf] >> 8 : 0xffffffffu;
            } else {
                weight += root_weight;
                parents[root] = made;
                root++;
                root_weight = root < made ? weights[root] : 0xffffffffu;
            }
        }
        weights[made] = weight;
        if (root == made) root_weight = weight;
    }
    for (uint i = 0; i < 16u; i++) inner[i] = 0u;
    // The depths take the places of the weights.
    weights[n - 2u] = 0u;
    inner[0] = 1u;
    for (uint node = n - 2u; node-- > 0u;) {
        uint depth = weights[parents[node]] + 1u;
        weights[node] = depth;
        if (depth >= limit) return false;
        inner[depth]++;
    }
    return true;
}

// The lengths of an optimal code that is limited, by package-merge: the depth of each sorted key in `depths`.
inline void package_merge(
    Team t, uint n, __local const uint *keys, uint limit, __local uint *packages, __local uint *items, __local uint *is_leaf,
    uint *depths
) {
    uint package_count = 0;
    for (uint i = t.lane; i < 16u * limit; i += 32u) is_leaf[i] = 0u;
    team_sync(t);
    for (uint level = 0; level < limit; level++) {
        // Both lists are sorted: the place of an item is its own index and the number of items of the other list before
        // it. Among equals leaves come first.
        EACH(k) {
            uint i = 32u * k + t.lane;
            if (i < n) {
                uint weight = keys[i] >> 8, low = 0, high = package_count;
                for (uint step = 0; step < 9u; step++) {
                    uint middle = (low + high) >> 1;
                    bool less = low < high && packages[middle] < weight;
                    low = less ? middle + 1u : low;
                    high = less ? high : middle;
                }
                items[i + low] = weight;
                atomic_or(&is_leaf[16u * level + ((i + low) >> 5)], 1u << ((i + low) & 31u));
            }
            if (i < package_count) {
                uint weight = packages[i], low = 0, high = n;
                for (uint step = 0; step < 9u; step++) {
                    uint middle = (low + high) >> 1;
                    bool less = low < high && keys[middle] >> 8 <= weight;
                    low = less ? middle + 1u : low;
                    high = less ? high : middle;
                }
                items[i + low] = weight;
            }
        }
        team_sync(t);
        // Of the last level 2 n - 2 items are taken, so no level needs more.
        package_count = min(n + package_count, 2u * n - 2u) >> 1;
        EACH(k) {
            uint i = 32u * k + t.lane;
            if (i < package_count) packages[i] = items[2u * i] + items[2u * i + 1u];
        }
        team_sync(t);
    }
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) depths[k] = 0u;
    uint taken = 2u * n - 2u;
    for (uint level = limit; level-- > 0u;) {
        uint leaves = 0;
        if (t.lane < 16u) {
            uint here = taken > 32u * t.lane ? min(taken - 32u * t.lane, 32u) : 0u;
            uint mask = here == 32u ? 0xffffffffu : (1u << here) - 1u;
            leaves = popcount(is_leaf[16u * level + t.lane] & mask);
        }
        leaves = team_sum(t, leaves);
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) depths[k] += 32u * k + t.lane < leaves ? 1u : 0u;
        taken = 2u * (taken - leaves);
    }
}

// The lengths of an optimal code of the `n` symbols that occur, at least two, none longer than `limit`.
inline void code_lengths(
    Team t, uint n, uint limit, __local const uint *counts, __local uint *keys, __local uint *lengths, __local uint *work
) {
    sort_symbols(t, counts, keys, work);
    __local uint *inner = work + 512;
    uint fits = 0;
    if (t.lane == 0u) fits = minimum_redundancy(n, keys, limit, work, work + 256, inner) ? 1u : 0u;
    team_sync(t);
    uint depths[ROUNDS];
    if (team_broadcast(t, fits, 0u) != 0u) {
        // At each depth, the slots that inner nodes leave free are leaves, and the heaviest of those left.
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) depths[k] = 0u;
        uint slots = 1, left = n;
        for (uint depth = 0; depth <= limit; depth++) {
            uint used = inner[depth];
            uint leaves = slots - used;
#if TEAM_PTX
#pragma unroll
#endif
            EACH(k) {
                uint i = 32u * k + t.lane;
                if (i < left && i + leaves >= left) depths[k] = depth;
            }
            left -= leaves;
            slots = 2u * used;
        }
        team_sync(t);
    } else {
        package_merge(t, n, keys, limit, work, work + 512, work + 1024, depths);
    }
    EACH(k) lengths[32u * k + t.lane] = 0u;
    team_sync(t);
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        uint i = 32u * k + t.lane;
        if (i < n) lengths[keys[i] & 255u] = depths[k];
    }
    team_sync(t);
}

// ---- Descriptions

// Appends the low `count` bits of `value`, at least one, at bit `at` of words that are filled from the top.
inline void put_bits(__local uint *words, uint at, uint value, uint count) {
    uint end = (at & 31u) + count;
    if (end <= 32u) {
        atomic_or(&words[at >> 5], value << (32u - end));
    } else {
        atomic_or(&words[at >> 5], value >> (end - 32u));
        atomic_or(&words[(at >> 5) + 1u], value << (64u - end));
    }
}

// Describes lengths, and norms with them, from bit `at` on of words that are 0 there; returns where that ends.
inline uint describe(
    Team t, __local const uint *lengths, bool has_norms, __local const uint *norms, __local uint *words, uint at
) {
    uint end = 0;
    EACH(k) {
        uint present = team_ballot(t, lengths[32u * k + t.lane] != 0u);
        if (present != 0u) end = 32u * k + log2_floor(present) + 1u;
    }
    uint before_round = 0;  // The last symbol that has a length before those of the round, plus one.
    EACH(k) {
        uint symbol = 32u * k + t.lane;
        uint length = lengths[symbol];
        uint near = symbol >= 1u ? lengths[symbol - 1u] : 0u;
        uint far = symbol >= 2u ? lengths[symbol - 2u] : 0u;
        uint present = team_ballot(t, length != 0u);
        uint earlier = present & team_before(t);
        uint last = earlier != 0u ? 32u * k + log2_floor(earlier) + 1u : before_round;
        if (present != 0u) before_round = 32u * k + log2_floor(present) + 1u;
        bool after_run = near == 0u && far == 0u;
        uint run = 0, run_bits = 0, value = 0, bits = 0;
        if (symbol < end && !(after_run && length == 0u)) {
            if (after_run) {
                run = last == 0u ? symbol + 1u : symbol - last - 1u;
                run_bits = 2u * log2_floor(run) + 1u;
            }
            uint context = near != 0u ? (far != 0u ? near + far : 2u * near) : far != 0u ? 1u : 0u;
            uint code = LENGTH_CODES[13u * context + length];
            bits = code & 7u;
            value = code >> 3;
            if (has_norms && length != 0u) {
                uint more = log2_floor(norms[symbol]);
                value = value << more | (norms[symbol] - (1u << more));
                bits += more;
            }
        }
        uint sum = team_scan(t, run_bits + bits);
        if (bits != 0u) {
            uint place = at + sum - run_bits - bits;
            if (run_bits != 0u) put_bits(words, place, run, run_bits);
            put_bits(words, place + run_bits, value, bits);
        }
        at += team_broadcast(t, sum, 31u);
    }
    return at;
}

// ---- FSE

// 2^33 / d rounded down, for an odd d above 1.
inline uint reciprocal(uint d) {
    uint quotient = 0xffffffffu / d, rest = 0u - quotient * d;
    return 2u * quotient + (rest >= d - rest ? 1u : 0u);
}

// ln(1 + 1 / n) in units of 2^-32, n from 1 to 2047, by the series of 2 artanh(1 / (2 n + 1)). Where the denominator of a
// term has more than 32 bits, the term is 1 or 0.
inline uint worth(uint n) {
    uint y = 2u * n + 1u;
    uint sum = reciprocal(y);
    if (y <= 1127u) sum += reciprocal(3u * y * y * y);
    else if (y <= 1419u) sum += 1u;
    if (y <= 61u) sum += reciprocal(5u * y * y * y * y * y);
    else if (y <= 69u) sum += 1u;
    if (y <= 17u) sum += reciprocal(7u * y * y * y * y * y * y * y);
    else if (y <= 19u) sum += 1u;
    return sum;
}

inline ulong loss_of(uint count, uint norm) {
    return norm <= 1u ? 0xffffffffffffffffUL : (ulong)count * worth(norm - 1u);
}

inline ulong gain_of(uint count, uint norm) {
    return norm == 0u ? 0UL : (ulong)count * worth(norm);
}

// The smallest symbol among those lanes' that have the largest `value`, and that value.
inline uint team_largest(Team t, ulong value, uint symbol, ulong *largest) {
    uint high = team_max(t, (uint)(value >> 32));
    bool is_high = (uint)(value >> 32) == high;
    uint low = team_max(t, is_high ? (uint)value : 0u);
    *largest = (ulong)high << 32 | low;
    return ~team_max(t, is_high && (uint)value == low ? ~symbol : 0u);
}

// Shares out 2^log states among the symbols that occur, as well as can be: at least two symbols, fewer than states.
inline void normalize_counts(Team t, __local const uint *counts, uint total, uint log, __local uint *norms) {
    uint count[ROUNDS], norm[ROUNDS];
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        count[k] = counts[32u * k + t.lane];
        norm[k] = 0u;
    }
    // Rare symbols get the one state that they must have, until none is rare among the others.
    uint states = 1u << log;
    for (uint i = 0; i < 256u; i++) {
        uint rare = 0, rare_total = 0;
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) {
            if (count[k] != 0u && norm[k] == 0u && (ulong)count[k] * states <= (ulong)total) {
                norm[k] = 1u;
                rare++;
                rare_total += count[k];
            }
        }
        rare = team_sum(t, rare);
        total -= team_sum(t, rare_total);
        states -= rare;
        if (rare == 0u || total == 0u) break;
    }
    uint sum = 0;
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        if (count[k] != 0u && norm[k] == 0u) {
            norm[k] = max((uint)(((ulong)count[k] * states + (total >> 1)) / total), 1u);
            sum += norm[k];
        }
    }
    uint size = 1u << log;
    sum = size - states + team_sum(t, sum);

    // A few states are over or missing, or better placed elsewhere.
    ulong loss[ROUNDS], gain[ROUNDS];
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        loss[k] = loss_of(count[k], norm[k]);
        gain[k] = gain_of(count[k], norm[k]);
    }
    for (uint i = 0; i < 8192u; i++) {
        ulong least = loss[0], most = gain[0];
        uint cheapest = t.lane, dearest = t.lane;
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) {
            if (loss[k] < least) {
                least = loss[k];
                cheapest = 32u * k + t.lane;
            }
            if (gain[k] > most) {
                most = gain[k];
                dearest = 32u * k + t.lane;
            }
        }
        ulong least_of_all, most_of_all;
        cheapest = team_largest(t, ~least, cheapest, &least_of_all);
        dearest = team_largest(t, most, dearest, &most_of_all);
        bool misplaced = most_of_all > ~least_of_all;
        if (sum == size && !misplaced) break;
        uint from = sum >= size ? cheapest : 256u, to = sum <= size ? dearest : 256u;
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) {
            uint symbol = 32u * k + t.lane;
            if (symbol == from || symbol == to) {
                norm[k] += (symbol == to ? 1u : 0u) - (symbol == from ? 1u : 0u);
                loss[k] = loss_of(count[k], norm[k]);
                gain[k] = gain_of(count[k], norm[k]);
            }
        }
        sum = sum < size ? sum + 1u : sum > size ? sum - 1u : sum;
    }
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) norms[32u * k + t.lane] = norm[k];
    team_sync(t);
}

// log2(1 + i / 256) with 16 bits of fraction: each time that the square passes 2, a bit is set.
inline uint log2_mantissa(uint i) {
    uint x = (256u + i) << 22, log = 0;
    if (i == 256u) return 1u << 16;
    for (uint bit = 0; bit < 16u; bit++) {
        x = mul_hi(x, x) << 2 | (x * x) >> 30;
        uint passed = x >> 31;
        x >>= passed;
        log = log << 1 | passed;
    }
    return log;
}

// log2(x) with 16 bits of fraction.
inline uint log2_fixed(uint x) {
    uint exponent = log2_floor(x), mantissa = x << (31u - exponent), index = mantissa >> 23 & 255u;
    uint below = log2_mantissa(index), step = log2_mantissa(index + 1u) - below;
    return (exponent << 16) + below + (step * (mantissa >> 7 & 0xffffu) >> 16);
}

// Bits of a message with these counts, rounded up.
inline uint fse_bits(Team t, __local const uint *counts, __local const uint *norms, uint log) {
    uint whole = 0, part = 0;
    EACH(k) {
        uint count = counts[32u * k + t.lane];
        if (count != 0u) {
            ulong bits = (ulong)count * ((log << 16) - log2_fixed(norms[32u * k + t.lane]));
            whole += (uint)(bits >> 16);
            part += (uint)bits & 0xffffu;
        }
    }
    return team_sum(t, whole) + ((team_sum(t, part) + 0xffffu) >> 16);
}

// Where occurrence `j` of a symbol would like to be.
inline uint preferred(uint norm, uint log, uint j) {
    uint distance = (1u << (log + 16u)) / norm;
    return norm == 1u ? (1u << log) - 1u : (distance / 2u + j * distance) >> 16;
}

// The encoding table: each symbol's word in `codes`, bits that leave a state | next << 20, and the states of all
// symbols in turn in `next`, two in a word.
inline void encoding_table(
    Team t, __local const uint *norms, uint log, __local uint *begins, __local uint *places,
    __local ushort *states, __global uint *codes, __global uint *next
) {
    // Places have two counters in a word.
    uint size = 1u << log;
    for (uint i = t.lane; i < 1024u; i += 32u) places[i] = 0u;
    uint sum = 0;
    EACH(k) {
        uint symbol = 32u * k + t.lane, norm = norms[symbol];
        uint end = team_scan(t, norm), begin = sum + end - norm;
        begins[symbol] = begin;
        sum += team_broadcast(t, end, 31u);
        if (norm != 0u) {
            uint bits = log - log2_floor(max(norm - 1u, 1u));
            codes[symbol] = ((bits << 16) - (norm << bits)) | (begin - norm) << 20;
        } else {
            codes[symbol] = 0u;
        }
    }
    team_sync(t);
    // A counting sort by places, of which a symbol has each only once; symbols come in order.
    for (uint symbol = 0; symbol < 256u; symbol++) {
        uint norm = norms[symbol];
        for (uint j = t.lane; j < norm; j += 32u) {
            uint place = preferred(norm, log, j) & (size - 1u);
            atomic_add(&places[place >> 1], 1u << (16u * (place & 1u)));
        }
    }
    team_sync(t);
    // From counts to beginnings: a lane has a run of words.
    uint run = max(size >> 6, 1u), first = run * t.lane, count = 0;
    for (uint i = first; i < min(first + run, size >> 1); i++) count += (places[i] & 0xffffu) + (places[i] >> 16);
    uint begin = team_scan(t, count) - count;
    for (uint i = first; i < min(first + run, size >> 1); i++) {
        uint middle = begin + (places[i] & 0xffffu), end = middle + (places[i] >> 16);
        places[i] = begin | middle << 16;
        begin = end;
    }
    team_sync(t);
    for (uint symbol = 0; symbol < 256u; symbol++) {
        uint norm = team_uniform(t, norms[symbol]);
        if (norm == 0u) continue;
        for (uint j = t.lane; j < norm; j += 32u) {
            uint place = preferred(norm, log, j) & (size - 1u), shift = 16u * (place & 1u);
            uint old = atomic_add(&places[place >> 1], 1u << shift);
            states[(begins[symbol] + j) & 2047u] = (ushort)((old >> shift & 0xffffu) + size);
        }
        team_sync(t);
    }
    for (uint i = t.lane; i < size >> 1; i += 32u) next[i] = states[2u * i] | (uint)states[2u * i + 1u] << 16;
}

// ---- Models

// The codes of symbols by their lengths: code from the top down | length.
inline void assign_codes(Team t, __local const uint *lengths, __local uint *next, __global uint *codes) {
    uint rank[ROUNDS];
    if (t.lane < 16u) next[t.lane] = 0u;
    team_sync(t);
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        uint length = lengths[32u * k + t.lane];
        uint same = team_match(t, length, 4u);
        rank[k] = next[length] + popcount(same & team_before(t));
        team_sync(t);
        if ((same & ~(team_before(t) | 1u << t.lane)) == 0u) next[length] += popcount(same);
        team_sync(t);
    }
    // The first code of each length: it follows the last of the length before, one bit longer.
    uint code = 0, first = 0;
    for (uint l = 1; l < 16u; l++) {
        code = l == 1u ? 0u : (code + next[l - 1u]) << 1;
        if (t.lane == l) first = code;
    }
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        uint length = lengths[32u * k + t.lane];
        uint base = team_shuffle(t, first, length);
        codes[32u * k + t.lane] = length == 0u ? 0u : (base + rank[k]) << (32u - length) | length;
    }
}

// The model that a team has.
typedef struct {
    uint stream;
    uint chunks;           // of its group
    ulong counts, model;   // where its words begin
} Task;

#define TASK_ARGS                                                                                                     \
    uint blocks, uint slot, uint chunk_log, uint groups_per_block, uint group_log, uint count_stride, uint model_stride
#define TASK(task) find_task(&task, team, jobs, blocks, slot, chunk_log, groups_per_block, group_log, count_stride, model_stride)

inline bool find_task(Task *task, Team t, __global const uint *jobs, TASK_ARGS) {
    uint at = (uint)get_group_id(0) * TEAMS + t.index;
    uint group = at / 3u % groups_per_block, block = at / 3u / groups_per_block;
    if (block >= blocks) return false;
    uint len = min(jobs[8u * block], slot);
    if (group << (chunk_log + group_log) >= len) return false;
    task->stream = at % 3u;
    task->chunks = min(((len - 1u) >> chunk_log) + 1u - (group << group_log), 1u << group_log);
    task->counts = (ulong)block * count_stride + (group * 3u + task->stream) * COUNT_WORDS;
    task->model = (ulong)block * model_stride + (group * 3u + task->stream) * MODEL_WORDS;
    return true;
}

// Of literals and tokens, and of offsets.
#define SYMBOLS(task) ((task).stream < 2u ? 256u : 48u)
#define RAW_BITS(task) ((task).stream < 2u ? 8u : 6u)
#define HUFFMAN_BITS(task) ((task).stream < 2u ? 10u : 8u)
#define FSE_LOG(task) ((task).stream < 2u ? 11u : 8u)

// Loads counts, and returns how many are not 0.
inline uint load_counts(Team t, __global const uint *from, __local uint *counts, uint *first, uint *total) {
    uint present = 0, sum = 0;
    EACH(k) {
        uint count = from[32u * k + t.lane];
        counts[32u * k + t.lane] = count;
        uint mask = team_ballot(t, count != 0u);
        if (present == 0u && mask != 0u) *first = 32u * k + popcount((mask & (0u - mask)) - 1u);
        present += popcount(mask);
        sum += count;
    }
    *total = team_sum(t, sum);
    team_sync(t);
    return present;
}

// Chooses among constant, raw and Huffman, with code lengths as codes.
__kernel void choose_lengths(
    __global const uint *restrict jobs,
    __global const uint *restrict all_counts,
    __global uint *restrict models,
    TASK_ARGS
) {
    TEAM_START(team);
    __local uint memory[TEAMS * (3u * 256u + DESCRIPTION_WORDS + 1216u)];
    __local uint *counts = memory + team.index * (3u * 256u + DESCRIPTION_WORDS + 1216u);
    __local uint *keys = counts + 256, *lengths = counts + 512, *description = counts + 768;
    __local uint *work = description + DESCRIPTION_WORDS;
    Task task;
    if (!TASK(task)) return;
    __global uint *model = models + task.model;
    uint first = 0, total;
    uint present = load_counts(team, all_counts + task.counts, counts, &first, &total);
    if (present < 2u) {
        if (team.lane == 0u) {
            model[MODEL_MODE] = MODE_CONSTANT;
            model[MODEL_CONSTANT] = first;
            model[MODEL_LOG] = 0u;
            model[MODEL_BITS] = 0u;
            model[MODEL_SIZE] = 0u;
        }
        EACH(k) model[MODEL_CODES + 32u * k + team.lane] = 0u;
        return;
    }
    for (uint i = team.lane; i < DESCRIPTION_WORDS; i += 32u) description[i] = 0u;
    code_lengths(team, present, HUFFMAN_BITS(task), counts, keys, lengths, work);
    uint bits = 0;
    EACH(k) bits += counts[32u * k + team.lane] * lengths[32u * k + team.lane];
    uint described = describe(team, lengths, false, counts, description, 0u);
    uint size = team_sum(team, bits) + described;
    uint raw_bits = RAW_BITS(task);
    bool is_raw = total * raw_bits <= size;
    team_sync(team);
    if (team.lane == 0u) {
        model[MODEL_MODE] = is_raw ? MODE_RAW : MODE_HUFFMAN;
        model[MODEL_LOG] = 0u;
        model[MODEL_BITS] = is_raw ? 0u : described;
        model[MODEL_SIZE] = is_raw ? total * raw_bits : size;
    }
    for (uint i = team.lane; i < DESCRIPTION_WORDS; i += 32u) model[MODEL_DESCRIPTION + i] = description[i];
    EACH(k) {
        uint symbol = 32u * k + team.lane;
        uint raw = symbol < SYMBOLS(task) ? raw_bits : 0u;
        model[MODEL_CODES + symbol] = is_raw ? raw : lengths[symbol];
    }
}

// Chooses FSE where that is smaller, with norms as codes.
__kernel void choose_norms(
    __global const uint *restrict jobs,
    __global const uint *restrict all_counts,
    __global uint *restrict models,
    TASK_ARGS
) {
    TEAM_START(team);
    __local uint memory[TEAMS * (3u * 256u + DESCRIPTION_WORDS)];
    __local uint *counts = memory + team.index * (3u * 256u + DESCRIPTION_WORDS);
    __local uint *norms = counts + 256, *lengths = counts + 512, *description = counts + 768;
    Task task;
    if (!TASK(task)) return;
    __global uint *model = models + task.model;
    uint first = 0, total;
    uint present = load_counts(team, all_counts + task.counts, counts, &first, &total);
    if (present < 2u) return;
    uint log = clamp(log2_floor(total), 5u, FSE_LOG(task));
    if (present >= 1u << log) return;
    for (uint i = team.lane; i < DESCRIPTION_WORDS; i += 32u) description[i] = 0u;
    normalize_counts(team, counts, total, log, norms);
    uint size = fse_bits(team, counts, norms, log);
    // A norm is like a code of this length.
    EACH(k) {
        uint norm = norms[32u * k + team.lane];
        lengths[32u * k + team.lane] = norm == 0u ? 0u : log - log2_floor(norm);
    }
    if (team.lane == 0u) put_bits(description, 0u, log, 4u);
    team_sync(team);
    uint described = describe(team, lengths, true, norms, description, 4u);
    size += described + 32u * task.chunks * log;
    bool is_smaller = size < team_uniform(team, model[MODEL_SIZE]);
    team_sync(team);
    if (!is_smaller) return;
    if (team.lane == 0u) {
        model[MODEL_MODE] = MODE_FSE;
        model[MODEL_LOG] = log;
        model[MODEL_BITS] = described;
        model[MODEL_SIZE] = size;
    }
    for (uint i = team.lane; i < DESCRIPTION_WORDS; i += 32u) model[MODEL_DESCRIPTION + i] = description[i];
    EACH(k) model[MODEL_CODES + 32u * k + team.lane] = norms[32u * k + team.lane];
}

// Makes the codes of symbols from their lengths.
__kernel void tables_from_lengths(__global const uint *restrict jobs, __global uint *restrict models, TASK_ARGS) {
    TEAM_START(team);
    __local uint memory[TEAMS * (256u + 16u)];
    __local uint *lengths = memory + team.index * (256u + 16u), *next = lengths + 256;
    Task task;
    if (!TASK(task)) return;
    __global uint *model = models + task.model;
    uint mode = team_uniform(team, model[MODEL_MODE]);
    if (mode != MODE_RAW && mode != MODE_HUFFMAN) return;
    EACH(k) lengths[32u * k + team.lane] = model[MODEL_CODES + 32u * k + team.lane];
    team_sync(team);
    assign_codes(team, lengths, next, model + MODEL_CODES);
}

// Makes the tables of FSE from norms.
__kernel void tables_from_norms(__global const uint *restrict jobs, __global uint *restrict models, TASK_ARGS) {
    TEAM_START(team);
    __local uint memory[TEAMS * (2u * 256u + 1024u)];
    __local ushort all_states[TEAMS * 2048u];
    __local uint *norms = memory + team.index * (2u * 256u + 1024u), *begins = norms + 256, *places = norms + 512;
    __local ushort *states = all_states + team.index * 2048u;
    Task task;
    if (!TASK(task)) return;
    __global uint *model = models + task.model;
    if (team_uniform(team, model[MODEL_MODE]) != MODE_FSE) return;
    EACH(k) norms[32u * k + team.lane] = model[MODEL_CODES + 32u * k + team.lane];
    team_sync(team);
    encoding_table(team, norms, model[MODEL_LOG], begins, places, states, model + MODEL_CODES, model + MODEL_NEXT);
}
