// Computes the prices of symbols for the optimal parse of LZ77 from their counts in a chunk, by the rule of
// codec::lz77::prices.
//
// Constants: FIRST, whether there is no parse yet. Then the prices of literals come from the counts of bytes, and those
// of tokens and offsets from counts typical of most data.
//
// @pz_cost {
//   threads: N/32768*256
//   passes: 3
//   buffers: jobs=32, contents=N, lz77_symbols=N/65536*4608
//   local_mem: 8192
// }
// @pz_import team
// @pz_import log2
// @pz_import lz77_chunk_prices

// Each counter has eight copies side by side, so that equal bytes in neighbouring lanes rarely contend.
#define COPIES 8u
#define PIECE_LOG 15u

// Counts the bytes of chunks. One workgroup per 32 KiB.
__kernel void count_bytes(__global const uint *restrict jobs, __global const uint *restrict contents,
                          __global uint *restrict symbols, uint slot, uint chunk_log, uint pieces, uint blocks,
                          uint stride) {
    SHARED uint histogram[256u * COPIES];
    uint lane = (uint)get_local_id(0);
    uint block = (uint)get_group_id(0) / pieces, begin = (uint)get_group_id(0) % pieces << PIECE_LOG;
    if (block >= blocks) return;
    uint end = min(jobs[(size_t)block * 8], begin + (1u << PIECE_LOG));
    if (begin >= end) return;
    contents += (size_t)block * (slot >> 2);
    symbols += (size_t)block * stride + (begin >> chunk_log) * SYMBOL_WORDS + SYMBOL_COUNTS + LITERALS;
    for (uint i = lane; i < 256u * COPIES; i += THREADS) histogram[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint copy = lane & (COPIES - 1u);
    for (uint i = (begin >> 2) + lane; i < end >> 2; i += THREADS) {
        uint w = contents[i];
        atomic_inc(&histogram[(w & 255u) * COPIES + copy]);
        atomic_inc(&histogram[(w >> 8 & 255u) * COPIES + copy]);
        atomic_inc(&histogram[(w >> 16 & 255u) * COPIES + copy]);
        atomic_inc(&histogram[(w >> 24) * COPIES + copy]);
    }
    if (lane < (end & 3u)) atomic_inc(&histogram[(contents[end >> 2] >> (8u * lane) & 255u) * COPIES]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = lane; i < 256u; i += THREADS) {
        uint sum = 0;
        for (uint j = 0; j < COPIES; j++) sum += histogram[i * COPIES + ((j + lane) & (COPIES - 1u))];
        if (sum != 0) atomic_add(&symbols[i], sum);
    }
}

// The price of a symbol that occurs `n` times; `log_total` is the logarithm of the sum of all symbols' weights.
inline uint price_of(uint log_total, uint n) {
    return max((log_total - log2_fixed(2u * n + 1u)) >> 8, BIT / 8u);
}

#if FIRST
// Shares of the literal codes of tokens, and of the first match codes.
__constant uint RUN_SHARES[8] = {48, 18, 10, 7, 5, 3, 3, 12};
__constant uint LENGTH_SHARES[32] = {0, 12, 20, 16, 13, 11, 9, 8, 7, 6, 5, 5, 4, 4, 4, 3,
                                     3, 3,  3,  2,  12, 9,  5, 3, 2, 1, 1, 0, 0, 0, 0, 0};
#endif

// Computes the prices of chunks from their counts, and resets the counts. A team has a chunk.
__kernel void prices(__global const uint *restrict jobs, __global uint *restrict symbols, uint slot, uint chunk_log,
                     uint chunks, uint blocks, uint stride) {
    TEAM_START(team);
    uint index = (uint)get_group_id(0) * TEAMS + team.index;
    uint block = index / chunks, chunk = index % chunks;
    if (block >= blocks) return;
    if (chunk << chunk_log >= team_uniform(team, jobs[(size_t)block * 8])) return;
    __global uint *prices = symbols + (size_t)block * stride + chunk * SYMBOL_WORDS;
    __global uint *counts = prices + SYMBOL_COUNTS;
    uint lane = team.lane;

    uint n[8], weights = 0;
    for (uint k = 0; k < 8; k++) {
        n[k] = counts[LITERALS + 32 * k + lane];
#if FIRST
        n[k]++;
#endif
        weights += 2 * n[k] + 1;
    }
    uint log_total = log2_fixed(team_sum(team, weights));
    for (uint k = 0; k < 8; k++) prices[LITERALS + 32 * k + lane] = price_of(log_total, n[k]);

    weights = 0;
    uint run = 0;  // of this lane's literal code
    for (uint k = 0; k < 8; k++) {
#if FIRST
        n[k] = RUN_SHARES[k] * LENGTH_SHARES[lane];
#else
        n[k] = counts[TOKENS + 32 * k + lane];
#endif
        weights += 2 * n[k] + 1;
        uint sum = team_sum(team, n[k]);
        if (lane == k) run = sum;
    }
    log_total = log2_fixed(team_sum(team, weights));
    for (uint k = 0; k < 8; k++) prices[TOKENS + 32 * k + lane] = price_of(log_total, n[k]);
    log_total = log2_fixed(team_sum(team, lane < 8 ? 2 * run + 1 : 0));
    if (lane < 8) prices[RUNS + lane] = price_of(log_total, run);

    weights = 0;
    for (uint k = 0; k < 2; k++) {
        uint symbol = 32 * k + lane;
        n[k] = 0;
        if (symbol < OFFSET_SYMBOLS) {
#if FIRST
            n[k] = symbol == 0 ? 60 : symbol == 1 ? 20 : symbol == 2 ? 12 : 4 + min(symbol, 28u) / 3;
#else
            n[k] = counts[OFFSETS + symbol];
#endif
            weights += 2 * n[k] + 1;
        }
    }
    log_total = log2_fixed(team_sum(team, weights));
    for (uint k = 0; k < 2; k++) {
        uint symbol = 32 * k + lane;
        if (symbol < OFFSET_SYMBOLS) {
            uint bits = symbol < 3 ? 0 : (symbol - 3) / 2 + 1;
            prices[OFFSETS + symbol] = price_of(log_total, n[k]) + bits * BIT;
        }
    }
    for (uint i = lane; i < COUNT_WORDS; i += 32) counts[i] = 0;
}
