//! See `pz_fuzz::TARGETS`.
#![cfg_attr(fuzzing, no_main)]
pz_fuzz::fuzz!("archive");
