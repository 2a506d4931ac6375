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
const COPIES = 8u;
const PIECE_LOG = 15u;

// `parts` counts pieces in count_bytes, and chunks in prices.
struct Args {
    slot: u32,
    chunk_log: u32,
    parts: u32,
    blocks: u32,
    stride: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
// count_bytes
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read_write> counted: array<atomic<u32>>;
// prices
@group(0) @binding(1) var<storage, read_write> symbols: array<u32>;

var<workgroup> histogram: array<atomic<u32>, 2048>;

// Counts the bytes of chunks. One workgroup per 32 KiB.
// @pz_entry
fn count_bytes(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.parts;
    let begin = workgroup_index % args.parts << PIECE_LOG;
    var end = begin;
    if block < args.blocks {
        end = max(begin, min(jobs[block * 8u], begin + (1u << PIECE_LOG)));
    }
    let contents_at = block * (args.slot >> 2u);
    let counts_at = block * args.stride + (begin >> args.chunk_log) * SYMBOL_WORDS + SYMBOL_COUNTS + LITERALS;
    for (var i = local_index; i < 256u * COPIES; i += THREADS) {
        atomicStore(&histogram[i], 0u);
    }
    workgroupBarrier();
    let copy = local_index & (COPIES - 1u);
    for (var i = (begin >> 2u) + local_index; i < (end >> 2u); i += THREADS) {
        let w = contents[contents_at + i];
        atomicAdd(&histogram[(w & 255u) * COPIES + copy], 1u);
        atomicAdd(&histogram[(w >> 8u & 255u) * COPIES + copy], 1u);
        atomicAdd(&histogram[(w >> 16u & 255u) * COPIES + copy], 1u);
        atomicAdd(&histogram[(w >> 24u) * COPIES + copy], 1u);
    }
    if begin < end && local_index < (end & 3u) {
        let symbol = contents[contents_at + (end >> 2u)] >> (8u * local_index) & 255u;
        atomicAdd(&histogram[symbol * COPIES], 1u);
    }
    workgroupBarrier();
    for (var i = local_index; i < 256u; i += THREADS) {
        var sum = 0u;
        for (var j = 0u; j < COPIES; j++) {
            sum += atomicLoad(&histogram[i * COPIES + ((j + local_index) & (COPIES - 1u))]);
        }
        if sum != 0u {
            atomicAdd(&counted[counts_at + i], sum);
        }
    }
}

// The price of a symbol that occurs `n` times; `log_total` is the logarithm of the sum of all symbols' weights.
fn price_of(log_total: u32, n: u32) -> u32 {
    return max(log_total - log2_fixed(2u * n + 1u) >> 8u, BIT / 8u);
}

// Shares of the literal codes of tokens, and of the first match codes.
// @pz_if FIRST
const RUN_SHARES = array<u32, 8>(48u, 18u, 10u, 7u, 5u, 3u, 3u, 12u);
const LENGTH_SHARES = array<u32, 32>(
    0u, 12u, 20u, 16u, 13u, 11u, 9u, 8u, 7u, 6u, 5u, 5u, 4u, 4u, 4u, 3u,
    3u, 3u, 3u, 2u, 12u, 9u, 5u, 3u, 2u, 1u, 1u, 0u, 0u, 0u, 0u, 0u,
);

fn token_count(counts: u32, k: u32) -> u32 {
    return RUN_SHARES[k] * LENGTH_SHARES[lane];
}

fn literal_count(counts: u32, k: u32) -> u32 {
    return symbols[counts + LITERALS + 32u * k + lane] + 1u;
}

fn offset_count(counts: u32, symbol: u32) -> u32 {
    let recent = select(select(12u, 20u, symbol == 1u), 60u, symbol == 0u);
    return select(4u + min(symbol, 28u) / 3u, recent, symbol < 3u);
}
// @pz_else
fn token_count(counts: u32, k: u32) -> u32 {
    return symbols[counts + TOKENS + 32u * k + lane];
}

fn literal_count(counts: u32, k: u32) -> u32 {
    return symbols[counts + LITERALS + 32u * k + lane];
}

fn offset_count(counts: u32, symbol: u32) -> u32 {
    return symbols[counts + OFFSETS + symbol];
}
// @pz_end

// Computes the prices of chunks from their counts, and resets the counts. A team has a chunk.
// @pz_entry
fn prices(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let index = workgroup_index * TEAMS + team_index;
    let block = index / args.parts;
    let chunk = index % args.parts;
    var is_there = block < args.blocks;
    if is_there {
        is_there = (chunk << args.chunk_log) < jobs[block * 8u];
    }
    if team_uniform(u32(is_there)) == 0u {
        return;
    }
    let prices = block * args.stride + chunk * SYMBOL_WORDS;
    let counts = prices + SYMBOL_COUNTS;

    var n: array<u32, 8>;
    var weights = 0u;
    for (var k = 0u; k < 8u; k++) {
        n[k] = literal_count(counts, k);
        weights += 2u * n[k] + 1u;
    }
    var log_total = log2_fixed(team_sum(weights));
    for (var k = 0u; k < 8u; k++) {
        symbols[prices + LITERALS + 32u * k + lane] = price_of(log_total, n[k]);
    }

    weights = 0u;
    var run = 0u; // of this lane's literal code
    for (var k = 0u; k < 8u; k++) {
        n[k] = token_count(counts, k);
        weights += 2u * n[k] + 1u;
        let sum = team_sum(n[k]);
        if lane == k {
            run = sum;
        }
    }
    log_total = log2_fixed(team_sum(weights));
    for (var k = 0u; k < 8u; k++) {
        symbols[prices + TOKENS + 32u * k + lane] = price_of(log_total, n[k]);
    }
    log_total = log2_fixed(team_sum(select(0u, 2u * run + 1u, lane < 8u)));
    if lane < 8u {
        symbols[prices + RUNS + lane] = price_of(log_total, run);
    }

    weights = 0u;
    for (var k = 0u; k < 2u; k++) {
        let symbol = 32u * k + lane;
        if symbol < OFFSET_SYMBOLS {
            n[k] = offset_count(counts, symbol);
            weights += 2u * n[k] + 1u;
        }
    }
    log_total = log2_fixed(team_sum(weights));
    for (var k = 0u; k < 2u; k++) {
        let symbol = 32u * k + lane;
        if symbol < OFFSET_SYMBOLS {
            let bits = select((max(symbol, 3u) - 3u) / 2u + 1u, 0u, symbol < 3u);
            symbols[prices + OFFSETS + symbol] = price_of(log_total, n[k]) + bits * BIT;
        }
    }
    for (var i = lane; i < COUNT_WORDS; i += 32u) {
        symbols[counts + i] = 0u;
    }
}
