//! The blocks of workers and device stay within the host memory.

use super::*;
use crate::format::Pipeline;
use crate::gpu::coder::BlockTask;
use crate::gpu::tests::testing::made_up;
use crate::pipeline::memory::{Cost, Share};

type Open = fn() -> Result<Arc<dyn Device>, DeviceError>;

#[test]
fn staging_and_driver_count_in_the_memory_of_the_host() {
    const MIB: u64 = 1 << 20;
    let cost = Cost { fixed: 0, worker: MIB, block: MIB };
    for limit in [40 * MIB, 100 * MIB, 200 * MIB, 300 * MIB, 1000 * MIB, 4000 * MIB] {
        // The device's limits are unknown, so it gets all the memory left.
        let gpu = Gpu::finding(|| Err::<(Limits, Open), _>(DeviceError::Lost));
        let mut share = Share { workers: 2, in_flight: 4 };
        let job = Job {
            work: BlockTask::Decode(Pipeline::Lzh),
            block_len: 1 << 20,
            bytes: None,
            cost: &cost,
            memory: limit,
            statistics: None,
            learned: None,
        };
        let accelerator = Accelerator::new(&gpu, job, &mut share).unwrap();
        // At most six batches at once, and a quarter of the memory for their staging.
        let slots = (limit / 4 / (24 * MIB)).clamp(1, 6);
        assert_eq!(accelerator.most_slots, slots, "{limit}");
        let apart = (64 * MIB).min(limit / 2) + slots * 24 * MIB;
        let blocks = share.workers as u64 * MIB + share.in_flight as u64 * MIB;
        let left = limit.saturating_sub(apart);
        assert!(blocks <= left.max(4 * MIB), "{limit}: {share:?}");
        assert!(limit < 200 * MIB || blocks + 2 * MIB > left, "{limit}: {share:?}");
        assert_eq!(accelerator.host_blocks + 4, share.in_flight as u64 + 2 - share.workers as u64);
    }
}

/// As many batches as device, host and staging memory permit, and as many blocks in each.
#[test]
fn batches_stay_within_the_memory_of_device_and_host() {
    let limits = Limits { memory: 64 << 30, max_buffer: 64 << 30, ..made_up() };
    let gpu = Gpu::finding(|| Err::<(Limits, Open), _>(DeviceError::Lost));
    let alone = Accelerator::alone(gpu, BlockTask::Decode(Pipeline::Lzh), 1 << 20);
    let most = alone.batches(&limits).unwrap();
    assert!(most.slots == 6 && most.batch > 8, "{most:?}");
    for most_slots in 1..=6 {
        for host_blocks in [1, 2 * most_slots, 16 * most_slots, u32::MAX.into()] {
            let accelerator = Accelerator { most_slots, host_blocks, ..alone.clone() };
            let found = accelerator.batches(&limits).unwrap();
            assert_eq!(u64::from(found.slots), most_slots);
            // A slot has one batch on the device and one waiting.
            let batch = (host_blocks / (2 * most_slots)).clamp(1, most.batch.into());
            assert_eq!(u64::from(found.batch), batch, "{most_slots} slots, {host_blocks} blocks");
        }
    }
}
