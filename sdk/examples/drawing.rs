//! Draws the Mandelbrot set, a lane for each pixel, with fixed-point numbers.
//!
//! ```text
//! pz module run drawing.wasm main 800 600 --picture out.png --size 800x600
//! ```
#![no_std]
#![no_main]

use pz_module::{rgb, set_pixel, thread_id};

/// Bits after the binary point.
const POINT: u32 = 24;
/// The number of steps after which a point counts as part of the set.
const STEPS: u32 = 100;

fn product(a: i64, b: i64) -> i64 {
    a * b >> POINT
}

/// Steps until the sequence of `x` + `y` i leaves the circle of radius 2.
fn steps(x: i64, y: i64) -> u32 {
    let (mut a, mut b) = (0i64, 0i64);
    for step in 0..STEPS {
        let (a2, b2) = (product(a, a), product(b, b));
        if a2 + b2 > 4 << POINT {
            return step;
        }
        b = 2 * product(a, b) + y;
        a = a2 - b2 + x;
    }
    STEPS
}

/// Draws the lane's pixel of a picture of `width` by `height` pixels, 3 units wide, around -0.75.
#[unsafe(no_mangle)]
pub extern "C" fn main(width: u32, height: u32) {
    if width == 0 {
        return;
    }
    let (column, row) = (thread_id() % width, thread_id() / width);
    let unit = (3 << POINT) / i64::from(width);
    let x = (i64::from(column) - i64::from(width / 2)) * unit - (3 << POINT >> 2);
    let y = (i64::from(row) - i64::from(height / 2)) * unit;
    let steps = steps(x, y);
    let colour = match steps {
        STEPS => rgb(0, 0, 0),
        _ => rgb(steps * 9, steps * 5, 80 + steps),
    };
    set_pixel(column, row, colour);
}
