//! Sends requests, and receives the answers.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::{Agent, Body, Timeout};

use super::answer::{self, Failed, Version};
use super::proxy::{self, ToProxies};
use super::run::RequestRun;
use crate::access::sources::retry::Tries;
use crate::access::sources::s3;
use crate::access::sources::uri::Url;
use crate::access::sources::{SourceError, SourceErrorKind, SourceOptions, Traffic};
use crate::process::PerProcess;

/// Where requests go.
pub(in crate::access::sources) enum HttpTarget {
    /// A file on a web server.
    Url(Url),
    /// An object, with signed requests.
    S3(s3::Object),
}

/// Sends the requests for one file.
pub(super) struct Client {
    uri: String,
    target: HttpTarget,
    options: SourceOptions,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// The most redirects of one request.
const MAX_REDIRECTS: u32 = 5;

/// All sources of a process share one agent, and with it the open connections.
fn agent() -> &'static Agent {
    static AGENT: PerProcess<Agent> = PerProcess::new();
    AGENT.get_or_init(|| {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(MAX_REDIRECTS)
            .max_idle_connections_per_host(8)
            .user_agent(concat!("pz/", env!("CARGO_PKG_VERSION")))
            // Offsets would not fit a compressed answer.
            .accept_encoding("identity")
            .build();
        Agent::with_parts(config, ToProxies::default(), DefaultResolver::default())
    })
}

