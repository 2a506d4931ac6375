//! The workers' part of each kind of request.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::FileMode;
use super::background::Counted;
use super::files::{MAX_PATH, OpenFile};
use super::layout::{Answer, Request, op};
use super::options::RequestError;
use super::pools::{ContentBuffer, Load, Uploader, load_contents};
use super::server::{Server, Task};
use super::slots::{HandleResources, Stream, Writing};
use crate::access::{ArchiveError, RangeRead};
use crate::gpu::device::visible::Extents;

type Outcome = Result<(HandleResources, Answer), RequestError>;

/// Pieces of a stream present at once, if there is room.
const WINDOW: u64 = 4;

impl Server {
    /// Serves requests: one, or several reads of one archive.
    pub(super) fn serve(
        self: &Arc<Self>,
        batch: &mut Vec<Task>,
        mut uploader: Option<&mut Uploader<'_>>,
    ) {
        self.begin_reads(batch);
        if batch.len() > 1 && self.read_together(batch) {
            return;
        }
        for Task { request, writing } in batch {
            if let Some(writing) = writing.take() {
                self.answer(request, self.write(writing));
                continue;
            }
            if self.slots.is_closed(request.handle) {
                // The kernel has closed the handle.
                self.slots.deliver(request.handle, Err(RequestError::Failed));
                continue;
            }
            let uploader = uploader.as_deref_mut();
            match request.op {
                op::OPEN => self.answer(request, self.open(request)),
                op::READ => self.answer(request, self.read(request, uploader)),
                op::WRITE => self.answer(request, self.begin_write(request)),
                op::STREAM => self.begin_stream(request, uploader),
                _ => self.load_pieces(request, uploader),
            }
        }
    }

    fn open(&self, request: &Request) -> Outcome {
        let mode = FileMode::of_code(request.file).ok_or(RequestError::Range)?;
        let path = self.slots.path(request.handle, request.path);
        let path = path.filter(|path| path.len() <= MAX_PATH).ok_or(RequestError::Refused)?;
        let (file, total) = self.files.open(path_of(&path)?, mode)?;
        Ok((HandleResources::Nothing, Answer { file: file.number, total, ..Answer::default() }))
    }

    fn read(&self, request: &Request, uploader: Option<&mut Uploader<'_>>) -> Outcome {
        let Request { offset, length, .. } = *request;
        let file = self.files.get(request.file)?;
        self.check_range(request)?;
        let mut buffer = self.take_buffer(length, length).ok_or(RequestError::Full)?;
        self.load_piece(&file, (offset, length), &mut buffer, uploader)?;
        Ok(self.contents(buffer, length))
    }

    /// Checks the range before taking room for it: a length may be anything.
    fn check_range(&self, request: &Request) -> Result<(), RequestError> {
        let file = self.files.get(request.file)?;
        let len = match file.mode {
            FileMode::Contents => self.files.archive(&file)?.len(),
            FileMode::Plain | FileMode::Writable => file.len(),
        };
        check_within(request, len)
    }

    /// Begins those reads of a batch whose blocks the device decodes, and takes them out of it: no worker waits for
    /// them.
    fn begin_reads(self: &Arc<Self>, batch: &mut Vec<Task>) {
        let Some(Request { op: op::READ, file, .. }) = batch.first().map(|task| task.request)
        else {
            return;
        };
        let Some(pool) = &self.pools.device else { return };
        let Ok(file) = self.files.get(file) else { return };
        if !file.is_prepared() {
            return;
        }
        let Ok(archive) = self.files.archive(&file) else { return };
        let mut reads = Vec::with_capacity(batch.len());
        batch.retain(|Task { request, .. }| {
            let Request { offset, length, handle, .. } = *request;
            if !self.pools.is_long(length) || self.slots.is_closed(handle) {
                return true;
            }
            let buffer = check_within(request, archive.len());
            let buffer =
                buffer.and_then(|()| self.take_buffer(length, length).ok_or(RequestError::Full));
            let mut reading = Reading::new(self, *request);
            match buffer {
                Err(error) => reading.end(Err(error)),
                Ok(buffer) => {
                    let destination = pool.part(buffer.place().0, length);
                    reading.buffer = Some(buffer);
                    let Some(destination) = destination else { return false };
                    let file = Arc::clone(&file);
                    let done = move |outcome: Result<(), ArchiveError>| {
                        reading.end(outcome.map_err(|error| file.noted(error.into())));
                    };
                    let range = offset..offset + length;
                    reads.push((RangeRead::new(range, destination), done));
                }
            }
            false
        });
        archive.read_in_background(pool.buffer().memory(), reads);
    }

