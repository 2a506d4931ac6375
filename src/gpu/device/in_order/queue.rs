//! An in-order queue.

use std::sync::Arc;
use std::time::Duration;

use super::Driver;
use super::shared::{InFlight, Shared, SizedBuffer};
use super::staging::{PIECE, PIECES, Piece};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::program::ProgramKey;
use crate::gpu::device::{BufferId, DEADLINE, DeviceError, Dispatch, Queue, Setting};

/// Parts smaller than this are always copied through our own pinned memory, so that the caller need not wait for them.
const MIN_IN_PLACE: usize = 64 << 10;

/// A queue of a device.
pub(in crate::gpu::device) struct InOrderQueue<D: Driver> {
    shared: Arc<Shared<D>>,
    /// `None` once the work has been abandoned.
    work: Option<InFlight<D>>,
    deadline: Duration,
    timing: bool,
}

impl<D: Driver> InFlight<D> {
    /// Copies `parts` to a buffer, one directly after another. Parts in pinned memory that a caller holds are copied
    /// from there; the rest goes through our own pinned memory.
    fn write(
        &mut self,
        shared: &Shared<D>,
        (memory, offset): (&SizedBuffer<D>, u64),
        parts: &[&[u8]],
        until: Deadline,
    ) -> Result<(), DeviceError> {
        let driver = &shared.driver;
        let mut at = offset;
        let mut staged = 0;
        let mut in_place = None;
        for (number, part) in parts.iter().enumerate() {
            if part.len() < MIN_IN_PLACE || !shared.is_pinned(part) {
                continue;
            }
            at = self.write_staged(driver, (memory, at), &parts[staged..number], until)?;
            // SAFETY: queue and buffer are of one device. The caller has checked that the range is within the buffer.
            // The source stays valid until the command has ended: either we wait for it below, or the owner leaks the
            // memory.
            let event = unsafe { driver.upload(&self.stream, (memory, at), part)? };
            self.last = Some(event.clone());
            driver.mark(&event)?;
            in_place = Some(event);
            at += part.len() as u64;
            staged = number + 1;
        }
        self.write_staged(driver, (memory, at), &parts[staged..], until)?;
        in_place.map_or(Ok(()), |event| driver.wait(&event, until))
    }

    /// Copies `parts` through our own pinned memory and returns the offset after them.
    fn write_staged(
        &mut self,
        driver: &D,
        (memory, mut at): (&SizedBuffer<D>, u64),
        parts: &[&[u8]],
        until: Deadline,
    ) -> Result<u64, DeviceError> {
        let mut left: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut parts = parts.iter().copied();
        let mut part: &[u8] = &[];
        while left > 0 {
            let (piece, from) = self.uploads.place(driver, self.max_pieces, until)?;
            let len = left.min((piece.len() - from) as u64) as usize;
            let staged = &mut piece.bytes()[from..from + len];
            let mut filled = 0;
            while filled < len {
                if part.is_empty() {
                    part = parts.next().unwrap_or_default();
                    continue;
                }
                let (now, later) = part.split_at(part.len().min(len - filled));
                staged[filled..filled + now.len()].copy_from_slice(now);
                filled += now.len();
                part = later;
            }
            // SAFETY: queue and buffer are of one device. The caller has checked that the range is within the buffer.
            // The source stays unchanged until the command has ended: the piece waits for that before it is reused or
            // released, and is leaked if the command is abandoned.
            let event = unsafe { driver.upload(&self.stream, (memory, at), staged)? };
            self.last = Some(event.clone());
            self.uploads.take(len, event);
            at += len as u64;
            left -= len as u64;
        }
        Ok(at)
    }

