//! A queue. It records commands, and submits them when a caller waits or enough have been recorded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::staging::{DOWNLOAD, Download, Uploads};
use super::{BufferId, DeviceError, Dispatch, Pipeline, Queue, WebGpuDevice};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::{DEADLINE, Setting};

/// Dispatches per submission. A submission costs as much as a few dispatches, so they are grouped; but a desktop's
/// watchdog limits the time of one submission.
const DISPATCHES: u32 = 64;

pub(super) struct WebGpuQueue<'d> {
    device: &'d WebGpuDevice,
    // Before the encoder, so that it is dropped first.
    pass: Option<wgpu::ComputePass<'static>>,
    encoder: Option<wgpu::CommandEncoder>,
    /// Dispatches in the encoder.
    recorded: u32,
    last: Option<wgpu::SubmissionIndex>,
    uploads: Uploads,
    downloads: Vec<Download>,
    /// Memory for [`Queue::write_with`], kept for its next call: the first touch of new memory takes longer than
    /// filling it.
    filled: Vec<u8>,
    deadline: Duration,
    timed_out: bool,
    timer: Option<Timer>,
    timing: bool,
    times: VecDeque<Times>,
}

/// Receives the times at which dispatches begin and end.
struct Timer {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
}

/// The times of a submission's dispatches, being copied to the host.
struct Times {
    download: Download,
    submission: wgpu::SubmissionIndex,
    dispatches: u32,
}

impl<'d> WebGpuQueue<'d> {
    pub(super) fn new(device: &'d WebGpuDevice) -> Self {
        Self {
            device,
            pass: None,
            encoder: None,
            recorded: 0,
            last: None,
            uploads: Uploads::new(),
            downloads: Vec::new(),
            filled: Vec::new(),
            deadline: DEADLINE,
            timed_out: false,
            timer: None,
            timing: false,
            times: VecDeque::new(),
        }
    }

    /// The deadline of a wait that begins now.
    fn until(&self) -> Deadline {
        Deadline::after(self.deadline, &self.device.limits)
    }

    /// The encoder, with no pass open.
    fn encoder(&mut self) -> Result<&mut wgpu::CommandEncoder, DeviceError> {
        self.pass = None;
        if self.encoder.is_none() {
            let device = &self.device.device;
            // Outside a scope, an out-of-memory error would be lost.
            self.encoder = Some(self.device.scoped(0, || {
                device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
            })?);
        }
        self.encoder.as_mut().ok_or_else(|| DeviceError::Failed("no encoder".into()))
    }

