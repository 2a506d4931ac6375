//! The queue of blocks to load, by priority.

use std::collections::{BTreeSet, HashMap};

use super::options::Priority;
use crate::stream::block::BlockId;

/// A read that waits for a block.
pub(super) trait Waiter {
    /// Whether the read no longer wants the block.
    fn is_abandoned(&self) -> bool;
}

/// Limits on what a loader takes from the queue.
pub(super) struct QueueLimits {
    /// Take nothing below [`Priority::High`].
    pub(super) only_urgent: bool,
    /// The most blocks that all loaders load at once; at least one.
    pub(super) max_blocks: usize,
    /// The most blocks of a batch.
    pub(super) max_batch: usize,
}

/// Blocks that are queued or being loaded, with their waiters.
pub(super) struct BlockQueue<W> {
    blocks: HashMap<BlockId, QueuedBlock<W>>,
    /// The queued blocks, in the order in which they are loaded.
    order: BTreeSet<(Priority, u64, BlockId)>,
    /// Blocks queued so far.
    sequence: u64,
    loading: usize,
    /// Batches that have been taken and have not ended.
    batches: u32,
    /// Loaders that have a batch of [`Priority::Prefetch`].
    prefetching: usize,
}

struct QueuedBlock<W> {
    waiters: Vec<W>,
    state: QueuedState,
}

enum QueuedState {
    /// Its place in the order.
    Queued(Priority, u64),
    Loading,
}

/// Blocks that one loader loads together.
pub(super) struct BlockBatch {
    pub(super) priority: Priority,
    pub(super) blocks: Vec<BlockId>,
}

/// The most blocks of a batch that the CPU decodes.
pub(super) const MAX_BATCH: usize = 64;
/// The most blocks of a batch that is loaded ahead. A read that wants one of them waits for the whole batch.
const MAX_PREFETCH: usize = 8;

impl<W> Default for BlockQueue<W> {
    fn default() -> Self {
        let (blocks, order) = Default::default();
        Self { blocks, order, sequence: 0, loading: 0, batches: 0, prefetching: 0 }
    }
}

impl<W: Waiter> BlockQueue<W> {
    /// Adds `waiter` to a block, and queues the block unless it is queued or being loaded. A queued block keeps the
    /// higher of both priorities.
    pub(super) fn want(&mut self, block: BlockId, priority: Priority, waiter: Option<W>) {
        self.sequence += 1;
        let sequence = self.sequence;
        let wanted = self.blocks.entry(block).or_insert_with(|| {
            self.order.insert((priority, sequence, block));
            QueuedBlock { waiters: Vec::new(), state: QueuedState::Queued(priority, sequence) }
        });
        wanted.waiters.extend(waiter);
        if let QueuedState::Queued(before, number) = wanted.state
            && priority < before
        {
            self.order.remove(&(before, number, block));
            self.order.insert((priority, sequence, block));
            wanted.state = QueuedState::Queued(priority, sequence);
        }
    }

    /// Takes the blocks that a loader loads next, all of one priority; `None` if there are none for it. Drops blocks
    /// that nobody wants any more.
    pub(super) fn take(&mut self, limits: &QueueLimits) -> Option<BlockBatch> {
        let room = match self.loading {
            0 => limits.max_blocks.max(1),
            loading => limits.max_blocks.saturating_sub(loading),
        };
        let most = |priority| match priority {
            Priority::Prefetch => MAX_PREFETCH.min(limits.max_batch),
            _ => limits.max_batch,
        };
        let mut blocks = Vec::new();
        let mut of_batch = None;
        while let Some(&(priority, sequence, block)) = self.order.first()
            && blocks.len() < room.min(most(priority))
            && of_batch.is_none_or(|own| own == priority)
            && (priority <= Priority::High || !limits.only_urgent)
            // Only one loader loads ahead. The others are for blocks that reads wait for.
            && (priority < Priority::Prefetch || self.prefetching == 0)
        {
            self.order.remove(&(priority, sequence, block));
            let Some(wanted) = self.blocks.get_mut(&block) else { continue };
            wanted.waiters.retain(|waiter| !waiter.is_abandoned());
            if wanted.waiters.is_empty() && priority < Priority::Prefetch {
                self.blocks.remove(&block);
                continue;
            }
            wanted.state = QueuedState::Loading;
            of_batch = Some(priority);
            blocks.push(block);
        }
        let batch = BlockBatch { priority: of_batch?, blocks };
        self.loading += batch.blocks.len();
        self.batches += 1;
        self.prefetching += usize::from(batch.priority == Priority::Prefetch);
        Some(batch)
    }

