//! Arguments of `pz module`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::device::Device;
use crate::sizes::{self, Size};

// `pz module`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz module check decoder.wasm\n  \
    says what it costs, or why it is refused; pz module run --help says how to run it")]
pub struct Modules {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

// The commands of `pz module`. A doc comment here would replace the description of `pz module`.
#[derive(Subcommand, Debug)]
pub enum Action {
    /// Show what a module costs and may do, or why pz refuses it
    Check(Check),
    /// Run an entry of a module, and print what it returns
    Run(Run),
    /// Trust a module: allow it to run when a compressed file carries it
    Trust(Trust),
    /// Print the trusted modules
    Trusted,
}

// `pz module trust`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz module trust records.wasm\n  \
    appends its SHA-256 to pz/trusted-modules in $XDG_CONFIG_HOME or ~/.config; a line of that file has a hash, a \
    space \
    and a name, and may be deleted")]
pub struct Trust {
    /// The module, or its SHA-256, as pz list -v prints it
    #[arg(value_name = "FILE|HASH")]
    pub module: PathBuf,
}

// `pz module check`
#[derive(Args, Debug)]
#[command(after_help = "Example: pz module check decoder.wasm\n  \
    ends with exit code 2 if a function that it exports is refused")]
pub struct Check {
    /// The module
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Check only this exported function
    #[arg(value_name = "ENTRY")]
    pub entry: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `pz module run`
#[derive(Args, Debug)]
#[command(
    after_help = "Example: pz module run gradient.wasm main --picture out.png --size 800x600 --device opencl\n  \
    runs a lane for each pixel on a GPU, and writes the picture"
)]
pub struct Run {
    /// The module
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The exported function to run
    #[arg(value_name = "ENTRY")]
    pub entry: String,
    /// Its arguments, the same for each lane: integers such as 7, -1 or 0xff
    #[arg(value_name = "ARGUMENT", value_parser = integer, allow_negative_numbers = true)]
    pub arguments: Vec<u64>,
    /// Lanes to run; gpu.thread_id returns a lane's number, from 0 [default: 1, or one per pixel]
    #[arg(long, value_name = "N")]
    pub lanes: Option<u32>,
    /// Units of fuel per lane; a turn of a loop takes one per 32 instructions
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub fuel: u32,
    /// The file that pz.in8 and pz.in32 read
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// The output file: what pz.out8 and pz.out32 wrote
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Bytes of the output [default: the length of the input]
    #[arg(long, value_name = "SIZE")]
    pub output_size: Option<Size>,
    /// Number of state words for gpu.atomic_add, gpu.read_state and gpu.write_state; the run prints them at the end
    #[arg(long, value_name = "N", default_value = "0")]
    pub state: u32,
    /// The PNG file for the pixels that gpu.set_pixel drew
    #[arg(long, value_name = "FILE", requires = "size")]
    pub picture: Option<PathBuf>,
    /// Width and height of the picture in pixels
    #[arg(long, value_name = "WxH", value_parser = size)]
    pub size: Option<(u32, u32)>,
    /// The time that gpu.get_time returns, in milliseconds
    #[arg(long, value_name = "N", default_value = "0")]
    pub time: u32,
    /// Overwrite existing files
    #[arg(short, long)]
    pub force: bool,
    /// cpu, cuda[:N], opencl[:N] or webgpu[:N]; auto is the CPU [default: auto] [env: PZ_DEVICE]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
    /// Most memory to take on the GPU [env: PZ_GPU_MEMORY]
    #[arg(long, value_name = "SIZE", value_parser = sizes::nonzero)]
    pub gpu_memory: Option<Size>,
}

/// Parses an argument: an integer of up to 64 bits, with or without a sign.
fn integer(text: &str) -> Result<u64, String> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let parsed = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    match parsed {
        Ok(value) if is_negative && value > 1 << 63 => Err("less than -2^63".into()),
        Ok(value) if is_negative => Ok(value.wrapping_neg()),
        Ok(value) => Ok(value),
        Err(_) => Err("expected an integer of 64 bits".into()),
    }
}

/// Parses `800x600`: at most 2^28 pixels.
fn size(text: &str) -> Result<(u32, u32), String> {
    let sides = text.split_once('x').and_then(|(width, height)| {
        Some((width.parse::<u32>().ok()?, height.parse::<u32>().ok()?))
    });
    match sides {
        Some((width, height)) if width > 0 && height > 0 => {
            match u64::from(width) * u64::from(height) {
                0..=0x1000_0000 => Ok((width, height)),
                _ => Err("more than 268,435,456 pixels".into()),
            }
        }
        _ => Err("expected width and height, such as 800x600".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_sizes() {
        assert_eq!(integer("7"), Ok(7));
        assert_eq!(integer("-1"), Ok(u64::MAX));
        assert_eq!(integer("0xff"), Ok(255));
        assert_eq!(integer("-0x8000000000000000"), Ok(1 << 63));
        assert!(integer("-9223372036854775809").is_err() && integer("seven").is_err());
        assert_eq!(size("800x600"), Ok((800, 600)));
        assert!(size("800").is_err() && size("0x5").is_err() && size("65536x65536").is_err());
    }
}
