//! Parses what a server says of its answer, and checks it.

use std::ops::Range;
use std::time::Duration;

use ureq::Body;
use ureq::http::Response;

use crate::access::sources::SourceErrorKind;

/// Why a request failed.
pub(super) enum Failed {
    /// The same request may succeed later, after the time that the server named, if it named one.
    Retry(String, Option<Duration>),
    /// Asking again is useless.
    Final(SourceErrorKind, String),
}

/// The version of a file, as far as the server reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    tag: Option<String>,
    modified: Option<String>,
}

impl Version {
    pub(super) fn of(response: &Response<Body>) -> Self {
        let text = |name| header(response, name).map(String::from);
        Self { tag: text("ETag"), modified: text("Last-Modified") }
    }

    /// The tag, if it is strong: only files with the same bytes have the same one.
    pub(super) fn strong_tag(&self) -> Option<&str> {
        self.tag.as_deref().filter(|tag| tag.starts_with('"'))
    }

    /// Whether `now` is another version.
    pub(super) fn differs(&self, response: &Response<Body>) -> bool {
        self.differs_from(&Self::of(response))
    }

    /// Equal strong tags mean the same version, whatever the dates are: servers behind a balancer may each have their
    /// own dates. Compares tags without the mark of weakness, because some servers set it only on some answers; the
    /// checksums of blocks find other changes. A tag or date that one of both lacks does not count.
    fn differs_from(&self, now: &Self) -> bool {
        let differ = |before: Option<&str>, now: Option<&str>| {
            before.zip(now).is_some_and(|(before, now)| before != now)
        };
        let opaque = |tag: &Option<String>| {
            tag.as_deref().map(|tag| tag.strip_prefix("W/").unwrap_or(tag).to_string())
        };
        if self.strong_tag().is_some() && self.strong_tag() == now.strong_tag() {
            return false;
        }
        differ(opaque(&self.tag).as_deref(), opaque(&now.tag).as_deref())
            || differ(self.modified.as_deref(), now.modified.as_deref())
    }
}

fn header<'r>(response: &'r Response<Body>, name: &str) -> Option<&'r str> {
    response.headers().get(name)?.to_str().ok()
}

/// The length in bytes that the server announced for the body.
pub(super) fn content_length(response: &Response<Body>) -> Option<u64> {
    header(response, "Content-Length")?.trim().parse().ok()
}

/// The range that the server sent, and the length of the whole file.
pub(super) fn content_range(response: &Response<Body>) -> Result<(Range<u64>, u64), Failed> {
    let found = header(response, "Content-Range").and_then(parse_content_range);
    found.ok_or_else(|| protocol("the server did not say which part of the file it sent"))
}

/// The length of a file that the server reports when it has no such range.
pub(super) fn unsatisfied_len(response: &Response<Body>) -> Option<u64> {
    header(response, "Content-Range")?.trim().strip_prefix("bytes */")?.parse().ok()
}

/// `bytes FIRST-LAST/LENGTH` as a range and the length.
fn parse_content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, len) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<u64>().ok()?);
    let len = len.trim().parse().ok()?;
    (first <= last && last < len).then(|| (first..last + 1, len))
}

/// Refuses a body that is encoded.
pub(super) fn check_encoding(response: &Response<Body>) -> Result<(), Failed> {
    match header(response, "Content-Encoding") {
        None | Some("" | "identity") => Ok(()),
        Some(_) => Err(protocol("the server encoded the file, although it was asked not to")),
    }
}

fn protocol(what: &str) -> Failed {
    Failed::Final(SourceErrorKind::Protocol, what.into())
}

/// Checks that the server sent the wanted range, or its beginning.
pub(super) fn check_range(wanted: &Range<u64>, found: &Range<u64>) -> Result<(), Failed> {
    if found.start == wanted.start && found.end <= wanted.end {
        return Ok(());
    }
    Err(protocol(&format!(
        "the server sent bytes {}..{} instead of {}..{}",
        found.start, found.end, wanted.start, wanted.end
    )))
}

/// The failure for a file that is not the one that was opened.
pub(super) fn changed() -> Failed {
    Failed::Final(SourceErrorKind::Changed, "changed while it was being read".into())
}

/// The failure for a status without bytes of the file.
pub(super) fn refusal(response: &Response<Body>) -> Failed {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or("unknown status");
    let what = |what: &str| format!("{what} ({} {reason})", status.as_u16());
    match status.as_u16() {
        404 | 410 => Failed::Final(SourceErrorKind::NotFound, what("does not exist")),
        401 | 403 | 407 => Failed::Final(SourceErrorKind::Denied, what("the server denies access")),
        408 | 425 | 429 | 500 | 502..=504 => {
            let asked = header(response, "Retry-After").and_then(|text| text.trim().parse().ok());
            Failed::Retry(what("the server failed"), asked.map(Duration::from_secs))
        }
        _ => Failed::Final(SourceErrorKind::Protocol, what("the server refused the request")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let version = |tag: &str, modified: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_string());
            Version { tag: some(tag), modified: some(modified) }
        };
        for (before, now, differs) in [
            (("", ""), ("\"1\"", "a"), false),
            (("\"1\"", ""), ("\"1\"", ""), false),
            (("\"1\"", ""), ("\"2\"", ""), true),
            (("\"1\"", "a"), ("\"1\"", "b"), false),
            (("\"1\"", "a"), ("\"2\"", "a"), true),
            (("\"1\"", "a"), ("", "b"), true),
            (("\"1\"", "a"), ("W/\"1\"", "a"), false),
            (("W/\"1\"", "a"), ("\"1\"", "a"), false),
            (("W/\"1\"", "a"), ("W/\"2\"", "a"), true),
            (("W/\"1\"", "a"), ("W/\"1\"", "b"), true),
            (("W/\"1\"", "a"), ("\"1\"", "b"), true),
        ] {
            let (before, now) = (version(before.0, before.1), version(now.0, now.1));
            assert_eq!(before.differs_from(&now), differs, "{before:?} and {now:?}");
        }
    }

    #[test]
    fn content_ranges() {
        for (text, expected) in [
            ("bytes 0-0/1", Some((0..1, 1))),
            ("bytes 5-9/10", Some((5..10, 10))),
            (" bytes 5-9/10 ", Some((5..10, 10))),
            ("bytes 5-10/10", None),
            ("bytes 9-5/10", None),
            ("bytes 0-9/*", None),
            ("bytes */10", None),
            ("bytes 0-18446744073709551615/18446744073709551615", None),
            ("bytes -1-9/10", None),
            ("lines 0-1/2", None),
            ("", None),
        ] {
            assert_eq!(parse_content_range(text), expected, "{text}");
        }
    }
}
