//! Decides when to request huge pages, and which thread does.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::region::HUGE_PAGE;

/// The file has small pages up to here: one request may take as long as filling some megabytes.
const SMALL_PAGES_END: u64 = 32 << 20;

/// Bytes of a request. Before it answers, the kernel waits some milliseconds for each core to finish what it is
/// doing, however large the request; and a thread that wants to write there waits for the answer.
const REQUEST: u64 = 8 << 20;

/// How far requests may run ahead of the writes.
const MAX_AHEAD: u64 = 256 << 20;

/// A request that takes longer counts as failed. Small pages for the same bytes take about half as long.
const MAX_REQUEST_TIME: Duration = Duration::from_millis(12);

/// The huge pages of a file. The threads that write the file request them, from its beginning to its end, each
/// once, ahead of the writes.
///
/// If free memory is fragmented, the kernel must move pages first; and a virtual machine may have returned its free
/// memory to the host. Huge pages are then slower than small ones, and we skip more and more requests.
pub struct HugePages {
    state: Mutex<CollapseState>,
    answered: Condvar,
    /// No request goes beyond this offset.
    end: u64,
}

struct CollapseState {
    /// The end of the last request.
    asked: u64,
    /// Requests that have no answer yet.
    open: Vec<Range<u64>>,
    /// Whether the last request succeeded in time. If not, only one request at a time is made.
    is_good: bool,
    /// How many requests in a row failed or took too long.
    failures: u32,
    /// How many requests to skip.
    to_skip: u32,
}

impl HugePages {
    /// The huge pages of a file that ends at byte `end`. Without `end`, requests may go beyond the contents, and
    /// the caller truncates the file.
    pub fn new(end: Option<u64>) -> Self {
        let state = CollapseState {
            asked: SMALL_PAGES_END,
            open: Vec::new(),
            is_good: false,
            failures: 0,
            to_skip: 0,
        };
        let end = end.unwrap_or(u64::MAX) / HUGE_PAGE * HUGE_PAGE;
        Self { state: Mutex::new(state), answered: Condvar::new(), end }
    }

    /// Requests huge pages for `range` and waits for open requests in it; then the caller may write there. `ask`
    /// requests huge pages for a range of whole ones and returns whether it got them.
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

    /// Stops requesting.
    pub fn stop(&self) {
        self.lock().asked = u64::MAX;
    }

    /// Requests huge pages for the next writes, now that the bytes before `end` have been written.
    pub fn after_writing(&self, end: u64, ask: impl Fn(Range<u64>) -> bool) {
        let next = self.next(&mut self.lock(), end + (end / 4).min(MAX_AHEAD));
        if let Some(next) = next {
            self.ask(next, &ask);
        }
    }

    /// The next request, if it begins before `end`.
    fn next(&self, state: &mut CollapseState, end: u64) -> Option<Range<u64>> {
        while state.asked < end.min(self.end) {
            let next = state.asked..self.end.min(state.asked + REQUEST);
            state.asked = next.end;
            if state.to_skip > 0 {
                state.to_skip -= 1;
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
        self.answer(&range, is_granted && begun.elapsed() <= MAX_REQUEST_TIME);
    }

    /// Records the answer to a request.
    fn answer(&self, range: &Range<u64>, is_good: bool) {
        let mut state = self.lock();
        state.open.retain(|open| open != range);
        state.is_good = is_good;
        if is_good {
            state.failures = 0;
        } else {
            // Skip 16, 128, 1024 and so on.
            state.failures = (state.failures + 1).min(8);
            state.to_skip = 2 << (3 * state.failures);
        }
        drop(state);
        self.answered.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, CollapseState> {
        // No code that holds the lock can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// The requests made while `written` bytes are written, a mebibyte at a time.
    fn requests_during(
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
    fn each_page_is_requested_once_and_ahead() {
        let end = (300 << 20) + 5;
        let asked = requests_during(&HugePages::new(Some(end)), end, |_| true);
        assert_eq!(asked[0].start, SMALL_PAGES_END);
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
        // If the end is unknown, requests go only a little further than the writes.
        let asked = requests_during(&HugePages::new(None), 100 << 20, |_| true);
        let end = asked.last().unwrap().end;
        assert!((100 << 20..134 << 20).contains(&end), "{end}");
        assert!(requests_during(&HugePages::new(None), 25 << 20, |_| true).is_empty());
    }

    #[test]
    fn refusals_make_requests_rarer() {
        let asked = requests_during(&HugePages::new(None), 8 << 30, |_| false);
        assert!((2..7).contains(&asked.len()), "{asked:?}");
        let pages = HugePages::new(None);
        let asked = requests_during(&pages, 1 << 30, |start| start != SMALL_PAGES_END);
        assert_eq!(pages.lock().failures, 0);
        assert!(asked.len() > 80 && asked[1].start > asked[0].end, "{asked:?}");
    }

    #[test]
    fn writers_wait_for_open_requests() {
        let pages = HugePages::new(None);
        let is_open = AtomicBool::new(false);
        let range = SMALL_PAGES_END..SMALL_PAGES_END + 1;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pages.before_writing(&range, |_| {
                        assert!(
                            !is_open.swap(true, Ordering::SeqCst),
                            "two threads made the same request"
                        );
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
