//! The engine halves batches when memory is short, and retires a device that fails.

use super::*;
use crate::gpu::tests::pool::Ledger;
use crate::pipeline::level::Level;

/// Gives an engine 8 blocks on a device that has memory for `blocks` of them but no queue. Returns the batch limits,
/// whether the engine calls the device broken, and whether it is disabled.
fn after(blocks: u64) -> (Vec<u32>, bool, bool) {
    let recipe = Level::MIN.codec(Pipeline::Lzh).into();
    let most = Shape::new(8, 1 << 16);
    let unlimited = Ledger::new(u64::MAX);
    let one = pipelines::encode(unlimited.limits(), &recipe, Shape { blocks: 1, ..most }).unwrap();
    let device = Ledger::new(blocks * one.memory());
    let engine = GpuEngine::new(&device, most, false, None);
    let contents: Vec<u8> = (0..1u32 << 16).map(|i| ((i * i) >> 7) as u8).collect();
    let mut payloads = vec![Vec::new(); 8];
    let mut jobs: Vec<_> =
        payloads.iter_mut().map(|payload| EncodeJob::new(&contents, 0, payload)).collect();
    engine.encode(&recipe, &mut jobs);
    assert!(jobs.iter().all(|job| job.coded.is_none()));
    assert_eq!(device.taken(), 0);
    let state = engine.state.lock();
    let limited = state.limits.iter().map(|limit| limit.blocks).collect();
    let is_broken = state.broken.is_some();
    drop(state);
    (limited, is_broken, engine.is_disabled())
}

#[test]
fn short_memory_halves_batches_and_a_lost_device_is_retired() {
    // No memory for a single block: the device is not broken, but gets no more work of this kind.
    assert_eq!(after(0), (vec![0], false, true));
    // The engine halves batches until they fit, and then finds the device lost.
    assert_eq!(after(1), (vec![1], true, true));
    assert_eq!(after(3), (vec![2], true, true));
    assert_eq!(after(7), (vec![4], true, true));
    assert_eq!(after(8), (vec![], true, true));
}
