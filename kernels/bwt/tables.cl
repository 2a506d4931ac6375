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

// Turns exponents into starts, in place: 32 starts of 16 bits each.
__kernel void starts(__global const uint *results, __global const uint *bwt_blocks, __global uint *bwt_tables,
                     uint blocks) {
    TEAM_START(team);
    uint index = team_uniform(team, (uint)get_group_id(0) * TEAMS + team.index);
    uint block = index / (MAX_SETS * CONTEXTS);
    if (block >= blocks) return;
    uint set = index % (MAX_SETS * CONTEXTS) / CONTEXTS;
    uint count = results[block * RESULT_WORDS] == 0u ? bwt_blocks[block * BLOCK_WORDS + BLOCK_SETS] : 0u;
    if (team_uniform(team, set < count ? 1u : 0u) == 0u) return;
    __global uint *table = bwt_tables + (size_t)block * TABLES_OF + index % (MAX_SETS * CONTEXTS) * TABLE_WORDS;
    uint lane = team.lane;
    uint q = table[lane >> 2] >> (8u * (lane & 3u)) & 255u;
    team_sync(team);

    uint third = (q + 2u) % 3u; // (q - 1) % 3
    uint mantissa = third == 0u ? 65536u : third == 1u ? 82570u : 104032u;
    uint weight = q == 0u ? 0u : mantissa << ((q - 1u) / 3u);
    // The sum needs more than 32 bits.
    ulong sum = ((ulong)team_sum(team, weight >> 16) << 16) + team_sum(team, weight & 0xffffu);
    uint freq = q == 0u ? 0u : max(1u, (uint)((((ulong)weight << 12) + (sum >> 1)) / max(sum, (ulong)1)));
    uint total = team_sum(team, freq);
    uint largest = team_max(team, freq << 5 | (31u - lane));
    if (lane == 31u - (largest & 31u)) freq += 4096u - total;
    uint start = team_scan(team, freq) - freq;
    uint after = team_shuffle(team, start, (lane + 1u) & 31u);
    if ((lane & 1u) == 0u) table[lane >> 1] = start | after << 16;
}
