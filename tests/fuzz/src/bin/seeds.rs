//! Writes each target's initial inputs to DIR/TARGET/, for `cargo fuzz run`.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("usage: seeds DIR"))?;
    for (name, _) in pz_fuzz::TARGETS {
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        for (i, seed) in pz_fuzz::seeds(name).iter().enumerate() {
            fs::write(folder.join(format!("seed-{i}")), seed)?;
        }
    }
    Ok(())
}
