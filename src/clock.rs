//! The clock that measures how long work takes, and the time of day in words.
//!
//! `wasm32-unknown-unknown` has no clock, and `std`'s panics there. Every measured time is zero on it.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(crate) use std::time::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use timeless::Instant;

/// A time in seconds since 1970 as `YYYY-MM-DDThh:mm:ssZ`.
pub fn utc(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    loop {
        let len = 365 + u64::from(is_leap(year));
        if days < len {
            break;
        }
        days -= len;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

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

#[cfg(test)]
mod tests {
    #[test]
    fn times_of_day() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_369_353_600, "2013-05-24T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(super::utc(seconds), text);
        }
    }
}
