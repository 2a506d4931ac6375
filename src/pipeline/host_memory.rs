//! Limits workers and blocks to the host's memory while a device comes and goes.
//!
//! A device takes host memory: for its driver, for copies, and for the blocks of its batches. If the job decides late
//! whether to use a device, the workers have all the memory until then. Before the job looks for the device, some
//! workers stop and the scheduler's owner gives back blocks that it does not need. When the device has stopped, they
//! get the memory back.

use super::memory::Share;

/// Who has the host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostMemoryPhase {
    /// Workers have all of it: the job has not looked for a device.
    WorkersOnly,
    /// The device waits for workers to stop and for the owner to give back blocks.
    MakingRoom,
    /// Workers and device share it.
    Shared,
    /// The device has stopped. Workers wait for the owner to give back the device's blocks.
    Reclaiming,
    /// Workers have all of it except what the driver keeps.
    Reclaimed,
}

/// The most workers and blocks in each phase.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Before the job looks for the device; `None` if the job counts on the device from the start.
    pub(crate) alone: Option<Share>,
    /// Beside a working device.
    pub(crate) beside: Share,
    /// The most blocks beside a device that is not working yet. Touching new memory is slow, so the job takes it only
    /// when the device needs it.
    pub(crate) blocks_before_device: usize,
    /// After the device has stopped.
    pub(crate) afterwards: Share,
}

/// The phase, and the number of workers that may work in it.
#[derive(Debug)]
pub(crate) struct HostMemory {
    phase: HostMemoryPhase,
    limits: Limits,
    workers: usize,
    /// How many workers may work while there are blocks that the device gave back. Those blocks mostly just need
    /// writing.
    workers_on_returned: usize,
}

impl HostMemory {
    /// Host memory for a job with a device.
    pub(crate) fn for_device(limits: Limits) -> Self {
        let (phase, share) = match limits.alone {
            Some(alone) => (HostMemoryPhase::WorkersOnly, alone),
            None => (HostMemoryPhase::Shared, limits.beside),
        };
        let workers = share.workers.max(limits.beside.workers);
        Self { phase, limits, workers, workers_on_returned: 0 }
    }

    /// Host memory for a job without a device.
    pub(crate) fn of_workers(share: Share) -> Self {
        let (alone, blocks_before_device) = (None, share.in_flight);
        let limits = Limits { alone, beside: share, blocks_before_device, afterwards: share };
        let phase = HostMemoryPhase::Reclaimed;
        Self { phase, limits, workers: share.workers, workers_on_returned: 0 }
    }

    /// The device will not start.
    pub(crate) fn has_no_device(&mut self) {
        if self.phase == HostMemoryPhase::Shared {
            self.reclaimed();
        }
    }

    /// Whether the job has not looked for a device.
    pub(crate) fn is_for_workers_only(&self) -> bool {
        self.phase == HostMemoryPhase::WorkersOnly
    }

    /// How many workers may work. `is_returned`: there are blocks that the device gave back.
    pub(crate) fn workers(&self, is_returned: bool) -> usize {
        if is_returned { self.workers.max(self.workers_on_returned) } else { self.workers }
    }

    /// How many blocks may exist.
    pub(crate) fn blocks(&self, is_device_at_work: bool) -> usize {
        match self.phase {
            HostMemoryPhase::WorkersOnly => {
                self.limits.alone.unwrap_or(self.limits.beside).in_flight
            }
            HostMemoryPhase::Shared if is_device_at_work => self.limits.beside.in_flight,
            HostMemoryPhase::MakingRoom | HostMemoryPhase::Shared => {
                self.limits.blocks_before_device.min(self.limits.beside.in_flight)
            }
            HostMemoryPhase::Reclaiming | HostMemoryPhase::Reclaimed => {
                self.limits.afterwards.in_flight
            }
        }
    }

    /// The number of blocks to which the owner should cut down; `None` if nothing waits for that.
    pub(crate) fn awaited_blocks(&self) -> Option<usize> {
        match self.phase {
            HostMemoryPhase::MakingRoom => Some(self.limits.blocks_before_device),
            HostMemoryPhase::Reclaiming => Some(self.limits.afterwards.in_flight),
            _ => None,
        }
    }

    /// The owner now has at most [`Self::awaited_blocks`] blocks.
    pub(crate) fn owner_has_made_room(&mut self) {
        match self.phase {
            HostMemoryPhase::MakingRoom => self.phase = HostMemoryPhase::Shared,
            HostMemoryPhase::Reclaiming => self.reclaimed(),
            _ => {}
        }
    }

    /// The job is about to look for a device.
    pub(crate) fn device_wants_room(&mut self) {
        if self.phase == HostMemoryPhase::WorkersOnly {
            (self.phase, self.workers) = (HostMemoryPhase::MakingRoom, self.limits.beside.workers);
        }
    }

    /// Whether there is room for the device while `working` workers work.
    pub(crate) fn is_room(&self, working: usize) -> bool {
        self.phase == HostMemoryPhase::Shared && working <= self.limits.beside.workers
            || self.limits.alone.is_none()
    }

