//! The kernel's side of a door, for a thread: the same steps on the same words as in `kernels/common/door.cl`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::files::{FileMode, MAX_PATH};
use super::layout::{
    Answer, CONSUMED, ENTRY, GENERATION, HANDLES, HandleState, LAST, LAST_GENERATION, PIECES,
    REQUESTS, Request, SHUT, TAKEN, USED, generation_of, number_of, op,
};
use super::options::RequestError;
use super::pools::ContentBuffer;
use super::server::Server;
use super::slots::HandleResources;
use crate::gpu::device::visible::VisibleWords;

/// The number of tries after which a thread reports a full table or a full ring.
const TRIES: usize = 4096;

/// Makes requests from a thread, as a kernel does. No call waits. Clones share the door.
///
/// Unlike a kernel, a client cannot read contents that are no longer its own: the host checks that.
#[derive(Clone)]
pub struct Client {
    server: Arc<Server>,
    counters: Arc<VisibleWords>,
}

/// A request of a client's, until [`Client::close`]. What is dropped without that stays in use, as that of a kernel
/// which ends without closing.
#[derive(Debug, PartialEq, Eq)]
pub struct Handle(u32);

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The host has not finished.
    Loading,
    /// The contents are loaded, the file is open, or there is room to write.
    Ready,
    /// The request failed.
    Error(RequestError),
}

/// Why no request was made. The same call may succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskError {
    /// All handles are in use.
    TableFull,
    /// The ring is full of requests that the host has not taken yet.
    RingFull,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TableFull => "all handles are in use",
            Self::RingFull => "the ring is full",
        })
    }
}

impl std::error::Error for AskError {}

impl Client {
    pub(super) fn new(server: Arc<Server>, counters: Arc<VisibleWords>) -> Self {
        Self { server, counters }
    }

