//! Requests from running kernels: while a kernel runs, it asks for parts of files, and threads of the host answer.
//!
//! ```text
//!          kernel                                     host
//! door_read ─▶ handle, request ─▶ ring ─▶ first thread ─▶ workers ─▶ files, archives
//! door_status ◀───────────── handle's status ◀────────────────┤
//! door_content ◀── pool in host or device memory ◀────────────┘
//! ```
//!
//! A kernel takes a handle, puts a request into the ring, and goes on. It looks at the status of the handle whenever it
//! wants, uses the contents once they are there, and closes the handle. No function of the kernel's side waits. They
//! are in [`KERNEL_SOURCE`], which goes before a kernel in OpenCL C or CUDA C++, and in [`KERNEL_SOURCE_WGSL`]:
//!
//! | function | |
//! |---|---|
//! | `door_open` | asks for a file by its path; the host can open files too, with [`Door::open_file`] |
//! | `door_read` | asks for a range of a file, or of the contents of an archive |
//! | `door_stream`, `door_pieces`, `door_piece`, `door_next` | ask for a long range in pieces, of which a few are |
//! | | there at once |
//! | `door_write`, `door_commit` | ask for room, which the kernel fills, and write it to a file |
//! | `door_status`, `door_error` | tell what became of a request: loading, ready, or an error, one of |
//! | | [`RequestError`] |
//! | `door_content`, `door_bytes`, `door_total` | tell where the contents are, and how many bytes |
//! | `door_close` | gives the handle back, with its contents |
//!
//! # Devices
//! Running kernels see the host's writes on three kinds of devices:
//!
//! - Through CUDA, in host memory that is pinned and mapped. Long contents go to device memory, and archives are
//!   decoded there while the kernel runs.
//! - Through Vulkan, below WebGPU, in memory of the device that the host sees too. All contents go there, and the
//!   processor decodes archives: work that is sent to the device meanwhile would wait for the kernel. A device may have
//!   little such memory, and a desktop ends kernels that run for seconds.
//! - Through OpenCL on processors with PoCL, in buffers that stay mapped. OpenCL promises it for no device of version
//!   1.2, and NVIDIA's shows a running kernel nothing, so GPUs are refused.
//!
//! A thread can play the kernel, on every machine: see [`Door::on_host`] and [`Client`].
//!
//! With CUDA the environment must say `CUDA_DEVICE_MAX_CONNECTIONS=32` when the process starts. Otherwise what the host
//! sends to the device can get into line behind the running kernel. For the same reason everything is compiled and
//! allocated before: open the archives with [`Door::open_file`] before the kernel is launched, and load the kernel
//! itself before too.
//!
//! A kernel that reads archives must leave compute units free: blocks are decoded by other kernels, which cannot begin
//! where it takes all registers or all workgroup memory. With workgroups on no more than half of the units it always
//! does.
//!
//! # Who writes what, and in which order
//! | words | written by | in this order |
//! |---|---|---|
//! | entry of the ring | kernel | fields, then the turn: `fence.acq_rel.sys` and a relaxed store (CUDA), fence and |
//! | | | `atomic_xchg` (OpenCL), exchanges and a store that is made from their results (WGSL) |
//! | | host | acquires the turn, copies the entry, then releases the count of requests it has taken |
//! | handle's answer | host | contents, then place and length, then the status, which is released; for a stream the |
//! | | | count of its pieces |
//! | | kernel | acquires the status: `ld.acquire.sys` (CUDA), `atomic_or` with 0 and a fence (OpenCL), an atomic load |
//! | | | and a barrier (WGSL) |
//! | handle's closing | kernel | releases the generation that it closes; then it frees the handle |
//! | counters | kernel | atomics of the device; the host only waits for the first one, through the bell |
//!
//! A handle's generation goes up with each use, and is part of requests and statuses. So a kernel never takes the
//! answer to an earlier use for its own, and the host never gives to a handle what an earlier use asked for.
//!
//! Contents in device memory are copied or decoded, and that work has ended, before the status is released. A place may
//! have held other contents before, so kernels load them past their caches, with `door_load` or as volatile words; in
//! WGSL with atomic loads.
//!
//! # When things go wrong
//! A full table and a full ring are return values of the functions that ask. Everything else is an error of the handle.
//! A kernel may write anything into the ring: the host checks each number, and answers or counts it as malformed. A
//! kernel that ends between beginning and ending a request delays the ones behind it by a second. One that ends without
//! closing keeps its handles' contents until the door is dropped, or the handles are used again. When the door is
//! dropped, every handle's status is an error.
//!
//! The host thread spins for 200 microseconds after the last request. Then it looks again after pauses of up to 5
//! milliseconds; or, while a [`Listening`] lives, it sleeps until the device rings the bell (CUDA:
//! `cuStreamWaitValue32` on the count of requests, and an event). A thread that plays the kernel wakes it.
//!
//! ```
//! use pz::door::{Door, DoorOptions, FileMode, Status};
//! # let folder = std::env::temp_dir().join(format!("pz-door-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! std::fs::write(folder.join("greeting"), "hello, world")?;
//! let door = Door::on_host(&DoorOptions::new().folder(&folder))?;
//! let file = door.open_file("greeting", FileMode::Plain)?;
//!
//! // What a kernel does, in a thread.
//! let client = door.client().ok_or("a device's kernels ask")?;
//! let handle = client.read(file.number, 7, 5)?;
//! while client.status(&handle) == Status::Loading {
//!     std::thread::yield_now();
//! }
//! assert_eq!(client.contents(&handle), b"world");
//! client.close(handle);
//! # drop(door);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod background;
mod client;
mod files;
pub(crate) mod launch;
mod layout;
mod options;
mod pools;
mod search;
mod server;
mod slots;
#[cfg(test)]
mod tests;
mod work;