    /// Runs an operation that may fail. After a timeout, the queue refuses all work.
    fn attempt<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if self.timed_out {
            return Err(DeviceError::TimedOut);
        }
        let done = act(self);
        self.timed_out |= matches!(done, Err(DeviceError::TimedOut));
        done
    }

    /// Looks up a buffer and checks that it holds `bytes` bytes from `offset` on.
    fn checked(
        &self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
    ) -> Result<wgpu::Buffer, DeviceError> {
        let buffer = self.device.buffer(buffer)?;
        let end = offset.checked_add(bytes);
        let aligned = offset.is_multiple_of(4) && bytes.is_multiple_of(4);
        if !aligned || end.is_none_or(|end| end > buffer.size()) {
            return Err(DeviceError::Failed(format!(
                "{bytes} bytes from byte {offset} on of a buffer of {} bytes",
                buffer.size()
            )));
        }
        Ok(buffer)
    }

    /// Submits the recorded commands.
    fn submit(&mut self) -> Result<(), DeviceError> {
        self.pass = None;
        let Some(mut encoder) = self.encoder.take() else { return Ok(()) };
        let device = self.device;
        let dispatches = std::mem::take(&mut self.recorded);
        let mut times = match &self.timer {
            Some(timer) if self.timing && dispatches > 0 => {
                let bytes = u64::from(dispatches) * 16;
                let download = Download::new(device, bytes)?;
                device.scoped(bytes, || {
                    encoder.resolve_query_set(
                        &timer.queries,
                        0..2 * dispatches,
                        &timer.resolved,
                        0,
                    );
                    encoder.copy_buffer_to_buffer(&timer.resolved, 0, download.buffer(), 0, bytes);
                })?;
                Some(download)
            }
            _ => None,
        };
        self.uploads.unmap();
        let submission = device.scoped(0, || {
            let submission = device.queue.submit([encoder.finish()]);
            self.uploads.recall();
            submission
        })?;
        if let Some(download) = &mut times {
            download.map(device, u64::from(dispatches) * 16)?;
        }
        let submitted = submission.clone();
        self.times.extend(times.map(|download| Times { download, submission, dispatches }));
        self.last = Some(submitted);
        Ok(())
    }

    /// Submits, and waits for everything.
    fn settle(&mut self, until: Deadline) -> Result<(), DeviceError> {
        self.submit()?;
        match self.last.clone() {
            Some(last) => self.device.wait(Some(last), until),
            None => self.device.poll(wgpu::PollType::Poll),
        }
    }

    fn timer(&mut self) -> Result<&Timer, DeviceError> {
        if self.timer.is_none() {
            let device = &self.device.device;
            let timer = self.device.scoped(0, || Timer {
                queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: None,
                    ty: wgpu::QueryType::Timestamp,
                    count: 2 * DISPATCHES,
                }),
                resolved: device.create_buffer(&wgpu::BufferDescriptor {
                    label: None,
                    size: u64::from(DISPATCHES) * 16,
                    usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                    mapped_at_creation: false,
                }),
            })?;
            self.timer = Some(timer);
        }
        self.timer.as_ref().ok_or_else(|| DeviceError::Failed("no timer".into()))
    }

    /// The pass for the next dispatch: the open one, or a new one if the dispatch is timed.
    fn pass(&mut self) -> Result<&mut wgpu::ComputePass<'static>, DeviceError> {
        if self.timing {
            let queries = self.timer()?.queries.clone();
            let first = 2 * self.recorded;
            let pass = self.encoder()?.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                    query_set: &queries,
                    beginning_of_pass_write_index: Some(first),
                    end_of_pass_write_index: Some(first + 1),
                }),
            });
            self.pass = Some(pass.forget_lifetime());
        } else if self.pass.is_none() {
            let pass = self.encoder()?.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            self.pass = Some(pass.forget_lifetime());
        }
        self.pass.as_mut().ok_or_else(|| DeviceError::Failed("no pass".into()))
    }

    fn record(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        let device = self.device;
        if work.args.len() * 4 > device.max_immediates as usize {
            return Err(DeviceError::Unsupported(format!(
                "kernel {} takes {} arguments, and the device at most {}",
                work.kernel.stem,
                work.args.len(),
                device.max_immediates / 4
            )));
        }
        let pipeline = device.pipeline(work)?;
        let group = bind_group(device, &pipeline, work)?;
        let groups = work.groups.max(1);
        let rows = groups.div_ceil(device.max_groups);
        let columns = groups.div_ceil(rows);
        device.scoped(0, || {
            let pass = self.pass()?;
            pass.set_pipeline(&pipeline.pipeline);
            pass.set_bind_group(0, &group, &[]);
            if !work.args.is_empty() {
                pass.set_immediates(0, bytemuck::cast_slice(work.args));
            }
            pass.dispatch_workgroups(columns, rows, 1);
            Ok(())
        })??;
        self.recorded += 1;
        if self.recorded == DISPATCHES { self.submit() } else { Ok(()) }
    }

    fn upload(
        &mut self,
        buffer: &wgpu::Buffer,
        mut at: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        let until = self.until();
        let mut left: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut parts = parts.iter().copied();
        let mut part: &[u8] = &[];
        while left > 0 {
            let put = self.uploads.put(self.device, &mut part, &mut parts, left)?;
            let Some((from, offset, bytes)) = put else {
                self.settle(until)?;
                continue;
            };
            self.encoder()?.copy_buffer_to_buffer(&from, offset, buffer, at, bytes);
            at += bytes;
            left -= bytes;
            if self.uploads.is_full() {
                self.submit()?;
            }
        }
        Ok(())
    }

    fn download(
        &mut self,
        buffer: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        let until = self.until();
        let mut on_the_way = VecDeque::new();
        let mut begun = 0;
        // The device copies one piece while we take out the one before it.
        loop {
            let is_last = begun == bytes;
            if !is_last {
                let piece = (bytes - begun).min(DOWNLOAD);
                let mut download = self.free_download(piece)?;
                let at = offset + begun;
                self.encoder()?.copy_buffer_to_buffer(buffer, at, download.buffer(), 0, piece);
                self.submit()?;
                download.map(self.device, piece)?;
                begun += piece;
                on_the_way.push_back((download, self.last.clone(), piece));
            }
            if on_the_way.len() > usize::from(!is_last) {
                let Some((mut download, Some(last), piece)) = on_the_way.pop_front() else {
                    continue;
                };
                download.read(self.device, last, piece, until, &mut *take)?;
                self.downloads.push(download);
            } else if is_last {
                return Ok(());
            }
        }
    }

    fn free_download(&mut self, bytes: u64) -> Result<Download, DeviceError> {
        match self.downloads.iter().position(|free| free.buffer().size() >= bytes) {
            Some(at) => Ok(self.downloads.swap_remove(at)),
            None => {
                // Buffers that are too small now would be too small again.
                self.downloads.clear();
                Download::new(self.device, bytes)
            }
        }
    }
}

