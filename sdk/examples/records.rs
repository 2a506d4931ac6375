//! A filter for a record format that no built-in stage covers.
//!
//! A log has records of 12 bytes from up to 16 sensors, in the order in which they come in:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 3 | time, little-endian like all |
//! | 4 and 5 | number of the sensor |
//! | 6 to 11 | its three channels, 16 bits each |
//!
//! A channel differs little from what the same sensor measured last, which a stride cannot say: sensors do not take
//! turns. `encode` replaces times by differences, and each channel by the difference to that sensor's last one; then it
//! gathers the first bytes of all records, the second bytes, and so on. `decode` undoes that. Each lane has a run of
//! records of its own, in which differences begin anew.
#![no_std]
#![no_main]

use pz_module::{in8, in32, out8, out32, share};

/// Bytes of a record.
const RECORD: u32 = 12;
/// Sensors that are told apart; the numbers of others are taken modulo this.
const SENSORS: usize = 16;

/// What a run of records remembers.
struct Last {
    time: u32,
    channels: [[u16; 3]; SENSORS],
}

impl Last {
    fn new() -> Self {
        Self { time: 0, channels: [[0; 3]; SENSORS] }
    }
}

/// A small difference of either sign as a small number.
fn zigzag(difference: u16) -> u16 {
    difference << 1 ^ (0 - (difference >> 15 & 1) as i16) as u16
}

fn unzigzag(coded: u16) -> u16 {
    coded >> 1 ^ (0 - (coded & 1) as i16) as u16
}

/// Copies what is no whole record.
fn copy_rest(lane: u32, len: u32) {
    if lane == 0 {
        for at in len / RECORD * RECORD..len {
            out8(at, in8(at));
        }
    }
}

/// Records to differences, by bytes.
#[unsafe(no_mangle)]
pub extern "C" fn encode(lane: u32, lanes: u32, input_len: u32, _output_len: u32, _argument: u32) {
    let count = input_len / RECORD;
    let (from, to) = share(count, lane, lanes);
    let mut last = Last::new();
    for i in from..to {
        let (time, first, rest) = (in32(3 * i), in32(3 * i + 1), in32(3 * i + 2));
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
            out8(byte * count + i, words[byte as usize / 4] >> (8 * (byte % 4)));
        }
    }
    copy_rest(lane, input_len);
}

/// Differences, by bytes, to records.
#[unsafe(no_mangle)]
pub extern "C" fn decode(lane: u32, lanes: u32, input_len: u32, _output_len: u32, _argument: u32) {
    let count = input_len / RECORD;
    let (from, to) = share(count, lane, lanes);
    let mut last = Last::new();
    for i in from..to {
        let mut words = [0u32; 3];
        for byte in 0..RECORD {
            words[byte as usize / 4] |= in8(byte * count + i) << (8 * (byte % 4));
        }
        last.time = last.time.wrapping_add(words[0]);
        let kept = &mut last.channels[words[1] as usize % SENSORS];
        let coded = [(words[1] >> 16) as u16, words[2] as u16, (words[2] >> 16) as u16];
        for k in 0..3 {
            kept[k] = kept[k].wrapping_add(unzigzag(coded[k]));
        }
        out32(3 * i, last.time);
        out32(3 * i + 1, words[1] & 0xffff | u32::from(kept[0]) << 16);
        out32(3 * i + 2, u32::from(kept[1]) | u32::from(kept[2]) << 16);
    }
    copy_rest(lane, input_len);
}
