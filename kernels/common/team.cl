// Teams: 32 work items that run together and exchange values.
//
// TEAM_PTX: a team is a warp of an NVIDIA GPU, and several share a workgroup. TEAM_LOCAL: a workgroup is one team,
// and values go through workgroup memory. All 32 work items must call every function together, in control flow that
// is the same for all of them. Only the lane number functions are exempt.
//
// A kernel begins with TEAM_START(team). A result called uniform is the same in all lanes, and where it matters the
// compiler knows. Only such values should control loops.
#if TEAM_LOCAL
#define TEAM_SCRATCH 64
#else
#define TEAM_SCRATCH 1
#endif

typedef struct {
    uint lane;              // 0 to 31
    uint index;             // of the team in its workgroup
    __local uint *scratch;  // for TEAM_LOCAL
} Team;

#define TEAM_START(team)                         \
    SHARED uint team_scratch_[TEAM_SCRATCH];     \
    Team team;                                   \
    team.lane = (uint)get_local_id(0) & 31u;     \
    team.index = (uint)get_local_id(0) >> 5;     \
    team.scratch = team_scratch_;                \
    team.index = team_uniform(team, team.index)

#if TEAM_PTX

inline uint team_uniform(Team t, uint v) {
    uint r;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}

inline void team_sync(Team t) {
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}

inline uint team_ballot(Team t, bool p) {
    uint r;
    asm volatile("{.reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}" : "=r"(r) : "r"((int)p));
    return r;
}

inline bool team_any(Team t, bool p) {
    int r;
    asm volatile("{.reg .pred p, q; setp.ne.s32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; selp.s32 %0, 1, 0, q;}" : "=r"(r) : "r"((int)p));
    return r != 0;
}

inline uint team_shuffle(Team t, uint v, uint from) {
    uint r;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(from));
    return r;
}

inline uint team_shuffle_up(Team t, uint v, uint by) {
    uint r;
    asm volatile("shfl.sync.up.b32 %0, %1, %2, 0, 0xffffffff;" : "=r"(r) : "r"(v), "r"(by));
    return r;
}

#define TEAM_SCAN_STEP(by) \
    asm volatile("{.reg .pred p; .reg .u32 t; shfl.sync.up.b32 t|p, %1, " #by ", 0, 0xffffffff; mov.u32 %0, %1; @p add.u32 %0, %1, t;}" : "=r"(f) : "r"(v)); \
    v = f;

inline uint team_scan(Team t, uint v) {
    uint f;
    TEAM_SCAN_STEP(1) TEAM_SCAN_STEP(2) TEAM_SCAN_STEP(4) TEAM_SCAN_STEP(8) TEAM_SCAN_STEP(16)
    return v;
}

inline uint team_sum(Team t, uint v) {
    uint r;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}

inline uint team_max(Team t, uint v) {
    return team_uniform(t, v);
}

inline uint team_match(Team t, uint v, uint bits) {
    uint r;
    asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}

// team_match for values of a few bits that mostly differ, with a constant `bits`. The match instruction takes time for
// each distinct value; ballots take time for each bit.
inline uint team_match_digit(Team t, uint v, uint bits) {
    uint same = 0xffffffffu;
// For Hopper, CUDA's compilers before 12.5 run out of registers where ten ballots are unrolled.
#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 5 && __CUDA_ARCH__ == 900
    #pragma unroll 1
#else
    #pragma unroll
#endif
    for (uint i = 0; i < bits; i++) {
        uint r;
        asm volatile("{.reg .pred p; .reg .b32 b; and.b32 b, %1, %2; setp.ne.u32 p, b, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; @!p not.b32 %0, %0;}" : "=r"(r) : "r"(v), "r"(1u << i));
        same &= r;
    }
    return same;
}

#else // TEAM_LOCAL

inline void team_sync(Team t) {
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

// The value of lane `from`, which each lane chooses.
inline uint team_shuffle(Team t, uint v, uint from) {
    t.scratch[t.lane] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint r = t.scratch[from & 31u];
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
}

// The value of the lane `by` before; lanes without one keep their own value.
inline uint team_shuffle_up(Team t, uint v, uint by) {
    return team_shuffle(t, v, t.lane >= by ? t.lane - by : t.lane);
}

// A value that all lanes hold already; uniform.
inline uint team_uniform(Team t, uint v) {
    return v;
}

// Bit l tells whether `p` holds in lane l; uniform.
inline uint team_ballot(Team t, bool p) {
    t.scratch[t.lane] = p ? 1u << t.lane : 0u;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint r = 0;
    for (uint i = 0; i < 32; i++) r |= t.scratch[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
}

// Whether `p` holds in any lane; uniform.
inline bool team_any(Team t, bool p) {
    return team_ballot(t, p) != 0;
}

// The sum of `v` in this lane and those before it.
inline uint team_scan(Team t, uint v) {
    t.scratch[t.lane] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint r = 0;
    for (uint i = 0; i <= t.lane; i++) r += t.scratch[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
}

// The sum of `v` over all lanes; uniform.
inline uint team_sum(Team t, uint v) {
    t.scratch[t.lane] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint r = 0;
    for (uint i = 0; i < 32; i++) r += t.scratch[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
}

// The largest `v` of all lanes; uniform.
inline uint team_max(Team t, uint v) {
    t.scratch[t.lane] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint r = 0;
    for (uint i = 0; i < 32; i++) r = max(r, t.scratch[i]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
}

// The lanes whose `v`, a number of `bits` bits, is the same as this lane's.
inline uint team_match(Team t, uint v, uint bits) {
    t.scratch[t.lane] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint r = 0;
    for (uint i = 0; i < 32; i++) r |= t.scratch[i] == v ? 1u << i : 0u;
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
}

#endif

// The value of lane `from`, the same for all lanes; uniform.
inline uint team_broadcast(Team t, uint v, uint from) {
    return team_uniform(t, team_shuffle(t, v, from));
}

#if !TEAM_PTX
inline uint team_match_digit(Team t, uint v, uint bits) {
    return team_match(t, v, bits);
}
#endif

// The lanes before this one, as a mask.
inline uint team_before(Team t) {
    return (1u << t.lane) - 1u;
}
