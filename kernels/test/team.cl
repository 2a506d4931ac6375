// Calls every function of teams once, for tests.
//
// @pz_cost {
//   threads: N/4
//   passes: 1
//   buffers: values=N, results=N*16
//   local_mem: 256
//   note: each lane reads 4 bytes of a block and writes 16 results
// }
// @pz_import team

__kernel void team_functions(__global const uint *values, __global uint *results, uint teams) {
    TEAM_START(team);
    const uint index = (uint)get_group_id(0) * TEAMS + team.index;
    if (index >= teams) return;
    const uint at = index * 32u + team.lane;
    const uint v = values[at];
    __global uint *r = results + at * 16u;
    const uint odd = team_ballot(team, (v & 1u) != 0u);
    const uint sum = team_sum(team, v);
    r[0] = odd;
    r[1] = team_any(team, v % 41u == 7u) ? 1u : 0u;
    r[2] = team_shuffle(team, v, v >> 8 & 31u);
    r[3] = team_shuffle_up(team, v, 1u);
    r[4] = team_shuffle_up(team, v, 16u);
    r[5] = team_scan(team, v);
    r[6] = sum;
    r[7] = team_max(team, v);
    r[8] = team_match(team, v & 7u, 3u);
    r[9] = team_broadcast(team, v, sum & 31u);
    r[10] = team_uniform(team, odd);
    r[11] = team_before(team);
    // After a sync, the other lanes see what a lane has written.
    r[12] = v ^ 0x5a5a5a5au;
    team_sync(team);
    const uint neighbour = (team.lane + 1u) & 31u;
    r[13] = results[(index * 32u + neighbour) * 16u + 12u];
    r[14] = team.lane;
    // A loop whose length depends on data.
    uint turns = 0u;
    uint rest = team_uniform(team, sum & 63u);
    while (team_any(team, rest > team.lane)) {
        turns += 1u;
        rest -= min(rest, 5u);
    }
    r[15] = turns;
}
