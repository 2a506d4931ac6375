//! The batches of a thread.

use std::collections::VecDeque;
use std::ops::Range;

use super::coder::{Batch, Coder};
use super::job::{Attempt, Job};
use crate::access::device::Core;
use crate::gpu::coder::CoderError;
use crate::gpu::device::DeviceError;

/// The numbers of blocks, and what has become of each.
type Fetched = (Range<u64>, Vec<Attempt>);

/// Brings the batches of a thread to the device, one after another:
///
/// ```text
/// left ─▶ encoding ─▶ outbox ─▶ host
/// ```
pub(super) struct Slot<'a> {
    job: &'a Job,
    /// Blocks that are still to be encoded.
    left: VecDeque<Range<u64>>,
    /// Those that are being encoded.
    encoding: Option<Range<u64>>,
    /// Those that have been encoded.
    outbox: Option<(Range<u64>, Batch)>,
    /// The most blocks at once; 0 when the device is not to be used any more.
    most: u32,
}

impl<'a> Slot<'a> {
    pub(super) fn new(job: &'a Job, left: VecDeque<Range<u64>>, most: u32) -> Self {
        Self { job, left, encoding: None, outbox: None, most }
    }

    /// What has become of the next blocks, whose payloads it puts into `bytes`, and their numbers; `None` after the last.
    /// The device encodes those after them meanwhile. All blocks of which the device makes nothing are left to the host.
    pub(super) fn next<'d>(
        &mut self,
        core: &'d Core,
        coder: &mut Option<Coder<'d>>,
        bytes: &mut Vec<u8>,
    ) -> Option<Fetched> {
        loop {
            bytes.clear();
            if self.most == 0 {
                let numbers = self.take(1)?;
                return Some((numbers.clone(), numbers.map(|_| None).collect()));
            }
            match self.advance(core, coder, bytes) {
                Ok(None) if self.encoding.is_none() => return None,
                Ok(None) => {}
                Ok(fetched) => return fetched,
                Err(error) => self.start_over(core, coder, &error),
            }
        }
    }

    /// Lets everything move by one place. Returns what has come to the host.
    fn advance<'d>(
        &mut self,
        core: &'d Core,
        coder: &mut Option<Coder<'d>>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Fetched>, CoderError> {
        let key = self.job.key();
        let ready = coder.take_if(|coder| !coder.is_for(&key, self.most));
        // Its memory is needed for the next.
        drop(ready);
        let coder = match coder {
            Some(coder) => coder,
            None => coder.insert(Coder::new(core, key, self.most)?),
        };
        if let Some(numbers) = &self.encoding {
            let batch = coder.wait()?;
            self.outbox = Some((numbers.clone(), batch));
            self.encoding = None;
        }
        if let Some(numbers) = self.take(self.most) {
            self.encoding = Some(numbers.clone());
            coder.start(self.job, numbers)?;
        }
        let Some((numbers, batch)) = &self.outbox else { return Ok(None) };
        let lens = numbers.clone().map(|number| self.job.block(number).1);
        let attempts = coder.fetch(batch, lens, bytes)?;
        Ok(self.outbox.take().map(|(numbers, _)| (numbers, attempts)))
    }

    /// Up to `most` blocks that are left.
    fn take(&mut self, most: u32) -> Option<Range<u64>> {
        let Range { start, end } = self.left.pop_front()?;
        let cut = end.min(start + u64::from(most));
        if cut < end {
            self.left.push_front(cut..end);
        }
        Some(start..cut)
    }

    /// After an error: what was on its way is encoded again, by fewer blocks at once if there was too little memory, or else
    /// by the host.
    fn start_over(&mut self, core: &Core, coder: &mut Option<Coder<'_>>, error: &CoderError) {
        let outbox = self.outbox.take().map(|(numbers, _)| numbers);
        for numbers in [self.encoding.take(), outbox].into_iter().flatten() {
            self.left.push_front(numbers);
        }
        *coder = None;
        core.trim();
        let has_memory = !matches!(error, CoderError::Device(DeviceError::OutOfMemory { .. }));
        self.most = if has_memory { 0 } else { self.most / 2 };
    }

    /// Waits until the device does not read the contents any more.
    pub(super) fn settle(self, coder: &mut Option<Coder<'_>>) {
        if self.encoding.is_some() && coder.as_mut().is_some_and(|coder| coder.wait().is_err()) {
            *coder = None;
        }
    }
}