fn bind_group(
    device: &WebGpuDevice,
    pipeline: &Arc<Pipeline>,
    work: &Dispatch<'_>,
) -> Result<wgpu::BindGroup, DeviceError> {
    let all = device.buffers.lock();
    let mut entries = Vec::with_capacity(work.buffers.len());
    for (binding, id) in work.buffers.iter().enumerate() {
        let buffer = all.get(&id.0);
        let buffer = buffer.ok_or_else(|| DeviceError::Failed("there is no such buffer".into()))?;
        let resource = buffer.as_entire_binding();
        entries.push(wgpu::BindGroupEntry { binding: binding as u32, resource });
    }
    device.scoped(0, || {
        device.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.layout,
            entries: &entries,
        })
    })
}

impl Queue for WebGpuQueue<'_> {
    fn write_parts(
        &mut self,
        buffer: BufferId,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        self.attempt(|queue| {
            let bytes = parts.iter().map(|part| part.len() as u64).sum();
            let buffer = queue.checked(buffer, offset, bytes)?;
            queue.upload(&buffer, offset, parts)
        })
    }

    fn write_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        (bytes, _): (usize, usize),
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceError> {
        self.uploads.allow_batches();
        let mut filled = std::mem::take(&mut self.filled);
        if filled.len() < bytes {
            filled.resize(bytes, 0);
        }
        fill(&mut filled[..bytes]);
        let written = self.write(buffer, offset, &filled[..bytes]);
        self.filled = filled;
        written
    }

    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.attempt(|queue| {
            let buffer = queue.checked(buffer, offset, bytes)?;
            if bytes > 0 {
                queue.encoder()?.clear_buffer(&buffer, offset, Some(bytes));
            }
            Ok(())
        })
    }

    fn copy(
        &mut self,
        (from, start): (BufferId, u64),
        (to, offset): (BufferId, u64),
        bytes: u64,
    ) -> Result<(), DeviceError> {
        self.attempt(|queue| {
            let from = queue.checked(from, start, bytes)?;
            let to = queue.checked(to, offset, bytes)?;
            if bytes > 0 {
                queue.encoder()?.copy_buffer_to_buffer(&from, start, &to, offset, bytes);
            }
            Ok(())
        })
    }

    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        self.attempt(|queue| queue.record(work))
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.attempt(Self::submit)
    }

    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        self.attempt(|queue| {
            let buffer = queue.checked(buffer, offset, bytes)?;
            queue.download(&buffer, offset, bytes, take)
        })
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.attempt(|queue| queue.settle(queue.until()))
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::Deadline(deadline) => self.deadline = deadline,
            Setting::Timing(on) => {
                // A whole submission is timed or not. If this fails, the next call that can return an error fails too.
                let _ = self.attempt(Self::submit);
                self.timing = on && self.device.limits.timing;
            }
            Setting::PinnedIsFixed(_) | Setting::BesideOthers => {}
        }
    }

    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError> {
        self.attempt(|queue| {
            let until = queue.until();
            let period = f64::from(queue.device.queue.get_timestamp_period());
            let mut all = Vec::new();
            while let Some(Times { mut download, submission, dispatches }) = queue.times.pop_front()
            {
                let bytes = u64::from(dispatches) * 16;
                download.read(queue.device, submission, bytes, until, |ticks| {
                    let tick = |at: usize| {
                        let bytes = ticks[at * 8..at * 8 + 8].try_into().unwrap_or_default();
                        u64::from_le_bytes(bytes)
                    };
                    all.extend((0..dispatches as usize).map(|i| {
                        let ticks = tick(2 * i + 1).saturating_sub(tick(2 * i));
                        Duration::from_nanos((ticks as f64 * period) as u64)
                    }));
                })?;
            }
            Ok(all)
        })
    }
}
