//! Fuzz targets of pz, as plain functions on bytes.
//!
//! A target panics if a decoder panics, disagrees with another decoder of the same bytes, or exceeds its limits of
//! memory or output. `cargo fuzz` runs targets for any length of time. The tests of this crate need no special
//! toolchain: they run each target on a few thousand mutations of valid inputs, and on every input under
//! `regressions/TARGET/`.

mod codecs;
mod container;
mod cost;
pub mod devices;
mod reseal;
mod rng;
mod round_trip;
mod seeds;

pub use rng::Rng;
pub use seeds::seeds;

#[cfg(fuzzing)]
pub use libfuzzer_sys;

/// A target: a check of some bytes.
pub type Target = fn(&[u8]);

/// Every target with its name, which is that of its program in `fuzz_targets`.
pub const TARGETS: [(&str, Target); 18] = [
    ("lz77", codecs::lz77),
    ("bwt", codecs::bwt),
    ("huffman", codecs::huffman),
    ("fse", codecs::fse),
    ("container", container::one_shot),
    ("stream", container::stream),
    ("seekable", container::seekable),
    ("archive", container::archive),
    ("recover", container::recover),
    ("cost", cost::cost),
    ("device_lz77", devices::lz77),
    ("device_bwt", devices::bwt),
    ("round_trip_store", round_trip::store),
    ("round_trip_lzh", round_trip::lzh),
    ("round_trip_lzf", round_trip::lzf),
    ("round_trip_fse", round_trip::fse),
    ("round_trip_bwt", round_trip::bwt),
    ("round_trip_filter", round_trip::filter),
];

/// The target called `name`.
///
/// # Panics
/// If there is no such target.
pub fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    found.unwrap_or_else(|| panic!("no target is called {name}")).1
}

/// Makes a target's program. Under cargo-fuzz that is the fuzzer; otherwise it runs the target on the files given as
/// arguments.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::target($name)(data));

        #[cfg(not(fuzzing))]
        fn main() {
            for path in std::env::args_os().skip(1) {
                let data = std::fs::read(&path).expect("a file that can be read");
                $crate::target($name)(&data);
            }
        }
    };
}
