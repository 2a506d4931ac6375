//! An in-order queue.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use opencl3::command_queue::{
    enqueue_fill_buffer, enqueue_nd_range_kernel, enqueue_read_buffer, enqueue_write_buffer, flush,
};
use opencl3::error_codes::CL_INVALID_WORK_GROUP_SIZE;
use opencl3::event::{
    CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_START, get_event_profiling_info,
};
use opencl3::kernel::set_kernel_arg;

use super::device::{Memory, Shared, is_over, new_queue};
use super::handle::{Handle, Raw, has_ended, wait};
use super::staging::{PIECE, PIECES, Piece, Uploads};
use super::{failure, failure_for};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::program::ProgramKey;
use crate::gpu::device::{BufferId, DEADLINE, DeviceError, Dispatch, Queue};

/// Parts smaller than this are always copied through our own pinned memory, so that the caller need not wait for them.
const MIN_IN_PLACE: usize = 64 << 10;

/// A queue of a device.
#[derive(Debug)]
pub(super) struct ClQueue {
    shared: Arc<Shared>,
    /// `None` once the work has been abandoned.
    work: Option<InFlight>,
    deadline: Duration,
    timing: bool,
}

/// Running commands, and the objects they use.
#[derive(Debug)]
pub(super) struct InFlight {
    /// The newest command. The queue is in order, so when this has ended, all have.
    last: Option<Handle>,
    uploads: Uploads,
    downloads: Vec<Piece>,
    /// Dispatches whose times have not been read.
    timed: VecDeque<Handle>,
    kernels: HashMap<(ProgramKey, &'static str), Handle>,
    queue: Arc<Handle>,
}

impl InFlight {
    fn new(queue: Arc<Handle>) -> Self {
        Self {
            last: None,
            uploads: Uploads::default(),
            downloads: Vec::new(),
            timed: VecDeque::new(),
            kernels: HashMap::new(),
            queue,
        }
    }

    /// A command that is running in `queue`.
    pub fn unfinished(queue: Arc<Handle>, last: Handle) -> Self {
        Self { last: Some(last), ..Self::new(queue) }
    }

    /// Whether all commands have ended.
    pub fn has_ended(&self) -> bool {
        self.last.as_ref().is_none_or(is_over)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        flush(self.queue.raw()).map_err(|code| failure_for("clFlush", code, 0))
    }

    /// Keeps the event of the newest command.
    ///
    /// # Safety
    /// `event` is a valid event, and the caller owns one reference to it.
    unsafe fn newest(&mut self, event: Raw) -> Result<(), DeviceError> {
        // SAFETY: the caller promises exactly this.
        self.last = Some(unsafe { Handle::event(event) });
        self.flush()
    }

    /// Makes another reference to the newest command.
    fn last_again(&self) -> Result<Option<Handle>, DeviceError> {
        let Some(last) = &self.last else { return Ok(None) };
        // SAFETY: the event is valid, and the new handle owns the reference that this makes.
        unsafe {
            opencl3::event::retain_event(last.raw())
                .map_err(|code| failure("clRetainEvent", code))?;
            Ok(Some(Handle::event(last.raw())))
        }
    }

    /// Copies `parts` to a buffer, one directly after another. Parts in pinned memory that a caller holds are copied
    /// from there; the rest goes through our own pinned memory.
    fn write(
        &mut self,
        shared: &Shared,
        (memory, offset): (&Memory, u64),
        parts: &[&[u8]],
        until: Deadline,
    ) -> Result<(), DeviceError> {
        let mut at = offset as usize;
        let mut staged = 0;
        let mut in_place = None;
        for (number, part) in parts.iter().enumerate() {
            if part.len() < MIN_IN_PLACE || !shared.is_pinned(part) {
                continue;
            }
            at = self.write_staged(shared, (memory, at), &parts[staged..number], until)?;
            // SAFETY: queue and buffer are valid and of one context. The caller has checked that the range is within
            // the buffer. The source stays valid until the command has ended: either we wait for it below, or the
            // owner leaks the memory.
            let event = unsafe {
                let (queue, buffer) = (self.queue.raw(), memory.handle.raw());
                let (from, none) = (part.as_ptr().cast(), std::ptr::null());
                enqueue_write_buffer(queue, buffer, 0, at, part.len(), from, 0, none)
            };
            let event =
                event.map_err(|code| failure_for("clEnqueueWriteBuffer", code, memory.bytes))?;
            // SAFETY: the event has just been made.
            unsafe { self.newest(event)? };
            in_place = self.last_again()?;
            at += part.len();
            staged = number + 1;
        }
        self.write_staged(shared, (memory, at), &parts[staged..], until)?;
        in_place.map_or(Ok(()), |event| wait(&event, until))
    }

