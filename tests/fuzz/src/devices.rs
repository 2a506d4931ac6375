//! Devices' decoders must return the CPU's verdict and the CPU's contents.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pz::Pipeline;
use pz::gpu::coder::{CallerBuffers, Decoder};
use pz::gpu::device::discovery;
use pz::gpu::device::{Api, Device};
use pz::internal::{bwt, lz77};

/// The longest block, in bytes, that a target decodes.
const MAX_BLOCK: usize = 1 << 18;

/// A target that runs on several inputs at once.
pub type Batch = fn(&[&[u8]]);

/// Payloads that a device decodes at once.
pub const BATCH: usize = 16;

/// A device's decoder, which lives until the program ends.
struct Kept {
    name: String,
    decoder: Mutex<Decoder<'static>>,
}

/// A decoder for each device.
fn decoders(pipeline: Pipeline) -> &'static [Kept] {
    static LZ77: OnceLock<Vec<Kept>> = OnceLock::new();
    static BWT: OnceLock<Vec<Kept>> = OnceLock::new();
    let kept = if pipeline == Pipeline::Bwt { &BWT } else { &LZ77 };
    kept.get_or_init(|| devices().iter().map(|device| keep(&**device, pipeline)).collect())
}

/// All devices of this machine. With `PZ_TEST_NO_SKIP=1`, missing devices are a failure.
fn devices() -> &'static [Arc<dyn Device>] {
    static DEVICES: OnceLock<Vec<Arc<dyn Device>>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let no_skip = std::env::var_os("PZ_TEST_NO_SKIP").is_some_and(|value| value == "1");
        let open = |api| match discovery::devices(api) {
            Ok(found) => found.iter().filter_map(|found| found.open().ok()).collect(),
            Err(absence) => {
                // CUDA has no software device.
                assert!(!no_skip || api == Api::Cuda, "{absence}");
                eprintln!("\n*** SKIPPED on {api}: {absence} ***\n");
                Vec::new()
            }
        };
        Api::ALL.into_iter().flat_map(open).collect()
    })
}

fn keep(device: &'static dyn Device, pipeline: Pipeline) -> Kept {
    let limits = device.limits();
    let decoder =
        Decoder::new(device, pipeline, MAX_BLOCK as u32, BATCH as u32, CallerBuffers::default());
    let decoder = decoder.expect("room for a small batch");
    Kept { name: format!("{} through {}", limits.name, limits.api), decoder: Mutex::new(decoder) }
}

/// Decodes LZ77 payloads, each after the length of its block in three bytes.
///
/// # Panics
/// If a device and the CPU disagree.
pub fn lz77_batch(inputs: &[&[u8]]) {
    let mut decoder = lz77::Decoder::new();
    batch(inputs, Pipeline::Lzf, &mut |payload, block| decoder.decode(payload, block).is_ok());
}

/// Decodes BWT payloads, each after the length of its block in three bytes.
///
/// # Panics
/// If a device and the CPU disagree.
pub fn bwt_batch(inputs: &[&[u8]]) {
    let mut decoder = bwt::Decoder::new();
    batch(inputs, Pipeline::Bwt, &mut |payload, block| decoder.decode(payload, block).is_ok());
}

/// Decodes one payload.
pub fn lz77(data: &[u8]) {
    lz77_batch(&[data]);
}

/// Decodes one payload.
pub fn bwt(data: &[u8]) {
    bwt_batch(&[data]);
}

fn batch(inputs: &[&[u8]], pipeline: Pipeline, on_cpu: &mut dyn FnMut(&[u8], &mut [u8]) -> bool) {
    let cases = inputs.iter().filter_map(|data| {
        let ([a, b, c], payload) = data.split_first_chunk()?;
        let len = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        // Readers of block headers refuse longer payloads.
        (payload.len() <= len && (1..=MAX_BLOCK).contains(&len)).then_some((payload, len))
    });
    let cases: Vec<_> = cases.collect();
    for cases in cases.chunks(BATCH) {
        let expected: Vec<Option<Vec<u8>>> = cases
            .iter()
            .map(|&(payload, len)| {
                let mut block = vec![0; len];
                on_cpu(payload, &mut block).then_some(block)
            })
            .collect();
        for kept in decoders(pipeline) {
            check(kept, cases, &expected);
        }
    }
}

fn check(kept: &Kept, cases: &[(&[u8], usize)], expected: &[Option<Vec<u8>>]) {
    let mut decoder = kept.decoder.lock().unwrap_or_else(PoisonError::into_inner);
    decoder.clear();
    let mut places = Vec::new();
    for &(payload, len) in cases {
        let place = decoder.write(payload, len as u32).expect("a device that works");
        places.push(place.expect("a payload that is not too long"));
    }
    let blocks = decoder.decode(&places).expect("a device that works");
    for (i, (block, expected)) in blocks.iter().zip(expected).enumerate() {
        assert_eq!(block.is_decoded, expected.is_some(), "the verdict of {}, case {i}", kept.name);
        assert_eq!(block.payload_crc, crc32c::crc32c(cases[i].0), "{}, case {i}", kept.name);
        let Some(expected) = expected else { continue };
        let mut contents = vec![0x5A; expected.len()];
        decoder.read(i as u32, &mut contents).expect("a device that works");
        assert!(contents == *expected, "{} gives other contents, case {i}", kept.name);
        assert_eq!(block.content_crc, crc32c::crc32c(&contents), "{}, case {i}", kept.name);
    }
}
