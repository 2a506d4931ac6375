//! The batches of a thread.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender};

use super::coder::{Coder, Encoded, FetchedPiece, Lengths};
use super::job::{CompressJob, PIECES};
use crate::access::device::core::DeviceCore;
use crate::clock::Instant;
use crate::gpu::coder::CoderError;
use crate::gpu::device::HostMemory;
use crate::pipeline::gpu_engine::AfterError;

/// Sends the batches of a thread to the device and fetches them, one after another:
///
/// ```text
/// left ─▶ encoding ─▶ encoded ─▶ host, piece by piece
/// ```
pub(super) struct EncoderSlot<'a> {
    job: &'a CompressJob,
    /// Blocks that are still to be encoded.
    left: VecDeque<Range<u64>>,
    /// Those that are being encoded.
    encoding: Option<Range<u64>>,
    /// Those that have been encoded, and are still on the device.
    encoded: Option<(Range<u64>, Encoded)>,
    /// The most blocks at once; 0 when the device is no longer used.
    most: u32,
}

/// The next blocks of a thread, encoded or left to the host.
pub(super) struct Made {
    pub(super) numbers: Range<u64>,
    /// The encoded blocks; `None` if the device left all to the host.
    pub(super) piece: Option<FetchedPiece>,
    /// When the thread began to wait for them.
    pub(super) begun: Instant,
}

/// The ends of a thread's channels.
pub(super) struct Outlet {
    pub(super) made: Sender<Made>,
    /// Returns the memory of pieces that have been written.
    pub(super) written: Receiver<HostMemory>,
}

impl<'a> EncoderSlot<'a> {
    /// The batches of the thread with this number.
    pub(super) fn new(job: &'a CompressJob, number: u64) -> Self {
        let (blocks, batch) = (job.blocks(), u64::from(job.batch));
        let of_slot = (number..job.batches()).step_by(job.slots as usize);
        let left = of_slot.map(|at| at * batch..blocks.min((at + 1) * batch)).collect();
        Self { job, left, encoding: None, encoded: None, most: job.batch }
    }

    /// Encodes all batches, until the receiver is gone.
    pub(super) fn run<'d>(
        mut self,
        core: &'d DeviceCore,
        coder: &mut Option<Coder<'d>>,
        outlet: &Outlet,
    ) {
        let mut away = 0;
        while let Some(made) = self.next(core, coder) {
            away += u64::from(made.piece.is_some());
            if outlet.made.send(made).is_err() {
                break;
            }
            // The device is busy with the next batch, so there is time to wait.
            if away == PIECES {
                take_back(coder, outlet);
                away -= 1;
            }
        }
        for _ in 0..away {
            take_back(coder, outlet);
        }
        // The device must not read the contents after this returns.
        if self.encoding.is_some() && coder.as_mut().is_some_and(|coder| coder.wait().is_err()) {
            *coder = None;
        }
    }

    /// Returns the next blocks, while the device encodes those after them; `None` after the last. Blocks that the
    /// device cannot encode are left to the host.
    fn next<'d>(&mut self, core: &'d DeviceCore, coder: &mut Option<Coder<'d>>) -> Option<Made> {
        let begun = Instant::now();
        loop {
            if self.most == 0 {
                let numbers = self.left.pop_front()?;
                return Some(Made { numbers, piece: None, begun });
            }
            match self.advance(core, coder) {
                Ok(None) if self.encoding.is_none() && self.encoded.is_none() => return None,
                Ok(None) => {}
                Ok(Some((numbers, piece))) => {
                    return Some(Made { numbers, piece: Some(piece), begun });
                }
                Err(error) => self.start_over(core, coder, &error),
            }
        }
    }

    /// Fetches the next piece of the encoded batch. If there is none, waits for the batch that is being encoded, and
    /// starts the next one.
    fn advance<'d>(
        &mut self,
        core: &'d DeviceCore,
        coder: &mut Option<Coder<'d>>,
    ) -> Result<Option<(Range<u64>, FetchedPiece)>, CoderError> {
        let key = self.job.key();
        let most = Lengths { batch: self.most, piece: self.job.piece.min(self.most) };
        let unfit = coder.take_if(|coder| !coder.is_for(&key, most));
        // The next coder needs its memory.
        drop(unfit);
        let coder = match coder {
            Some(coder) => coder,
            None => coder.insert(Coder::new(core, key, most)?),
        };
        if let Some((numbers, encoded)) = &mut self.encoded {
            let end = numbers.end.min(numbers.start + u64::from(most.piece));
            let now = numbers.start..end;
            let piece = coder.fetch(encoded, &self.job.lens(now.clone()))?;
            numbers.start = end;
            self.encoded.take_if(|(numbers, _)| numbers.is_empty());
            return Ok(Some((now, piece)));
        }
        if let Some(numbers) = &self.encoding {
            let encoded = coder.wait()?;
            self.encoded = Some((numbers.clone(), encoded));
            self.encoding = None;
        }
        if let Some(numbers) = self.take(self.most) {
            self.encoding = Some(numbers.clone());
            coder.start(self.job, numbers)?;
        }
        Ok(None)
    }

    /// Takes up to `most` of the blocks that are left.
    fn take(&mut self, most: u32) -> Option<Range<u64>> {
        let Range { start, end } = self.left.pop_front()?;
        let cut = end.min(start + u64::from(most));
        if cut < end {
            self.left.push_front(cut..end);
        }
        Some(start..cut)
    }

    /// After an error, puts the blocks of both batches back. If the device ran out of memory, batches have half as many
    /// blocks from now on; otherwise the host encodes the rest.
    fn start_over(&mut self, core: &DeviceCore, coder: &mut Option<Coder<'_>>, error: &CoderError) {
        let encoded = self.encoded.take().map(|(numbers, _)| numbers);
        for numbers in [self.encoding.take(), encoded].into_iter().flatten() {
            self.left.push_front(numbers);
        }
        *coder = None;
        core.trim();
        self.most = match AfterError::of(error, self.most) {
            AfterError::Halved(half) => half,
            AfterError::Declined | AfterError::Broken => 0,
        };
    }
}

/// Waits until a piece has been written, and takes its memory back.
fn take_back(coder: &mut Option<Coder<'_>>, outlet: &Outlet) {
    if let (Ok(memory), Some(coder)) = (outlet.written.recv(), coder) {
        coder.pinned.push(memory);
    }
}
