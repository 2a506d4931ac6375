//! How long to wait for work on a device.
//!
//! Work that does not finish in time is abandoned. A GPU is timed by the wall clock. A software device runs on the
//! processor, which it shares with other programs: on a busy machine it may get little processor time without being
//! broken. So it is timed by the processor time that this process has used, as if all cores had been its own. The wall
//! clock is a second limit at [`WALL_TIMES`] times the deadline, for a driver that hangs without computing.

use std::time::{Duration, Instant};

use super::{Kind, Limits};

/// A software device is abandoned after this many times the deadline, however little processor time it got.
const WALL_TIMES: u32 = 10;

/// The moment at which to abandon work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    until: Instant,
    software: Option<Software>,
}

/// The additional limit for a software device.
#[derive(Debug, Clone, Copy)]
struct Software {
    /// The processor time of this process at which to abandon work; `None` if the system cannot tell.
    given: Option<Duration>,
    at_last: Instant,
}

impl Deadline {
    /// A deadline `time` from now, for a device with these limits.
    pub(crate) fn after(time: Duration, limits: &Limits) -> Self {
        let now = Instant::now();
        let software = (limits.kind == Kind::Software).then(|| Software {
            given: processor_time().map(|given| given + time * cores()),
            at_last: now + time * WALL_TIMES,
        });
        Self { until: now + time, software }
    }

    /// Whether it has passed.
    #[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
    pub(crate) fn has_passed(&self) -> bool {
        self.has_passed_at(Instant::now(), processor_time)
    }

    fn has_passed_at(&self, now: Instant, given: impl FnOnce() -> Option<Duration>) -> bool {
        now >= self.until
            && self.software.is_none_or(|software| {
                let was_given = || Some(given()? >= software.given?);
                now >= software.at_last || was_given().unwrap_or(false)
            })
    }

    /// How long to wait before checking again whether the deadline has passed.
    #[cfg(feature = "webgpu")]
    pub(crate) fn next_look(&self) -> Duration {
        const LOOK: Duration = Duration::from_millis(10);
        let left = self.until.saturating_duration_since(Instant::now());
        if self.software.is_some() { left.max(LOOK) } else { left }
    }
}

pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Processor time that this process has used, on all cores together.
pub(crate) fn processor_time() -> Option<Duration> {
    #[cfg(all(unix, any(feature = "cuda", feature = "opencl", feature = "webgpu")))]
    {
        use rustix::time::{ClockId, clock_gettime};
        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
    }
    #[cfg(not(all(unix, any(feature = "cuda", feature = "opencl", feature = "webgpu"))))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::tests::testing::made_up;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_gpu_has_the_time_of_the_wall_clock() {
        let gpu = Limits { kind: Kind::Discrete, ..made_up() };
        let begun = Instant::now();
        let deadline = Deadline::after(60 * SECOND, &gpu);
        assert!(!deadline.has_passed_at(begun + 59 * SECOND, || Some(Duration::MAX)));
        assert!(deadline.has_passed_at(begun + 61 * SECOND, || Some(Duration::ZERO)));
    }

    #[test]
    fn a_software_device_has_the_time_that_it_was_given() {
        let software = Limits { kind: Kind::Software, ..made_up() };
        let begun = Instant::now();
        let before = processor_time();
        let deadline = Deadline::after(60 * SECOND, &software);
        let given = |seconds: u32| move || Some(before? + (SECOND + SECOND * seconds) * cores());
        // Alone on the machine.
        assert!(!deadline.has_passed_at(begun + 59 * SECOND, given(60)));
        assert_eq!(deadline.has_passed_at(begun + 61 * SECOND, given(60)), before.is_some());
        // Beside other programs, and then stuck.
        assert!(!deadline.has_passed_at(begun + 61 * SECOND, given(5)));
        assert!(!deadline.has_passed_at(begun + 599 * SECOND, given(50)));
        assert!(deadline.has_passed_at(begun + 601 * SECOND, given(50)));
        // Where the system cannot tell processor time.
        assert!(!deadline.has_passed_at(begun + 61 * SECOND, || None));
    }

    #[test]
    #[cfg(all(unix, any(feature = "cuda", feature = "opencl", feature = "webgpu")))]
    fn processor_time_is_counted() {
        let before = processor_time().unwrap();
        let mut x = 1u64;
        while processor_time().unwrap() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(processor_time().unwrap() > before, "{x}");
    }
}
