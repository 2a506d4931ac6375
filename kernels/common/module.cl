// Functions that translated modules call. MEMORY is the size of a lane's private memory in bytes.

// A lane of a run. `trap` is the code of its first trap, or 0.
typedef struct {
    uint trap, fuel, number, input_len, output_len, state_len, pixels_len, width, time;
    __global const uchar *input;
    __global uchar *output;
    __global uint *state, *pixels;
    uint *memory;
} Lane;

#define TRAP_FUEL 1u
#define TRAP_MEMORY 2u
#define TRAP_WINDOW 3u
#define TRAP_DIVISION 4u
#define TRAP_UNREACHABLE 5u

inline void set_trap(Lane *lane, uint trap) {
    if (lane->trap == 0) lane->trap = trap;
}

// Begins a loop, which takes `charge` units of fuel. Returns whether the run ends here.
inline bool must_end(Lane *lane, uint charge) {
    if (lane->fuel < charge) set_trap(lane, TRAP_FUEL);
    lane->fuel -= charge;
    return lane->trap != 0;
}

// ---- Windows --------------------------------------------------------------------------------------------------------

// Whether `at` is less than `len`; traps otherwise.
inline bool is_within(Lane *lane, uint at, uint len) {
    if (at < len) return true;
    set_trap(lane, TRAP_WINDOW);
    return false;
}

inline uint in8(Lane *lane, uint at) { return is_within(lane, at, lane->input_len) ? lane->input[at] : 0u; }

inline uint in32(Lane *lane, uint at) {
    return is_within(lane, at, lane->input_len >> 2) ? ((__global const uint *)lane->input)[at] : 0u;
}

inline void out8(Lane *lane, uint at, uint value) {
    if (is_within(lane, at, lane->output_len)) lane->output[at] = (uchar)value;
}

inline void out32(Lane *lane, uint at, uint value) {
    if (is_within(lane, at, lane->output_len >> 2)) ((__global uint *)lane->output)[at] = value;
}

inline uint state_add(Lane *lane, uint at, uint value) {
    return is_within(lane, at, lane->state_len) ? atomic_add(&lane->state[at], value) : 0u;
}

inline uint read_state(Lane *lane, uint at) {
    return is_within(lane, at, lane->state_len) ? ((volatile __global uint *)lane->state)[at] : 0u;
}

inline void write_state(Lane *lane, uint at, uint value) {
    if (is_within(lane, at, lane->state_len)) ((volatile __global uint *)lane->state)[at] = value;
}

inline void set_pixel(Lane *lane, uint x, uint y, uint colour) {
    if (!is_within(lane, x, lane->width)) return;
    if (is_within(lane, y, lane->pixels_len / lane->width)) lane->pixels[y * lane->width + x] = colour;
}

inline uint thread_id(Lane *lane) { return lane->number; }
inline uint get_time(Lane *lane) { return lane->time; }

// ---- Private memory -------------------------------------------------------------------------------------------------

// Whether `bytes` bytes at `address + offset` are in private memory; traps otherwise.
inline bool is_in_memory(Lane *lane, uint address, uint offset, uint bytes) {
    if (offset <= MEMORY && bytes <= MEMORY - offset && address <= MEMORY - offset - bytes) return true;
    set_trap(lane, TRAP_MEMORY);
    return false;
}

inline uint load_byte(Lane *lane, uint at) { return lane->memory[at >> 2] >> (8 * (at & 3)) & 255u; }

inline void store_byte(Lane *lane, uint at, uint value) {
    uint shift = 8 * (at & 3);
    lane->memory[at >> 2] = (lane->memory[at >> 2] & ~(255u << shift)) | (value & 255u) << shift;
}

inline uint load_bytes(Lane *lane, uint at, uint bytes) {
    if ((at & 3) == 0 && bytes == 4) return lane->memory[at >> 2];
    uint value = 0;
    for (uint i = 0; i < bytes; i++) value |= load_byte(lane, at + i) << 8 * i;
    return value;
}

inline void store_bytes(Lane *lane, uint at, uint bytes, uint value) {
    if ((at & 3) == 0 && bytes == 4) {
        lane->memory[at >> 2] = value;
        return;
    }
    for (uint i = 0; i < bytes; i++) store_byte(lane, at + i, value >> 8 * i);
}

