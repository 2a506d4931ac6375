//! The threads of a door: one takes requests from the ring, and workers serve them.
//!
//! The first one serves small reads of plain files itself, if the system has the bytes in memory. Everything else goes
//! to the workers. It spins for [`SPIN`] after the last request. Then it sleeps until the device rings the bell, or
//! until a thread that plays the kernel wakes it. On devices without a bell, and while nobody
//! [listens](super::Door::listen) for it, it looks again after pauses that double up to [`MAX_PAUSE`].

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::background::Background;
use super::files::{FileMode, Files, OpenFile};
use super::layout::{Answer, Request, op};
use super::options::{DoorStatistics, RequestError};
use super::pools::{
    ContentBuffer, ContentPools, Load, Uploader, load_contents, load_decoded, load_plain,
};
use super::slots::{HandleResources, Slots, Writing};
use crate::gpu::device::Bell;
use crate::process::Owner;
use crate::sync::{Condvar, Mutex};

/// The time that the first thread spins after the last request.
pub(super) const SPIN: Duration = Duration::from_micros(200);
/// The longest pause between two looks on a device without a bell. The looks then take about 0.1% of a core.
pub(super) const MAX_PAUSE: Duration = Duration::from_millis(5);
/// The pause while workers are busy: new requests are likely.
const BUSY_PAUSE: Duration = Duration::from_micros(50);
/// A request that a kernel has begun but not completed is given up after this time, and after `STALL_LOOKS` looks.
const STALL: Duration = Duration::from_secs(1);
const STALL_LOOKS: u32 = 100;
/// The same where reading the ring is slow: looks are this far apart, and this many are needed.
const SLOW_LOOK: Duration = Duration::from_millis(100);
const SLOW_LOOKS: u32 = 10;
/// The most tasks that wait for workers. Kernels that keep to the rules have at most one for each handle.
const MAX_TASKS: usize = 4 * super::layout::HANDLES;

/// The state that a door's threads share.
pub(super) struct Server {
    pub(super) slots: Slots,
    pub(super) files: Files,
    pub(super) pools: ContentPools,
    tasks: Mutex<VecDeque<Task>>,
    has_tasks: Condvar,
    /// Requests that the first thread has taken.
    consumed: AtomicU32,
    /// Tasks that wait or run.
    in_flight: AtomicUsize,
    /// Reads in the background.
    pub(super) background: Arc<Background>,
    is_stopped: AtomicBool,
    pub(super) workers: usize,
    waker: Waker,
    /// The number of listeners for the bell.
    listeners: AtomicUsize,
    /// The first thread.
    first: OnceLock<Thread>,
    pub(super) counts: Counts,
    process: Owner,
}

/// What ends the sleep of the first thread.
pub(super) enum Waker {
    /// Nobody.
    None,
    /// Threads that play the kernel, when they ask.
    Clients,
    /// The device, while there is a listener.
    Bell(Box<dyn Bell>),
}

/// A request for the workers.
pub(super) struct Task {
    pub(super) request: Request,
    /// The kernel's write. It is taken out of the handle at once, so that the kernel may close the handle.
    pub(super) writing: Option<Writing>,
}

/// The numbers of [`DoorStatistics`].
#[derive(Default)]
pub(super) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) abandoned: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_written: AtomicU64,
    pub(super) sleeps: AtomicU64,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// The first thread's state between two looks at an empty ring.
struct Waiting {
    /// When the last request came.
    last: Instant,
    pause: Duration,
    /// Since when the next request has been incomplete, and how often that was seen.
    stalled: Option<(Instant, u32)>,
    /// When the thread last checked for that.
    looked: Instant,
    /// Whether the bell has rung since the last request, and whether it works at all.
    has_rung: bool,
    is_bell_broken: bool,
}

impl Waiting {
    fn new() -> Self {
        let (pause, last) = (Duration::ZERO, Instant::now());
        let looked = last;
        Self { last, pause, stalled: None, looked, has_rung: false, is_bell_broken: false }
    }
}

