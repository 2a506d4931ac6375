//! State that a device shares with its queues.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use super::Driver;
use super::shared_pinned::SharedPinned;
use super::staging::{PIECES, Piece, Uploads};
use crate::gpu::device::program::ProgramKey;
use crate::gpu::device::{BufferId, DeviceError};
use crate::sync::{Mutex, RwLock};

/// The state that a device shares with its queues.
pub(in crate::gpu::device) struct Shared<D: Driver> {
    buffers: RwLock<HashMap<BufferId, SizedBuffer<D>>>,
    /// Pinned memory that callers hold: start address to end address.
    pinned: RwLock<BTreeMap<usize, usize>>,
    next: AtomicU64,
    given_up: Mutex<GivenUp<D>>,
    /// Pinned memory for any queue with much to upload.
    pub(super) lent: SharedPinned<D>,
    // Dropped last, because the objects above belong to it.
    pub driver: D,
}

/// A buffer.
pub(in crate::gpu::device) struct SizedBuffer<D: Driver> {
    pub buffer: Arc<D::Buffer>,
    pub bytes: u64,
}

impl<D: Driver> Clone for SizedBuffer<D> {
    fn clone(&self) -> Self {
        Self { buffer: Arc::clone(&self.buffer), bytes: self.bytes }
    }
}

/// Running commands, and the objects they use.
pub(in crate::gpu::device) struct InFlight<D: Driver> {
    /// The newest command. The stream is in order, so when this has ended, all have.
    pub last: Option<D::Event>,
    pub(super) uploads: Uploads<D>,
    /// For data that is filled in place, if the piece is not [lent](SharedPinned).
    pub(super) in_place: Option<Piece<D>>,
    /// Length of the longest piece that was lent.
    pub(super) longest: usize,
    pub(super) downloads: Vec<Piece<D>>,
    /// The range being copied to the first download piece ahead of its read: buffer, offset and bytes.
    pub(super) ahead: Option<(BufferId, u64, u64)>,
    /// The most pieces of pinned memory to make in each direction.
    pub(super) max_pieces: usize,
    /// Whether kernels run beside those of other queues.
    pub(super) is_beside_others: bool,
    /// Dispatches whose times have not been read.
    pub(super) timed: VecDeque<D::Event>,
    pub(super) kernels: HashMap<(ProgramKey, &'static str), D::Kernel>,
    pub(super) stream: Arc<D::Stream>,
    /// Whether the stream can time kernels.
    pub(super) is_timing: bool,
}

impl<D: Driver> InFlight<D> {
    pub fn new(stream: Arc<D::Stream>) -> Self {
        Self {
            last: None,
            uploads: Uploads::default(),
            in_place: None,
            longest: 0,
            downloads: Vec::new(),
            ahead: None,
            max_pieces: PIECES,
            is_beside_others: false,
            timed: VecDeque::new(),
            kernels: HashMap::new(),
            stream,
            is_timing: false,
        }
    }

    /// A command that is running in `stream`.
    #[cfg(feature = "opencl")]
    pub fn unfinished(stream: Arc<D::Stream>, last: D::Event) -> Self {
        Self { last: Some(last), ..Self::new(stream) }
    }

    /// Whether all commands have ended, successfully or not.
    pub fn has_ended(&self, driver: &D) -> bool {
        self.last.as_ref().is_none_or(|last| driver.has_ended(last).unwrap_or(true))
    }
}

/// Abandoned work that may still be running, and the buffers it may use. Releasing these could block forever, so they
/// stay until the work has ended.
struct GivenUp<D: Driver> {
    work: Vec<InFlight<D>>,
    buffers: Vec<SizedBuffer<D>>,
    /// Pinned memory that it may use.
    pieces: Vec<Piece<D>>,
}

impl<D: Driver> Default for GivenUp<D> {
    fn default() -> Self {
        Self { work: Vec::new(), buffers: Vec::new(), pieces: Vec::new() }
    }
}

impl<D: Driver> Shared<D> {
    pub fn new(driver: D) -> Self {
        Self {
            buffers: RwLock::default(),
            pinned: RwLock::default(),
            next: AtomicU64::new(1),
            given_up: Mutex::default(),
            lent: SharedPinned::default(),
            driver,
        }
    }