use std::fmt;
use std::mem;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use client::{AskError, Client, Handle, Status};
pub use files::FileMode;
use files::{Failed, Files};
use launch::{Entry, Launch};
use layout::{COUNTERS, Layout};
pub use options::{DoorError, DoorOptions, DoorStatistics, RequestError};
use pools::{ContentPools, DevicePool, Uploader};
pub use search::{MAX_PATTERN, Match, Matches};
use server::{Server, Waker};
use slots::Slots;

use crate::access::{DeviceMemory, DeviceMemoryOptions};
use crate::gpu::device::visible::{VisibleMemory, VisibleWords};
use crate::gpu::device::{Api, BufferId, Device, DeviceError, NativeBuffer};
use crate::gpu::model::kernel::{DOOR, DOOR_RING, DOOR_WGSL};
use crate::process::Owner;

/// The kernel's side of a door, as self-contained source in both OpenCL C and CUDA C++. A kernel gets
/// [`Door::native`]'s four buffers, and calls `door_of` with them.
pub const KERNEL_SOURCE: &str = DOOR;

/// The kernel's side of a door in WGSL. [`Door::native`]'s first three buffers go to the first three bindings of
/// group 0.
pub const KERNEL_SOURCE_WGSL: &str = DOOR_WGSL;

/// A door: files that running kernels may ask for, and the threads that answer them.
///
/// When it is dropped, what is being read ends, then its threads, and the memory is freed that kernels share with it.
/// Drop it after the kernels have ended that use it.
pub struct Door {
    server: Arc<Server>,
    counters: Counters,
    device: Option<Arc<dyn Device>>,
    threads: Vec<JoinHandle<()>>,
}

/// The counters, which only kernels use.
enum Counters {
    /// For threads that play a kernel.
    Host(Arc<VisibleWords>),
    Device(OwnBuffer),
}

/// Makes the host thread of a door sleep until a kernel asks: see [`Door::listen`].
#[derive(Debug)]
#[must_use = "the door listens until this is dropped"]
pub struct Listening<'d>(&'d Door);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        if self.0.server.listen_no_more() {
            // A device that fails ends the sleep too.
            let _ = self.0.ring();
        }
    }
}

/// A file that a door has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenedFile {
    /// Its number, for `door_read` and the like.
    pub number: u32,
    /// Readable bytes: the file's, or those of an archive's contents.
    pub len: u64,
}

/// The buffers that a door passes to a kernel, in the order of `door_of`'s parameters.
#[derive(Debug)]
pub struct DoorBuffers<T> {
    /// The ring and the handles.
    pub control: T,
    /// The counters.
    pub counters: T,
    /// Contents in host memory.
    pub host: T,
    /// Contents in device memory; the same as in host memory if there are none.
    pub device: T,
}

/// Bytes of contents of a batch of blocks: a request waits for its batch.
const BATCH: u64 = 16 << 20;

/// The most threads that send blocks of archives to the device: two for each core, because most of them wait for the
/// device.
const MAX_LANES: usize = 22;
/// Each lane and each worker has a stream, and so have the kernel and the bell. If a stream shared one of
/// CUDA's 32 connections with the kernel's, each would wait for the other.
const _: () = assert!(MAX_LANES + options::MAX_WORKERS + 2 <= 32);