impl Server {
    pub(super) fn new(
        slots: Slots,
        files: Files,
        pools: ContentPools,
        workers: usize,
        waker: Waker,
    ) -> Self {
        Self {
            slots,
            files,
            pools,
            tasks: Mutex::default(),
            has_tasks: Condvar::new(),
            consumed: AtomicU32::new(0),
            in_flight: AtomicUsize::new(0),
            background: Arc::default(),
            is_stopped: AtomicBool::new(false),
            workers,
            waker,
            listeners: AtomicUsize::new(0),
            first: OnceLock::new(),
            counts: Counts::default(),
            process: Owner::here(),
        }
    }

    /// Whether the threads of the door are this process's.
    pub(super) fn is_here(&self) -> bool {
        self.process.is_here()
    }

    /// Tells all threads to end soon, and kernels that the door is shut.
    pub(super) fn stop(&self) {
        let tasks = self.tasks.lock();
        self.is_stopped.store(true, Ordering::Release);
        drop(tasks);
        self.has_tasks.notify_all();
        self.wake();
    }

    /// Ends a pause of the first thread. If there is a bell, only the bell ends its sleep.
    pub(super) fn wake(&self) {
        if let Some(first) = self.first.get() {
            first.unpark();
        }
    }

    pub(super) fn has_bell(&self) -> bool {
        matches!(self.waker, Waker::Bell(_))
    }

