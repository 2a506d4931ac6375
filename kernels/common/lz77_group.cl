// Shared by the kernels that choose the models of groups: the model of each team, its counts, and its description.
#define DESCRIPTION_WORDS (MODEL_CODES - MODEL_DESCRIPTION)

#define ROUNDS 8u  // Each lane handles symbols lane, lane + 32, and so on.
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

// The model that a team works on.
typedef struct {
    uint stream;
    uint chunks;           // of the model's group
    ulong counts, model;   // where their words begin
} Task;

#define TASK_ARGS                                                                                                     \
    uint blocks, uint slot, uint chunk_log, uint groups_per_block, uint group_log, uint count_stride, uint model_stride
#define TASK(task) find_task(&task, team, jobs, blocks, slot, chunk_log, groups_per_block, group_log, count_stride, model_stride)

inline bool find_task(Task *task, Team t, __global const uint *jobs, TASK_ARGS) {
    uint at = (uint)get_group_id(0) * TEAMS + t.index;
    // All teams of a workgroup work on the same stream, because streams take different times.
    uint groups = blocks * groups_per_block, stream = at / max(groups, 1u);
    uint group = at % max(groups, 1u) % groups_per_block, block = at % max(groups, 1u) / groups_per_block;
    if (stream >= 3u) return false;
    uint len = min(jobs[8u * block], slot);
    if (group << (chunk_log + group_log) >= len) return false;
    task->stream = stream;
    task->chunks = min(((len - 1u) >> chunk_log) + 1u - (group << group_log), 1u << group_log);
    task->counts = (ulong)block * count_stride + (group * 3u + task->stream) * COUNT_WORDS;
    task->model = (ulong)block * model_stride + (group * 3u + task->stream) * MODEL_WORDS;
    return true;
}

// The first value is for literals and tokens, the second for offsets.
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

// Writes the description of lengths, or of norms, from bit `at` on into words that are 0; returns its end.
inline uint describe(
    Team t, __local const uint *lengths, bool has_norms, __local const uint *norms, __local uint *words, uint at
) {
    uint end = 0;
    EACH(k) {
        uint present = team_ballot(t, lengths[32u * k + t.lane] != 0u);
        if (present != 0u) end = 32u * k + log2_floor(present) + 1u;
    }
    uint before_round = 0;  // The last symbol before this round that has a length, plus one.
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
