//! The blocks of workers and device stay within the host memory.

use super::*;
use crate::format::Pipeline;
use crate::gpu::coder::Work;
use crate::pipeline::memory::{Cost, Share};

type Open = fn() -> Result<Arc<dyn Device>, DeviceError>;

#[test]
fn staging_and_driver_count_in_the_memory_of_the_host() {
    const MIB: u64 = 1 << 20;
    let cost = Cost { fixed: 0, worker: MIB, block: MIB };
    for limit in [40 * MIB, 100 * MIB, 200 * MIB, 300 * MIB, 1000 * MIB, 4000 * MIB] {
        // The device's limits are unknown, so it gets all that is left.
        let gpu = Gpu::finding(|| Err::<(Limits, Open), _>(DeviceError::Lost));
        let mut share = Share { workers: 2, in_flight: 4 };
        let job = Job {
            work: Work::Decode(Pipeline::Lzh),
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