    /// Has `fill` write to pinned memory, our own piece if it is long enough, or else a lent one, and uploads that.
    /// Without either, the data goes through our own pieces.
    fn write_with(
        &mut self,
        shared: &Shared<D>,
        (memory, at): (&SizedBuffer<D>, u64),
        (bytes, ahead): (usize, usize),
        fill: &mut dyn FnMut(&mut [u8]),
        until: Deadline,
    ) -> Result<(), DeviceError> {
        let driver = &shared.driver;
        let is_fixed = self.max_pieces < PIECES;
        let own = self.in_place.as_mut().filter(|piece| piece.len() >= bytes);
        let mut lent = match &own {
            None if !is_fixed => shared.lent.take(driver, (bytes, ahead), until)?,
            _ => None,
        };
        let Some(piece) = own.or(lent.as_mut()) else {
            let mut filled = vec![0; bytes];
            fill(&mut filled);
            return self.write_staged(driver, (memory, at), &[&filled], until).map(drop);
        };
        piece.wait(driver, until)?;
        let staged = &mut piece.bytes()[..bytes];
        fill(staged);
        // SAFETY: as in `write_staged`.
        let event = unsafe { driver.upload(&self.stream, (memory, at), staged)? };
        self.last = Some(event.clone());
        piece.is_used_by(event.clone());
        let marked = driver.mark(&event);
        // Also after an error: the copy may have begun.
        if let Some(piece) = lent {
            self.longest = self.longest.max(piece.len());
            shared.lent.give_back(piece, &self.stream);
        }
        marked
    }

    /// Copies directly to pinned memory that a caller holds, and waits.
    fn read_in_place(
        &mut self,
        driver: &D,
        from: (&SizedBuffer<D>, u64),
        into: &mut [u8],
        until: Deadline,
    ) -> Result<(), DeviceError> {
        // SAFETY: queue and buffer are of one device. The caller has checked that the range is within the buffer. The
        // destination stays valid until the command has ended: either we wait for it here, or the owner leaks the
        // memory and knows that it may still change.
        self.last = Some(unsafe { driver.download(&self.stream, from, into)? });
        self.finish(driver, until)
    }

    /// Starts to copy `bytes` bytes, no more than a piece, for a later read of the same bytes.
    fn read_ahead(
        &mut self,
        driver: &D,
        id: BufferId,
        (memory, offset): (&SizedBuffer<D>, u64),
        bytes: u64,
        until: Deadline,
    ) -> Result<(), DeviceError> {
        if self.downloads.is_empty() {
            self.downloads.push(Piece::new(driver)?);
        }
        self.download(driver, (memory, offset), bytes as usize, 0, until)?;
        self.ahead = Some((id, offset, bytes));
        Ok(())
    }

    /// Starts to copy `bytes` bytes, no more than a piece, to download piece `slot`.
    fn download(
        &mut self,
        driver: &D,
        from: (&SizedBuffer<D>, u64),
        bytes: usize,
        slot: usize,
        until: Deadline,
    ) -> Result<(), DeviceError> {
        let piece = &mut self.downloads[slot];
        piece.wait(driver, until)?;
        let into = &mut piece.bytes()[..bytes];
        // SAFETY: queue and buffer are of one device. The caller has checked that the range is within the buffer. The
        // destination is read only after the command has ended. It stays pinned until then, and is leaked if the
        // command is abandoned.
        let event = unsafe { driver.download(&self.stream, from, into)? };
        self.last = Some(event.clone());
        piece.is_used_by(event);
        Ok(())
    }

