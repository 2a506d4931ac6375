//! Names of sources.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{SourceError, SourceErrorKind};

/// The name of a source. `Display` leaves out secrets: passwords, and queries, which may hold signatures.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Uri {
    shown: String,
    address: Address,
}

/// What a URI names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Address {
    File(PathBuf),
    /// The name under which the bytes are published.
    Memory(String),
    Http(Url),
    S3 {
        bucket: String,
        key: String,
    },
}

/// An `http://` or `https://` URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Url {
    /// The URL without its login and without its fragment, which is not sent.
    pub(super) text: String,
    /// The login before the host: a user and, after a colon, a password.
    pub(super) login: Option<Vec<u8>>,
}

/// The known schemes. One slash may follow those of files, two slashes follow all others.
const SCHEMES: [&str; 7] = ["file", "localio", "memio", "http", "https", "remoteio", "s3"];

impl Uri {
    /// Whether `text` begins like a URI of a known kind, so that it names a source and not a local file.
    ///
    /// ```
    /// use pz::access::Uri;
    /// assert!(Uri::is_uri("https://example.org/a.pz") && Uri::is_uri("file:/a.pz"));
    /// assert!(!Uri::is_uri("a.pz") && !Uri::is_uri("./http://a.pz") && !Uri::is_uri("C:/a.pz"));
    /// ```
    pub fn is_uri(text: &str) -> bool {
        split(text).is_some()
    }

    /// Takes a URI apart.
    ///
    /// # Errors
    /// [`SourceErrorKind::InvalidUri`].
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let invalid = |what: &str| {
            let shown: String = without_secrets(text).escape_debug().collect();
            SourceError::new(shown, SourceErrorKind::InvalidUri, what)
        };
        let (scheme, rest) = split(text).ok_or_else(|| invalid("is not a URI of a known kind"))?;
        // Names of objects and of memory are not decoded.
        let is_literal = ["memio", "s3"].contains(&scheme);
        if !is_literal && text.contains(|c: char| c.is_control() || c == ' ') {
            return Err(invalid(
                "a URI has no spaces or control characters; write %20 for a space",
            ));
        }
        let address = match scheme {
            "file" | "localio" => {
                if rest.contains(['?', '#']) {
                    return Err(invalid(
                        "the path of a local file has no ? and #; write %3F and %23",
                    ));
                }
                let path = rest.strip_prefix("//").map_or(Some(rest), |rest| {
                    let (host, _) = rest.split_once('/')?;
                    ["", "localhost"].contains(&host).then(|| &rest[host.len()..])
                });
                let path =
                    path.ok_or_else(|| invalid("the path of a local file begins with ///"))?;
                let path = percent_decode(path).and_then(path_of).filter(|path| path.is_absolute());
                Address::File(path.ok_or_else(|| invalid("its path is not valid"))?)
            }
            "memio" => Address::Memory(after_slashes(rest).into()),
            "s3" => {
                let (bucket, key) = after_slashes(rest).split_once('/').unwrap_or_default();
                if key.is_empty() || !is_bucket(bucket) {
                    return Err(invalid("an object's URI is s3://BUCKET/KEY"));
                }
                Address::S3 { bucket: bucket.into(), key: key.into() }
            }
            _ => {
                let scheme = if scheme == "https" { "https" } else { "http" };
                Address::Http(Url::parse(scheme, after_slashes(rest)).map_err(invalid)?)
            }
        };
        let shown = match is_literal {
            true => text.chars().flat_map(shown_char).collect(),
            false => without_secrets(text),
        };
        Ok(Self { shown, address })
    }

    /// The path, if this is a local file.
    ///
    /// ```
    /// use pz::access::Uri;
    /// # if cfg!(unix) {
    /// let uri = Uri::parse("file:///tmp/a%20b.pz")?;
    /// assert_eq!(uri.local_path(), Some(std::path::Path::new("/tmp/a b.pz")));
    /// # }
    /// # Ok::<(), pz::access::SourceError>(())
    /// ```
    pub fn local_path(&self) -> Option<&Path> {
        match &self.address {
            Address::File(path) => Some(path),
            _ => None,
        }
    }

    /// The last part of the path, as a name for a local copy. `None` if it is not a plain file name.
    ///
    /// ```
    /// use pz::access::Uri;
    /// let name = |text| Uri::parse(text).unwrap().file_name();
    /// assert_eq!(name("http://host/dir/a%20b.pz?version=2").as_deref(), Some("a b.pz"));
    /// assert_eq!(name("http://host/"), None);
    /// assert_eq!(name("http://host/..%2fa"), None);
    /// ```
    pub fn file_name(&self) -> Option<String> {
        let name = match &self.address {
            Address::File(path) => path.file_name()?.to_str()?.into(),
            Address::Memory(name) => name.rsplit('/').next()?.into(),
            Address::S3 { key, .. } => key.rsplit('/').next()?.into(),
            Address::Http(url) => {
                let (_, rest) = url.text.split_once("://")?;
                let (_, path) = rest.split('?').next()?.split_once('/')?;
                String::from_utf8(percent_decode(path.rsplit('/').next()?)?).ok()?
            }
        };
        let is_plain = !["", ".", ".."].contains(&name.as_str())
            && !name.contains(|c: char| c.is_control() || std::path::is_separator(c));
        is_plain.then_some(name)
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Url {
    /// Takes apart what follows the two slashes.
    fn parse(scheme: &str, rest: &str) -> Result<Self, &'static str> {
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        if host.is_empty() || host.starts_with(':') {
            return Err("the host is missing");
        }
        let login = login.filter(|login| !login.is_empty());
        let login = login.map(|login| percent_decode(login).ok_or(WRONG_LOGIN)).transpose()?;
        let mut text = format!("{scheme}://{host}");
        for c in path.chars() {
            match c.is_ascii() {
                true => text.push(c),
                false => percent_encode(c.encode_utf8(&mut [0; 4]).as_bytes(), "", &mut text),
            }
        }
        Ok(Self { text, login })
    }

    /// The value of the header `Host`: the host, and the port unless it is the scheme's default.
    #[cfg(feature = "remote")]
    pub(super) fn host(&self) -> &str {
        let (scheme, rest) = self.text.split_once("://").unwrap_or_default();
        let host = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
        host.strip_suffix(if scheme == "https" { ":443" } else { ":80" }).unwrap_or(host)
    }
}

