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

struct Args {
    teams: u32,
}

@group(0) @binding(0) var<storage, read> values: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<u32>;
var<immediate> args: Args;

// @pz_entry
fn team_functions(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    // Workgroups are full: the number of teams is a multiple of TEAMS.
    if workgroup_index * TEAMS >= args.teams {
        return;
    }
    let index = workgroup_index * TEAMS + team_index;
    let at = index * 32u + lane;
    let v = values[at];
    let r = at * 16u;
    let odd = team_ballot((v & 1u) != 0u);
    let sum = team_sum(v);
    results[r] = odd;
    results[r + 1u] = select(0u, 1u, team_any(v % 41u == 7u));
    results[r + 2u] = team_shuffle(v, v >> 8u & 31u);
    results[r + 3u] = team_shuffle_up(v, 1u);
    results[r + 4u] = team_shuffle_up(v, 16u);
    results[r + 5u] = team_scan(v);
    results[r + 6u] = sum;
    results[r + 7u] = team_max(v);
    results[r + 8u] = team_match(v & 7u, 3u);
    results[r + 9u] = team_broadcast(v, sum & 31u);
    results[r + 10u] = team_uniform(odd);
    results[r + 11u] = team_before();
    // After a sync, the other lanes see what a lane has written.
    results[r + 12u] = v ^ 0x5a5a5a5au;
    team_sync();
    let neighbour = (lane + 1u) & 31u;
    results[r + 13u] = results[(index * 32u + neighbour) * 16u + 12u];
    results[r + 14u] = lane;
    // A loop whose length depends on data.
    var turns = 0u;
    var rest = team_uniform(sum & 63u);
    while team_any(rest > lane) {
        turns += 1u;
        rest -= min(rest, 5u);
    }
    results[r + 15u] = turns;
}
