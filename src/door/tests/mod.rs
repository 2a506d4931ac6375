//! Tests of doors: on every machine, a thread plays the kernel; on devices that see the host's writes, kernels ask.

mod failures;
mod hostile;
mod on_devices;
mod protocol;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, Handle, Status};
use super::files::Files;
use super::layout::{COUNTERS, Layout};
use super::pools::ContentPools;
use super::server::{Server, Waker};
use super::slots::Slots;
use super::{Door, DoorOptions, FileMode, RequestError};
use crate::gpu::device::visible::VisibleMemory;
use crate::gpu::tests::testing::PATIENCE;
use crate::test_data::mixture;
use crate::{Level, Options};

/// A folder of a test's own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("pz-door-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A plain file.
    fn write(&self, name: &str, contents: &[u8]) {
        fs::write(self.path(name), contents).unwrap();
    }

    /// An archive of blocks of 64 KiB.
    fn pack(&self, name: &str, contents: &[u8]) {
        let options = Options::new().level(Level::new(1).unwrap()).block_size(1 << 16);
        self.write(name, &crate::compress(contents, &options).unwrap());
    }

    fn options(&self) -> DoorOptions {
        DoorOptions::new().folder(&self.0).workers(4).host_pool(8 << 20)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// Waits for an answer.
fn wait(client: &Client, handle: &Handle) -> Status {
    let until = Instant::now() + PATIENCE;
    loop {
        match client.status(handle) {
            Status::Loading => assert!(Instant::now() < until, "no answer"),
            status => return status,
        }
        thread::yield_now();
    }
}

/// Waits until `is_so` returns true.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The contents that a read returns, or its error.
fn read(client: &Client, file: u32, offset: u64, length: u32) -> Result<Vec<u8>, RequestError> {
    let handle = client.read(file, offset, length).unwrap();
    let outcome = match wait(client, &handle) {
        Status::Ready => Ok(client.contents(&handle)),
        Status::Error(error) => Err(error),
        Status::Loading => unreachable!(),
    };
    client.close(handle);
    outcome
}

/// Opens a file by its path. Returns its number and length, or the error.
fn open(client: &Client, path: &str, mode: FileMode) -> Result<(u32, u64), RequestError> {
    let handle = client.open(path, mode).unwrap();
    let outcome = match wait(client, &handle) {
        Status::Ready => Ok((client.file(&handle), client.total(&handle))),
        Status::Error(error) => Err(error),
        Status::Loading => unreachable!(),
    };
    client.close(handle);
    outcome
}

/// The parts of a door that clients use, without any thread that serves them.
fn unattended(options: &DoorOptions) -> (Arc<Server>, Client) {
    let layout = Layout { ring: options.ring };
    let words = |count: usize| VisibleMemory::of_host(4 * count).unwrap().into_words();
    let host = VisibleMemory::of_host(options.host_pool as usize).unwrap().into_pool();
    let pools = ContentPools { host, device: None, small: options.small };
    let slots = Slots::new(words(layout.words()), layout);
    let files = Files::new(options).unwrap();
    let server = Arc::new(Server::new(slots, files, pools, options.workers, Waker::Clients));
    let client = Client::new(Arc::clone(&server), Arc::new(words(COUNTERS)));
    (server, client)
}

/// A door at which a file of `len` bytes is open, plain and as the contents of an archive.
fn with_file(len: usize) -> (Folder, Door, Client, Vec<u8>, [u32; 2]) {
    let folder = Folder::new();
    let contents = mixture(len);
    folder.write("plain", &contents);
    folder.pack("packed.pz", &contents);
    let door = Door::on_host(&folder.options()).unwrap();
    let plain = door.open_file("plain", FileMode::Plain).unwrap();
    let packed = door.open_file("packed.pz", FileMode::Contents).unwrap();
    assert_eq!((plain.len, packed.len), (len as u64, len as u64));
    let client = door.client().unwrap();
    (folder, door, client, contents, [plain.number, packed.number])
}