const WRONG_LOGIN: &str = "after a % in a user's name or password come two hexadecimal digits";

/// A character, escaped if it is a control character.
fn shown_char(c: char) -> impl Iterator<Item = char> {
    let (plain, escaped) =
        if c.is_control() { (None, Some(c.escape_debug())) } else { (Some(c), None) };
    plain.into_iter().chain(escaped.into_iter().flatten())
}

/// Splits a known scheme from what follows the colon.
fn split(text: &str) -> Option<(&'static str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let known = SCHEMES.into_iter().find(|known| scheme.eq_ignore_ascii_case(known))?;
    let slashes = if ["file", "localio"].contains(&known) { "/" } else { "//" };
    rest.starts_with(slashes).then_some((known, rest))
}

fn after_slashes(rest: &str) -> &str {
    rest.strip_prefix("//").unwrap_or(rest)
}

/// Whether a name has only letters, digits, hyphens, dots and underscores, which need no encoding in a host or path.
fn is_bucket(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !name.is_empty() && name.chars().all(is_plain) && !name.starts_with('.')
}

/// The URI with `…` in place of its login and of its query.
fn without_secrets(text: &str) -> String {
    let (text, query) = match text.split_once('?') {
        Some((text, _)) => (text, "?…"),
        None => (text, ""),
    };
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let host_len = rest.find('/').unwrap_or(rest.len());
    match (scheme, rest[..host_len].rfind('@')) {
        ("", _) | (_, None) => format!("{text}{query}"),
        (_, Some(at)) => format!("{scheme}://…{}{query}", &rest[at..]),
    }
}