inline uint load(Lane *lane, uint address, uint offset, uint bytes) {
    return is_in_memory(lane, address, offset, bytes) ? load_bytes(lane, address + offset, bytes) : 0u;
}

inline ulong load8(Lane *lane, uint address, uint offset) {
    if (!is_in_memory(lane, address, offset, 8)) return 0;
    uint at = address + offset, low = load_bytes(lane, at, 4);
    return (ulong)load_bytes(lane, at + 4, 4) << 32 | low;
}

inline void store(Lane *lane, uint address, uint offset, uint bytes, uint value) {
    if (is_in_memory(lane, address, offset, bytes)) store_bytes(lane, address + offset, bytes, value);
}

inline void store8(Lane *lane, uint address, uint offset, ulong value) {
    if (!is_in_memory(lane, address, offset, 8)) return;
    store_bytes(lane, address + offset, 4, (uint)value);
    store_bytes(lane, address + offset + 4, 4, (uint)(value >> 32));
}

// ---- Numbers --------------------------------------------------------------------------------------------------------

// `long` has 32 bits in CUDA C++ on Windows, so 64-bit numbers are always unsigned.
#define SIGN32 0x80000000u
#define SIGN64 ((ulong)1u << 63)

inline uint rotated(uint v, uint by) { return v << (by & 31) | v >> ((0u - by) & 31); }
inline ulong rotated_long(ulong v, ulong by) { return v << (by & 63) | v >> (((ulong)0 - by) & 63); }
inline uint shifted(uint v, uint by) { return (uint)((int)v >> (by & 31)); }
inline ulong shifted_long(ulong v, ulong by) {
    ulong sign = (ulong)0 - (v >> 63);
    return ((v ^ sign) >> (by & 63)) ^ sign;
}
inline uint extended(uint v, uint unused) { return (uint)((int)(v << unused) >> unused); }
inline ulong extended_long(ulong v, uint unused) { return shifted_long(v << unused, unused); }
inline uint trailing_zeros(uint v) { return popcount(~v & (v - 1u)); }
inline ulong trailing_zeros_long(ulong v) { return (ulong)popcount(~v & (v - (ulong)1)); }

inline uint quotient(Lane *lane, uint a, uint b) {
    if (b == 0) set_trap(lane, TRAP_DIVISION);
    return a / (b == 0 ? 1u : b);
}

inline uint remainder_of(Lane *lane, uint a, uint b) {
    if (b == 0) set_trap(lane, TRAP_DIVISION);
    return a % (b == 0 ? 1u : b);
}

inline uint magnitude(uint v) { return (v & SIGN32) == 0 ? v : 0u - v; }

inline uint quotient_signed(Lane *lane, uint a, uint b) {
    if (a == SIGN32 && b == 0xffffffffu) set_trap(lane, TRAP_DIVISION);
    uint q = quotient(lane, magnitude(a), magnitude(b));
    return ((a ^ b) & SIGN32) == 0 ? q : 0u - q;
}

inline uint remainder_signed(Lane *lane, uint a, uint b) {
    uint r = remainder_of(lane, magnitude(a), magnitude(b));
    return (a & SIGN32) == 0 ? r : 0u - r;
}

inline ulong quotient_long(Lane *lane, ulong a, ulong b) {
    if (b == 0) set_trap(lane, TRAP_DIVISION);
    return a / (b == 0 ? (ulong)1 : b);
}

inline ulong remainder_long(Lane *lane, ulong a, ulong b) {
    if (b == 0) set_trap(lane, TRAP_DIVISION);
    return a % (b == 0 ? (ulong)1 : b);
}

inline ulong magnitude_long(ulong v) { return (v & SIGN64) == 0 ? v : (ulong)0 - v; }

inline ulong quotient_signed_long(Lane *lane, ulong a, ulong b) {
    if (a == SIGN64 && ~b == 0) set_trap(lane, TRAP_DIVISION);
    ulong q = quotient_long(lane, magnitude_long(a), magnitude_long(b));
    return ((a ^ b) & SIGN64) == 0 ? q : (ulong)0 - q;
}

inline ulong remainder_signed_long(Lane *lane, ulong a, ulong b) {
    ulong r = remainder_long(lane, magnitude_long(a), magnitude_long(b));
    return (a & SIGN64) == 0 ? r : (ulong)0 - r;
}
