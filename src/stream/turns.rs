//! Lets the blocks of a stream look for distant matches in order, although several threads encode them.
//!
//! Each thread reads and surveys its block, and then waits until all earlier blocks have been searched. Threads take
//! blocks in order, so the block whose turn it is always has a thread, and no thread waits for ever.

use std::sync::Arc;

use crate::codec::distant::{DistantMatch, Finder, Survey};
use crate::error::Error;
use crate::sync::{Condvar, Mutex};

/// Gives blocks their turns.
pub(crate) struct Turns {
    shared: Arc<SharedTurns>,
    /// The turns given so far.
    given: u64,
}

/// The turn of one block. If it is dropped unused, later blocks fail.
pub(crate) struct Turn {
    shared: Arc<SharedTurns>,
    number: u64,
}

struct SharedTurns {
    codes_lists: bool,
    state: Mutex<TurnState>,
    passed: Condvar,
}

struct TurnState {
    finder: Finder,
    /// The turn that comes next.
    next: u64,
    /// Whether a block has dropped its turn unused.
    is_broken: bool,
}

impl Turns {
    pub(crate) fn new(finder: Finder) -> Self {
        let codes_lists = finder.is_near();
        let state = Mutex::new(TurnState { finder, next: 0, is_broken: false });
        let shared = Arc::new(SharedTurns { codes_lists, state, passed: Condvar::new() });
        Self { shared, given: 0 }
    }

    /// The turn of the next block.
    pub(crate) fn give(&mut self) -> Turn {
        let (shared, number) = (Arc::clone(&self.shared), self.given);
        self.given += 1;
        Turn { shared, number }
    }
}

impl Turn {
    /// Whether to code the list of the block's matches. Lists are long where blocks repeat parts of themselves.
    pub(crate) fn codes_list(&self) -> bool {
        self.shared.codes_lists
    }

    /// Waits until all earlier blocks have been searched, and finds the distant matches of a block with this survey.
    /// `begins_frame` tells whether it is the first of a frame.
    ///
    /// # Errors
    /// Fails if the system refuses memory, or if an earlier block has dropped its turn.
    pub(crate) fn find(
        self,
        survey: &mut Survey,
        begins_frame: bool,
    ) -> Result<Vec<DistantMatch>, Error> {
        let state = self.shared.state.lock();
        let waits = |state: &mut TurnState| !state.is_broken && state.next != self.number;
        let mut state = self.shared.passed.wait_while(state, waits);
        if state.is_broken {
            return Err(Error::Internal { what: "an earlier block was not searched" });
        }
        if begins_frame {
            state.finder.begin_frame();
        }
        let matches = state.finder.find(survey)?;
        state.next += 1;
        Ok(matches)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_broken |= state.next <= self.number;
        drop(state);
        self.shared.passed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::noise;

    /// What a block finds when it is its turn.
    fn search(turn: Turn, block: &[u8], begins_frame: bool) -> Result<Vec<DistantMatch>, Error> {
        let mut survey = Survey::default();
        survey.take(block).unwrap();
        turn.find(&mut survey, begins_frame)
    }

    #[test]
    fn blocks_are_searched_in_order_whichever_comes_first() {
        let mut turns = Turns::new(Finder::new(1 << 20).unwrap());
        let block = noise(1, 1 << 14, 256);
        let (first, second) = (turns.give(), turns.give());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| search(second, &block, false).unwrap());
            assert!(search(first, &block, true).unwrap().is_empty());
            assert_eq!(second.join().unwrap().len(), 1);
        });
        // The first block of a frame repeats nothing.
        assert!(search(turns.give(), &block, true).unwrap().is_empty());
    }

    #[test]
    fn no_block_waits_for_one_that_gave_up() {
        let mut turns = Turns::new(Finder::new(1 << 20).unwrap());
        let block = noise(1, 1 << 14, 256);
        let (first, second, third) = (turns.give(), turns.give(), turns.give());
        search(first, &block, true).unwrap();
        std::thread::scope(|scope| {
            let third = scope.spawn(|| search(third, &block, false));
            drop(second);
            assert!(matches!(third.join().unwrap(), Err(Error::Internal { .. })));
        });
        assert!(search(turns.give(), &block, false).is_err());
    }
}
