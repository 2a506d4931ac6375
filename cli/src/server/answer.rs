//! Answers to requests.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::files::{Root, Served};
use super::request::Request;

/// Bytes of a file to read and send at a time.
const CHUNK: usize = 256 << 10;
/// A client must take at least [`MIN_RATE`] bytes a second, on average over this time.
const WINDOW: Duration = Duration::from_secs(30);
const MIN_RATE: u64 = 16 << 10;
/// The most bytes that the system buffers before it sends them. They count as taken, although the client may never
/// receive them.
#[cfg(target_os = "linux")]
const MAX_UNSENT: u32 = 128 << 10;

/// An answer that has not been sent.
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    /// The file and the part of it to send. Without a file, the body is the status in words.
    body: Option<(File, Range<u64>)>,
}

/// Which part of a file a request is for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part(Range<u64>),
    /// A part beyond the end.
    Nothing,
}

/// Answers a request for one of the files of `root`. `is_local`: only this machine can connect.
pub fn to(request: &Request, root: &Root, is_local: bool) -> Answer {
    // Otherwise a web page in a browser on this machine could read the files, if the page's host name resolves to this
    // machine.
    if is_local && request.host.as_deref().is_some_and(|host| !names_this_machine(host)) {
        return Answer::refusal(421);
    }
    if !["GET", "HEAD"].contains(&request.method.as_str()) {
        return Answer::refusal(405).with("Allow", "GET, HEAD");
    }
    match root.file(&request.target) {
        Ok(served) => of_file(request, served),
        Err(503) => Answer::busy(),
        Err(status) => Answer::refusal(status),
    }
}

fn of_file(request: &Request, Served { file, len, tag }: Served) -> Answer {
    let names_tag = |list: &String| {
        list == "*" || list.split(',').any(|known| known.trim().trim_start_matches("W/") == tag)
    };
    let if_match = request.if_match.as_ref();
    if if_match.is_some_and(|list| list != "*" && !list.split(',').any(|one| one.trim() == tag)) {
        return Answer::refusal(412);
    }
    if request.if_none_match.as_ref().is_some_and(names_tag) {
        return Answer { status: 304, headers: vec![("ETag", tag)], body: None };
    }
    let is_same = request.if_range.as_ref().is_none_or(|known| *known == tag);
    // A `HEAD` request has no parts.
    let range = request.range.as_deref().filter(|_| is_same && !request.is_head);
    let (status, part) = match range.map_or(Wanted::Whole, |range| wanted(range, len)) {
        Wanted::Whole => (200, 0..len),
        Wanted::Part(part) => (206, part),
        Wanted::Nothing => {
            return Answer::refusal(416).with("Content-Range", format!("bytes */{len}"));
        }
    };
    let mut headers = vec![
        ("Content-Type", "application/octet-stream".to_string()),
        ("X-Content-Type-Options", "nosniff".to_string()),
        ("Accept-Ranges", "bytes".to_string()),
        ("ETag", tag),
    ];
    if status == 206 {
        let Range { start, end } = part;
        headers.push(("Content-Range", format!("bytes {start}-{}/{len}", end - 1)));
    }
    Answer { status, headers, body: Some((file, part)) }
}

/// What a `Range` header means for a file of `len` bytes. A malformed header, or one with several ranges, means the
/// whole file.
fn wanted(range: &str, len: u64) -> Wanted {
    let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'))
    else {
        return Wanted::Whole;
    };
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too large to parse is beyond the end of any file.
        true if !text.is_empty() => Some(text.parse().unwrap_or(u64::MAX)),
        _ => None,
    };
    let part = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(len),
        (Some(first), None) if last.is_empty() => first..len,
        (None, Some(count)) if first.is_empty() => len.saturating_sub(count)..len,
        _ => return Wanted::Whole,
    };
    if part.is_empty() { Wanted::Nothing } else { Wanted::Part(part) }
}

/// Whether a `Host` header names this machine, with or without a port.
fn names_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        304 => "Not Modified",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Bad Request",
    }
}

impl Answer {
    /// Makes an answer without a file.
    pub fn refusal(status: u16) -> Self {
        Answer { status, headers: Vec::new(), body: None }
    }

    /// Tells a client to come back later.
    pub fn busy() -> Self {
        Self::refusal(503).with("Retry-After", "1")
    }

    /// Adds a header.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The status and the number of bytes.
    pub fn summary(&self) -> String {
        let bytes = self.body.as_ref().map_or(0, |(_, part)| part.end - part.start);
        format!("{}, {bytes} bytes", self.status)
    }