    /// Reads several ranges of one archive in one call. Returns false if that failed; then each must be read alone.
    fn read_together(&self, batch: &[Task]) -> bool {
        let Some(Task { request: first, .. }) = batch.first() else { return true };
        let Ok(file) = self.files.get(first.file) else { return false };
        let Ok(archive) = self.files.archive(&file) else { return false };
        let mut buffers = Vec::with_capacity(batch.len());
        for Task { request, .. } in batch {
            if check_within(request, archive.len()).is_err() {
                return false;
            }
            let Some(buffer) = self.take_buffer(request.length, request.length) else {
                return false;
            };
            if buffer.is_on_device() && !file.is_prepared() {
                return false;
            }
            buffers.push(buffer);
        }
        let mut loads: Vec<_> = batch
            .iter()
            .zip(&mut buffers)
            .map(|(Task { request, .. }, buffer)| Load {
                offset: request.offset,
                len: request.length,
                buffer,
            })
            .collect();
        if load_contents(&file, &archive, &mut loads).is_err() {
            return false;
        }
        drop(loads);
        for (Task { request, .. }, buffer) in batch.iter().zip(buffers) {
            self.answer(request, Ok(self.contents(buffer, request.length)));
        }
        true
    }

    // ---- Writing
    // -----------------------------------------------------------------------------------------------------

    fn begin_write(&self, request: &Request) -> Outcome {
        let Request { offset, length: len, .. } = *request;
        let file = self.files.get(request.file)?;
        if file.mode != FileMode::Writable {
            return Err(RequestError::Refused);
        }
        OpenFile::end_of_write(offset, len)?;
        // The host reads it, so it is in host memory.
        let buffer = self.take_host_buffer(len).ok_or(RequestError::Full)?;
        let (place, pool) = buffer.place();
        let answer = Answer { place, pool, bytes: len, total: len, ..Answer::default() };
        Ok((HandleResources::Writing(Writing { file, offset, len, buffer }), answer))
    }

    /// Writes the contents of a kernel's room.
    fn write(&self, writing: Writing) -> Outcome {
        let Writing { file, offset, len, buffer } = writing;
        let ContentBuffer::Host(chunk) = &buffer else { return Err(RequestError::Failed) };
        file.write(offset, &chunk.read(0..len as usize))?;
        self.counts.bytes_written.fetch_add(len, Ordering::Relaxed);
        Ok((HandleResources::Nothing, Answer { total: len, ..Answer::default() }))
    }

    // ---- Streams
    // -----------------------------------------------------------------------------------------------------

    fn begin_stream(&self, request: &Request, uploader: Option<&mut Uploader<'_>>) {
        let begun = self.open_stream(request);
        let is_begun = begun.is_ok();
        self.answer(request, begun);
        if is_begun {
            self.load_pieces(request, uploader);
        }
    }

    fn open_stream(&self, request: &Request) -> Outcome {
        let Request { offset, length: total, .. } = *request;
        let file = self.files.get(request.file)?;
        self.check_range(request)?;
        let piece = u64::from(request.piece);
        if piece == 0 || total.div_ceil(piece) > u64::from(u32::MAX) {
            return Err(RequestError::Range);
        }
        // Pieces begin at multiples of the pool's unit, so that each can be given back alone.
        let stride = piece.min(total.max(1)).next_multiple_of(Extents::UNIT);
        let (piece, stride) = if piece >= total { (piece, stride) } else { (stride, stride) };
        let stride = u32::try_from(stride).map_err(|_| RequestError::Range)?;
        let most = total.div_ceil(piece).clamp(1, WINDOW);
        let fits = |window: u64| {
            let bytes = window * u64::from(stride);
            Some((window, self.take_buffer(bytes, u64::from(stride))?))
        };
        let (window, buffer) = (1..=most).rev().find_map(fits).ok_or(RequestError::Full)?;
        let (place, pool) = buffer.place();
        let buffers = buffer.split(u64::from(stride)).into_iter().map(Some).collect();
        let answer = Answer {
            place,
            pool,
            total,
            piece: stride,
            window: window as u32,
            ..Answer::default()
        };
        let stream = Stream {
            file,
            offset,
            total,
            piece,
            buffers,
            loaded: 0,
            allowed: window,
            is_running: true,
        };
        Ok((HandleResources::Stream(stream), answer))
    }

