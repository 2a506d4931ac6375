//! Fuzz targets of pz, as plain functions on bytes.
//!
//! A target panics if a decoder does what it must not: panic, give other contents than another decoder of the same
//! bytes, or take more memory or output than it was allowed. `cargo fuzz` runs them for as long as one likes; the
//! tests of this crate run each over a few thousand mutations of valid inputs, and over every input under
//! `regressions/TARGET/`, on any toolchain.

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

/// What is done with some bytes.
pub type Target = fn(&[u8]);

/// Every target with its name, that of the program in `fuzz_targets`.
pub const TARGETS: [(&str, Target); 16] = [
    ("lz77", codecs::lz77),
    ("bwt", codecs::bwt),
    ("huffman", codecs::huffman),
    ("fse", codecs::fse),
    ("container", container::one_shot),
    ("stream", container::stream),
    ("seekable", container::seekable),
    ("recover", container::recover),
    ("cost", cost::cost),
    ("device_lz77", devices::lz77),
    ("device_bwt", devices::bwt),
    ("round_trip_store", round_trip::store),
    ("round_trip_lzh", round_trip::lzh),
    ("round_trip_lzf", round_trip::lzf),
    ("round_trip_fse", round_trip::fse),
    ("round_trip_bwt", round_trip::bwt),
];

/// The target of this name.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    found.unwrap_or_else(|| panic!("no target is called {name}")).1
}

/// The program of a target: under cargo-fuzz the fuzzer, otherwise one that runs the target on the files it is given.
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