    /// Removes a block of a batch, and returns its waiters.
    pub(super) fn finish(&mut self, block: BlockId) -> Vec<W> {
        let wanted = self.blocks.remove(&block);
        self.loading -= usize::from(wanted.is_some());
        wanted.map(|wanted| wanted.waiters).unwrap_or_default()
    }

    /// The number of batches that are being loaded.
    pub(super) fn batches(&self) -> u32 {
        self.batches
    }

    /// Whether an urgent block is queued.
    pub(super) fn is_urgent(&self) -> bool {
        self.order.first().is_some_and(|(priority, ..)| *priority <= Priority::High)
    }

    /// The number of blocks that are queued.
    pub(super) fn queued(&self) -> usize {
        self.order.len()
    }

    /// Notes that all blocks of a batch are finished.
    pub(super) fn end(&mut self, batch: &BlockBatch) {
        self.batches -= 1;
        self.prefetching -= usize::from(batch.priority == Priority::Prefetch);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    const ALL: QueueLimits =
        QueueLimits { only_urgent: false, max_blocks: 100, max_batch: MAX_BATCH };

    /// A caller that waits until the flag is set.
    impl Waiter for Rc<Cell<bool>> {
        fn is_abandoned(&self) -> bool {
            self.get()
        }
    }

    type OwnQueue = BlockQueue<Rc<Cell<bool>>>;

    fn block(number: u64) -> BlockId {
        BlockId { frame: 0, number }
    }

    /// Queues blocks for one caller with one priority.
    fn want(
        queue: &mut OwnQueue,
        priority: Priority,
        numbers: impl Iterator<Item = u64>,
    ) -> Rc<Cell<bool>> {
        let waiter = Rc::new(Cell::new(false));
        for number in numbers {
            queue.want(block(number), priority, Some(Rc::clone(&waiter)));
        }
        waiter
    }

    fn take(queue: &mut OwnQueue, limits: &QueueLimits) -> Option<(Priority, Vec<u64>)> {
        let batch = queue.take(limits)?;
        Some((batch.priority, batch.blocks.iter().map(|block| block.number).collect()))
    }

    #[test]
    fn urgent_blocks_come_first_and_others_in_turn() {
        let mut queue = OwnQueue::default();
        want(&mut queue, Priority::Normal, [5, 3, 9].into_iter());
        want(&mut queue, Priority::Prefetch, [3, 10].into_iter());
        want(&mut queue, Priority::High, [9, 11].into_iter());
        want(&mut queue, Priority::Realtime, [10].into_iter());
        assert_eq!(take(&mut queue, &ALL), Some((Priority::Realtime, vec![10])));
        assert_eq!(take(&mut queue, &ALL), Some((Priority::High, vec![9, 11])));
        let urgent = QueueLimits { only_urgent: true, ..ALL };
        assert_eq!(take(&mut queue, &urgent), None);
        assert_eq!(take(&mut queue, &ALL), Some((Priority::Normal, vec![5, 3])));
        assert_eq!(take(&mut queue, &ALL), None);
        assert_eq!(queue.finish(block(3)).len(), 2);
        assert_eq!(queue.finish(block(4)).len(), 0);
    }

    #[test]
    fn batches_and_blocks_under_way_are_limited() {
        let mut queue = OwnQueue::default();
        want(&mut queue, Priority::Normal, 0..200);
        let taken =
            |queue: &mut OwnQueue, limits| take(queue, limits).map_or(0, |batch| batch.1.len());
        assert_eq!(taken(&mut queue, &ALL), MAX_BATCH);
        assert_eq!(taken(&mut queue, &ALL), 100 - MAX_BATCH);
        assert_eq!(taken(&mut queue, &ALL), 0);
        (0..100).for_each(|number| drop(queue.finish(block(number))));
        // One block may always be loaded.
        assert_eq!(taken(&mut queue, &QueueLimits { max_blocks: 0, ..ALL }), 1);
    }

    #[test]
    fn only_one_loader_loads_ahead() {
        let mut queue = OwnQueue::default();
        (0..20).for_each(|number| queue.want(block(number), Priority::Prefetch, None));
        let batch = queue.take(&ALL).unwrap();
        assert_eq!(batch.blocks.len(), MAX_PREFETCH);
        assert!(queue.take(&ALL).is_none());
        batch.blocks.iter().for_each(|block| drop(queue.finish(*block)));
        queue.end(&batch);
        assert!(queue.take(&ALL).is_some());
    }

    #[test]
    fn what_nobody_waits_for_is_forgotten() {
        let mut queue = OwnQueue::default();
        let first = want(&mut queue, Priority::Normal, 0..3);
        want(&mut queue, Priority::Normal, 1..2);
        first.set(true);
        assert_eq!(take(&mut queue, &ALL), Some((Priority::Normal, vec![1])));
        assert!(queue.order.is_empty() && queue.blocks.len() == 1);
    }
}