    pub(super) fn counter(&self, at: usize) -> &AtomicU32 {
        &self.counters.get()[at]
    }

    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        &self.server.slots.words().get()[at]
    }

    /// Takes a handle that is free.
    fn claim(&self) -> Result<u32, AskError> {
        let mut full = 0;
        let mut at = 0;
        for _ in 0..TRIES {
            if full == HANDLES / 32 {
                break;
            }
            let word = self.counter(USED + at);
            let used = word.load(Ordering::Relaxed);
            if used == u32::MAX {
                at = (at + 1) % (HANDLES / 32);
                full += 1;
                continue;
            }
            let bit = used.trailing_ones();
            if word.fetch_or(1 << bit, Ordering::AcqRel) >> bit & 1 != 0 {
                continue;
            }
            let number = at * 32 + bit as usize;
            let count = self.counter(GENERATION + number);
            let mut next = 0;
            while next == 0 || next == LAST_GENERATION {
                let used = count.fetch_add(1, Ordering::Relaxed);
                next = used.wrapping_add(1) & LAST_GENERATION;
            }
            return Ok(next << 10 | number as u32);
        }
        Err(AskError::TableFull)
    }

    fn release(&self, handle: u32) {
        let number = number_of(handle);
        self.counter(USED + number / 32).fetch_and(!(1 << (number % 32)), Ordering::AcqRel);
    }

    /// Takes the next number of all requests; `None` if the ring is full.
    pub(super) fn number(&self) -> Option<u32> {
        let ring = self.server.slots.layout.ring;
        let (requests, known) = (self.counter(REQUESTS), self.counter(TAKEN));
        for _ in 0..TRIES {
            let mut taken = known.load(Ordering::Relaxed);
            let mut number = requests.load(Ordering::Relaxed);
            if number.wrapping_sub(taken) >= ring {
                taken = self.word(CONSUMED).load(Ordering::Acquire);
                known.store(taken, Ordering::Relaxed);
                number = requests.load(Ordering::Relaxed);
                let ahead = number.wrapping_sub(taken);
                if ahead >= ring && ahead as i32 > 0 {
                    return None;
                }
                if ahead >= ring {
                    continue;
                }
            }
            let next = number.wrapping_add(1);
            let order = Ordering::AcqRel;
            if requests.compare_exchange(number, next, order, Ordering::Relaxed).is_ok() {
                return Some(number);
            }
        }
        None
    }

    /// Puts a request into the ring.
    pub(super) fn ask(&self, request: Request) -> Result<(), AskError> {
        let number = self.number().ok_or(AskError::RingFull)?;
        self.put(number, request);
        Ok(())
    }

    /// Writes request `number` and then its turn.
    pub(super) fn put(&self, number: u32, request: Request) {
        let layout = self.server.slots.layout;
        let at = layout.request(number);
        let words: [u32; ENTRY] = bytemuck::cast(request);
        for (word, value) in words.iter().enumerate().take(LAST) {
            self.word(at + word).store(*value, Ordering::Relaxed);
        }
        fence(Ordering::Release);
        self.word(at + LAST).store(layout.turn(number), Ordering::Release);
        self.server.wake();
    }

    fn begin(&self, request: Request) -> Result<Handle, AskError> {
        let handle = self.claim()?;
        match self.ask(Request { handle, ..request }) {
            Ok(()) => Ok(Handle(handle)),
            Err(error) => {
                self.release(handle);
                Err(error)
            }
        }
    }

    /// Asks for a file by its path.
    ///
    /// # Errors
    /// [`AskError`], here and in the other calls that make requests.
    pub fn open(&self, path: &str, mode: FileMode) -> Result<Handle, AskError> {
        let handle = self.claim()?;
        let at = self.server.slots.layout.path(number_of(handle));
        let path = path.as_bytes();
        for (word, bytes) in path.chunks(4).take(MAX_PATH / 4).enumerate() {
            let mut value = [0; 4];
            value[..bytes.len()].copy_from_slice(bytes);
            self.word(at + word).store(u32::from_le_bytes(value), Ordering::Relaxed);
        }
        let len = path.len() as u32;
        let request =
            Request { op: op::OPEN, handle, file: mode as u32, path: len, ..Request::default() };
        match self.ask(request) {
            Ok(()) => Ok(Handle(handle)),
            Err(error) => {
                self.release(handle);
                Err(error)
            }
        }
    }

    /// Asks for `length` bytes of a file from byte `offset` on.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn read(&self, file: u32, offset: u64, length: u32) -> Result<Handle, AskError> {
        let length = length.into();
        self.begin(Request { op: op::READ, file, offset, length, ..Request::default() })
    }

    /// Asks for `length` bytes of a file from byte `offset` on, in pieces of `piece` bytes.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn stream(
        &self,
        file: u32,
        offset: u64,
        length: u64,
        piece: u32,
    ) -> Result<Handle, AskError> {
        self.begin(Request { op: op::STREAM, file, offset, length, piece, ..Request::default() })
    }

    /// Asks for room for `length` bytes, to be written to a file from byte `offset` on.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn write(&self, file: u32, offset: u64, length: u32) -> Result<Handle, AskError> {
        let length = length.into();
        self.begin(Request { op: op::WRITE, file, offset, length, ..Request::default() })
    }

    /// Gives up the oldest piece of a stream; another piece takes its place.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn next(&self, handle: &Handle) -> Result<(), AskError> {
        self.ask(Request { op: op::NEXT, handle: handle.0, ..Request::default() })
    }

    /// Writes the bytes in a write's room to the file.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn commit(&self, handle: &Handle) -> Result<(), AskError> {
        let status = self.word(self.server.slots.layout.answer(number_of(handle.0)));
        let generation = generation_of(handle.0);
        // The host changes the state only after it has been asked.
        status.store(HandleState::Loading.status(generation), Ordering::Relaxed);
        let asked = self.ask(Request { op: op::COMMIT, handle: handle.0, ..Request::default() });
        if asked.is_err() {
            status.store(HandleState::Ready.status(generation), Ordering::Relaxed);
        }
        asked
    }

    /// The state of a request.
    pub fn status(&self, handle: &Handle) -> Status {
        let at = self.server.slots.layout.answer(number_of(handle.0));
        let status = self.word(at).load(Ordering::Acquire);
        // To a process that was forked the door is shut.
        if status == SHUT || !self.server.is_here() {
            return Status::Error(RequestError::Failed);
        }
        if status >> 3 != generation_of(handle.0) {
            return Status::Loading;
        }
        match status & 7 {
            state if state == HandleState::Ready as u32 => Status::Ready,
            state if state == HandleState::Error as u32 => {
                let error = RequestError::of_code(self.answer(handle).error);
                Status::Error(error.unwrap_or(RequestError::Failed))
            }
            _ => Status::Loading,
        }
    }

    fn answer(&self, handle: &Handle) -> Answer {
        let slots = &self.server.slots;
        bytemuck::cast(slots.words().read::<ENTRY>(slots.layout.answer(number_of(handle.0))))
    }

    /// Bytes present, or room for that many.
    pub fn bytes(&self, handle: &Handle) -> u64 {
        self.answer(handle).bytes
    }

    /// Length of the file that was opened, or of the stream, in bytes.
    pub fn total(&self, handle: &Handle) -> u64 {
        self.answer(handle).total
    }

    /// The number of a file that was opened.
    pub fn file(&self, handle: &Handle) -> u32 {
        self.answer(handle).file
    }

    /// The contents of a handle that is ready; empty otherwise.
    pub fn contents(&self, handle: &Handle) -> Vec<u8> {
        let Answer { place, bytes, .. } = self.answer(handle);
        let held = self.server.slots.with(handle.0, |held| match held {
            HandleResources::Contents(ContentBuffer::Host(chunk)) if chunk.start() == place => {
                Some(chunk.read(0..bytes as usize))
            }
            _ => None,
        });
        held.flatten().unwrap_or_default()
    }

    /// The number of a stream's pieces loaded so far.
    pub fn pieces(&self, handle: &Handle) -> u32 {
        let at = self.server.slots.layout.answer(number_of(handle.0)) + PIECES;
        self.word(at).load(Ordering::Acquire)
    }

    /// Piece `number` of a stream, if it has been loaded and not given up; empty otherwise.
    pub fn piece(&self, handle: &Handle, number: u32) -> Vec<u8> {
        let Answer { piece, window, place, .. } = self.answer(handle);
        let held = self.server.slots.with(handle.0, |held| {
            let HandleResources::Stream(stream) = held else { return None };
            let first = stream.allowed - stream.buffers.len() as u64;
            let number = u64::from(number);
            if number < first || number >= stream.loaded || window == 0 {
                return None;
            }
            let slot = number % u64::from(window);
            let Some(Some(ContentBuffer::Host(chunk))) = stream.buffers.get(slot as usize) else {
                return None;
            };
            if chunk.start() != place + slot * u64::from(piece) {
                return None;
            }
            let len = stream.piece.min(stream.total - number * stream.piece);
            Some(chunk.read(0..len as usize))
        });
        held.flatten().unwrap_or_default()
    }

    /// Puts `bytes` into the room of a handle that is ready to be written, from byte `offset` of the room on; false if
    /// they do not fit, or if there is no such room.
    pub fn fill(&self, handle: &Handle, offset: usize, bytes: &[u8]) -> bool {
        let filled = self.server.slots.with(handle.0, |held| match held {
            HandleResources::Writing(writing) => match &writing.buffer {
                ContentBuffer::Host(chunk) => chunk.write(offset, bytes),
                ContentBuffer::Device(_) => false,
            },
            _ => false,
        });
        filled.unwrap_or(false)
    }

    /// Gives a handle back, with its contents, whatever its state.
    pub fn close(&self, handle: Handle) {
        let at = self.server.slots.layout.answer(number_of(handle.0)) + LAST;
        self.word(at).store(generation_of(handle.0), Ordering::Release);
        self.release(handle.0);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}
