//! Requests, as they arrive on a connection.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::failure::one_line;

/// How long a connection may stay open without a request.
const IDLE_LIMIT: Duration = Duration::from_secs(15);
/// How long a request may take to arrive.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// The most bytes and header lines of a request.
const MAX_LEN: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

/// A request, as far as this server knows the protocol.
#[derive(Debug, Default)]
pub struct Request {
    pub method: String,
    /// Path and query, as sent; of a whole URL, too.
    pub target: String,
    pub is_head: bool,
    /// Whether more requests may follow on the connection.
    pub keeps_connection: bool,
    pub host: Option<String>,
    pub range: Option<String>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub if_range: Option<String>,
}

/// What arrived on a connection.
pub enum Received {
    Request(Request),
    /// An invalid request, to answer with this status.
    Malformed(u16),
    /// The client has closed the connection, or been silent for too long.
    End,
}

/// The requests of a connection.
pub struct Requests<'s> {
    stream: &'s TcpStream,
    /// Bytes that have arrived and are not used yet.
    bytes: Vec<u8>,
}

impl<'s> Requests<'s> {
    pub fn new(stream: &'s TcpStream) -> Self {
        Requests { stream, bytes: Vec::new() }
    }

    /// Waits for the next request, within limits.
    pub fn next(&mut self) -> io::Result<Received> {
        let mut deadline = Instant::now() + IDLE_LIMIT;
        let mut has_begun = false;
        loop {
            if !self.bytes.is_empty() {
                match parse(&self.bytes) {
                    Ok(Some((request, len))) => {
                        self.bytes.drain(..len);
                        return Ok(Received::Request(request));
                    }
                    Ok(None) if self.bytes.len() >= MAX_LEN => return Ok(Received::Malformed(431)),
                    Ok(None) => {}
                    Err(status) => return Ok(Received::Malformed(status)),
                }
                if !has_begun {
                    (has_begun, deadline) = (true, Instant::now() + REQUEST_LIMIT);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(if has_begun { Received::Malformed(408) } else { Received::End });
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut piece = [0; 4096];
            match (&mut &*self.stream).read(&mut piece) {
                Ok(0) => return Ok(Received::End),
                Ok(count) => self.bytes.extend_from_slice(&piece[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

/// Parses the request at the start of `bytes`. Returns it with its length, `None` if it is not complete, or the status
/// to answer with.
fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, u16> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let len = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(400),
    };
    let is_new = parsed.version == Some(1);
    let mut request = Request {
        method: parsed.method.unwrap_or_default().into(),
        target: parsed.path.unwrap_or_default().into(),
        is_head: parsed.method == Some("HEAD"),
        keeps_connection: is_new,
        ..Request::default()
    };
    for header in parsed.headers.iter() {
        // Headers that this server does not know may hold any bytes.
        let value = str::from_utf8(header.value).map(|value| value.trim().to_string());
        let known = || value.clone().map_err(|_| 400_u16);
        let field = match header.name.to_ascii_lowercase().as_str() {
            "connection" => {
                let value = known()?;
                let has = |word| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(word));
                request.keeps_connection = (is_new || has("keep-alive")) && !has("close");
                continue;
            }
            // This server accepts no bodies, and must not take a body for the next request.
            "transfer-encoding" => return Err(413),
            "content-length" if known()? == "0" => continue,
            "content-length" => return Err(413),
            "host" => &mut request.host,
            "range" => &mut request.range,
            "if-match" => &mut request.if_match,
            "if-none-match" => &mut request.if_none_match,
            "if-range" => &mut request.if_range,
            _ => continue,
        };
        if field.replace(known()?).is_some() {
            return Err(400);
        }
    }
    // Version 1.1 requires a host.
    if is_new && request.host.is_none() {
        return Err(400);
    }
    if let Some((host, target)) = whole(&request.target) {
        let (host, target) = (host.to_string(), target.to_string());
        request.host = Some(host);
        request.target = if target.starts_with('/') { target } else { format!("/{target}") };
    }
    Ok(Some((request, len)))
}

/// Host and path of a target that is a whole URL. Clients send one if they use this server as a proxy. The header
/// `Host` then does not count (RFC 9112, section 3.2.2).
fn whole(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    let is_http = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    is_http.then(|| rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
}

impl Request {
    /// The request on one line.
    pub fn line(&self) -> String {
        let range = self.range.as_ref().map(|range| format!(" {range}")).unwrap_or_default();
        one_line(&format!("{} {}{range}", self.method, self.target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let complete = b"GET /a HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\n\r\n";
        let (request, len) = parse(&[complete, &b"GET"[..]].concat()).unwrap().unwrap();
        assert_eq!(len, complete.len());
        assert_eq!((request.target.as_str(), request.keeps_connection), ("/a", true));
        assert_eq!(request.line(), "GET /a bytes=0-1");
        for (target, headers, host, path) in [
            ("http://h:1/a?b", "Host: other", "h:1", "/a?b"),
            ("HTTP://h", "Host: other", "h", "/"),
            ("http://h?b", "Host: other", "h", "/?b"),
            ("/http://h/a", "Host: own", "own", "/http://h/a"),
            ("/a", "Host: own\r\nCookie: \u{e4}", "own", "/a"),
        ] {
            let text = format!("GET {target} HTTP/1.1\r\n{headers}\r\n\r\n");
            // Latin-1, which some programs send.
            let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
            let (request, _) = parse(&bytes).unwrap().unwrap();
            assert_eq!((request.host.as_deref(), request.target.as_str()), (Some(host), path));
        }
        let strange = parse(b"GET / HTTP/1.1\r\nHost: h\r\nRange: \xe4\r\n\r\n");
        assert_eq!(strange.err(), Some(400));
        for end in 0..complete.len() {
            assert!(parse(&complete[..end]).unwrap().is_none(), "{end}");
        }
        for (text, status) in [
            ("GET /a HTTP/1.1\r\n\r\n", 400),
            ("nonsense\r\n\r\n", 400),
            ("GET /a HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400),
            ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n", 413),
            ("GET /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        ] {
            assert_eq!(parse(text.as_bytes()).err(), Some(status), "{text}");
        }
        for (text, keeps) in [
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n", false),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().unwrap().0.keeps_connection, keeps);
        }
    }
}