    /// Adds a buffer and returns its name.
    pub fn enter(&self, memory: SizedBuffer<D>) -> BufferId {
        let id = BufferId(self.next.fetch_add(1, Ordering::Relaxed));
        self.buffers.write().insert(id, memory);
        id
    }

    /// Looks up a buffer and checks that it holds `bytes` bytes from `offset` on.
    pub fn memory(
        &self,
        id: BufferId,
        offset: u64,
        bytes: u64,
    ) -> Result<SizedBuffer<D>, DeviceError> {
        let buffers = self.buffers.read();
        let Some(memory) = buffers.get(&id) else {
            return Err(DeviceError::Failed(format!("there is no buffer {}", id.0)));
        };
        match offset.checked_add(bytes) {
            Some(end) if end <= memory.bytes => Ok(memory.clone()),
            _ => Err(DeviceError::Failed(format!(
                "{bytes} bytes from byte {offset} on are not within a buffer of {} bytes",
                memory.bytes,
            ))),
        }
    }

    /// The size of a buffer in bytes, if there is such a buffer.
    pub fn buffer_bytes(&self, id: BufferId) -> Option<u64> {
        Some(self.memory(id, 0, 0).ok()?.bytes)
    }

    /// Releases a buffer, or keeps it while abandoned work may use it.
    pub fn free(&self, id: BufferId) {
        let memory = self.buffers.write().remove(&id);
        let mut given_up = self.given_up();
        if !given_up.work.is_empty() {
            given_up.buffers.extend(memory);
        }
    }

    /// Notes that a caller now holds pinned memory at `range`.
    pub(super) fn enter_pinned(&self, range: Range<usize>) {
        let mut pinned = self.pinned.write();
        pinned.insert(range.start, range.end);
    }

    /// Notes that the caller has released that memory.
    pub(super) fn leave_pinned(&self, range: Range<usize>) {
        self.pinned.write().remove(&range.start);
    }

    /// Whether all of `bytes` is in pinned memory that a caller holds.
    pub(super) fn is_pinned(&self, bytes: &[u8]) -> bool {
        let pinned = self.pinned.read();
        let start = bytes.as_ptr() as usize;
        let before = pinned.range(..=start).next_back();
        before.is_some_and(|(_, end)| start + bytes.len() <= *end)
    }

    /// The number of pieces for queues to borrow that no queue holds.
    #[cfg(all(test, feature = "opencl"))]
    pub fn lent_pieces(&self) -> usize {
        self.lent.pieces()
    }

    /// Whether abandoned work is still running.
    pub fn has_given_up(&self) -> bool {
        !self.given_up().work.is_empty()
    }

    /// Keeps `work`, and every buffer freed from now on, until `work` has ended.
    pub fn give_up(&self, work: InFlight<D>) {
        let mut given_up = self.given_up();
        given_up.pieces.extend(self.lent.leave_to(&work.stream));
        given_up.work.push(work);
    }

    /// The same for work that may use `memory`, which has no name.
    #[cfg(feature = "opencl")]
    pub fn give_up_with(&self, work: InFlight<D>, memory: SizedBuffer<D>) {
        let mut given_up = self.given_up();
        given_up.work.push(work);
        given_up.buffers.push(memory);
    }

    fn given_up(&self) -> MutexGuard<'_, GivenUp<D>> {
        let mut given_up = self.given_up.lock();
        let has_ended = |work: &InFlight<D>| work.has_ended(&self.driver);
        if !given_up.work.is_empty() && given_up.work.iter().all(has_ended) {
            *given_up = GivenUp::default();
        }
        given_up
    }

    /// Leaks the device if abandoned work is still running, because releasing it may wait for that work.
    pub fn leak_if_busy(self: &Arc<Self>) {
        if self.has_given_up() {
            std::mem::forget(Arc::clone(self));
        }
    }
}

impl<D: Driver> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("limits", self.driver.limits()).finish_non_exhaustive()
    }
}