    /// The device begins with `threads` threads of its own, which do more with a core than workers do.
    pub(crate) fn device_begins(&mut self, threads: usize, all_workers: usize) {
        let left = all_workers.saturating_sub(threads).max(all_workers.div_ceil(2));
        self.workers_on_returned = left.min(self.limits.beside.workers);
        self.workers = self.workers_on_returned;
    }

    /// How many workers there would be if the device left now: its driver keeps some memory.
    pub(crate) fn workers_afterwards(&self) -> usize {
        self.limits.afterwards.workers
    }

    /// The most workers that may work beside the device, however fast it is.
    pub(crate) fn max_beside(&self) -> usize {
        self.workers_on_returned
    }

    /// Sets how many workers are useful beside the device. Returns how many more these are than before.
    pub(crate) fn set_workers(&mut self, workers: usize) -> usize {
        let more = workers.saturating_sub(self.workers);
        self.workers = workers;
        more
    }

    /// The device has stopped. The owner still has its blocks.
    pub(crate) fn device_stops(&mut self) {
        if self.phase != HostMemoryPhase::WorkersOnly {
            (self.phase, self.workers) = (HostMemoryPhase::Reclaiming, self.limits.beside.workers);
        }
    }

    fn reclaimed(&mut self) {
        (self.phase, self.workers) = (HostMemoryPhase::Reclaimed, self.limits.afterwards.workers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn share(workers: usize, in_flight: usize) -> Share {
        Share { workers, in_flight }
    }

    fn limits(alone: Option<Share>) -> Limits {
        Limits { alone, beside: share(4, 40), blocks_before_device: 10, afterwards: share(7, 9) }
    }

    /// Phase, workers, workers for returned blocks, blocks before the device works and beside it, awaited blocks.
    type Row = (HostMemoryPhase, usize, usize, usize, usize, Option<usize>);

    fn row(memory: &HostMemory) -> Row {
        let (of, blocks) = (|is| memory.workers(is), |is| memory.blocks(is));
        let awaited = memory.awaited_blocks();
        (memory.phase, of(false), of(true), blocks(false), blocks(true), awaited)
    }

    #[test]
    fn a_device_that_comes_late_gets_room_and_gives_it_back() {
        use HostMemoryPhase::{MakingRoom, Reclaimed, Reclaiming, Shared, WorkersOnly};
        let mut memory = HostMemory::for_device(limits(Some(share(8, 12))));
        type Step = fn(&mut HostMemory);
        let steps: [(Step, Row); 9] = [
            (|_| (), (WorkersOnly, 8, 8, 12, 12, None)),
            (HostMemory::owner_has_made_room, (WorkersOnly, 8, 8, 12, 12, None)),
            (HostMemory::device_wants_room, (MakingRoom, 4, 4, 10, 10, Some(10))),
            (HostMemory::owner_has_made_room, (Shared, 4, 4, 10, 40, None)),
            (|memory| memory.device_begins(6, 8), (Shared, 4, 4, 10, 40, None)),
            (|memory| assert_eq!(memory.set_workers(1), 0), (Shared, 1, 4, 10, 40, None)),
            (|memory| assert_eq!(memory.set_workers(3), 2), (Shared, 3, 4, 10, 40, None)),
            (HostMemory::device_stops, (Reclaiming, 4, 4, 9, 9, Some(9))),
            (HostMemory::owner_has_made_room, (Reclaimed, 7, 7, 9, 9, None)),
        ];
        for (number, (step, expected)) in steps.into_iter().enumerate() {
            step(&mut memory);
            assert_eq!(row(&memory), expected, "step {number}");
        }
    }

    #[test]
    fn there_is_room_when_workers_have_stopped_and_the_owner_has_given_back() {
        let mut memory = HostMemory::for_device(limits(Some(share(8, 12))));
        memory.device_wants_room();
        assert!(!memory.is_room(4));
        memory.owner_has_made_room();
        assert!(!memory.is_room(5) && memory.is_room(4));
        // A device that the job counts on has room at once.
        assert!(HostMemory::for_device(limits(None)).is_room(8));
    }

    #[test]
    fn an_expected_or_missing_device() {
        use HostMemoryPhase::{Reclaimed, Reclaiming, Shared, WorkersOnly};
        let mut memory = HostMemory::for_device(limits(None));
        assert_eq!(row(&memory), (Shared, 4, 4, 10, 40, None));
        memory.device_wants_room();
        memory.device_stops();
        assert_eq!(row(&memory), (Reclaiming, 4, 4, 9, 9, Some(9)));
        // The device is missing.
        let mut memory = HostMemory::for_device(limits(None));
        memory.has_no_device();
        assert_eq!(row(&memory), (Reclaimed, 7, 7, 9, 9, None));
        let mut memory = HostMemory::for_device(limits(Some(share(8, 12))));
        memory.has_no_device();
        memory.device_stops();
        assert_eq!(row(&memory), (WorkersOnly, 8, 8, 12, 12, None));
        // No device was asked for.
        let memory = HostMemory::of_workers(share(5, 6));
        assert_eq!(row(&memory), (Reclaimed, 5, 5, 6, 6, None));
    }
}
