// Teams: 32 work items that run together and exchange values.
//
// TEAM_SUBGROUP: a team is a subgroup of 32, and several share a workgroup. TEAM_LOCAL: a workgroup is one team, and
// values go through workgroup memory. All 32 work items must call every function together, in uniform control flow.
// Only the lane number functions are exempt.
//
// An entry point begins with team_start(local_invocation_index). A result called uniform is the same in all lanes, and
// where it matters the compiler knows. Only such values should control loops.

var<private> lane: u32;       // 0 to 31
var<private> team_index: u32; // of the team in its workgroup

// The lanes before this one, as a mask.
fn team_before() -> u32 {
    return (1u << lane) - 1u;
}

// @pz_if TEAM_SUBGROUP

fn team_start(local_index: u32) {
    lane = local_index & 31u;
    team_index = subgroupBroadcastFirst(local_index >> 5u);
}

fn team_sync() {
    // The invocations of a subgroup run together. The barrier orders their writes to workgroup memory.
    subgroupBarrier();
}

// The value of lane `source`, which each lane chooses.
fn team_shuffle(v: u32, source: u32) -> u32 {
    return subgroupShuffle(v, source & 31u);
}

// The value of the lane `by` before; lanes without one keep their own value.
fn team_shuffle_up(v: u32, by: u32) -> u32 {
    return subgroupShuffle(v, select(lane, lane - by, lane >= by));
}

// A value that all lanes hold already; uniform.
fn team_uniform(v: u32) -> u32 {
    return subgroupBroadcastFirst(v);
}

// Bit l tells whether `p` holds in lane l; uniform.
fn team_ballot(p: bool) -> u32 {
    return subgroupBallot(p).x;
}

// Whether `p` holds in any lane; uniform.
fn team_any(p: bool) -> bool {
    return subgroupAny(p);
}

// The sum of `v` in this lane and those before it.
fn team_scan(v: u32) -> u32 {
    return subgroupInclusiveAdd(v);
}

// The sum of `v` over all lanes; uniform.
fn team_sum(v: u32) -> u32 {
    return subgroupAdd(v);
}

// The largest `v` of all lanes; uniform.
fn team_max(v: u32) -> u32 {
    return subgroupMax(v);
}

// The lanes whose `v`, a number of `bits` bits, is the same as this lane's.
fn team_match(v: u32, bits: u32) -> u32 {
    var same = 0xffffffffu;
    for (var i = 0u; i < bits; i++) {
        let mine = (v >> i & 1u) != 0u;
        let ones = subgroupBallot(mine).x;
        same &= select(~ones, ones, mine);
    }
    return same;
}

// @pz_else

var<workgroup> team_scratch: array<u32, 32>;
var<workgroup> team_result: u32;

// The OR of the values of eight lanes from `i` on. These functions are written out because they are called in loops,
// and some drivers limit the iterations of an invocation.
fn team_or8(i: u32) -> u32 {
    return team_scratch[i] | team_scratch[i + 1u] | team_scratch[i + 2u] | team_scratch[i + 3u]
        | team_scratch[i + 4u] | team_scratch[i + 5u] | team_scratch[i + 6u] | team_scratch[i + 7u];
}

fn team_max8(i: u32) -> u32 {
    let a = max(max(team_scratch[i], team_scratch[i + 1u]), max(team_scratch[i + 2u], team_scratch[i + 3u]));
    let b = max(max(team_scratch[i + 4u], team_scratch[i + 5u]), max(team_scratch[i + 6u], team_scratch[i + 7u]));
    return max(a, b);
}

fn team_before_limit(i: u32, limit: u32) -> u32 {
    return select(0u, team_scratch[i], i < limit);
}

// The sum of the values of the eight lanes from `i` on, without lanes from `limit` on.
fn team_add8(i: u32, limit: u32) -> u32 {
    return team_before_limit(i, limit) + team_before_limit(i + 1u, limit)
        + team_before_limit(i + 2u, limit) + team_before_limit(i + 3u, limit)
        + team_before_limit(i + 4u, limit) + team_before_limit(i + 5u, limit)
        + team_before_limit(i + 6u, limit) + team_before_limit(i + 7u, limit);
}

fn team_same(i: u32, v: u32) -> u32 {
    return u32(team_scratch[i] == v) << i;
}

fn team_same8(i: u32, v: u32) -> u32 {
    return team_same(i, v) | team_same(i + 1u, v) | team_same(i + 2u, v) | team_same(i + 3u, v)
        | team_same(i + 4u, v) | team_same(i + 5u, v) | team_same(i + 6u, v) | team_same(i + 7u, v);
}

fn team_start(local_index: u32) {
    lane = local_index;
    team_index = 0u;
}

fn team_sync() {
    storageBarrier();
    workgroupBarrier();
}

fn team_shuffle(v: u32, source: u32) -> u32 {
    team_scratch[lane] = v;
    workgroupBarrier();
    let r = team_scratch[source & 31u];
    workgroupBarrier();
    return r;
}

fn team_shuffle_up(v: u32, by: u32) -> u32 {
    return team_shuffle(v, select(lane, lane - by, lane >= by));
}

fn team_uniform(v: u32) -> u32 {
    if lane == 0u {
        team_result = v;
    }
    return workgroupUniformLoad(&team_result);
}

fn team_ballot(p: bool) -> u32 {
    team_scratch[lane] = select(0u, 1u << lane, p);
    workgroupBarrier();
    if lane == 0u {
        team_result = team_or8(0u) | team_or8(8u) | team_or8(16u) | team_or8(24u);
    }
    return workgroupUniformLoad(&team_result);
}

fn team_any(p: bool) -> bool {
    return team_ballot(p) != 0u;
}

fn team_scan(v: u32) -> u32 {
    team_scratch[lane] = v;
    workgroupBarrier();
    let limit = lane + 1u;
    let r = team_add8(0u, limit) + team_add8(8u, limit) + team_add8(16u, limit) + team_add8(24u, limit);
    workgroupBarrier();
    return r;
}

fn team_sum(v: u32) -> u32 {
    team_scratch[lane] = v;
    workgroupBarrier();
    if lane == 0u {
        team_result = team_add8(0u, 32u) + team_add8(8u, 32u) + team_add8(16u, 32u) + team_add8(24u, 32u);
    }
    return workgroupUniformLoad(&team_result);
}

fn team_max(v: u32) -> u32 {
    team_scratch[lane] = v;
    workgroupBarrier();
    if lane == 0u {
        team_result = max(max(team_max8(0u), team_max8(8u)), max(team_max8(16u), team_max8(24u)));
    }
    return workgroupUniformLoad(&team_result);
}

fn team_match(v: u32, bits: u32) -> u32 {
    team_scratch[lane] = v;
    workgroupBarrier();
    let r = team_same8(0u, v) | team_same8(8u, v) | team_same8(16u, v) | team_same8(24u, v);
    workgroupBarrier();
    return r;
}

// @pz_end

// The value of lane `source`, the same for all lanes; uniform.
fn team_broadcast(v: u32, source: u32) -> u32 {
    return team_uniform(team_shuffle(v, source));
}