    /// Makes the first thread sleep until the bell rings.
    pub(super) fn listen(&self) {
        self.listeners.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    /// Takes a [`Self::listen`] back. Returns whether it was the last one; then the bell has to be rung, because the
    /// first thread may be asleep.
    pub(super) fn listen_no_more(&self) -> bool {
        self.listeners.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(super) fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::Acquire) > 0
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    pub(super) fn statistics(&self) -> DoorStatistics {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        DoorStatistics {
            requests: of(&counts.requests),
            failed: of(&counts.failed),
            malformed: of(&counts.malformed),
            abandoned: of(&counts.abandoned),
            bytes_read: of(&counts.bytes_read),
            bytes_written: of(&counts.bytes_written),
            sleeps: of(&counts.sleeps),
        }
    }

    // ---- The first thread
    // --------------------------------------------------------------------------------------------

    /// Takes requests until the door is shut, from request `number` on. Numbers wrap around.
    pub(super) fn watch(&self, mut number: u32) {
        let mut waiting = Waiting::new();
        let _ = self.first.set(thread::current());
        while !self.is_stopped() {
            if let Some(request) = self.slots.request(number) {
                number = number.wrapping_add(1);
                self.consume(number);
                add(&self.counts.requests, 1);
                let take = AssertUnwindSafe(|| self.take(&request));
                if catch_unwind(take).is_err() {
                    self.answer(&request, Err(RequestError::Failed));
                }
                let is_bell_broken = waiting.is_bell_broken;
                waiting = Waiting { is_bell_broken, ..Waiting::new() };
            } else if waiting.last.elapsed() < SPIN {
                std::hint::spin_loop();
            } else if self.is_stalled(number, &mut waiting) {
                number = number.wrapping_add(1);
                self.consume(number);
                add(&self.counts.abandoned, 1);
            } else {
                self.pause(number, &mut waiting);
            }
        }
        self.slots.shut();
    }

    fn consume(&self, count: u32) {
        self.consumed.store(count, Ordering::Release);
        self.slots.consumed(count);
    }

    /// Whether request `number` was begun long ago and never completed, because the kernel died.
    fn is_stalled(&self, number: u32, waiting: &mut Waiting) -> bool {
        // A look reads many entries.
        let is_slow = self.slots.words().is_slow_to_read();
        if is_slow && waiting.looked.elapsed() < SLOW_LOOK {
            return false;
        }
        waiting.looked = Instant::now();
        let needed = if is_slow { SLOW_LOOKS } else { STALL_LOOKS };
        let is_begun = waiting.has_rung || self.slots.has_later(number);
        let Some((since, looks)) = waiting.stalled.filter(|_| is_begun) else {
            waiting.stalled = is_begun.then(|| (Instant::now(), 0));
            return false;
        };
        let is_stalled = since.elapsed() >= STALL && looks >= needed;
        waiting.stalled = (!is_stalled).then_some((since, looks + 1));
        if is_stalled {
            waiting.has_rung = false;
        }
        is_stalled
    }

    /// Sleeps: until the bell rings or a thread that plays the kernel asks, if nothing else is to be done; else for a
    /// moment.
    fn pause(&self, number: u32, waiting: &mut Waiting) {
        add(&self.counts.sleeps, 1);
        let is_busy = self.in_flight.load(Ordering::Acquire) > 0 || self.background.count() > 0;
        match &self.waker {
            Waker::Bell(bell)
                if self.has_listeners()
                    && !is_busy
                    && !waiting.has_rung
                    && !waiting.is_bell_broken =>
            {
                self.slots.sweep();
                match bell.wait(number.wrapping_add(1)) {
                    Ok(()) => {
                        waiting.has_rung = true;
                        waiting.last = Instant::now();
                    }
                    Err(_) => waiting.is_bell_broken = true,
                }
            }
            _ => {
                let most = if is_busy { BUSY_PAUSE } else { MAX_PAUSE };
                let pause = (2 * waiting.pause).clamp(Duration::from_micros(20), most);
                if pause == MAX_PAUSE && waiting.pause < pause {
                    self.slots.sweep();
                }
                waiting.pause = pause;
                let is_woken = matches!(self.waker, Waker::Clients);
                if is_woken && pause == MAX_PAUSE && waiting.stalled.is_none() {
                    thread::park();
                } else {
                    thread::park_timeout(pause);
                }
            }
        }
    }

    /// Serves a request, or gives it to the workers. Even an invalid request has no effect but an answer to a handle.
    fn take(&self, request: &Request) {
        let is_known = match request.op {
            // These begin the use of a handle.
            op::OPEN | op::READ | op::STREAM | op::WRITE => {
                let is_new = self.slots.begin(request.handle);
                if is_new && !self.serve_at_once(request) {
                    self.queue(*request, None);
                }
                is_new
            }
            op::NEXT => self.allow(request),
            op::COMMIT => self.take_writing(request),
            op::NOTHING => true,
            _ => false,
        };
        if !is_known {
            add(&self.counts.malformed, 1);
        }
    }

    fn queue(&self, request: Request, writing: Option<Writing>) {
        let mut tasks = self.tasks.lock();
        if tasks.len() >= MAX_TASKS {
            drop(tasks);
            return self.answer(&request, Err(RequestError::Full));
        }
        tasks.push_back(Task { request, writing });
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        drop(tasks);
        self.has_tasks.notify_one();
    }

    /// Reads a small part of a plain file, if the system has it in memory. Returns whether the request is served.
    fn serve_at_once(&self, request: &Request) -> bool {
        if request.op != op::READ || request.length > self.pools.small {
            return false;
        }
        let Ok(file) = self.files.get(request.file) else { return false };
        if file.mode == FileMode::Contents {
            return false;
        }
        let Some(ContentBuffer::Host(mut chunk)) = self.take_host_buffer(request.length) else {
            return false;
        };
        let bytes = chunk.bytes_mut(0..request.length as usize);
        let Some(read) = file.read_at_once(request.offset, bytes) else { return false };
        self.answer(
            request,
            read.map(|()| self.contents(ContentBuffer::Host(chunk), request.length)),
        );
        true
    }

    /// Lets a stream load one more piece. False if there is no such stream.
    fn allow(&self, request: &Request) -> bool {
        let allowed = self.slots.with(request.handle, |held| {
            let HandleResources::Stream(stream) = held else { return None };
            // A kernel can only give up pieces that it has got.
            if stream.allowed >= stream.loaded + stream.buffers.len() as u64 {
                return None;
            }
            stream.allowed += 1;
            let starts = !stream.is_running && stream.next().is_some();
            stream.is_running |= starts;
            Some(starts)
        });
        let Some(Some(starts)) = allowed else { return false };
        if starts {
            self.queue(*request, None);
        }
        true
    }

    /// Queues the write of a room that a kernel has filled. Returns false if the kernel got no room.
    fn take_writing(&self, request: &Request) -> bool {
        let taken = self.slots.with(request.handle, |held| match std::mem::take(held) {
            HandleResources::Writing(writing) => Some(writing),
            other => {
                *held = other;
                None
            }
        });
        let writing = taken.flatten();
        let is_known = writing.is_some();
        if is_known {
            self.queue(*request, writing);
        }
        is_known
    }

    // ---- What both kinds of threads use
    // ------------------------------------------------------------------------------

    /// Tells the kernel the outcome of its request.
    pub(super) fn answer(
        &self,
        request: &Request,
        outcome: Result<(HandleResources, Answer), RequestError>,
    ) {
        match &outcome {
            Ok((HandleResources::Contents(_), answer)) => {
                add(&self.counts.bytes_read, answer.bytes)
            }
            Ok(_) => {}
            Err(_) => add(&self.counts.failed, 1),
        }
        self.slots.deliver(request.handle, outcome);
    }

    /// The answer that `len` bytes of contents are in `room`.
    pub(super) fn contents(&self, buffer: ContentBuffer, len: u64) -> (HandleResources, Answer) {
        let (place, pool) = buffer.place();
        let answer = Answer { place, pool, bytes: len, total: len, ..Answer::default() };
        (HandleResources::Contents(buffer), answer)
    }

    /// Takes room for contents. If there is none, first frees the contents of closed handles.
    pub(super) fn take_buffer(&self, bytes: u64, piece: u64) -> Option<ContentBuffer> {
        let take = || self.pools.take(bytes, piece);
        take().or_else(|| self.slots.sweep().then(take).flatten())
    }

    pub(super) fn take_host_buffer(&self, bytes: u64) -> Option<ContentBuffer> {
        let take = || self.pools.take_on_host(bytes);
        take().or_else(|| self.slots.sweep().then(take).flatten())
    }

    // ---- Workers
    // -----------------------------------------------------------------------------------------------------

    /// Serves requests until the door is shut.
    pub(super) fn work(self: &Arc<Self>, mut uploader: Option<Uploader<'_>>) {
        let mut batch = Vec::new();
        while self.next_tasks(&mut batch) {
            let count = batch.len();
            let serve = AssertUnwindSafe(|| self.serve(&mut batch, uploader.as_mut()));
            if catch_unwind(serve).is_err() {
                for task in &batch {
                    self.answer(&task.request, Err(RequestError::Failed));
                }
            }
            self.in_flight.fetch_sub(count, Ordering::AcqRel);
        }
    }

    /// Waits for tasks: one, or several reads of one archive. False when the door is shut.
    fn next_tasks(&self, batch: &mut Vec<Task>) -> bool {
        batch.clear();
        let mut tasks = self.tasks.lock();
        while !self.is_stopped() {
            if let Some(first) = tasks.pop_front() {
                let Request { op, file, .. } = first.request;
                batch.push(first);
                let is_archive = || {
                    let file = self.files.get(file);
                    file.is_ok_and(|file| file.mode == FileMode::Contents)
                };
                if op == op::READ && is_archive() {
                    // Divides the tasks evenly among the workers.
                    let share = (tasks.len() / self.workers).min(MAX_BATCH);
                    while batch.len() <= share
                        && let Some(Task { request: next, .. }) = tasks.front()
                        && (next.op, next.file) == (op::READ, file)
                    {
                        batch.extend(tasks.pop_front());
                    }
                }
                return true;
            }
            tasks = self.has_tasks.wait(tasks);
        }
        false
    }

    /// Loads a range of a file, or of an archive's contents, into `room`.
    pub(super) fn load_piece(
        &self,
        file: &Arc<OpenFile>,
        (offset, len): (u64, u64),
        buffer: &mut ContentBuffer,
        uploader: Option<&mut Uploader<'_>>,
    ) -> Result<(), RequestError> {
        if file.mode != FileMode::Contents {
            return load_plain(file, offset, len, buffer, uploader);
        }
        let archive = self.files.archive(file).map_err(|failed| file.noted(failed))?;
        if buffer.is_on_device() && !file.is_prepared() {
            return load_decoded(file, &archive, offset, len, buffer, uploader);
        }
        load_contents(file, &archive, &mut [Load { offset, len, buffer }])
    }
}

/// The most reads of an archive that a worker does at once, besides the first.
const MAX_BATCH: usize = 63;
