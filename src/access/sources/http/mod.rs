//! Files on HTTP servers.
//!
//! Opening a file takes one request for its first bytes. The answer shows whether the server can serve parts of the
//! file, how long the file is, and its version. Each later answer must agree.

mod answer;
mod client;
mod proxy;
mod run;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use answer::{Failed, Version};
use client::Client;
pub(super) use client::HttpTarget;
use run::RequestRun;

use super::memory::MemorySource;
use super::retry::Tries;
use super::source::check;
use super::{Source, SourceError, SourceErrorKind, SourceOptions, Traffic, Uri};
use crate::stream::{FIRST_READ, Part, ReadAt};
use crate::sync::Mutex;

/// A file whose server can serve parts of it.
struct HttpSource {
    client: Client,
    len: u64,
    version: Version,
    /// The first bytes, from the first request.
    head: Vec<u8>,
}

/// The result of the first request.
enum Opened {
    /// The server can serve parts of the file.
    Parts { len: u64, version: Version, head: Vec<u8> },
    /// The server cannot serve parts. The length of the file, if the server reports it.
    WholeOnly(Option<u64>),
}

/// Opens the file at `target`, which `uri` names. A short file of a server that cannot serve parts is read as a whole.
pub(super) fn open(
    uri: &Uri,
    target: HttpTarget,
    options: &SourceOptions,
) -> Result<Arc<dyn Source>, SourceError> {
    let client = Client::new(uri.to_string(), target, options.clone());
    match client.repeat(FIRST_READ as u64, |tries| first_request(&client, tries))? {
        Opened::Parts { len, version, head } => {
            Ok(Arc::new(HttpSource { client, len, version, head }))
        }
        Opened::WholeOnly(len) => {
            let limit = options.max_whole;
            if let Some(len) = len.filter(|&len| len > limit) {
                let what = format!(
                    "the server can send files only as a whole, and this one has {len} bytes, more than {limit}"
                );
                return Err(client.error(SourceErrorKind::Unsupported, what));
            }
            let bytes =
                client.repeat(len.unwrap_or(limit), |tries| whole(&client, tries, limit))?;
            let traffic = client.traffic();
            Ok(Arc::new(MemorySource { uri: uri.to_string(), bytes: bytes.into(), traffic }))
        }
    }
}

fn first_request(client: &Client, tries: &Tries) -> Result<Opened, Failed> {
    let mut response = client.request(Some(0..FIRST_READ as u64), None, tries)?;
    match response.status().as_u16() {
        206 => {}
        200 => return Ok(Opened::WholeOnly(answer::content_length(&response))),
        // An empty file has no first bytes.
        416 if answer::unsatisfied_len(&response).is_none_or(|len| len == 0) => {
            return Ok(Opened::WholeOnly(Some(0)));
        }
        _ => return Err(answer::refusal(&response)),
    }
    answer::check_encoding(&response)?;
    let (range, len) = answer::content_range(&response)?;
    answer::check_range(&(0..len.min(FIRST_READ as u64)), &range)?;
    let version = Version::of(&response);
    let mut head = vec![0; range.end as usize];
    let runs = &mut RequestRun::coalesce(vec![Part { offset: 0, buffer: &mut head }]);
    for run in runs {
        client.receive(run, &mut response, &range)?;
    }
    Ok(Opened::Parts { len, version, head })
}

/// Reads the whole file, which may have at most `limit` bytes.
fn whole(client: &Client, tries: &Tries, limit: u64) -> Result<Vec<u8>, Failed> {
    let mut response = client.request(None, None, tries)?;
    match response.status().as_u16() {
        200 => {}
        416 => return Ok(Vec::new()),
        _ => return Err(answer::refusal(&response)),
    }
    answer::check_encoding(&response)?;
    client.receive_whole(&mut response, limit)
}

impl HttpSource {
    fn read_run(&self, run: &mut RequestRun<'_>) -> Result<(), SourceError> {
        let Range { start, end } = run.missing();
        let mut start = start;
        self.client.repeat(end - start, |tries| {
            // A server may send less than was requested.
            while !run.missing().is_empty() {
                let outcome = self.read_once(run, tries);
                let arrived = run.missing().start;
                if arrived > start {
                    start = arrived;
                    tries.progressed();
                }
                outcome?;
            }
            Ok(())
        })
    }

    fn read_once(&self, run: &mut RequestRun<'_>, tries: &Tries) -> Result<(), Failed> {
        let wanted = run.missing();
        let mut response = self.client.request(Some(wanted.clone()), Some(&self.version), tries)?;
        match response.status().as_u16() {
            206 => {}
            412 | 416 => return Err(answer::changed()),
            200 if self.version.differs(&response) => return Err(answer::changed()),
            200 => {
                let what = "the server sent the whole file instead of the part asked for";
                return Err(Failed::Final(SourceErrorKind::Protocol, what.into()));
            }
            _ => return Err(answer::refusal(&response)),
        }
        let (range, len) = answer::content_range(&response)?;
        if len != self.len || self.version.differs(&response) {
            return Err(answer::changed());
        }
        answer::check_range(&wanted, &range)?;
        answer::check_encoding(&response)?;
        self.client.receive(run, &mut response, &range)
    }

    /// Reads all runs, several at once, each over its own connection.
    fn read_runs(&self, mut runs: Vec<RequestRun<'_>>) -> Result<(), SourceError> {
        let helpers = self.client.connections().min(runs.len()).saturating_sub(1);
        if helpers == 0 {
            return runs.iter_mut().try_for_each(|run| self.read_run(run));
        }
        // No run begins after the first error.
        let shared = Mutex::new((runs.into_iter(), Ok(())));
        let lock = || shared.lock();
        let work = || {
            loop {
                let next = {
                    let mut shared = lock();
                    if shared.1.is_ok() { shared.0.next() } else { None }
                };
                let Some(mut run) = next else { return };
                if let Err(error) = self.read_run(&mut run) {
                    let mut shared = lock();
                    if shared.1.is_ok() {
                        shared.1 = Err(error);
                    }
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..helpers {
                // If a thread cannot start, the others do its work.
                let _ = thread::Builder::new().name("pz read".into()).spawn_scoped(scope, work);
            }
            work();
        });
        shared.into_inner().1
    }
}

impl ReadAt for HttpSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_ranges(&mut [Part { offset, buffer }])
    }

    fn read_ranges(&self, parts: &mut [Part<'_>]) -> io::Result<()> {
        let mut wanted = Vec::with_capacity(parts.len());
        for part in parts {
            check(part, self)?;
            let held = usize::try_from(part.offset).ok().and_then(|from| self.head.get(from..));
            let held = held.unwrap_or_default();
            let (first, rest) = part.buffer.split_at_mut(held.len().min(part.buffer.len()));
            first.copy_from_slice(&held[..first.len()]);
            wanted.push(Part { offset: part.offset + first.len() as u64, buffer: rest });
        }
        Ok(self.read_runs(RequestRun::coalesce(wanted))?)
    }
}

impl Source for HttpSource {
    fn uri(&self) -> &str {
        self.client.uri()
    }

    fn traffic(&self) -> Traffic {
        self.client.traffic()
    }
}