    /// Loads pieces while there is room for them.
    fn load_pieces(&self, request: &Request, mut uploader: Option<&mut Uploader<'_>>) {
        let handle = request.handle;
        loop {
            let next = self.slots.with(handle, |held| {
                let HandleResources::Stream(stream) = held else { return None };
                let next = stream.next();
                stream.is_running = next.is_some();
                let (number, offset, len) = next?;
                let slot = (number % stream.buffers.len() as u64) as usize;
                let buffer = stream.buffers.get_mut(slot)?.take()?;
                Some((stream.file.clone(), (offset, len), slot, buffer))
            });
            let Some(Some((file, range, slot, mut buffer))) = next else { return };
            let loaded = self.load_piece(&file, range, &mut buffer, uploader.as_deref_mut());
            if let Err(error) = loaded {
                return self.answer(request, Err(error));
            }
            if self.slots.is_closed(handle) {
                return self.slots.deliver(handle, Err(RequestError::Failed));
            }
            self.counts.bytes_read.fetch_add(range.1, Ordering::Relaxed);
            self.slots.with(handle, |held| {
                let HandleResources::Stream(stream) = held else { return };
                if let Some(place) = stream.buffers.get_mut(slot) {
                    *place = Some(buffer);
                }
                stream.loaded += 1;
                self.slots.set_pieces(handle, stream.loaded as u32);
            });
        }
    }
}

/// Checks that the range of a request lies within the `len` bytes of its file or archive.
fn check_within(request: &Request, len: u64) -> Result<(), RequestError> {
    let end = request.offset.checked_add(request.length).filter(|end| *end <= len);
    end.map(|_| ()).ok_or(RequestError::Range)
}

/// A read in the background. It is answered in any case.
struct Reading {
    server: Arc<Server>,
    request: Request,
    buffer: Option<ContentBuffer>,
    is_answered: bool,
    /// Dropped last, when nothing of the door is in use any more.
    _counted: Counted,
}

impl Reading {
    fn new(server: &Arc<Server>, request: Request) -> Self {
        let _counted = Counted::new(&server.background);
        Self { server: Arc::clone(server), request, buffer: None, is_answered: false, _counted }
    }

    fn end(mut self, outcome: Result<(), RequestError>) {
        self.answer(outcome);
    }

    fn answer(&mut self, outcome: Result<(), RequestError>) {
        self.is_answered = true;
        // After an error the room is free before the kernel asks again.
        let buffer = outcome.and_then(|()| self.buffer.take().ok_or(RequestError::Failed));
        self.buffer = None;
        let answer = buffer.map(|buffer| self.server.contents(buffer, self.request.length));
        self.server.answer(&self.request, answer);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer(Err(RequestError::Failed));
        }
    }
}

#[cfg(unix)]
fn path_of(bytes: &[u8]) -> Result<&Path, RequestError> {
    use std::os::unix::ffi::OsStrExt;
    let text = std::ffi::OsStr::from_bytes(bytes);
    if bytes.contains(&0) { Err(RequestError::Refused) } else { Ok(Path::new(text)) }
}

#[cfg(not(unix))]
fn path_of(bytes: &[u8]) -> Result<&Path, RequestError> {
    let text = std::str::from_utf8(bytes).map_err(|_| RequestError::Refused)?;
    if bytes.contains(&0) { Err(RequestError::Refused) } else { Ok(Path::new(text)) }
}
