//! A filter for a record format that no built-in stage covers.
//!
//! A log has records of 12 bytes from up to 16 sensors, in order of arrival:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 3 | time, little-endian like all |
//! | 4 and 5 | number of the sensor |
//! | 6 to 11 | its three channels, 16 bits each |
//!
//! Each value is close to the last value of the same sensor and channel. A delta with a fixed stride cannot use this,
//! because sensors do not take turns. `encode` replaces each time by the difference to the time before, and each value
//! by the difference to the last value of the same sensor and channel. Then it gathers the first bytes of all records,
//! the second bytes, and so on. `decode` undoes both. Each lane has its own run of records, and starts differences
//! anew.
//!
//! Both have the parameters of a filter. The argument is the number of bytes before the file's first record, such as a
//! header; the position is where the unit begins in the file. So records may begin anywhere in a unit.
//!
//! ```text
//! cargo build --release --target wasm32-unknown-unknown --examples
//! pz compress --filter target/wasm32-unknown-unknown/release/examples/records.wasm sensors.log
//! ```
#![no_std]
#![no_main]

use pz_module::{in8, in32, out8, out32, share};

/// Bytes of a record.
const RECORD: u32 = 12;
/// Number of sensors with separate states; sensor numbers are taken modulo this.
const SENSORS: usize = 16;

/// The state of a run of records.
struct Last {
    time: u32,
    channels: [[u16; 3]; SENSORS],
}

impl Last {
    fn new() -> Self {
        Self { time: 0, channels: [[0; 3]; SENSORS] }
    }
}

/// Maps a small difference of either sign to a small number.
fn zigzag(difference: u16) -> u16 {
    difference << 1 ^ (0 - (difference >> 15 & 1) as i16) as u16
}

fn unzigzag(coded: u16) -> u16 {
    coded >> 1 ^ (0 - (coded & 1) as i16) as u16
}

/// The whole records of a unit: the start of the first, and their number.
fn records(input_len: u32, header: u32, position: u64) -> (u32, u32) {
    let into = (position + u64::from(RECORD) - u64::from(header % RECORD)) % u64::from(RECORD);
    let first = ((RECORD - into as u32) % RECORD).min(input_len);
    (first, (input_len - first) / RECORD)
}

/// Copies the bytes before and after the whole records.
fn copy_rest(lane: u32, input_len: u32, first: u32, count: u32) {
    if lane == 0 {
        for at in (0..first).chain(first + count * RECORD..input_len) {
            out8(at, in8(at));
        }
    }
}

/// Four bytes of the input.
fn load(at: u32) -> u32 {
    if at % 4 == 0 {
        return in32(at / 4);
    }
    in8(at) | in8(at + 1) << 8 | in8(at + 2) << 16 | in8(at + 3) << 24
}

/// Sets four bytes of the output.
fn store(at: u32, word: u32) {
    if at % 4 == 0 {
        return out32(at / 4, word);
    }
    for byte in 0..4 {
        out8(at + byte, word >> (8 * byte));
    }
}

/// Turns records into differences, byte by byte position.
#[unsafe(no_mangle)]
pub extern "C" fn encode(
    lane: u32,
    lanes: u32,
    input_len: u32,
    _output_len: u32,
    header: u32,
    position: u64,
) {
    let (start, count) = records(input_len, header, position);
    let (from, to) = share(count, lane, lanes);
    let mut last = Last::new();
    for i in from..to {
        let at = start + RECORD * i;
        let (time, first, rest) = (load(at), load(at + 4), load(at + 8));
        let time_difference = time.wrapping_sub(last.time);
        last.time = time;
        let kept = &mut last.channels[first as usize % SENSORS];
        let channels = [(first >> 16) as u16, rest as u16, (rest >> 16) as u16];
        let mut words = [time_difference, first & 0xffff, 0];
        for k in 0..3 {
            let coded = u32::from(zigzag(channels[k].wrapping_sub(kept[k])));
            kept[k] = channels[k];
            if k == 0 { words[1] |= coded << 16 } else { words[2] |= coded << (16 * (k - 1)) }
        }
        for byte in 0..RECORD {
            out8(start + byte * count + i, words[byte as usize / 4] >> (8 * (byte % 4)));
        }
    }
    copy_rest(lane, input_len, start, count);
}

/// Turns these differences back into records.
#[unsafe(no_mangle)]
pub extern "C" fn decode(
    lane: u32,
    lanes: u32,
    input_len: u32,
    _output_len: u32,
    header: u32,
    position: u64,
) {
    let (start, count) = records(input_len, header, position);
    let (from, to) = share(count, lane, lanes);
    let mut last = Last::new();
    for i in from..to {
        let mut words = [0u32; 3];
        for byte in 0..RECORD {
            words[byte as usize / 4] |= in8(start + byte * count + i) << (8 * (byte % 4));
        }
        last.time = last.time.wrapping_add(words[0]);
        let kept = &mut last.channels[words[1] as usize % SENSORS];
        let coded = [(words[1] >> 16) as u16, words[2] as u16, (words[2] >> 16) as u16];
        for k in 0..3 {
            kept[k] = kept[k].wrapping_add(unzigzag(coded[k]));
        }
        let at = start + RECORD * i;
        store(at, last.time);
        store(at + 4, words[1] & 0xffff | u32::from(kept[0]) << 16);
        store(at + 8, u32::from(kept[1]) | u32::from(kept[2]) << 16);
    }
    copy_rest(lane, input_len, start, count);
}