    /// Copies `parts` through our own pinned memory and returns the offset after them.
    fn write_staged(
        &mut self,
        shared: &Shared,
        (memory, mut at): (&Memory, usize),
        parts: &[&[u8]],
        until: Deadline,
    ) -> Result<usize, DeviceError> {
        let mut left: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut parts = parts.iter().copied();
        let mut part: &[u8] = &[];
        while left > 0 {
            let (piece, from) = self.uploads.place(shared, until)?;
            let len = left.min((PIECE - from) as u64) as usize;
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
            // SAFETY: queue and buffer are valid and of one context. The caller has checked that the range is within
            // the buffer. The source stays unchanged until the command has ended: the piece waits for that before it
            // is reused or unmapped, and is leaked if the command is abandoned.
            let event = unsafe {
                let staged = staged.as_ptr().cast();
                let (queue, buffer) = (self.queue.raw(), memory.handle.raw());
                enqueue_write_buffer(queue, buffer, 0, at, len, staged, 0, std::ptr::null())
            };
            let event =
                event.map_err(|code| failure_for("clEnqueueWriteBuffer", code, memory.bytes))?;
            // SAFETY: the event has just been made.
            unsafe { self.newest(event)? };
            if let Some(event) = self.last_again()? {
                self.uploads.take(len, event);
            }
            at += len;
            left -= len as u64;
        }
        Ok(at)
    }

    /// Copies directly to pinned memory that a caller holds, and waits.
    fn read_in_place(
        &mut self,
        (memory, offset): (&Memory, u64),
        into: &mut [u8],
        until: Deadline,
    ) -> Result<(), DeviceError> {
        // SAFETY: queue and buffer are valid and of one context. The caller has checked that the range is within the
        // buffer. The destination stays valid until the command has ended: either we wait for it here, or the owner
        // leaks the memory and knows that it may still change.
        let event = unsafe {
            let (queue, buffer) = (self.queue.raw(), memory.handle.raw());
            let (to, none) = (into.as_mut_ptr().cast(), std::ptr::null());
            enqueue_read_buffer(queue, buffer, 0, offset as usize, into.len(), to, 0, none)
        };
        let event = event.map_err(|code| failure_for("clEnqueueReadBuffer", code, memory.bytes))?;
        // SAFETY: the event has just been made.
        unsafe { self.newest(event)? };
        self.finish(until)
    }

    fn read(
        &mut self,
        shared: &Shared,
        (memory, offset): (&Memory, u64),
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
        until: Deadline,
    ) -> Result<(), DeviceError> {
        let pieces = bytes.div_ceil(PIECE as u64);
        while (self.downloads.len() as u64) < pieces.min(PIECES as u64) {
            match Piece::new(shared) {
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
                piece.wait(until)?;
                take(&piece.bytes()[..length(i)]);
            }
            if i < pieces {
                let piece = &mut self.downloads[slot];
                piece.wait(until)?;
                // SAFETY: queue and buffer are valid and of one context. The caller has checked that the range is
                // within the buffer. The destination is read only after the command has ended. It stays mapped until
                // then, and is leaked if the command is abandoned.
                let event = unsafe {
                    let at = (offset + i * PIECE as u64) as usize;
                    let staged = piece.bytes().as_mut_ptr().cast();
                    let (queue, buffer) = (self.queue.raw(), memory.handle.raw());
                    let none = std::ptr::null();
                    enqueue_read_buffer(queue, buffer, 0, at, length(i), staged, 0, none)
                };
                let event =
                    event.map_err(|code| failure_for("clEnqueueReadBuffer", code, memory.bytes))?;
                // SAFETY: the event has just been made.
                unsafe { self.newest(event)? };
                if let Some(event) = self.last_again()? {
                    self.downloads[slot].is_used_by(event);
                }
            }
        }
        Ok(())
    }

    fn clear(&mut self, memory: &Memory, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let zero = 0u32;
        // SAFETY: queue and buffer are valid and of one context. The call copies the pattern before it returns. The
        // caller has checked that the range is within the buffer.
        let event = unsafe {
            enqueue_fill_buffer(
                self.queue.raw(),
                memory.handle.raw(),
                (&raw const zero).cast(),
                4,
                offset as usize,
                bytes as usize,
                0,
                std::ptr::null(),
            )
        };
        let event = event.map_err(|code| failure_for("clEnqueueFillBuffer", code, memory.bytes))?;
        // SAFETY: the event has just been made.
        unsafe { self.newest(event) }
    }