/// Appends bytes to `text`: letters, digits, `-._~` and those of `plain` as they are, others as `%` and two digits.
pub(super) fn percent_encode(bytes: &[u8], plain: &str, text: &mut String) {
    for &byte in bytes {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "-._~".contains(c) || plain.contains(c) {
            text.push(c);
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// Replaces each `%` and two hexadecimal digits by the byte that they name. `None` if the digits are missing.
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digit = |digit: u8| char::from(digit).to_digit(16);
        bytes.push((digit(digits[0])? << 4 | digit(digits[1])?) as u8);
        rest = after;
    }
    Some(bytes)
}

/// The path that these bytes name.
#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let has_end = bytes.contains(&0);
    (!has_end).then(|| std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn path_of(bytes: Vec<u8>) -> Option<PathBuf> {
    let path = String::from_utf8(bytes).ok()?;
    // `file:///C:/a` names `C:/a`.
    let has_drive = path.get(2..3) == Some(":");
    Some(if has_drive { PathBuf::from(&path[1..]) } else { PathBuf::from(path) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let http = |url: &str| Address::Http(Url { text: url.into(), login: None });
        let login = |url: &str, login: &str| {
            Address::Http(Url { text: url.into(), login: Some(login.into()) })
        };
        let s3 = |key: &str| Address::S3 { bucket: "b".into(), key: key.into() };
        for (text, address) in [
            ("memio://a/b", Address::Memory("a/b".into())),
            ("http://h/a", http("http://h/a")),
            ("HTTP://h/a", http("http://h/a")),
            ("https://u:p@h:1/a?q=1#f", login("https://h:1/a?q=1", "u:p")),
            ("http://u:p%40s%2Fs@h/a@b", login("http://h/a@b", "u:p@s/s")),
            ("http://u:p@s@h?@", login("http://h?@", "u:p@s")),
            ("http://u@h", login("http://h", "u")),
            ("http://h/ä%20#b", http("http://h/%C3%A4%20")),
            ("http://h#f", http("http://h")),
            ("http://@h/", http("http://h/")),
            ("memio://a b%20", Address::Memory("a b%20".into())),
            ("remoteio://h:80/a", http("http://h:80/a")),
            ("s3://b/k/l%20m", s3("k/l%20m")),
            ("s3://b/brand=Brand%2321/my part.pz", s3("brand=Brand%2321/my part.pz")),
            ("s3://b//k?versions#1%zz\n", s3("/k?versions#1%zz\n")),
            #[cfg(unix)]
            ("file:///a%2Fb", Address::File("/a/b".into())),
            #[cfg(unix)]
            ("file:/a", Address::File("/a".into())),
            #[cfg(unix)]
            ("localio:///a", Address::File("/a".into())),
            #[cfg(unix)]
            ("file://localhost/a", Address::File("/a".into())),
        ] {
            assert_eq!(Uri::parse(text).unwrap().address, address, "{text}");
        }
    }

    #[test]
    fn what_is_no_uri() {
        for text in ["a", "a://b", "http:/a", "memio:a", "C:\\a", "", ":", "://"] {
            assert!(!Uri::is_uri(text), "{text}");
        }
        for text in [
            "http://",
            "http:///a",
            "https://:80/",
            "http://h/a b",
            "http://h/a\n",
            "s3://b",
            "s3://b/",
            "s3:///k",
            "s3://../k",
            "http://u:%4@h/",
            "http://u@:80/",
            "file:///a?b",
            "file:///a#b",
            "file://host/a",
            "file:///a%2",
            "file:///a%00",
        ] {
            let error = Uri::parse(text).unwrap_err();
            assert_eq!(error.kind(), SourceErrorKind::InvalidUri, "{text}");
            assert!(!error.to_string().contains(char::is_control), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        for (text, shown) in [
            ("http://h/a", "http://h/a"),
            ("http://h/a?sig=1", "http://h/a?…"),
            ("http://user:pass@h/a@b", "http://…@h/a@b"),
            ("https://user:p@ss@h", "https://…@h"),
            ("file:///a", "file:///a"),
            ("s3://b/a?b@c\n", "s3://b/a?b@c\\n"),
        ] {
            assert_eq!(Uri::parse(text).unwrap().to_string(), shown);
        }
    }
}