impl Client {
    pub(super) fn new(uri: String, target: HttpTarget, options: SourceOptions) -> Self {
        let (requests, bytes) = Default::default();
        Self { uri, target, options, requests, bytes }
    }

    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    pub(super) fn connections(&self) -> usize {
        self.options.connections
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn error(&self, kind: SourceErrorKind, what: impl Into<String>) -> SourceError {
        let mut what = what.into();
        if let Ok(Some(proxy)) = proxy::of(self.url()) {
            what += &format!(" (through the proxy {}:{})", proxy.host(), proxy.port());
        }
        SourceError::new(&self.uri, kind, what)
    }

    fn url(&self) -> &Url {
        match &self.target {
            HttpTarget::Url(url) => url,
            HttpTarget::S3(object) => object.url(),
        }
    }

    /// Calls `work`, which requests `bytes` bytes, until it succeeds, fails for good, or no retries are left.
    pub(super) fn repeat<T>(
        &self,
        bytes: u64,
        mut work: impl FnMut(&mut Tries) -> Result<T, Failed>,
    ) -> Result<T, SourceError> {
        let mut tries = Tries::new(&self.options, bytes);
        loop {
            match work(&mut tries) {
                Ok(done) => return Ok(done),
                Err(Failed::Final(kind, what)) => return Err(self.error(kind, what)),
                Err(Failed::Retry(what, asked)) => {
                    if !tries.wait(asked) {
                        let what = match tries.count {
                            1 => what,
                            count => {
                                let seconds = tries.elapsed().as_secs_f64();
                                format!("{what} (tried {count} times in {seconds:.1} s)")
                            }
                        };
                        return Err(self.error(SourceErrorKind::Unavailable, what));
                    }
                }
            }
        }
    }

    /// Requests a range of the file, or the whole file, within the time that is left. The file must have `version`.
    pub(super) fn request(
        &self,
        range: Option<Range<u64>>,
        version: Option<&Version>,
        tries: &Tries,
    ) -> Result<Response<Body>, Failed> {
        let url = self.url();
        let headers = match (&self.target, &url.login) {
            (HttpTarget::S3(object), _) => object.sign(),
            (_, Some(login)) => vec![("Authorization", proxy::basic(login))],
            (_, None) => Vec::new(),
        };
        let proxy = proxy::of(url);
        let proxy = proxy.map_err(|what| Failed::Final(SourceErrorKind::Unsupported, what))?;
        let stall = self.stall_limit();
        let config = agent().get(&url.text).config().proxy(proxy);
        let config = match self.target {
            HttpTarget::Url(_) => config,
            // A signature is for one host. No other host may see it.
            HttpTarget::S3(_) => config.max_redirects(0).max_redirects_will_error(false),
        };
        let mut request = config
            .timeout_global(Some(tries.time_left().max(Duration::from_millis(1))))
            .timeout_resolve(Some(stall))
            .timeout_connect(Some(stall))
            .timeout_recv_response(Some(stall))
            .timeout_per_read(Some(stall))
            .timeout_per_write(Some(stall))
            .build();
        if let Some(Range { start, end }) = range {
            request = request.header("Range", format!("bytes={start}-{}", end - 1));
        }
        if let Some(tag) = version.and_then(Version::strong_tag) {
            request = request.header("If-Match", tag);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        request.call().map_err(|error| self.failed(error))
    }

    /// How long a server may send nothing.
    fn stall_limit(&self) -> Duration {
        (self.options.time_limit / 3).max(Duration::from_millis(1))
    }

    /// Receives the next missing bytes of `run` from the response, which holds `range`.
    pub(super) fn receive(
        &self,
        run: &mut RequestRun<'_>,
        response: &mut Response<Body>,
        range: &Range<u64>,
    ) -> Result<(), Failed> {
        let len = range.end - range.start;
        if let Some(announced) = answer::content_length(response).filter(|&found| found != len) {
            let what = format!("the server announced {announced} bytes for a part of {len}");
            return Err(Failed::Final(SourceErrorKind::Protocol, what));
        }
        let mut body = Counted { inner: response.body_mut().as_reader(), bytes: &self.bytes };
        let received = match run.receive(&mut body.by_ref().take(len)) {
            Err(error)
                if error.kind() == io::ErrorKind::UnexpectedEof
                    && run.missing().start == range.end =>
            {
                Ok(())
            }
            received => received,
        };
        // A connection can be used again only after the end of the body has been read.
        let outcome = received.and_then(|()| body.read(&mut [0]));
        match outcome {
            Ok(0) => Ok(()),
            Ok(_) => {
                let what = format!("the server sent more than the {len} bytes asked for");
                Err(Failed::Final(SourceErrorKind::Protocol, what))
            }
            Err(error) => Err(self.broken(error, run.missing().start - range.start, len)),
        }
    }

    /// Receives a whole file of at most `limit` bytes.
    pub(super) fn receive_whole(
        &self,
        response: &mut Response<Body>,
        limit: u64,
    ) -> Result<Vec<u8>, Failed> {
        let announced = answer::content_length(response);
        let body = Counted { inner: response.body_mut().as_reader(), bytes: &self.bytes };
        let mut bytes = Vec::new();
        let outcome = body.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        let len = bytes.len() as u64;
        match outcome {
            Ok(_) if len > limit => {
                let what = format!(
                    "the server can send files only as a whole, and this one has more than {limit} bytes"
                );
                Err(Failed::Final(SourceErrorKind::Unsupported, what))
            }
            Ok(_) if announced.is_none_or(|announced| announced == len) => Ok(bytes),
            Ok(_) => {
                Err(self.broken(io::ErrorKind::UnexpectedEof.into(), len, announced.unwrap_or(0)))
            }
            Err(error) => Err(self.broken(error, len, announced.unwrap_or(limit))),
        }
    }

    /// The failure of a body that broke off after `arrived` of `len` bytes.
    fn broken(&self, error: io::Error, arrived: u64, len: u64) -> Failed {
        match self.failed(error.into()) {
            Failed::Retry(what, asked) => {
                Failed::Retry(format!("{what}, after {arrived} of {len} bytes"), asked)
            }
            failed => failed,
        }
    }

    /// Classifies an error of the HTTP library.
    fn failed(&self, error: ureq::Error) -> Failed {
        use SourceErrorKind::{InvalidUri, Protocol};
        let retry = |what: &str| Failed::Retry(what.into(), None);
        match error {
            ureq::Error::Timeout(Timeout::Global) => {
                retry("the server did not send everything in time")
            }
            ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => {
                retry("the server could not be reached in time")
            }
            ureq::Error::Timeout(_) => {
                let seconds = self.stall_limit().as_secs_f64();
                Failed::Retry(format!("the server sent nothing for {seconds:.1} s"), None)
            }
            ureq::Error::Io(error) => match error.kind() {
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe => retry("the server closed the connection"),
                io::ErrorKind::ConnectionRefused => retry("the server refused the connection"),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                    Failed::Final(Protocol, one_line(&error))
                }
                _ => Failed::Retry(one_line(&error), None),
            },
            ureq::Error::HostNotFound => retry("there is no host of this name"),
            ureq::Error::ConnectionFailed => retry("the server could not be reached"),
            ureq::Error::ConnectProxyFailed(why) => {
                retry(&format!("the proxy refused to connect: {}", in_one_line(&why)))
            }
            ureq::Error::TooManyRedirects => {
                let what = format!("the server redirected more than {MAX_REDIRECTS} times");
                Failed::Final(Protocol, what)
            }
            error @ (ureq::Error::BadUri(_) | ureq::Error::Http(_)) => {
                Failed::Final(InvalidUri, one_line(&error))
            }
            error => {
                let what = format!("the server's answer cannot be used: {}", one_line(&error));
                Failed::Final(Protocol, what)
            }
        }
    }
}

/// An error's message on one line, whatever the server sent.
fn one_line(error: &dyn std::error::Error) -> String {
    in_one_line(&error.to_string())
}

fn in_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A body whose bytes are counted.
struct Counted<'a, R> {
    inner: R,
    bytes: &'a AtomicU64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buf)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
