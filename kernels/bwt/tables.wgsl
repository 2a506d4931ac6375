// BWT payloads: builds the tables.
//
// @pz_cost {
//   threads: 98304
//   passes: 1
//   buffers: results=32,
//            bwt_blocks=512, bwt_tables=208896
//   local_mem: 256
//   note: a team for each table
// }
// @pz_import team
// @pz_import bwt

struct Args {
    blocks: u32,
}

@group(0) @binding(0) var<storage, read> results: array<u32>;
@group(0) @binding(1) var<storage, read> bwt_blocks: array<u32>;
@group(0) @binding(2) var<storage, read_write> bwt_tables: array<u32>;
var<immediate> args: Args;

// Turns exponents into starts, in place: 32 starts of 16 bits each.
// @pz_entry
fn starts(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let index = team_uniform(workgroup_index * TEAMS + team_index);
    let block = index / (MAX_SETS * CONTEXTS);
    if block >= args.blocks {
        return;
    }
    let which = index % (MAX_SETS * CONTEXTS) / CONTEXTS;
    let is_good = results[block * RESULT_WORDS] == 0u;
    let count = select(0u, bwt_blocks[block * BLOCK_WORDS + BLOCK_SETS], is_good);
    if team_uniform(select(0u, 1u, which < count)) == 0u {
        return;
    }
    let table = block * TABLES_OF + index % (MAX_SETS * CONTEXTS) * TABLE_WORDS;
    let q = (bwt_tables[table + (lane >> 2u)] >> (8u * (lane & 3u))) & 255u;
    team_sync();

    let third = (q + 2u) % 3u; // (q - 1) % 3
    let mantissa = select(select(104032u, 82570u, third == 1u), 65536u, third == 0u);
    let weight = select(mantissa << ((max(q, 1u) - 1u) / 3u), 0u, q == 0u);
    // The sum needs more than 32 bits.
    let highs = team_sum(weight >> 16u);
    let lows = team_sum(weight & 0xffffu);
    let low = (highs << 16u) + lows;
    let high = (highs >> 16u) + select(0u, 1u, low < lows);
    // 4096 weight / sum, one bit at a time, and the remainder.
    var quotient = 0u;
    var rest_low = weight;
    var rest_high = 0u;
    if rest_high > high || (rest_high == high && rest_low >= low) {
        quotient = 1u;
        rest_low -= low;
    }
    for (var i = 0u; i < 12u; i++) {
        rest_high = (rest_high << 1u) | (rest_low >> 31u);
        rest_low <<= 1u;
        quotient <<= 1u;
        if rest_high > high || (rest_high == high && rest_low >= low) {
            quotient |= 1u;
            rest_high -= high + select(0u, 1u, rest_low < low);
            rest_low -= low;
        }
    }
    // Round up if the remainder is at least half the sum.
    let half_low = (low >> 1u) | (high << 31u);
    let half_high = high >> 1u;
    let up_low = rest_low + half_low;
    let up_high = rest_high + half_high + select(0u, 1u, up_low < rest_low);
    if up_high > high || (up_high == high && up_low >= low) {
        quotient += 1u;
    }
    var freq = select(max(1u, quotient), 0u, q == 0u);
    let total = team_sum(freq);
    let largest = team_max((freq << 5u) | (31u - lane));
    if lane == 31u - (largest & 31u) {
        freq += 4096u - total;
    }
    let start = team_scan(freq) - freq;
    let after = team_shuffle(start, (lane + 1u) & 31u);
    if (lane & 1u) == 0u {
        bwt_tables[table + (lane >> 1u)] = start | (after << 16u);
    }
}
