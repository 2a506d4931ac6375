// Base-2 logarithms in fixed point, equal to those of codec::log2.

// The product of two numbers, as its lower and upper 32 bits.
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2(other << 16u | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}

// log2(1 + i / 256) with 16 bits of fraction. Squares repeatedly, and sets a bit whenever the square reaches 2.
fn log2_mantissa(i: u32) -> u32 {
    if i == 256u {
        return 1u << 16u;
    }
    var x = (256u + i) << 22u;
    var log = 0u;
    for (var bit = 0u; bit < 16u; bit++) {
        let square = multiply(x, x);
        x = square.y << 2u | square.x >> 30u;
        let passed = x >> 31u;
        x >>= passed;
        log = log << 1u | passed;
    }
    return log;
}

// log2(x) with 16 bits of fraction.
fn log2_fixed(x: u32) -> u32 {
    let exponent = firstLeadingBit(x);
    let mantissa = x << (31u - exponent);
    let index = mantissa >> 23u & 255u;
    let below = log2_mantissa(index);
    let step = log2_mantissa(index + 1u) - below;
    return (exponent << 16u) + below + ((step * (mantissa >> 7u & 0xffffu)) >> 16u);
}