    fn read(
        &mut self,
        driver: &D,
        (memory, offset): (&SizedBuffer<D>, u64),
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
        until: Deadline,
    ) -> Result<(), DeviceError> {
        let pieces = bytes.div_ceil(PIECE as u64);
        while (self.downloads.len() as u64) < pieces.min(self.max_pieces as u64) {
            match Piece::new(driver) {
                Ok(piece) => self.downloads.push(piece),
                // If there is no memory for another piece, use those we have.
                Err(_) if !self.downloads.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        // One copy runs per piece. Take the oldest result before starting the next copy.
        let ahead = self.downloads.len() as u64;
        let length = |i: u64| (bytes - i * PIECE as u64).min(PIECE as u64) as usize;
        for i in 0..pieces + ahead {
            let slot = (i % ahead) as usize;
            if let Some(i) = i.checked_sub(ahead).filter(|&i| i < pieces) {
                let piece = &mut self.downloads[slot];
                piece.wait(driver, until)?;
                take(&piece.bytes()[..length(i)]);
            }
            if i < pieces {
                let from = (memory, offset + i * PIECE as u64);
                self.download(driver, from, length(i), slot, until)?;
            }
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        shared: &Shared<D>,
        work: &Dispatch<'_>,
        timed: bool,
        until: Deadline,
    ) -> Result<(), DeviceError> {
        if timed && !self.is_timing {
            self.begin_timing(&shared.driver, until)?;
        }
        let mut memories = Vec::with_capacity(work.buffers.len());
        for &id in work.buffers {
            memories.push(shared.memory(id, 0, 0)?);
        }
        let key = (ProgramKey::new(work.kernel, work.threads, work.defines), work.entry);
        if !self.kernels.contains_key(&key) {
            let kernel = shared.driver.kernel(work)?;
            if self.is_beside_others {
                shared.driver.set_beside_others(&kernel)?;
            }
            self.kernels.insert(key.clone(), kernel);
        }
        let kernel = &self.kernels[&key];
        let turn = shared.driver.turn(until)?;
        // SAFETY: queue, kernel and buffers are of one device, and the kernel is the one that `work` names.
        let event = unsafe { shared.driver.launch(&self.stream, kernel, &memories, work, timed)? };
        if timed {
            self.timed.push_back(event.clone());
        }
        self.last = Some(event.clone());
        if let Some(mut given_up) = turn {
            match shared.driver.wait(&event, until) {
                // The call that needs the result reports the timeout.
                Err(DeviceError::TimedOut) => given_up.push(event),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Switches to a stream that can time kernels, if the current one cannot.
    fn begin_timing(&mut self, driver: &D, until: Deadline) -> Result<(), DeviceError> {
        if let Some(stream) = driver.timing_stream()? {
            self.finish(driver, until)?;
            self.stream = Arc::new(stream);
        }
        self.is_timing = true;
        Ok(())
    }

    fn finish(&self, driver: &D, until: Deadline) -> Result<(), DeviceError> {
        self.last.as_ref().map_or(Ok(()), |last| driver.wait(last, until))
    }

    /// Sets whether copies wait for the pinned memory that this has. If they do, borrows now a piece as long as any so
    /// far: later none can be pinned.
    fn set_pinned_is_fixed(&mut self, shared: &Shared<D>, is_fixed: bool, deadline: Duration) {
        self.max_pieces = if is_fixed { 1 } else { PIECES };
        let is_short = self.in_place.as_ref().is_none_or(|piece| piece.len() < self.longest);
        if is_fixed && self.longest > 0 && is_short {
            self.in_place = None;
            let Shared { lent, driver, .. } = shared;
            let until = Deadline::after(deadline, driver.limits());
            self.in_place = lent.take(driver, (self.longest, 0), until).ok().flatten();
        }
    }

    fn take_times(&mut self, driver: &D) -> Result<Vec<Duration>, DeviceError> {
        let mut times = Vec::new();
        while let Some(event) = self.timed.front() {
            if !driver.has_ended(event)? {
                break;
            }
            times.push(driver.time(event)?);
            self.timed.pop_front();
        }
        Ok(times)
    }
}

impl<D: Driver> InOrderQueue<D> {
    pub fn new(shared: Arc<Shared<D>>, stream: D::Stream) -> Self {
        let work = Some(InFlight::new(Arc::new(stream)));
        shared.lent.enter();
        Self { shared, work, deadline: DEADLINE, timing: false }
    }

    /// Runs an operation on the queue unless the queue was abandoned. Abandons it if the operation times out.
    fn attempt<T>(
        &mut self,
        action: impl FnOnce(&mut InFlight<D>, &Shared<D>, Deadline) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let Some(work) = &mut self.work else { return Err(DeviceError::TimedOut) };
        let until = Deadline::after(self.deadline, self.shared.driver.limits());
        let result = action(work, &self.shared, until);
        if matches!(result, Err(DeviceError::TimedOut)) {
            self.give_up();
        }
        result
    }

    /// The same for an operation that may change the bytes read ahead.
    fn command<T>(
        &mut self,
        action: impl FnOnce(&mut InFlight<D>, &Shared<D>, Deadline) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if let Some(work) = &mut self.work {
            work.ahead = None;
        }
        self.attempt(action)
    }

    /// Pieces of pinned memory, in both directions.
    #[cfg(all(test, feature = "opencl"))]
    pub fn pieces(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.uploads.pieces() + work.downloads.len())
    }

    fn give_up(&mut self) {
        let driver = &self.shared.driver;
        if let Some(work) = self.work.take().filter(|work| !work.has_ended(driver)) {
            self.shared.give_up(work);
        }
    }
}

impl<D: Driver> Drop for InOrderQueue<D> {
    fn drop(&mut self) {
        self.give_up();
        self.shared.lent.leave(&self.shared.driver);
    }
}

impl<D: Driver> Queue for InOrderQueue<D> {
    fn write_parts(
        &mut self,
        buffer: BufferId,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let memory = self.shared.memory(buffer, offset, bytes)?;
        self.command(|work, shared, until| work.write(shared, (&memory, offset), parts, until))
    }

    fn write_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        (bytes, ahead): (usize, usize),
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceError> {
        let memory = self.shared.memory(buffer, offset, bytes as u64)?;
        if bytes == 0 {
            return Ok(());
        }
        self.command(|work, shared, until| {
            work.write_with(shared, (&memory, offset), (bytes, ahead), fill, until)
        })
    }

    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let memory = self.shared.memory(buffer, offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.command(|work, shared, _| {
            // SAFETY: queue and buffer are of one device, and the range has been checked.
            let event = unsafe { shared.driver.clear(&work.stream, (&memory, offset), bytes)? };
            work.last = Some(event);
            Ok(())
        })
    }

    fn copy(
        &mut self,
        (from, start): (BufferId, u64),
        (to, offset): (BufferId, u64),
        bytes: u64,
    ) -> Result<(), DeviceError> {
        let (source, target) =
            (self.shared.memory(from, start, bytes)?, self.shared.memory(to, offset, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        self.command(|work, shared, _| {
            let (from, to) = ((&source, start), (&target, offset));
            // SAFETY: queue and buffers are of one device, and the ranges have been checked.
            work.last = Some(unsafe { shared.driver.copy(&work.stream, from, to, bytes)? });
            Ok(())
        })
    }

    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        if work.groups == 0 {
            return Ok(());
        }
        let timing = self.timing;
        self.command(|own, shared, until| own.dispatch(shared, work, timing, until))
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.attempt(|work, shared, _| {
            work.last.as_ref().map_or(Ok(()), |last| shared.driver.mark(last))
        })
    }

    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        let memory = self.shared.memory(buffer, offset, bytes)?;
        self.attempt(|work, shared, until| {
            if work.ahead.take() == Some((buffer, offset, bytes)) {
                let piece = &mut work.downloads[0];
                piece.wait(&shared.driver, until)?;
                take(&piece.bytes()[..bytes as usize]);
                return Ok(());
            }
            work.read(&shared.driver, (&memory, offset), bytes, take, until)?;
            work.finish(&shared.driver, until)
        })
    }

    fn read_ahead(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let memory = self.shared.memory(buffer, offset, bytes)?;
        if bytes == 0 || bytes > PIECE as u64 {
            return Ok(());
        }
        self.attempt(|work, shared, until| {
            work.read_ahead(&shared.driver, buffer, (&memory, offset), bytes, until)
        })
    }

    fn read(&mut self, buffer: BufferId, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if into.len() >= MIN_IN_PLACE && self.shared.is_pinned(into) {
            let memory = self.shared.memory(buffer, offset, into.len() as u64)?;
            return self.attempt(|work, shared, until| {
                work.read_in_place(&shared.driver, (&memory, offset), into, until)
            });
        }
        let mut done = 0;
        self.read_with(buffer, offset, into.len() as u64, &mut |piece| {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    fn has_ended(&mut self) -> bool {
        self.work.as_ref().is_none_or(|work| work.has_ended(&self.shared.driver))
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.attempt(|work, shared, until| work.finish(&shared.driver, until))
    }

    fn set(&mut self, setting: Setting) {
        match (setting, &mut self.work) {
            (Setting::Deadline(deadline), _) => self.deadline = deadline,
            (Setting::Timing(on), _) => self.timing = on,
            (Setting::BesideOthers, Some(work)) => work.is_beside_others = true,
            (Setting::PinnedIsFixed(is_fixed), Some(work)) => {
                work.set_pinned_is_fixed(&self.shared, is_fixed, self.deadline);
            }
            (Setting::BesideOthers | Setting::PinnedIsFixed(_), None) => {}
        }
    }

    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError> {
        self.attempt(|work, shared, _| work.take_times(&shared.driver))
    }
}