    fn dispatch(&mut self, shared: &Shared, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        let mut memories = Vec::with_capacity(work.buffers.len());
        for &id in work.buffers {
            memories.push(shared.memory(id, 0, 0)?);
        }
        let key = (ProgramKey::new(work.kernel, work.threads, work.defines), work.entry);
        if !self.kernels.contains_key(&key) {
            self.kernels.insert(key.clone(), shared.programs.kernel(shared, work)?);
        }
        let kernel = self.kernels[&key].raw();
        let mut index = 0;
        let mut set = |bytes: usize, value: *const std::ffi::c_void| {
            // SAFETY: the kernel is valid and ours alone. `value` has `bytes` bytes, which the call copies. If the
            // index or the type does not match the kernel, the call returns an error.
            let set = unsafe { set_kernel_arg(kernel, index, bytes, value) };
            let call = || format!("clSetKernelArg({}, {index})", work.entry);
            set.map_err(|code| failure(&call(), code))?;
            index += 1;
            Ok(())
        };
        for memory in &memories {
            let raw = memory.handle.raw();
            set(size_of::<Raw>(), (&raw const raw).cast())?;
        }
        for arg in work.args {
            set(size_of::<u32>(), (&raw const *arg).cast())?;
        }
        let global = work.groups as usize * work.threads as usize;
        let local = work.threads as usize;
        // SAFETY: queue, kernel and buffers are valid and of one context, and there is one dimension. The kernel
        // accesses nothing outside its buffers; the compiler cannot check that, but we have reviewed and tested every
        // kernel for it.
        let event = unsafe {
            enqueue_nd_range_kernel(
                self.queue.raw(),
                kernel,
                1,
                std::ptr::null(),
                &raw const global,
                &raw const local,
                0,
                std::ptr::null(),
            )
        };
        let bytes = memories.iter().map(|memory| memory.bytes).sum();
        let call = || format!("clEnqueueNDRangeKernel({})", work.entry);
        let event = event.map_err(|code| match code {
            CL_INVALID_WORK_GROUP_SIZE => DeviceError::Unsupported(format!(
                "kernel {} ({}) has workgroups of {local} work items, which {} does not run",
                work.kernel.stem, work.entry, shared.limits.name,
            )),
            _ => failure_for(&call(), code, bytes),
        })?;
        // SAFETY: the event has just been made.
        unsafe { self.newest(event) }
    }

    fn finish(&self, until: Deadline) -> Result<(), DeviceError> {
        self.last.as_ref().map_or(Ok(()), |last| wait(last, until))
    }

    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError> {
        let mut times = Vec::new();
        while let Some(event) = self.timed.front() {
            if !has_ended(event)? {
                break;
            }
            let time = |what| {
                let time = get_event_profiling_info(event.raw(), what);
                time.map_err(|code| failure_for("clGetEventProfilingInfo", code, 0))
            };
            let start = time(CL_PROFILING_COMMAND_START)?.to_ulong();
            let end = time(CL_PROFILING_COMMAND_END)?.to_ulong();
            times.push(Duration::from_nanos(end.saturating_sub(start)));
            self.timed.pop_front();
        }
        Ok(times)
    }
}

impl ClQueue {
    pub fn new(shared: Arc<Shared>) -> Result<Self, DeviceError> {
        let queue = Arc::new(new_queue(&shared.context, &shared.device)?);
        Ok(Self { shared, work: Some(InFlight::new(queue)), deadline: DEADLINE, timing: false })
    }

    /// Runs an operation on the queue unless the queue was abandoned. Abandons it if the operation times out.
    fn attempt<T>(
        &mut self,
        action: impl FnOnce(&mut InFlight, &Shared, Deadline) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let Some(work) = &mut self.work else { return Err(DeviceError::TimedOut) };
        let until = Deadline::after(self.deadline, &self.shared.limits);
        let result = action(work, &self.shared, until);
        if matches!(result, Err(DeviceError::TimedOut)) {
            self.give_up();
        }
        result
    }

    fn give_up(&mut self) {
        if let Some(work) = self.work.take().filter(|work| !work.has_ended()) {
            self.shared.give_up(work);
        }
    }
}

impl Drop for ClQueue {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Queue for ClQueue {
    fn write_parts(
        &mut self,
        buffer: BufferId,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let memory = self.shared.memory(buffer, offset, bytes)?;
        self.attempt(|work, shared, until| work.write(shared, (&memory, offset), parts, until))
    }

    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let memory = self.shared.memory(buffer, offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.attempt(|work, _, _| work.clear(&memory, offset, bytes))
    }

    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        if work.groups == 0 {
            return Ok(());
        }
        let timing = self.timing;
        self.attempt(|own, shared, _| {
            own.dispatch(shared, work)?;
            if timing {
                own.timed.extend(own.last_again()?);
            }
            Ok(())
        })
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        // Each command is flushed when it is queued.
        Ok(())
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
            work.read(shared, (&memory, offset), bytes, take, until)?;
            work.finish(until)
        })
    }

    fn read(&mut self, buffer: BufferId, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if into.len() >= MIN_IN_PLACE && self.shared.is_pinned(into) {
            let memory = self.shared.memory(buffer, offset, into.len() as u64)?;
            return self
                .attempt(|work, _, until| work.read_in_place((&memory, offset), into, until));
        }
        let mut done = 0;
        self.read_with(buffer, offset, into.len() as u64, &mut |piece| {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.attempt(|work, _, until| work.finish(until))
    }

    fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    fn set_timing(&mut self, on: bool) {
        self.timing = on;
    }

    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError> {
        self.attempt(|work, _, _| work.take_times())
    }
}
