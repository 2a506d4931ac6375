// The lane stream of a chunk: 32 lanes take 32-bit words from one sequence, in lane order.
//
// The words pass through a ring of 128 in workgroup memory. Each lane loads two of the next 64 words early, so that
// no row waits for device memory.
// @pz_import team

#define INLINE static inline __attribute__((always_inline))

#if TEAM_PTX

// Shifts by 32 and more give 0.
INLINE uint shift_left(uint v, uint by) {
    uint r;
    asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(v), "r"(by));
    return r;
}

INLINE uint shift_right(uint v, uint by) {
    uint r;
    asm("shr.u32 %0, %1, %2;" : "=r"(r) : "r"(v), "r"(by));
    return r;
}

// The upper half of high:low shifted left by at most 32.
INLINE uint shift_pair_left(uint high, uint low, uint by) {
    uint r;
    asm("shf.l.clamp.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(by));
    return r;
}

// Loads words that no work item writes while the kernel runs.
INLINE uint2 load_constant2(__global const uint2 *p) {
    uint2 r;
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"((ulong)p));
    return r;
}

// The lowest bytes of a and b in the lower half; anything in the upper.
INLINE uint pack_bytes(uint a, uint b) {
    uint r;
    asm("prmt.b32 %0, %1, %2, 0x0040;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

// The lower halves of a and b.
INLINE uint pack_halves(uint a, uint b) {
    uint r;
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

#else

INLINE uint shift_left(uint v, uint by) {
    return by < 32u ? v << by : 0u;
}

INLINE uint shift_right(uint v, uint by) {
    return by < 32u ? v >> by : 0u;
}

INLINE uint shift_pair_left(uint high, uint low, uint by) {
    return shift_left(high, by) | shift_right(low, 32u - by);
}

INLINE uint2 load_constant2(__global const uint2 *p) {
    return *p;
}

INLINE uint pack_bytes(uint a, uint b) {
    return (a & 255u) | (b & 255u) << 8;
}

INLINE uint pack_halves(uint a, uint b) {
    return (a & 0xffffu) | b << 16;
}

#endif

#define RING 128u

typedef struct {
    uint high, low;             // the next 64 bits, the first on top; bits that are not held are 0
    uint held;                  // number of bits
    uint before;                // mask of the lanes before this one
    uint taken;                 // index of the next word that a lane takes; uniform
    uint limit;                 // when `taken` is here, the ring has room for 64 words; uniform
    uint end;                   // index after the last word
    __global const uint2 *next; // the next load of this lane
    uint2 staged;               // loaded and not yet put in the ring
    __local uint *ring;
} Lanes;

// Two words; words from the end on are 0.
INLINE uint2 lanes_load(Lanes *s, uint index, __global const uint2 *at) {
    uint2 pair = UINT2(0u, 0u);
    if (index < s->end) pair = load_constant2(at);
    if (index + 1u >= s->end) pair.y = 0u;
    return pair;
}

// Starts on `count` words from `words[start]` on. `words` is aligned to 8 bytes; `ring` to 8, of RING words.
INLINE void lanes_start(Team t, Lanes *s, __global const uint *words, uint start, uint count, __local uint *ring) {
    // Pairs of words are aligned, so if the start is odd, the first word of the first pair belongs to other data.
    uint odd = start & 1u;
    s->high = 0u;
    s->low = 0u;
    s->held = 0u;
    s->before = team_before(t);
    s->taken = odd;
    s->limit = RING / 2u;
    s->end = odd + count;
    s->ring = ring;
    s->next = (__global const uint2 *)(words + (start - odd)) + t.lane;
    uint2 first = lanes_load(s, 2u * t.lane, s->next);
    uint2 second = lanes_load(s, 64u + 2u * t.lane, s->next + 32);
    s->staged = lanes_load(s, 128u + 2u * t.lane, s->next + 64);
    s->next += 96;
    *(__local uint2 *)(ring + 2u * t.lane) = first;
    *(__local uint2 *)(ring + 64u + 2u * t.lane) = second;
    team_sync(t);
}

// Moves the staged words into the ring, replacing words that have been taken, and loads the next.
INLINE void lanes_stage(Team t, Lanes *s) {
    *(__local uint2 *)(s->ring + ((s->limit - 64u) & (RING - 1u)) + 2u * t.lane) = s->staged;
    s->staged = lanes_load(s, s->limit + 128u + 2u * t.lane, s->next);
    s->next += 32;
    s->limit += 64u;
}

// Begins a row if `is_row`, which is uniform: lanes with fewer than 32 bits take a word.
INLINE void lanes_refill_if(Team t, Lanes *s, bool is_row) {
    bool need = s->held < 32u && is_row;
    uint takers = team_ballot(t, need);
#if !TEAM_PTX
    // The barriers of the ballot are enough: the words that this replaces were taken before it, and the new words are
    // not taken in this row. Some compilers are slow at barriers in branches.
    if (s->taken >= s->limit) lanes_stage(t, s);
#endif
    uint word = s->ring[(s->taken + popcount(takers & s->before)) & (RING - 1u)];
    // This has no branch: a lane that holds 32 bits or more shifts the word away.
    s->high |= shift_right(word, is_row ? s->held : 32u);
    uint low = shift_left(word, 32u - s->held);
    s->low = need ? low : s->low;
    s->held += need ? 32u : 0u;
    s->taken += popcount(takers);
#if TEAM_PTX
    if (s->taken >= s->limit) {
        team_sync(t);
        lanes_stage(t, s);
        team_sync(t);
    }
#endif
}

// Begins a row.
INLINE void lanes_refill(Team t, Lanes *s) {
    lanes_refill_if(t, s, true);
}

// Takes `count` bits, at most 31, after a look at `high`.
INLINE void lanes_skip(Lanes *s, uint count) {
    s->high = shift_pair_left(s->high, s->low, count);
    s->low = shift_left(s->low, count);
    s->held -= count;
}

// Whether every word has been taken and only bits 0 are left; uniform.
INLINE bool lanes_at_end(Team t, Lanes *s) {
    return !team_any(t, (s->high | s->low) != 0u) && s->taken >= s->end;
}
