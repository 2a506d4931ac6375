//! A read-only HTTP server of one folder, for programs that read parts of files, as pz does.
//!
//! It answers `GET` and `HEAD` with whole files or one range of them. Each connection has a thread. The number of
//! threads is limited, and so is every wait.

mod answer;
mod files;
mod request;

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::failure::{Failure, describe_io};
use answer::Answer;
use files::Root;
use request::{Received, Requests};

/// How long a client may go on sending after an answer that ends the connection.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);
/// Most reads of what the client sends in that time.
const MAX_DRAINED: usize = 16;

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// The state that all connections share.
struct Shared {
    root: Root,
    /// Whether only this machine can connect.
    is_local: bool,
    connections: AtomicUsize,
    max_connections: usize,
    log: Log,
}

/// Gets a line about each request.
pub type Log = Box<dyn Fn(&str) + Send + Sync>;

impl Server {
    /// Listens at `address` for requests for the files in `folder`.
    pub fn bind(
        folder: &Path,
        address: SocketAddr,
        max_connections: usize,
        log: Log,
    ) -> Result<Self, Failure> {
        let root = Root::open(folder).map_err(|error| Failure::from(error).at(folder))?;
        let listener = TcpListener::bind(address).map_err(|error| {
            let what = describe_io(&error);
            Failure::environment(format!("cannot listen at {address}: {what}"))
        })?;
        let is_local = address.ip().is_loopback();
        let connections = AtomicUsize::new(0);
        let shared = Shared { root, is_local, connections, max_connections, log };
        Ok(Server { listener, shared: Arc::new(shared) })
    }

    /// The address at which it listens, with the real port if the user asked for any free one.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests until the program ends.
    pub fn run(&self) -> ! {
        loop {
            let Ok((stream, peer)) = self.listener.accept() else {
                // Out of descriptors, perhaps. Connections that end will free some.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let Some(connection) = Connection::new(&self.shared) else {
                refuse(&stream);
                continue;
            };
            // Without a thread the connection is closed, and the client comes back later.
            let _ = thread::Builder::new()
                .name("pz serve".into())
                .spawn(move || connection.serve(&stream, peer));
        }
    }
}

/// The time of day.
fn now() -> String {
    pz::internal::utc(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// Tells a client to come back later, because there are too many.
fn refuse(stream: &TcpStream) {
    // These few bytes fit in the connection's buffer, so this does not block.
    let _ = Answer::busy().send(stream, false, false);
    let _ = stream.shutdown(Shutdown::Write);
}

/// Closes the connection of a client that may still be sending. If data arrived at a closed connection, the client's
/// system would throw away the answer.
fn close_gently(mut stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    if stream.set_read_timeout(Some(DRAIN_LIMIT)).is_ok() {
        let mut unwanted = [0; 4096];
        for _ in 0..MAX_DRAINED {
            if !matches!(stream.read(&mut unwanted), Ok(1..)) {
                return;
            }
        }
    }
}

/// Counts a connection towards the limit until it is dropped.
struct Connection(Arc<Shared>);

impl Connection {
    /// `None` if there are too many.
    fn new(shared: &Arc<Shared>) -> Option<Self> {
        let before = shared.connections.fetch_add(1, Ordering::Relaxed);
        let connection = Connection(Arc::clone(shared));
        (before < shared.max_connections).then_some(connection)
    }

    /// Answers requests until either side closes the connection.
    fn serve(&self, stream: &TcpStream, peer: SocketAddr) {
        let Connection(shared) = self;
        // Send the head of an answer at once. If this fails, it is only late.
        let _ = stream.set_nodelay(true);
        let mut requests = Requests::new(stream);
        loop {
            let (answer, line, keep, is_head) = match requests.next() {
                Ok(Received::Request(request)) => {
                    let answer = answer::to(&request, &shared.root, shared.is_local);
                    (answer, request.line(), request.keeps_connection, request.is_head)
                }
                Ok(Received::Malformed(status)) => {
                    (Answer::refusal(status), "a malformed request".to_string(), false, false)
                }
                Ok(Received::End) | Err(_) => return,
            };
            let (begun, summary) = (Instant::now(), answer.summary());
            let sent = answer.send(stream, keep, is_head);
            let time = begun.elapsed().as_secs_f64();
            let end = sent.as_ref().err().map(|error| format!(", cut off: {}", describe_io(error)));
            let end = end.unwrap_or_default();
            (shared.log)(&format!("{} {peer}: {line}: {summary}, {time:.3} s{end}", now()));
            match sent {
                Ok(()) if keep => {}
                Ok(()) => return close_gently(stream),
                Err(_) => return,
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
