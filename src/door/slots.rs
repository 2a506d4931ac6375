//! The host's record of each handle, and the words that tell the kernel about it.

use std::sync::{Arc, MutexGuard};

use super::files::OpenFile;
use super::layout::{
    Answer, CONSUMED, ENTRY, HANDLES, HandleState, LAST, LAST_GENERATION, Layout, PATH, PIECES,
    RING, Request, SHUT, THIS_VERSION, VERSION, generation_of, number_of,
};
use super::options::RequestError;
use super::pools::ContentBuffer;
use crate::gpu::device::visible::VisibleWords;
use crate::sync::Mutex;

/// The control memory, and the host's own knowledge of the handles.
pub(super) struct Slots {
    words: VisibleWords,
    pub(super) layout: Layout,
    slots: Vec<Mutex<HandleSlot>>,
}

/// A handle's state on the host.
#[derive(Default)]
pub(super) struct HandleSlot {
    /// The number of the handle's uses, as the kernel counts; 0 before the first one.
    pub(super) generation: u32,
    pub(super) held: HandleResources,
}

/// The host's resources for a handle.
#[derive(Default)]
pub(super) enum HandleResources {
    #[default]
    Nothing,
    /// Contents that the kernel is using.
    Contents(ContentBuffer),
    /// Room that the kernel fills with the bytes to write.
    Writing(Writing),
    Stream(Stream),
}

/// A write that waits for the kernel.
pub(super) struct Writing {
    pub(super) file: Arc<OpenFile>,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) buffer: ContentBuffer,
}

/// A stream.
pub(super) struct Stream {
    pub(super) file: Arc<OpenFile>,
    pub(super) offset: u64,
    pub(super) total: u64,
    /// Bytes of a piece.
    pub(super) piece: u64,
    /// The window. A piece is taken out while it is being loaded.
    pub(super) buffers: Vec<Option<ContentBuffer>>,
    /// The number of loaded pieces, and of those that may be loaded so far.
    pub(super) loaded: u64,
    pub(super) allowed: u64,
    /// Whether a worker is loading pieces.
    pub(super) is_running: bool,
}

impl Stream {
    /// The next piece to load: its number, its place in the file, and its length. `None` if there is none, or no room
    /// for it.
    pub(super) fn next(&self) -> Option<(u64, u64, u64)> {
        let start = self.loaded.checked_mul(self.piece).filter(|start| *start < self.total)?;
        let len = self.piece.min(self.total - start);
        (self.loaded < self.allowed).then_some((self.loaded, self.offset + start, len))
    }
}

impl Slots {
    pub(super) fn new(words: VisibleWords, layout: Layout) -> Self {
        let slots = std::iter::repeat_with(Mutex::default).take(HANDLES).collect();
        let all = Self { words, layout, slots };
        all.words.set(VERSION, THIS_VERSION);
        all.words.tell(RING, layout.ring);
        all
    }

    /// The control memory, as kernels see it.
    pub(super) fn words(&self) -> &VisibleWords {
        &self.words
    }

    /// Request `number`, if it is there.
    pub(super) fn request(&self, number: u32) -> Option<Request> {
        let at = self.layout.request(number);
        let turn = self.words.see(at + LAST);
        (turn == self.layout.turn(number)).then(|| bytemuck::cast(self.words.read::<ENTRY>(at)))
    }

    /// Whether one of the next requests after `number` is there.
    pub(super) fn has_later(&self, number: u32) -> bool {
        (1..128).any(|after| self.request(number.wrapping_add(after)).is_some())
    }

    /// Tells kernels that requests up to `count` have been taken.
    pub(super) fn consumed(&self, count: u32) {
        self.words.tell(CONSUMED, count);
    }

    /// The path of a handle, of `len` bytes; `None` if it is too long.
    pub(super) fn path(&self, handle: u32, len: u32) -> Option<Vec<u8>> {
        let words: [u32; PATH] = self.words.read(self.layout.path(number_of(handle)));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.get(..len as usize).map(Into::into)
    }

