//! Known blocks. A driver's compiler may be wrong, so the first batch of each kind of work with a driver is a block
//! whose result is known. A device that gets this block wrong gets no others.
//!
//! Right answers are kept in the user's cache folder: a line for each interface, device, driver, version of this crate
//! and kind of work.

use std::collections::HashSet;

use super::GpuEngine;
use crate::codec::Recipe;
use crate::gpu::coder::BlockTask;
use crate::gpu::model::limits::Limits;
use crate::pipeline::options::Options;
use crate::pipeline::sample::Sample;
use crate::pipeline::workload::Direction;
use crate::sync::Mutex;
use crate::user_cache::UserCache;

/// The file of right answers.
const FILE: &str = "known-answers";
/// Longer files are not ours.
const MAX_LEN: u64 = 1 << 18;
/// The most lines that are kept.
const MAX_LINES: usize = 500;
/// Bytes of a known block: several chunks, and a part of one.
const KNOWN_BYTES: usize = 100_003;

impl GpuEngine<'_> {
    /// Checks that the device gets `work` on a known block right. Skips the check if the device has no driver, or has
    /// passed it since it was opened, as `passed` tells, or in an earlier run by this user. Passes a device that
    /// declines the block.
    ///
    /// # Errors
    /// Says why the device must not be used.
    pub(crate) fn check_known(&self, work: &BlockTask, passed: &Passed) -> Result<(), String> {
        if !self.device.has_driver() {
            return Ok(());
        }
        let line = line(self.device.limits(), work, self.max_shape.slot);
        let mut passed = passed.0.lock();
        if passed.contains(&line) {
            return Ok(());
        }
        let answers = Answers(UserCache::of_user());
        if !answers.has(&line) {
            match self.answers_right(work) {
                Some(true) => answers.add(&line),
                None => return Ok(()),
                Some(false) => {
                    let driver = &self.device.limits().driver;
                    return Err(format!(
                        "it got a known block wrong, so the compiler of its driver is wrong: {driver}"
                    ));
                }
            }
        }
        passed.insert(line);
        Ok(())
    }

    /// Whether the device gets `work` on a known block right; `None` if it declines the work.
    fn answers_right(&self, work: &BlockTask) -> Option<bool> {
        let sample = Sample::synthetic(KNOWN_BYTES.min(self.max_shape.slot as usize));
        let is_right = match work {
            BlockTask::Encode { recipe, .. } => {
                let encoded = sample.encoded(recipe, Direction::Encode)?;
                encoded.encodes_alike(self, recipe)
            }
            BlockTask::Decode(pipeline) => {
                let recipe = Options::new().pipeline(*pipeline).recipe().ok()?;
                let encoded = sample.encoded(&Recipe::from(recipe.codec), Direction::Decode)?;
                (encoded.decode(self, 1) == 1).then_some(true)
            }
        };
        is_right.or_else(|| (!self.is_disabled()).then_some(false))
    }
}

/// The lines of the right answers that an open device has given, or gave in earlier runs. Later jobs then read no file,
/// and repeat no check where none can be kept.
#[derive(Default)]
pub(crate) struct Passed(Mutex<HashSet<String>>);

/// The line of a right answer.
fn line(limits: &Limits, work: &BlockTask, block_len: u32) -> String {
    let Limits { api, name, driver, .. } = limits;
    let of = env!("CARGO_PKG_VERSION");
    let work = match work {
        BlockTask::Encode { recipe, .. } => format!("encode {:?}", recipe.codec),
        BlockTask::Decode(pipeline) => format!("decode {pipeline:?}"),
    };
    format!("{api} {name:?} {driver:?} {of} {work} {block_len}")
}

/// The right answers so far.
struct Answers(UserCache);

impl Answers {
    fn text(&self) -> String {
        let bytes = self.0.load(FILE, MAX_LEN).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    }

    fn has(&self, line: &str) -> bool {
        self.text().lines().any(|known| known == line)
    }

    /// Adds a line. One that another process adds at the same time may be lost: then that block is done once more.
    fn add(&self, line: &str) {
        let text = self.text();
        let lines: Vec<_> = text.lines().chain([line]).collect();
        let kept = &lines[lines.len().saturating_sub(MAX_LINES)..];
        self.0.save(FILE, (kept.join("\n") + "\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use crate::format::Pipeline;
    use crate::gpu::model::plan::Shape;
    use crate::gpu::tests::faulty::{Fault, Faulty};
    use crate::gpu::tests::testing::{each_device, made_up};

    #[test]
    fn answers_are_kept() {
        let folder = std::env::temp_dir().join(format!("pz-test-answers-{}", std::process::id()));
        let answers = Answers(UserCache::in_folder(Some(folder.clone())));
        let line_of = |driver: &str, block_len| {
            let limits = Limits { driver: driver.into(), ..made_up() };
            line(&limits, &BlockTask::Decode(Pipeline::Lzf), block_len)
        };
        assert!(!answers.has(&line_of("1\n", 5)));
        answers.add(&line_of("1\n", 5));
        answers.add(&line_of("2", 5));
        assert!(answers.has(&line_of("1\n", 5)) && answers.has(&line_of("2", 5)));
        assert!(!answers.has(&line_of("1\n", 6)) && !answers.has(&line_of("3", 5)));
        for i in 0..600 {
            answers.add(&line_of("4", i));
        }
        assert!(answers.has(&line_of("4", 599)) && !answers.has(&line_of("1\n", 5)));
        assert_eq!(answers.text().lines().count(), MAX_LINES);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn devices_answer_right_and_a_wrong_answer_is_found() {
        each_device(|device| {
            assert!(device.has_driver());
            let recipe = Options::new().pipeline(Pipeline::Lzf).recipe().unwrap();
            let recipe = Recipe::from(recipe.codec);
            let shape = Shape::new(2, 1 << 17);
            for work in
                [BlockTask::Decode(Pipeline::Lzf), BlockTask::Encode { recipe, verify: false }]
            {
                for (fault, is_right) in [(Fault::None, true), (Fault::LongReads(1000), false)] {
                    let device = Faulty::new(device, fault);
                    let engine = GpuEngine::new(&device, shape, false, None);
                    assert_eq!(engine.answers_right(&work), Some(is_right), "{work:?}");
                    // What has no driver has no answers to give.
                    assert_eq!(engine.check_known(&work, &Passed::default()), Ok(()));
                }
            }
            let stored = BlockTask::Encode { recipe: Codec::Store.into(), verify: false };
            let engine = GpuEngine::new(device, shape, false, None);
            assert_ne!(engine.answers_right(&stored), Some(false));
        });
    }
}
