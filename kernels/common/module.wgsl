// Functions that translated modules call. MEMORY is the size of a lane's private memory in bytes. Numbers of 64 bits
// are pairs of words, the lower one first.

// The code of the first trap, or 0.
var<private> trap: u32;
var<private> fuel: u32;
var<private> number: u32;

const TRAP_FUEL = 1u;
const TRAP_MEMORY = 2u;
const TRAP_WINDOW = 3u;
const TRAP_DIVISION = 4u;
const TRAP_UNREACHABLE = 5u;

fn set_trap(code: u32) {
    if trap == 0u {
        trap = code;
    }
}

// Begins a loop, which takes `charge` units of fuel. Returns whether the run ends here.
fn must_end(charge: u32) -> bool {
    if fuel < charge {
        set_trap(TRAP_FUEL);
    }
    fuel -= charge;
    return trap != 0u;
}

// ---- Windows --------------------------------------------------------------------------------------------------------

// Whether `at` is less than `len`; traps otherwise.
fn is_within(at: u32, len: u32) -> bool {
    if at < len {
        return true;
    }
    set_trap(TRAP_WINDOW);
    return false;
}

// ---- Private memory -------------------------------------------------------------------------------------------------

// Whether `bytes` bytes at `address + offset` are in private memory; traps otherwise.
fn is_in_memory(address: u32, offset: u32, bytes: u32) -> bool {
    let size = MEMORY;
    if offset <= size {
        if bytes <= size - offset {
            if address <= size - offset - bytes {
                return true;
            }
        }
    }
    set_trap(TRAP_MEMORY);
    return false;
}

fn load_byte(at: u32) -> u32 {
    return (memory[at >> 2u] >> (8u * (at & 3u))) & 255u;
}

fn store_byte(at: u32, value: u32) {
    let shift = 8u * (at & 3u);
    memory[at >> 2u] = (memory[at >> 2u] & ~(255u << shift)) | ((value & 255u) << shift);
}

// Without loops, because software devices limit iterations.
fn load_bytes(at: u32, bytes: u32) -> u32 {
    if bytes == 1u {
        return load_byte(at);
    }
    if bytes == 2u {
        return load_byte(at) | (load_byte(at + 1u) << 8u);
    }
    let shift = 8u * (at & 3u);
    let low = memory[at >> 2u];
    if shift == 0u {
        return low;
    }
    return (low >> shift) | (memory[(at >> 2u) + 1u] << (32u - shift));
}

fn store_bytes(at: u32, bytes: u32, value: u32) {
    if bytes == 4u && (at & 3u) == 0u {
        memory[at >> 2u] = value;
        return;
    }
    store_byte(at, value);
    if bytes > 1u {
        store_byte(at + 1u, value >> 8u);
    }
    if bytes > 2u {
        store_byte(at + 2u, value >> 16u);
        store_byte(at + 3u, value >> 24u);
    }
}

fn load(address: u32, offset: u32, bytes: u32) -> u32 {
    if !is_in_memory(address, offset, bytes) {
        return 0u;
    }
    return load_bytes(address + offset, bytes);
}

fn load8(address: u32, offset: u32) -> vec2<u32> {
    if !is_in_memory(address, offset, 8u) {
        return vec2<u32>(0u);
    }
    let at = address + offset;
    return vec2<u32>(load_bytes(at, 4u), load_bytes(at + 4u, 4u));
}

fn store(address: u32, offset: u32, bytes: u32, value: u32) {
    if is_in_memory(address, offset, bytes) {
        store_bytes(address + offset, bytes, value);
    }
}

fn store8(address: u32, offset: u32, value: vec2<u32>) {
    if is_in_memory(address, offset, 8u) {
        store_bytes(address + offset, 4u, value.x);
        store_bytes(address + offset + 4u, 4u, value.y);
    }
}

// ---- Numbers --------------------------------------------------------------------------------------------------------

const SIGN = 0x80000000u;

fn rotated(v: u32, by: u32) -> u32 {
    return (v << (by & 31u)) | (v >> ((0u - by) & 31u));
}

fn shifted(v: u32, by: u32) -> u32 {
    return bitcast<u32>(bitcast<i32>(v) >> (by & 31u));
}

fn extended(v: u32, unused: u32) -> u32 {
    return bitcast<u32>(bitcast<i32>(v << (unused & 31u)) >> (unused & 31u));
}

fn quotient(a: u32, b: u32) -> u32 {
    if b == 0u {
        set_trap(TRAP_DIVISION);
        return 0u;
    }
    return a / b;
}

fn remainder_of(a: u32, b: u32) -> u32 {
    if b == 0u {
        set_trap(TRAP_DIVISION);
        return 0u;
    }
    return a % b;
}

fn magnitude(v: u32) -> u32 {
    return select(0u - v, v, (v & SIGN) == 0u);
}