    fn slot(&self, handle: u32) -> MutexGuard<'_, HandleSlot> {
        self.slots[number_of(handle)].lock()
    }

    /// Whether the kernel has closed the handle.
    pub(super) fn is_closed(&self, handle: u32) -> bool {
        let at = self.layout.answer(number_of(handle)) + LAST;
        self.words.see(at) == generation_of(handle)
    }

    /// Notes that a kernel has begun to use `handle`, and frees the handle's earlier contents. Returns false if the
    /// handle cannot be new: it is already in use, or its generation is invalid.
    pub(super) fn begin(&self, handle: u32) -> bool {
        let generation = generation_of(handle);
        let mut slot = self.slot(handle);
        if generation == 0 || generation >= LAST_GENERATION || slot.generation == generation {
            return false;
        }
        *slot = HandleSlot { generation, held: HandleResources::Nothing };
        true
    }

    /// Calls `with` with the resources of `handle`, unless the kernel has closed it or uses it for something else by
    /// now.
    pub(super) fn with<T>(
        &self,
        handle: u32,
        with: impl FnOnce(&mut HandleResources) -> T,
    ) -> Option<T> {
        let mut slot = self.slot(handle);
        if slot.generation != generation_of(handle) || slot.generation == 0 {
            return None;
        }
        Some(with(&mut slot.held))
    }

    /// Delivers the result of a request to `handle`, or the error, and tells the kernel. Sets the status in `answer`.
    /// If the handle is closed, frees the result.
    pub(super) fn deliver(
        &self,
        handle: u32,
        outcome: Result<(HandleResources, Answer), RequestError>,
    ) {
        let mut slot = self.slot(handle);
        let generation = generation_of(handle);
        if slot.generation != generation || generation == 0 {
            return;
        }
        let (held, answer, state) = match outcome {
            Ok((held, answer)) => (held, answer, HandleState::Ready),
            Err(error) => {
                let answer = Answer { error: error as u32, ..Answer::default() };
                (HandleResources::Nothing, answer, HandleState::Error)
            }
        };
        if self.is_closed(handle) {
            slot.held = HandleResources::Nothing;
            return self.set_status(handle, HandleState::Closed);
        }
        slot.held = held;
        let words: [u32; ENTRY] = bytemuck::cast(answer);
        let at = self.layout.answer(number_of(handle));
        // Skips the status, and the word that only kernels write.
        for (word, value) in words.iter().enumerate().take(LAST).skip(1) {
            self.words.set(at + word, *value);
        }
        self.set_status(handle, state);
    }

    /// Tells the kernel that the first `count` pieces of a stream have been loaded. The slot is locked.
    pub(super) fn set_pieces(&self, handle: u32, count: u32) {
        self.words.tell(self.layout.answer(number_of(handle)) + PIECES, count);
    }

    /// Tells the kernel the state of `handle`. The slot is locked.
    pub(super) fn set_status(&self, handle: u32, state: HandleState) {
        let at = self.layout.answer(number_of(handle));
        self.words.tell(at, state.status(generation_of(handle)));
    }

    /// Frees the resources of handles that kernels have closed. Returns whether there were any.
    pub(super) fn sweep(&self) -> bool {
        let mut has_freed = false;
        for (number, slot) in self.slots.iter().enumerate() {
            let mut slot = slot.lock();
            let handle = slot.generation << 10 | number as u32;
            if matches!(slot.held, HandleResources::Nothing) || !self.is_closed(handle) {
                continue;
            }
            slot.held = HandleResources::Nothing;
            self.set_status(handle, HandleState::Closed);
            has_freed = true;
        }
        has_freed
    }

    /// Tells kernels that the door is shut, for all handles.
    pub(super) fn shut(&self) {
        for (number, slot) in self.slots.iter().enumerate() {
            let mut slot = slot.lock();
            // Loads that are still running are not delivered.
            slot.generation = 0;
            self.words.tell(self.layout.answer(number), SHUT);
        }
    }
}
