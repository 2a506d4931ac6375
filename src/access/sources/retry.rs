//! When to try again, and when to give up.

use std::hash::{BuildHasher, RandomState};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use super::SourceOptions;

/// The pause before the first retry. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Long reads get time for a line of this many bytes a second.
const MIN_RATE: u64 = 64 << 10;

/// The tries of one read.
pub(super) struct Tries {
    begun: Instant,
    deadline: Instant,
    retries: u32,
    /// Tries in a row in which no byte arrived.
    vain: u32,
    pause: Duration,
    /// All tries.
    pub(super) count: u32,
}

impl Tries {
    /// The tries of a read of `bytes` bytes. The first try begins now.
    pub(super) fn new(options: &SourceOptions, bytes: u64) -> Self {
        let begun = Instant::now();
        let limit = options.time_limit.saturating_add(Duration::from_secs(bytes / MIN_RATE));
        // A limit that the clock cannot count is treated as none.
        let never = Duration::from_secs(u64::from(u32::MAX));
        Self {
            begun,
            deadline: begun + limit.min(never),
            retries: options.retries,
            vain: 0,
            pause: FIRST_PAUSE,
            count: 1,
        }
    }

    /// The time left for all further tries.
    pub(super) fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The time since the first try began.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Records that bytes have arrived: the next failure counts as the first.
    pub(super) fn progressed(&mut self) {
        (self.vain, self.pause) = (0, FIRST_PAUSE);
    }

    /// Waits before the next try, at least as long as the server asked. Returns false if no retries or no time are
    /// left.
    pub(super) fn wait(&mut self, asked: Option<Duration>) -> bool {
        self.vain += 1;
        let pause =
            (self.pause / 2 + self.pause.mul_f64(random() / 2.0)).max(asked.unwrap_or_default());
        self.pause = (2 * self.pause).min(MAX_PAUSE);
        if self.vain > self.retries || pause >= self.time_left() {
            return false;
        }
        thread::sleep(pause);
        self.count += 1;
        true
    }
}

/// A random number from 0 to 1. It spreads the retries of clients that failed together.
fn random() -> f64 {
    // The standard library seeds such hashers from the system's random numbers. The children of a fork have the same
    // seed, so their process numbers are hashed.
    RandomState::new().hash_one(process::id()) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_end() {
        let options = SourceOptions::new().retries(3).time_limit(Duration::from_secs(600));
        let mut tries = Tries::new(&options, 0);
        tries.pause = Duration::ZERO;
        assert_eq!((0..9).filter(|_| tries.wait(None)).count(), 3);
        tries.progressed();
        tries.pause = Duration::ZERO;
        assert_eq!((0..9).filter(|_| tries.wait(None)).count(), 3);
        assert_eq!(tries.count, 7);
        // No pause begins that would end after the deadline.
        tries.progressed();
        assert!(!tries.wait(Some(Duration::from_secs(601))));
        let mut none = Tries::new(&SourceOptions::new().time_limit(Duration::ZERO), 100);
        assert!(!none.wait(None));
    }

    #[test]
    fn long_reads_have_more_time() {
        let options = SourceOptions::new().time_limit(Duration::from_secs(5));
        let left = Tries::new(&options, 64 << 20).time_left();
        assert!(
            (Duration::from_secs(1000)..=Duration::from_secs(1029)).contains(&left),
            "{left:?}"
        );
        let endless = Tries::new(&options.time_limit(Duration::MAX), u64::MAX).time_left();
        assert!(endless > Duration::from_secs(1 << 31));
    }
}