impl Door {
    /// Opens a door for threads of this process that play a kernel: see [`Client`].
    ///
    /// # Errors
    /// [`DoorError::Options`], [`DoorError::Folder`], and if there is too little memory or no thread.
    pub fn on_host(options: &DoorOptions) -> Result<Self, DoorError> {
        options.check()?;
        let files = Files::new(options)?;
        let layout = Layout { ring: options.ring };
        let slots = Slots::new(VisibleMemory::of_host(4 * layout.words())?.into_words(), layout);
        let host = VisibleMemory::of_host(options.host_pool as usize)?.into_pool();
        let counters = Arc::new(VisibleMemory::of_host(4 * COUNTERS)?.into_words());
        let pools = ContentPools { host, device: None, small: options.small };
        let server = Arc::new(Server::new(slots, files, pools, options.workers, Waker::Clients));
        let mut door =
            Self { server, counters: Counters::Host(counters), device: None, threads: Vec::new() };
        door.start(options.workers)?;
        Ok(door)
    }

    /// Opens a door for kernels of a device.
    ///
    /// # Errors
    /// As for [`Self::on_host`]; [`DoorError::Device`] if running kernels of the device do not see what the host
    /// writes, or if the device fails.
    pub fn of_device(device: Arc<dyn Device>, options: &DoorOptions) -> Result<Self, DoorError> {
        options.check()?;
        let files = Files::new(options)?;
        let layout = Layout { ring: options.ring };
        let slots = Slots::new(device.visible_memory(4 * layout.words())?.into_words(), layout);
        let host = device.visible_memory(options.host_pool as usize)?.into_pool();
        let counters = OwnBuffer::counters(&device)?;
        let has_pool = device.limits().api == Api::Cuda && options.device_pool > 0;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let lanes = (2 * cores).clamp(2, MAX_LANES);
        let pool = has_pool.then(|| {
            let lanes = DeviceMemoryOptions::new().workers(lanes).batch(BATCH).only_prepared();
            let memory = DeviceMemory::of_device(Arc::clone(&device), &lanes);
            Ok::<_, DeviceError>(Arc::new(DevicePool::new(memory.allocate(options.device_pool)?)))
        });
        let pools = ContentPools { host, device: pool.transpose()?, small: options.small };
        let waker = device.bell(counters.id)?.map_or(Waker::None, Waker::Bell);
        let server = Arc::new(Server::new(slots, files, pools, options.workers, waker));
        let counters = Counters::Device(counters);
        let mut door = Self { server, counters, device: Some(device), threads: Vec::new() };
        door.start(options.workers)?;
        // This also loads the kernel, which cannot be done while another one runs.
        door.ring()?;
        Ok(door)
    }

