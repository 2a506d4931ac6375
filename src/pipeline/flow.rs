//! The blocks of one job: those in flight through a scheduler, and the idle ones, whose memory is used again.

use std::sync::Arc;

use super::buffer::Pool;
use super::engine::Engine;
use super::gpu::Accelerator;
use super::memory::Share;
use super::scheduler::{Scheduler, Task};

/// Owns a job's scheduler, and starts it with the first block. Stays within a share of memory, and gives back memory
/// that a device waits for.
pub(crate) struct Flow<T: Task> {
    engine: Arc<dyn Engine>,
    share: Share,
    accelerator: Option<Accelerator>,
    scheduler: Option<Scheduler<T>>,
    idle: Vec<T>,
    /// Contents of blocks that are not in flight.
    pool: Pool,
}

impl<T: Task> Flow<T> {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        share: Share,
        accelerator: Option<Accelerator>,
    ) -> Self {
        let (scheduler, idle, pool) = (None, Vec::new(), Pool::default());
        Self { engine, share, accelerator, scheduler, idle, pool }
    }

    /// The CPU's engine.
    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether blocks go to a scheduler, and not to the engine directly.
    pub(crate) fn has_begun(&self) -> bool {
        self.scheduler.is_some() || self.accelerator.is_some()
    }

    /// The number of blocks in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.scheduler.as_ref().map_or(0, Scheduler::in_flight)
    }

    /// The most blocks to have in flight now.
    pub(crate) fn max_in_flight(&self) -> usize {
        let most = self.share.in_flight;
        self.scheduler.as_ref().map_or(most, |scheduler| scheduler.max_in_flight(most))
    }

    /// Whether another block may be submitted.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight() < self.max_in_flight()
    }

    /// Submits a block.
    pub(crate) fn submit(&mut self, task: T) {
        let Self { engine, share, accelerator, scheduler, .. } = self;
        let new = || Scheduler::with_accelerator(Arc::clone(engine), *share, accelerator.as_ref());
        scheduler.get_or_insert_with(new).submit(task);
    }

    /// Waits for the oldest block in flight; `None` if there is none.
    pub(crate) fn next(&mut self) -> Option<T> {
        self.scheduler.as_mut()?.next()
    }

    /// The oldest block in flight, if it is done, or if no other may be submitted before.
    pub(crate) fn next_if_due(&mut self) -> Option<T> {
        let has_room = self.has_room();
        let scheduler = self.scheduler.as_mut()?;
        if has_room { scheduler.try_next() } else { scheduler.next() }
    }

    /// Says that no more blocks will be submitted, so that workers and device divide what is left.
    pub(crate) fn end(&mut self) {
        self.scheduler.iter_mut().for_each(Scheduler::end);
    }

    /// Drops the blocks in flight.
    pub(crate) fn stop(&mut self) {
        self.scheduler = None;
    }

    /// A block to use again.
    pub(crate) fn take_idle(&mut self) -> Option<T> {
        self.idle.pop()
    }

    /// Keeps a block to use it again.
    pub(crate) fn keep_idle(&mut self, task: T) {
        self.idle.push(task);
    }

    /// Drops idle blocks if a device waits for their memory, but keeps `least`.
    pub(crate) fn give_back(&mut self, least: usize) {
        let Some(scheduler) = &self.scheduler else { return };
        if let Some(keep) = scheduler.idle_to_keep().filter(|keep| *keep >= least) {
            self.idle.truncate(keep);
            self.pool.clear();
            scheduler.gave_back();
        }
    }

    /// Frees the memory of idle blocks.
    pub(crate) fn clear_idle(&mut self) {
        self.idle.clear();
        self.pool.clear();
    }

    /// Sets the number of workers and blocks, while none is in flight. Keeps the workers if there are enough.
    pub(crate) fn set_share(&mut self, share: Share) {
        self.share = share;
        Scheduler::adapt(&mut self.scheduler, &mut self.share);
    }

    /// Prepares for blocks that need other memory, while none is in flight.
    pub(crate) fn adapt(&mut self, share: Share, accelerator: Option<Accelerator>) {
        self.accelerator = accelerator;
        if self.accelerator.is_some() {
            self.engine.release();
            self.scheduler = None;
        }
        self.set_share(share);
        self.clear_idle();
    }

    /// Goes on with a device beside the workers, while no block is in flight. `choose` gets the share, to widen it.
    pub(crate) fn join(&mut self, choose: impl FnOnce(&mut Share) -> Option<Accelerator>) {
        self.scheduler = None;
        self.accelerator = choose(&mut self.share);
    }

    #[cfg(test)]
    pub(crate) fn idle(&self) -> usize {
        self.idle.len()
    }
}
