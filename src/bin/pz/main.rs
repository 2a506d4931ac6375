//! The `pz` program.

fn main() {}