    /// Starts the threads, and waits until they have allocated everything.
    fn start(&mut self, workers: usize) -> Result<(), DoorError> {
        let (ready, is_ready) = mpsc::channel::<Result<(), DeviceError>>();
        for number in 0..workers {
            let (server, device, ready) =
                (Arc::clone(&self.server), self.device.clone(), ready.clone());
            self.spawn(format!("pz door {number}"), move || {
                let pool = server.pools.device.as_ref();
                if let Some(device) = &device {
                    device.stay_on_thread();
                }
                let uploader = device
                    .as_deref()
                    .zip(pool)
                    .map(|(device, pool)| Uploader::new(device.queue()?, pool));
                match uploader.transpose() {
                    Ok(uploader) => {
                        let _ = ready.send(Ok(()));
                        drop(ready);
                        server.work(uploader);
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            })?;
        }
        drop(ready);
        for outcome in is_ready {
            outcome?;
        }
        let server = Arc::clone(&self.server);
        self.spawn("pz door".into(), move || server.watch(0))
    }

    fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), DoorError> {
        let thread = thread::Builder::new().name(name).spawn(run).map_err(DoorError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Opens a file below one of the allowed folders, as `door_open` does. The same file in the same mode has one
    /// number.
    ///
    /// For the contents of an archive on a device, this also compiles and allocates what its blocks need, so it is
    /// called before the kernel runs.
    ///
    /// # Errors
    /// [`DoorError::File`].
    pub fn open_file(
        &self,
        path: impl AsRef<Path>,
        mode: FileMode,
    ) -> Result<OpenedFile, DoorError> {
        let path = path.as_ref();
        let error = |failed: Failed| {
            let Failed { code: error, why } = failed;
            DoorError::File {
                path: path.into(),
                error,
                why: why.unwrap_or_else(|| error.to_string()),
            }
        };
        let (file, len) = self.server.files.open(path, mode).map_err(error)?;
        if mode == FileMode::Contents
            && let Some(pool) = &self.server.pools.device
        {
            let archive = self.server.files.archive(&file).map_err(error)?;
            archive.prepare_on(pool.buffer().memory()).map_err(|found| error(found.into()))?;
            file.set_prepared();
        }
        Ok(OpenedFile { number: file.number, len })
    }

    /// The buffers that a kernel of the device gets; `None` if threads play the kernel.
    pub(crate) fn buffers(&self) -> Option<DoorBuffers<BufferId>> {
        let Counters::Device(OwnBuffer { id: counters, .. }) = self.counters else { return None };
        let pools = &self.server.pools;
        let host = pools.host.buffer()?;
        let device = pools.device.as_ref().and_then(|pool| pool.buffer().on());
        Some(DoorBuffers {
            control: self.server.slots.words().buffer()?,
            counters,
            host,
            device: device.map_or(host, |(id, _)| id),
        })
    }

    /// The buffers for a kernel of the caller's, as handles of the device's interface; `None` if threads play the
    /// kernel. They are valid until the door is dropped.
    pub fn native(&self) -> Option<DoorBuffers<NativeBuffer>> {
        let DoorBuffers { control, counters, host, device } = self.buffers()?;
        let export = |id| self.device.as_ref()?.export(id);
        Some(DoorBuffers {
            control: export(control)?,
            counters: export(counters)?,
            host: export(host)?,
            device: export(device)?,
        })
    }

    /// Makes the host thread sleep until a kernel asks, instead of looking every few milliseconds: it takes next to no
    /// processor time, and answers sooner. Call this just after the launch of a kernel, and drop the result when the
    /// kernel has ended. Until then the device counts as busy: whatever waits for all of its work, such as freeing
    /// memory and loading programs, waits. Without effect where devices cannot wake a thread.
    pub fn listen(&self) -> Listening<'_> {
        self.server.listen();
        Listening(self)
    }

    /// Rings the bell, as a kernel that asks does.
    fn ring(&self) -> Result<(), DeviceError> {
        /// A running kernel may occupy the whole device.
        const DEADLINE: Duration = Duration::from_secs(60);
        if !self.server.has_bell() {
            return Ok(());
        }
        let entry = Entry { name: "ring", args: &[], groups: 1, threads: 32 };
        let launch = Launch::new(self, &DOOR_RING, 1)?;
        launch.start(&entry, DEADLINE)?.finish()
    }

    /// A client for threads that make requests as a kernel does; `None` if this door serves a device's kernels.
    pub fn client(&self) -> Option<Client> {
        match &self.counters {
            Counters::Host(counters) => {
                Some(Client::new(Arc::clone(&self.server), Arc::clone(counters)))
            }
            Counters::Device(_) => None,
        }
    }

    /// The door's counts so far.
    pub fn statistics(&self) -> DoorStatistics {
        self.server.statistics()
    }

    /// Free bytes of both pools.
    pub fn free_bytes(&self) -> u64 {
        self.server.pools.free_bytes()
    }
}

/// A buffer of a device that is freed when dropped.
struct OwnBuffer {
    device: Arc<dyn Device>,
    id: BufferId,
    process: Owner,
}

impl OwnBuffer {
    fn new(device: &Arc<dyn Device>, id: BufferId) -> Self {
        Self { device: Arc::clone(device), id, process: Owner::here() }
    }

    /// Allocates the counters, all 0.
    fn counters(device: &Arc<dyn Device>) -> Result<Self, DeviceError> {
        let bytes = 4 * COUNTERS as u64;
        let own = Self::new(device, device.allocate(bytes)?);
        let mut queue = device.queue()?;
        queue.clear(own.id, 0, bytes)?;
        queue.finish()?;
        Ok(own)
    }
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        // The driver is not called in a process that was forked.
        match self.process.is_here() {
            true => self.device.free(self.id),
            false => mem::forget(Arc::clone(&self.device)),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if !self.server.is_here() {
            let threads = mem::take(&mut self.threads);
            mem::forget((Arc::clone(&self.server), self.device.clone(), threads));
            return;
        }
        self.server.stop();
        if self.server.has_listeners() {
            let _ = self.ring();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.server.background.finish();
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}
