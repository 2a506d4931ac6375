//! Speed of whole batches from pinned host memory to pinned host memory, several at once, after verifying every byte.
//!
//! | environment | |
//! |---|---|
//! | `H200_DATA` | the file to measure with |
//! | `PZ_BLOCKS` | blocks in a batch; 64 by default |
//! | `PZ_SLOTS` | batches at once; 3 by default |
//! | `PZ_SECONDS` | how long to measure each figure; 1.5 by default |
//! | `PZ_SOFTWARE` | also measure software devices |

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::coder::{Buffers, CoderError, Decoder, EncodedBlock, Encoder};
use super::device::{Device, HostMemory, Kind};
use super::lz77_decode::Needs;
use super::testing::each_device;
use crate::Options;

/// The buffers of a thread: contents, payloads, and decoded contents.
struct Slot<'d> {
    encoder: Encoder<'d>,
    checker: Decoder<'d>,
    decoder: Decoder<'d>,
    contents: HostMemory,
    payloads: HostMemory,
    restored: HostMemory,
    lens: Vec<u32>,
    blocks: Vec<EncodedBlock>,
}

fn end(block: &EncodedBlock) -> u64 {
    block.payload.map_or(0, |(start, len)| start + u64::from(len))
}

impl<'d> Slot<'d> {
    fn new(
        device: &'d dyn Device,
        options: &Options,
        data: &[u8],
        blocks: u32,
    ) -> Result<Self, CoderError> {
        let block = options.chosen_block_size().map_err(CoderError::Options)? as usize;
        let pipeline = options.chosen_pipeline();
        let bytes = block * blocks as usize;
        let encoder = Encoder::new(device, options, blocks, Buffers::default())?;
        let checker = encoder.checker(pipeline)?;
        let decoder = Decoder::new(device, pipeline, block as u32, blocks, Buffers::default())?;
        let mut contents = device.host_memory(bytes)?;
        let from = data.iter().copied().cycle();
        contents.iter_mut().zip(from).for_each(|(to, byte)| *to = byte);
        Ok(Self {
            encoder,
            checker,
            decoder,
            contents,
            payloads: device.host_memory(bytes)?,
            restored: device.host_memory(bytes)?,
            lens: vec![block as u32; blocks as usize],
            blocks: Vec::new(),
        })
    }

    fn encode(&mut self, verify: bool) -> Result<(), CoderError> {
        self.encoder.write(0, &self.contents)?;
        self.blocks = self.encoder.encode(&self.lens)?;
        let total = self.blocks.iter().map(end).max().unwrap_or(0).next_multiple_of(16);
        self.encoder.read(0, &mut self.payloads[..total as usize])?;
        if verify {
            let places = self.places();
            self.checker.clear();
            for place in &places {
                let payload = &self.payloads[place.start as usize..][..place.payload_len as usize];
                self.checker.expect(Needs::of(payload, place.contents_len as usize));
            }
            let decoded = self.checker.decode(&places)?;
            for (block, decoded) in self.blocks.iter().zip(decoded) {
                assert!(decoded.is_decoded && decoded.contents_crc == block.contents_crc);
            }
        }
        Ok(())
    }

    fn places(&self) -> Vec<super::coder::PayloadPlace> {
        let place = |(block, &contents_len): (&EncodedBlock, &u32)| {
            let (start, payload_len) = block.payload.expect("data that shrinks");
            super::coder::PayloadPlace { start, payload_len, contents_len }
        };
        self.blocks.iter().zip(&self.lens).map(place).collect()
    }

    fn decode(&mut self) -> Result<(), CoderError> {
        let payloads: Vec<_> = self
            .places()
            .iter()
            .map(|place| {
                let payload = &self.payloads[place.start as usize..][..place.payload_len as usize];
                (payload, place.contents_len)
            })
            .collect();
        self.decoder.clear();
        let places = self.decoder.write_all(&payloads)?;
        let decoded = self.decoder.decode(&places)?;
        assert!(decoded.iter().all(|block| block.is_decoded));
        self.decoder.read(0, &mut self.restored)
    }
}

fn measure(
    device: &dyn Device,
    data: &[u8],
    options: &Options,
    name: &str,
) -> Result<(), CoderError> {
    let number = |name, default: f64| {
        std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
    };
    let (blocks, slots) = (number("PZ_BLOCKS", 64.0) as u32, number("PZ_SLOTS", 3.0) as usize);
    let seconds = number("PZ_SECONDS", 1.5);
    let begun = Instant::now();
    let mut all = Vec::new();
    for _ in 0..slots {
        let mut slot = Slot::new(device, options, data, blocks)?;
        slot.encode(true)?;
        slot.decode()?;
        assert!(slot.contents[..] == slot.restored[..], "contents come back");
        all.push(slot);
    }
    println!("{name}: {slots} slots of {blocks} blocks ready after {:.2?}", begun.elapsed());
    for what in ["encode", "encode and verify", "decode"] {
        let bytes = AtomicU64::new(0);
        let (start, failure) = (Barrier::new(slots), Mutex::new(None));
        let begun = Instant::now();
        let most = Mutex::new(Duration::ZERO);
        thread::scope(|scope| {
            for slot in &mut all {
                scope.spawn(|| {
                    start.wait();
                    while begun.elapsed().as_secs_f64() < seconds {
                        let done = match what {
                            "encode" => slot.encode(false),
                            "decode" => slot.decode(),
                            _ => slot.encode(true),
                        };
                        if let Err(error) = done {
                            *failure.lock().expect("no panic") = Some(error);
                            return;
                        }
                        bytes.fetch_add(slot.contents.len() as u64, Ordering::Relaxed);
                    }
                    let mut most = most.lock().expect("no panic");
                    *most = begun.elapsed().max(*most);
                });
            }
        });
        if let Some(error) = failure.into_inner().expect("no panic") {
            return Err(error);
        }
        let time = most.into_inner().expect("no panic").as_secs_f64();
        println!("  {what}: {:.2} GB/s", bytes.into_inner() as f64 / 1e9 / time);
    }
    Ok(())
}

#[test]
#[ignore = "a measurement"]
fn h200_pinned() {
    let data = match std::env::var_os("H200_DATA") {
        Some(path) => std::fs::read(path).unwrap(),
        None => include_bytes!("../format/lz77.md").repeat(100),
    };
    each_device(|device| {
        let software = device.limits().kind == Kind::Software;
        if software && std::env::var_os("PZ_SOFTWARE").is_none() {
            return;
        }
        let small = if software { Options::new().block_size(1 << 18) } else { Options::new() };
        let narrow = small.clone().window(if software { 1 << 16 } else { 1 << 18 });
        for (name, options) in [("-3", small), ("-3 with narrow windows", narrow)] {
            if let Err(error) = measure(device, &data, &options, name) {
                println!("{name}: {error}");
            }
        }
    });
}
