//! The functions that modules for pz import.
//!
//! A module is a small WebAssembly program that pz runs on CPUs and GPUs alike, one *lane* for each piece of work. It
//! computes with integers only, without recursion, and has 4096 bytes of stack and static data for each lane. It can
//! access other data only through the functions here. Each function checks its arguments: an access out of bounds ends
//! the run.
//!
//! To begin, copy `template/`, and build it:
//!
//! ```text
//! rustup target add wasm32-unknown-unknown
//! cargo build --release --target wasm32-unknown-unknown
//! pz module check target/wasm32-unknown-unknown/release/template.wasm
//! pz module run target/wasm32-unknown-unknown/release/template.wasm main 20
//! ```
//!
//! `examples/` has a filter for a record format (`records`), and a program that draws (`drawing`).
//!
//! A filter exports `encode` and `decode`, both with the parameters `lane`, `lanes`, `input_len`, `output_len`,
//! `argument` and `position`, or the first few of these. The input is a unit of a file's contents, of up to 1 MiB,
//! which begins at byte `position` of the contents. The output has the same length, and is 0 at first. By default there
//! is a lane for every 4096 bytes, and [`share`] divides the work among the lanes. Two lanes must not write the same
//! byte. `argument` is the number in `--filter FILE.wasm:NUMBER`. `decode` must restore exactly the input of `encode`:
//! `pz compress` checks that.

#![no_std]

// The lane's input and output, the *windows*. Several lanes may write different places of one output.
#[link(wasm_import_module = "pz")]
unsafe extern "C" {
    /// Byte `at` of the input.
    pub safe fn in8(at: u32) -> u32;
    /// Word `at` of the input: bytes 4 `at` to 4 `at` + 3, little-endian. The fastest way to read.
    pub safe fn in32(at: u32) -> u32;
    /// Sets byte `at` of the output to the lowest 8 bits of `value`.
    pub safe fn out8(at: u32, value: u32);
    /// Sets word `at` of the output. The fastest way to write.
    pub safe fn out32(at: u32, value: u32);
}

// State that all lanes of a run share. Lanes run in any order, or at the same time.
#[link(wasm_import_module = "gpu")]
unsafe extern "C" {
    /// The number of this lane, from 0.
    pub safe fn thread_id() -> u32;
    /// Adds to word `at` of the state, and returns its previous value.
    pub safe fn atomic_add(at: u32, value: u32) -> u32;
    /// Word `at` of the state.
    pub safe fn read_state(at: u32) -> u32;
    /// Sets word `at` of the state.
    pub safe fn write_state(at: u32, value: u32);
    /// Sets a pixel of the picture. See [`rgb`].
    pub safe fn set_pixel(x: u32, y: u32, colour: u32);
    /// The time that the caller of the run passed, in milliseconds.
    pub safe fn get_time() -> u32;
}

/// An opaque colour, for [`set_pixel`]; each part is from 0 to 255.
pub const fn rgb(red: u32, green: u32, blue: u32) -> u32 {
    red & 255 | (green & 255) << 8 | (blue & 255) << 16 | 255 << 24
}

/// The share of `count` elements for lane `lane` of `lanes`: its first element, and the one after its last. All lanes
/// have the same number of elements, except the last lanes.
pub fn share(count: u32, lane: u32, lanes: u32) -> (u32, u32) {
    let each = if lanes == 0 { count } else { count.div_ceil(lanes) };
    let from = each.saturating_mul(lane).min(count);
    (from, from.saturating_add(each).min(count))
}

/// A panic ends the run.
#[cfg(target_arch = "wasm32")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
