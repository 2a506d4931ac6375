//! A module to begin with: each lane returns its own number, doubled `times` times.
#![no_std]

use pz_module::thread_id;

/// Doubles the lane's number.
#[unsafe(no_mangle)]
pub extern "C" fn main(times: u32) -> u32 {
    let mut number = thread_id();
    for _ in 0..times {
        number = number.wrapping_mul(2);
    }
    number
}