fn quotient_signed(a: u32, b: u32) -> u32 {
    if a == SIGN && b == 0xffffffffu {
        set_trap(TRAP_DIVISION);
    }
    let q = quotient(magnitude(a), magnitude(b));
    return select(0u - q, q, ((a ^ b) & SIGN) == 0u);
}

fn remainder_signed(a: u32, b: u32) -> u32 {
    let r = remainder_of(magnitude(a), magnitude(b));
    return select(0u - r, r, (a & SIGN) == 0u);
}

// ---- Numbers of 64 bits ---------------------------------------------------------------------------------------------

fn add_long(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}

fn sub_long(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

fn mul_long(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let a0 = a.x & 0xffffu;
    let a1 = a.x >> 16u;
    let b0 = b.x & 0xffffu;
    let b1 = b.x >> 16u;
    let middle = a1 * b0 + ((a0 * b0) >> 16u);
    let other = a0 * b1 + (middle & 0xffffu);
    let high = a1 * b1 + (middle >> 16u) + (other >> 16u);
    return vec2<u32>(a.x * b.x, high + a.x * b.y + a.y * b.x);
}

fn shl_long(v: vec2<u32>, shift: vec2<u32>) -> vec2<u32> {
    let by = shift.x & 63u;
    if by >= 32u {
        return vec2<u32>(0u, v.x << (by & 31u));
    }
    if by == 0u {
        return v;
    }
    return vec2<u32>(v.x << by, (v.y << by) | (v.x >> (32u - by)));
}

fn shr_long(v: vec2<u32>, shift: vec2<u32>) -> vec2<u32> {
    let by = shift.x & 63u;
    if by >= 32u {
        return vec2<u32>(v.y >> (by & 31u), 0u);
    }
    if by == 0u {
        return v;
    }
    return vec2<u32>((v.x >> by) | (v.y << (32u - by)), v.y >> by);
}

fn shifted_long(v: vec2<u32>, shift: vec2<u32>) -> vec2<u32> {
    let sign = vec2<u32>(0u - (v.y >> 31u));
    return shr_long(v ^ sign, shift) ^ sign;
}

fn rotated_long(v: vec2<u32>, shift: vec2<u32>) -> vec2<u32> {
    return shl_long(v, shift) | shr_long(v, vec2<u32>(0u - shift.x, 0u));
}

fn extended_long(v: vec2<u32>, unused: u32) -> vec2<u32> {
    let by = vec2<u32>(unused, 0u);
    return shifted_long(shl_long(v, by), by);
}

fn with_sign(v: u32) -> vec2<u32> {
    return vec2<u32>(v, 0u - (v >> 31u));
}

fn less_long(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn less_signed_long(a: vec2<u32>, b: vec2<u32>) -> bool {
    return less_long(vec2<u32>(a.x, a.y ^ SIGN), vec2<u32>(b.x, b.y ^ SIGN));
}

fn leading_zeros_long(v: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(select(countLeadingZeros(v.y), 32u + countLeadingZeros(v.x), v.y == 0u), 0u);
}

fn trailing_zeros_long(v: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(select(countTrailingZeros(v.x), 32u + countTrailingZeros(v.y), v.x == 0u), 0u);
}

fn ones_long(v: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(countOneBits(v.x) + countOneBits(v.y), 0u);
}

// Quotient and remainder, bit by bit. Software devices limit the iterations of this loop too.
fn divided_long(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    if all(b == vec2<u32>(0u)) {
        set_trap(TRAP_DIVISION);
        return vec4<u32>(0u);
    }
    if a.y == 0u && b.y == 0u {
        return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u);
    }
    var q = a;
    var r = vec2<u32>(0u);
    for (var i = 0u; i < 64u; i++) {
        let carry = r.y >> 31u;
        r = vec2<u32>((r.x << 1u) | (q.y >> 31u), (r.y << 1u) | (r.x >> 31u));
        q = vec2<u32>(q.x << 1u, (q.y << 1u) | (q.x >> 31u));
        if carry == 1u || !less_long(r, b) {
            r = sub_long(r, b);
            q.x |= 1u;
        }
    }
    return vec4<u32>(q, r);
}

fn quotient_long(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return divided_long(a, b).xy;
}

fn remainder_long(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return divided_long(a, b).zw;
}

fn negated_long(v: vec2<u32>) -> vec2<u32> {
    return sub_long(vec2<u32>(0u), v);
}

fn magnitude_long(v: vec2<u32>) -> vec2<u32> {
    return select(v, negated_long(v), (v.y & SIGN) != 0u);
}

fn quotient_signed_long(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if a.x == 0u && a.y == SIGN && (b.x & b.y) == 0xffffffffu {
        set_trap(TRAP_DIVISION);
    }
    let q = quotient_long(magnitude_long(a), magnitude_long(b));
    return select(q, negated_long(q), ((a.y ^ b.y) & SIGN) != 0u);
}

fn remainder_signed_long(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let r = remainder_long(magnitude_long(a), magnitude_long(b));
    return select(r, negated_long(r), (a.y & SIGN) != 0u);
}
