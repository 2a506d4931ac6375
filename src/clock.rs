//! The clock that measures how long work takes.
//!
//! `wasm32-unknown-unknown` has no clock, and `std`'s panics there. Every measured time is zero on it.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(crate) use std::time::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use timeless::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod timeless {
    use std::ops::Sub;
    use std::time::Duration;

    /// A moment where there is no clock: all moments are the same.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Instant;

    impl Instant {
        pub(crate) fn now() -> Self {
            Self
        }

        pub(crate) fn elapsed(&self) -> Duration {
            Duration::ZERO
        }

        pub(crate) fn saturating_duration_since(&self, _: Self) -> Duration {
            Duration::ZERO
        }
    }

    impl Sub for Instant {
        type Output = Duration;

        fn sub(self, _: Self) -> Duration {
            Duration::ZERO
        }
    }
}
