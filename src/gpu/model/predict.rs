//! How long a plan takes, from its work items and its buffers.
//!
//! A plan determines how many work items each stage launches and how large its buffers are. Two figures of a device,
//! seconds per work item and seconds per byte, turn that into a time ([`Figures`]).
//!
//! The estimate is good enough for stages that visit every element once, such as sorts, checksums and copies. For work
//! that has never run, there is no better one. It ignores how much one work item does: a parse that compares 64
//! candidates per position uses the same buffers as a parse that compares one. It also ignores that a few large windows
//! leave most of a device idle, while many small windows would fill it. So once a stage has run, [`crate::Auto`] keeps
//! its measured time and predicts from that; these figures serve only for stages that have not run.

use std::time::Duration;

use super::plan::Plan;

/// The time that a stage took on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageTime {
    /// Its name.
    pub stage: &'static str,
    /// The sum of its dispatches.
    pub time: Duration,
}

/// The work of one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageWork {
    /// Its name.
    pub stage: &'static str,
    /// Number of dispatches.
    pub dispatches: u64,
    /// Work items of all dispatches.
    pub threads: u64,
    /// Total size of the buffers of all dispatches: each buffer is read or written about once.
    pub bytes: u64,
}

impl StageWork {
    /// The stages of `plan`, in the order in which they start.
    pub fn of(plan: &Plan) -> Vec<Self> {
        let mut stages: Vec<Self> = Vec::new();
        for run in plan.runs() {
            let threads = u64::from(run.groups) * u64::from(run.threads);
            let bytes = run.buffers.iter().map(|buffer| plan.buffers[buffer.0].bytes).sum();
            let one = Self { stage: run.stage, dispatches: 1, threads, bytes };
            match stages.iter_mut().find(|other| other.stage == run.stage) {
                Some(other) => {
                    other.dispatches += one.dispatches;
                    other.threads += one.threads;
                    other.bytes += one.bytes;
                }
                None => stages.push(one),
            }
        }
        stages
    }
}

/// Two figures of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Seconds per work item.
    pub thread: f64,
    /// Seconds per byte of a buffer.
    pub byte: f64,
}

impl Figures {
    /// The figures that predict the times of these stages with the least relative error; `None` if no stage took any
    /// time.
    pub fn fit(measured: &[(StageWork, f64)]) -> Option<Self> {
        // Least squares of 1 - (thread * threads + byte * bytes) / seconds.
        let (mut tt, mut tb, mut bb, mut t, mut b) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (work, seconds) in measured.iter().filter(|(_, seconds)| *seconds > 0.0) {
            let (x, y) = (work.threads as f64 / seconds, work.bytes as f64 / seconds);
            tt += x * x;
            tb += x * y;
            bb += y * y;
            t += x;
            b += y;
        }
        let determinant = tt * bb - tb * tb;
        let both =
            Self { thread: (t * bb - b * tb) / determinant, byte: (b * tt - t * tb) / determinant };
        let by_threads = Self { thread: t / tt, byte: 0.0 };
        let by_bytes = Self { thread: 0.0, byte: b / bb };
        let is_possible = |found: &Self| {
            let is_one = |figure: f64| figure.is_finite() && figure >= 0.0;
            is_one(found.thread) && is_one(found.byte)
        };
        let error = |found: &Self| -> f64 {
            let relative = |(work, s): &(StageWork, f64)| (found.seconds(work) / s - 1.0).powi(2);
            measured.iter().filter(|(_, seconds)| *seconds > 0.0).map(relative).sum()
        };
        let found = [both, by_threads, by_bytes].into_iter().filter(is_possible);
        found.min_by(|a, b| error(a).total_cmp(&error(b)))
    }

    /// Predicts the seconds that a stage takes.
    pub fn seconds(&self, work: &StageWork) -> f64 {
        self.thread * work.threads as f64 + self.byte * work.bytes as f64
    }
}

/// The stages of one block, each with its time for `blocks` blocks.
pub(crate) fn pair(
    of_block: &[StageWork],
    blocks: u64,
    times: &[StageTime],
) -> Vec<(StageWork, f64)> {
    let scaled = |work: &StageWork| {
        let time = times.iter().find(|time| time.stage == work.stage)?.time;
        let (threads, bytes) = (work.threads * blocks, work.bytes * blocks);
        Some((StageWork { threads, bytes, ..*work }, time.as_secs_f64()))
    };
    of_block.iter().filter_map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::device::{Limits, Teams};
    use crate::gpu::model::plan::Shape;
    use crate::gpu::stages::pipelines;
    use crate::gpu::tests::testing::made_up;
    use crate::{Level, Pipeline};

    fn limits() -> Limits {
        Limits { teams: Teams::Ptx, timing: true, ..made_up() }
    }

    #[test]
    fn work_is_that_of_the_plans() {
        let recipe = Level::DEFAULT.codec(Pipeline::Lzh).into();
        let of = |blocks| {
            let plan = pipelines::encode(&limits(), &recipe, Shape::new(blocks, 1 << 20)).unwrap();
            (StageWork::of(&plan), plan)
        };
        let ((one, plan), (ten, _)) = (of(1), of(10));
        let runs = plan.runs().count() as u64;
        assert_eq!(one.iter().map(|work| work.dispatches).sum::<u64>(), runs);
        for (one, ten) in one.iter().zip(&ten) {
            assert_eq!((one.stage, one.dispatches), (ten.stage, ten.dispatches));
            assert_eq!(ten.bytes, 10 * one.bytes);
            assert!((1..=10 * one.threads).contains(&ten.threads), "{one:?} {ten:?}");
        }
        assert!(one.iter().any(|work| work.stage == "sort"), "{one:?}");
    }

    #[test]
    fn figures_are_found_again() {
        let work = |threads, bytes| StageWork { stage: "test", dispatches: 1, threads, bytes };
        let stages = [work(1 << 20, 1 << 20), work(1 << 10, 1 << 24), work(1 << 22, 1 << 16)];
        for expected in [
            Figures { thread: 2e-9, byte: 1e-10 },
            Figures { thread: 0.0, byte: 3e-10 },
            Figures { thread: 1e-9, byte: 0.0 },
        ] {
            let measured: Vec<_> = stages.iter().map(|w| (*w, expected.seconds(w))).collect();
            let found = Figures::fit(&measured).unwrap();
            for (work, seconds) in &measured {
                assert!((found.seconds(work) / seconds - 1.0).abs() < 1e-6, "{found:?}");
            }
        }
        // One stage alone, and stages that took no time.
        let found = Figures::fit(&[(stages[0], 0.5)]).unwrap();
        assert!((found.seconds(&stages[0]) - 0.5).abs() < 1e-9);
        assert_eq!(Figures::fit(&[(stages[0], 0.0)]), None);
        assert_eq!(Figures::fit(&[]), None);
    }
}
