//! An HTTP server on this machine that answers as a test tells it to, correctly or badly.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A running server. It runs until the test's process ends.
pub struct Server {
    pub address: String,
    requests: Arc<Mutex<Vec<Request>>>,
    body_bytes: Arc<AtomicU64>,
}

/// A client's request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of earlier requests.
    pub number: usize,
    pub path: String,
    /// First and last byte.
    pub range: Option<(usize, usize)>,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
}

/// The server's answer to a request.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Close the connection after this many bytes of the body.
    pub cut: Option<usize>,
    /// Wait for this time before the answer.
    pub delay: Duration,
    /// Send the body byte by byte, and wait for this time before each byte.
    pub trickle: Option<Duration>,
    /// Send these bytes instead of an answer.
    pub raw: Option<Vec<u8>>,
}

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            address: listener.local_addr().unwrap().to_string(),
            requests: Arc::default(),
            body_bytes: Arc::default(),
        };
        let (requests, body_bytes) = (server.requests.clone(), server.body_bytes.clone());
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
                let body_bytes = Arc::clone(&body_bytes);
                thread::spawn(move || serve(&stream, &*answer, &requests, &body_bytes));
            }
        });
        server
    }

    /// Serves `file` correctly under every path.
    pub fn of(file: Vec<u8>) -> Self {
        Self::start(move |request| Answer::part(&file, request))
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Bytes of all bodies sent.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Answer {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            cut: None,
            delay: Duration::ZERO,
            trickle: None,
            raw: None,
        }
    }

    /// The correct answer of a server of `file`: the requested range, or the whole file.
    pub fn part(file: &[u8], request: &Request) -> Self {
        let Some((first, last)) = request.range else { return Self::whole(file) };
        if first >= file.len() {
            return Self::status(416).with("Content-Range", format!("bytes */{}", file.len()));
        }
        let last = last.min(file.len() - 1);
        let range = format!("bytes {first}-{last}/{}", file.len());
        let answer = Self::status(206).with("Content-Range", range);
        Answer { body: file[first..=last].to_vec(), ..answer }
    }

    /// The whole file.
    pub fn whole(file: &[u8]) -> Self {
        Answer { body: file.to_vec(), ..Self::status(200) }
    }

    pub fn redirect(to: impl Into<String>) -> Self {
        Self::status(302).with("Location", to)
    }

    /// Replaces or adds a header.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.into(), value.into()));
        self
    }
}

fn serve(
    stream: &TcpStream,
    answer: &(dyn Fn(&Request) -> Answer + Send + Sync),
    requests: &Mutex<Vec<Request>>,
    body_bytes: &AtomicU64,
) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader, requests) {
        let answer = answer(&request);
        thread::sleep(answer.delay);
        if send(stream, &answer, body_bytes).is_none() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn read_request(
    reader: &mut BufReader<&TcpStream>,
    requests: &Mutex<Vec<Request>>,
) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_string()),
        }
    }
    let path = lines.first()?.split(' ').nth(1)?.to_string();
    let headers = lines[1..].iter().filter_map(|line| line.split_once(':'));
    let headers: Vec<_> =
        headers.map(|(name, value)| (name.to_lowercase(), value.trim().to_string())).collect();
    let mut requests = requests.lock().unwrap();
    let mut request = Request { number: requests.len(), path, range: None, headers };
    request.range = request.header("range").and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    requests.push(request.clone());
    Some(request)
}

/// Sends an answer. `None` if the connection must close.
fn send(mut stream: &TcpStream, answer: &Answer, body_bytes: &AtomicU64) -> Option<()> {
    if let Some(raw) = &answer.raw {
        stream.write_all(raw).ok()?;
        return None;
    }
    let mut head = format!("HTTP/1.1 {} Whatever\r\n", answer.status);
    let is_framed = answer
        .headers
        .iter()
        .any(|(name, _)| ["Content-Length", "Transfer-Encoding"].contains(&name.as_str()));
    if !is_framed {
        head += &format!("Content-Length: {}\r\n", answer.body.len());
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let body = &answer.body[..answer.cut.unwrap_or(usize::MAX).min(answer.body.len())];
    // Count them before they are sent: a client that has received them may look at the count.
    body_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
    match answer.trickle {
        None => stream.write_all(body).ok()?,
        Some(pause) => {
            for byte in body {
                thread::sleep(pause);
                stream.write_all(&[*byte]).ok()?;
            }
        }
    }
    answer.cut.is_none().then_some(())
}