    /// Sends the answer; without the body if `is_head`.
    pub fn send(self, stream: &TcpStream, keep: bool, is_head: bool) -> io::Result<()> {
        let Answer { status, headers, body } = self;
        let words = format!("{}\n", reason(status));
        let len = match &body {
            Some((_, part)) => part.end - part.start,
            None => words.len() as u64,
        };
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in &headers {
            // Writing to a string cannot fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if status != 304 {
            let _ = write!(head, "Content-Length: {len}\r\n");
        }
        head += if keep { "\r\n" } else { "Connection: close\r\n\r\n" };
        let has_body = !is_head && status != 304;
        let Some((mut file, part)) = body.filter(|_| has_body) else {
            let words = if has_body { words.as_str() } else { "" };
            return Sender::new(stream, WINDOW).send((head + words).as_bytes());
        };
        let mut sender = Sender::new(stream, WINDOW);
        sender.send(head.as_bytes())?;
        file.seek(SeekFrom::Start(part.start))?;
        let mut left = part.end - part.start;
        let mut chunk = vec![0; CHUNK.min(left as usize)];
        while left > 0 {
            let most = left.min(chunk.len() as u64) as usize;
            match file.read(&mut chunk[..most]) {
                // The file has become shorter. The client notices that bytes are missing.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    sender.send(&chunk[..count])?;
                    left -= count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Sends an answer to a client that takes it fast enough.
struct Sender<'s> {
    stream: &'s TcpStream,
    /// How often to check the client's speed.
    window: Duration,
    end: Instant,
    /// Bytes since the last check.
    taken: u64,
}

impl<'s> Sender<'s> {
    fn new(stream: &'s TcpStream, window: Duration) -> Self {
        limit_unsent(stream);
        Sender { stream, window, end: Instant::now() + window, taken: 0 }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut stream = self.stream;
        while !bytes.is_empty() {
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if (self.taken as f64) < MIN_RATE as f64 * self.window.as_secs_f64() {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the client is too slow"));
                }
                (self.end, self.taken) = (Instant::now() + self.window, 0);
                continue;
            }
            stream.set_write_timeout(Some(left))?;
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.taken += count as u64;
                    bytes = &bytes[count..];
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// Limits the bytes that the system buffers. Without the limit it takes megabytes at once, and the pace says nothing
/// about the client.
#[cfg(target_os = "linux")]
fn limit_unsent(stream: &TcpStream) {
    use std::os::fd::AsRawFd;
    let most = MAX_UNSENT;
    let len = size_of_val(&most) as libc::socklen_t;
    // If the system refuses, more bytes count as taken.
    // SAFETY: the descriptor is open, and the value has this many bytes.
    let _ = unsafe {
        let value = (&raw const most).cast();
        libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, len)
    };
}

#[cfg(not(target_os = "linux"))]
fn limit_unsent(_: &TcpStream) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (range, expected) in [
            ("bytes=0-0", Wanted::Part(0..1)),
            ("bytes=5-", Wanted::Part(5..10)),
            ("bytes=-3", Wanted::Part(7..10)),
            ("bytes=-30", Wanted::Part(0..10)),
            ("bytes=9-99999999999999999999", Wanted::Part(9..10)),
            ("bytes=10-", Wanted::Nothing),
            ("bytes=99999999999999999999-", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("bytes", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
        ] {
            assert_eq!(wanted(range, 10), expected, "{range}");
        }
        assert_eq!(wanted("bytes=0-", 0), Wanted::Nothing);
    }

    /// The server gives up a client that takes nothing, long before the end of the answer. It serves a client that is
    /// fast enough to the end.
    #[test]
    fn slow_clients_are_disconnected() {
        use std::net::TcpListener;
        use std::thread;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let window = Duration::from_millis(50);
        let (_client, stream) = connect();
        let mut sender = Sender::new(&stream, window);
        let piece = vec![0; 1 << 20];
        let outcome = (0..1000).try_for_each(|_| sender.send(&piece));
        assert_eq!(outcome.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        let (client, stream) = connect();
        let taking = thread::spawn(move || io::copy(&mut &client, &mut io::sink()).unwrap());
        let mut sender = Sender::new(&stream, window);
        for _ in 0..20 {
            sender.send(&piece).unwrap();
            thread::sleep(window / 4);
        }
        drop(stream);
        assert_eq!(taking.join().unwrap(), 20 << 20);
    }

    #[test]
    fn hosts() {
        for host in
            ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "127.1.2.3", "[::1]:80", "[::1]"]
        {
            assert!(names_this_machine(host), "{host}");
        }
        for host in
            ["", "example.org", "127.0.0.1.example.org", "localhost.example.org:80", "10.0.0.1"]
        {
            assert!(!names_this_machine(host), "{host}");
        }
    }
}
