//! When huge pages are asked for, and by whom.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::region::HUGE_PAGE;

/// A file has small pages up to here: to ask may take as long as it takes to fill some megabytes.
const FIRST: u64 = 32 << 20;

/// Bytes that are asked for at once. Before it answers the system waits for each core to finish what it is at, for some
/// milliseconds, however much is asked for; and whoever wants to write there waits for the answer.
const REQUEST: u64 = 8 << 20;

/// Most bytes that are asked for ahead of what is written.
const MOST_AHEAD: u64 = 256 << 20;

/// How long a request may take: small pages for the same bytes take about half as long.
const PATIENCE: Duration = Duration::from_millis(12);

/// Huge pages of a file. They are asked for from its beginning to its end, each once, ahead of what is written, by the
/// threads that write.
///
/// Where free memory is in pieces, the system moves what lies between them; and a virtual machine may have given its free
/// memory back. Then huge pages take longer than small ones do, and more and more requests are left out.
pub struct HugePages {
    state: Mutex<State>,
    answered: Condvar,
    /// Nothing is asked for behind it.
    end: u64,
}

struct State {
    /// Where those end that have been asked for.
    asked: u64,
    /// Requests that have not been answered yet.
    open: Vec<Range<u64>>,
    /// Whether the last answer was good. Otherwise one request at a time is enough.
    is_good: bool,
    /// Requests in a row that failed or took too long.
    failures: u32,
    /// Requests that are yet to be left out.
    left_out: u32,
}

impl HugePages {
    /// Huge pages of a file that ends at byte `end`, or that may be cut if that is not known.
    pub fn new(end: Option<u64>) -> Self {
        let state =
            State { asked: FIRST, open: Vec::new(), is_good: false, failures: 0, left_out: 0 };
        let end = end.unwrap_or(u64::MAX) / HUGE_PAGE * HUGE_PAGE;
        Self { state: Mutex::new(state), answered: Condvar::new(), end }
    }

    /// Returns when `range` may be written: whatever is asked for there has been, and is answered. `ask` gets huge pages for
    /// a range that consists of whole ones, and says whether there are.
    pub fn before_writing(&self, range: &Range<u64>, ask: impl Fn(Range<u64>) -> bool) {
        let meets = |open: &Range<u64>| open.start < range.end && range.start < open.end;
        let mut state = self.lock();
        loop {
            if let Some(next) = self.next(&mut state, range.end) {
                drop(state);
                self.ask(next, &ask);
                state = self.lock();
            } else if state.open.iter().any(meets) {
                state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                return;
            }
        }
    }

    /// Asks for those that will soon be written to, now that the bytes before `end` have been written.
    pub fn after_writing(&self, end: u64, ask: impl Fn(Range<u64>) -> bool) {
        let next = self.next(&mut self.lock(), end + (end / 4).min(MOST_AHEAD));
        if let Some(next) = next {
            self.ask(next, &ask);
        }
    }

    /// What is to be asked for next, if that begins before `end`.
    fn next(&self, state: &mut State, end: u64) -> Option<Range<u64>> {
        while state.asked < end.min(self.end) {
            let next = state.asked..self.end.min(state.asked + REQUEST);
            state.asked = next.end;
            if state.left_out > 0 {
                state.left_out -= 1;
            } else if state.is_good || state.open.is_empty() {
                state.open.push(next.clone());
                return Some(next);
            }
        }
        None
    }

    fn ask(&self, range: Range<u64>, ask: impl Fn(Range<u64>) -> bool) {
        let begun = Instant::now();
        let is_granted = ask(range.clone());
        self.answer(&range, is_granted && begun.elapsed() <= PATIENCE);
    }

    /// Takes note of an answer.
    fn answer(&self, range: &Range<u64>, is_good: bool) {
        let mut state = self.lock();
        state.open.retain(|open| open != range);
        state.is_good = is_good;
        if is_good {
            state.failures = 0;
        } else {
            // 16, 128, 1024 and so on.
            state.failures = (state.failures + 1).min(8);
            state.left_out = 2 << (3 * state.failures);
        }
        drop(state);
        self.answered.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing can panic between changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// What is asked for while `written` bytes are written, a mebibyte at a time.
    fn asked_for(
        pages: &HugePages,
        written: u64,
        is_granted: impl Fn(u64) -> bool,
    ) -> Vec<Range<u64>> {
        let asked = Mutex::new(Vec::new());
        let ask = |range: Range<u64>| {
            asked.lock().unwrap().push(range.clone());
            is_granted(range.start)
        };
        for start in (0..written).step_by(1 << 20) {
            let end = written.min(start + (1 << 20));
            pages.before_writing(&(start..end), ask);
            pages.after_writing(end, ask);
        }
        asked.into_inner().unwrap()
    }

    #[test]
    fn each_is_asked_for_once_and_ahead() {
        let end = (300 << 20) + 5;
        let asked = asked_for(&HugePages::new(Some(end)), end, |_| true);
        assert_eq!(asked[0].start, FIRST);
        assert_eq!(asked.last().unwrap().end, 300 << 20, "the last page is not whole");
        for pair in asked.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
        }
        for range in &asked {
            let len = range.end - range.start;
            assert!(
                len <= REQUEST && len % HUGE_PAGE == 0 && range.start % HUGE_PAGE == 0,
                "{range:?}"
            );
        }
        // If nobody knows the end, not much more.
        let asked = asked_for(&HugePages::new(None), 100 << 20, |_| true);
        let end = asked.last().unwrap().end;
        assert!((100 << 20..134 << 20).contains(&end), "{end}");
        assert!(asked_for(&HugePages::new(None), 25 << 20, |_| true).is_empty());
    }

    #[test]
    fn what_is_refused_is_asked_for_less_and_less() {
        let asked = asked_for(&HugePages::new(None), 8 << 30, |_| false);
        assert!((2..7).contains(&asked.len()), "{asked:?}");
        let pages = HugePages::new(None);
        let asked = asked_for(&pages, 1 << 30, |start| start != FIRST);
        assert_eq!(pages.lock().failures, 0);
        assert!(asked.len() > 80 && asked[1].start > asked[0].end, "{asked:?}");
    }

    #[test]
    fn nobody_writes_where_a_request_is_open() {
        let pages = HugePages::new(None);
        let is_open = AtomicBool::new(false);
        let range = FIRST..FIRST + 1;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pages.before_writing(&range, |_| {
                        assert!(!is_open.swap(true, Ordering::SeqCst), "it is asked for once");
                        thread::sleep(Duration::from_millis(20));
                        is_open.store(false, Ordering::SeqCst);
                        true
                    });
                    assert!(!is_open.load(Ordering::SeqCst));
                });
            }
        });
        assert!(pages.lock().open.is_empty());
    }
}
