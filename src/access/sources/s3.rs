//! Signs requests for objects of Amazon S3, and of stores that speak its protocol.
//!
//! The signatures follow [AWS Signature Version
//! 4](https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html).

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::{digest, hmac};

use super::uri::{Url, percent_encode};
use super::{SourceError, SourceErrorKind, Uri};
use crate::clock::utc;

/// An object, and the credentials that requests for it are signed with.
pub(super) struct Object {
    url: Url,
    /// The path of the URL, as it goes into the signature.
    path: String,
    region: String,
    /// Without credentials, requests are anonymous.
    credentials: Option<Credentials>,
}

struct Credentials {
    key_id: String,
    secret: String,
    /// For temporary credentials.
    session: Option<String>,
}

/// The SHA-256 of an empty body.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

impl Object {
    /// Object `key` of `bucket`, which `uri` names. Endpoint, region and credentials come from the environment
    /// variables that Amazon's own tools read.
    pub(super) fn from_environment(
        uri: &Uri,
        bucket: &str,
        key: &str,
    ) -> Result<Self, SourceError> {
        let first = |names: &[&str]| {
            names.iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
        };
        let endpoint = first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        let region = first(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
        let credentials = match (first(&["AWS_ACCESS_KEY_ID"]), first(&["AWS_SECRET_ACCESS_KEY"])) {
            (Some(key_id), Some(secret)) => {
                Some(Credentials { key_id, secret, session: first(&["AWS_SESSION_TOKEN"]) })
            }
            _ => None,
        };
        let region = region.unwrap_or_else(|| "us-east-1".into());
        Self::new(bucket, key, endpoint.as_deref(), region, credentials).ok_or_else(|| {
            let what = "the endpoint in AWS_ENDPOINT_URL is no http:// or https:// URL";
            SourceError::new(uri.to_string(), SourceErrorKind::InvalidUri, what)
        })
    }

    /// `None` if the endpoint is no URL.
    fn new(
        bucket: &str,
        key: &str,
        endpoint: Option<&str>,
        region: String,
        credentials: Option<Credentials>,
    ) -> Option<Self> {
        let key = encoded(key);
        let (base, path) = match endpoint {
            Some(endpoint) => {
                let endpoint = endpoint.trim_end_matches('/');
                let (scheme, rest) = endpoint.split_once("://")?;
                let (host, folder) = match rest.split_once('/') {
                    Some((host, folder)) => (host, format!("/{folder}")),
                    None => (rest, String::new()),
                };
                let is_url = ["http", "https"].contains(&scheme) && !host.is_empty();
                let base = is_url.then(|| format!("{scheme}://{host}"))?;
                (base, format!("{folder}/{bucket}/{key}"))
            }
            // Amazon's certificates do not cover hosts with dots in the bucket's name.
            None if bucket.contains('.') => {
                (format!("https://s3.{region}.amazonaws.com"), format!("/{bucket}/{key}"))
            }
            None => (format!("https://{bucket}.s3.{region}.amazonaws.com"), format!("/{key}")),
        };
        let url = Url { text: format!("{base}{path}"), login: None };
        Some(Self { url, path, region, credentials })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The headers that sign a `GET` of the object now; none without credentials.
    pub(super) fn sign(&self) -> Vec<(&'static str, String)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.sign_at(now.as_secs(), &[])
    }

    /// Signs for a time in seconds since 1970. The names of `further` headers sort between those of the others.
    fn sign_at(&self, now: u64, further: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let Some(Credentials { key_id, secret, session }) = &self.credentials else {
            return Vec::new();
        };
        let time = utc(now).replace(['-', ':'], "");
        let date = &time[..8];
        let mut headers = vec![("host", self.url.host())];
        headers.extend(further);
        headers.extend([("x-amz-content-sha256", EMPTY), ("x-amz-date", &time)]);
        headers.extend(session.as_deref().map(|token| ("x-amz-security-token", token)));
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String =
            headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let request = format!("GET\n{}\n\n{lines}\n{names}\n{EMPTY}", self.path);
        let scope = format!("{date}/{}/s3/aws4_request", self.region);
        let digest = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
        let mut key = keyed(format!("AWS4{secret}").as_bytes(), date);
        for part in [self.region.as_str(), "s3", "aws4_request"] {
            key = keyed(key.as_ref(), part);
        }
        let signature = hex(keyed(key.as_ref(), &text).as_ref());
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={key_id}/{scope},SignedHeaders={names},Signature={signature}"
        );
        let mut signed = vec![
            ("Host", self.url.host().into()),
            ("Authorization", authorization),
            ("x-amz-content-sha256", EMPTY.into()),
            ("x-amz-date", time),
        ];
        signed.extend(session.clone().map(|token| ("x-amz-security-token", token)));
        signed
    }
}

fn keyed(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key as a path.
fn encoded(key: &str) -> String {
    let mut path = String::with_capacity(key.len());
    percent_encode(key.as_bytes(), "/", &mut path);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(bucket: &str, key: &str, endpoint: Option<&str>) -> Option<Object> {
        let credentials = Credentials {
            key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session: None,
        };
        Object::new(bucket, key, endpoint, "us-east-1".into(), Some(credentials))
    }

    #[test]
    fn urls() {
        for (bucket, key, endpoint, url) in [
            ("b", "k", None, Some("https://b.s3.us-east-1.amazonaws.com/k")),
            ("b.c", "k l/m", None, Some("https://s3.us-east-1.amazonaws.com/b.c/k%20l/m")),
            ("b", "k", Some("http://127.0.0.1:9000/"), Some("http://127.0.0.1:9000/b/k")),
            ("b", "k", Some("https://h/s3"), Some("https://h/s3/b/k")),
            (
                "b",
                "a b%20?#\n=+/ä",
                None,
                Some("https://b.s3.us-east-1.amazonaws.com/a%20b%2520%3F%23%0A%3D%2B/%C3%A4"),
            ),
            ("b", "k", Some("h:80"), None),
            ("b", "k", Some("ftp://h"), None),
        ] {
            let object = object(bucket, key, endpoint);
            assert_eq!(object.as_ref().map(|object| object.url().text.as_str()), url);
        }
    }

    /// The `Host` header as it is sent and signed: without the path, and without the scheme's default port.
    #[test]
    fn hosts() {
        for (endpoint, host) in [
            (None, "b.s3.us-east-1.amazonaws.com"),
            (Some("http://h:80/s3"), "h"),
            (Some("http://h:443"), "h:443"),
            (Some("https://h:443"), "h"),
            (Some("https://[::1]:9000"), "[::1]:9000"),
        ] {
            let signed = object("b", "k", endpoint).unwrap().sign();
            assert_eq!(signed[0], ("Host", host.to_string()));
        }
    }

    /// Amazon's documentation has this request as an example.
    #[test]
    fn the_documented_example_has_its_signature() {
        let object = object("examplebucket", "test.txt", None).unwrap();
        let url = Url { text: "https://examplebucket.s3.amazonaws.com/".into(), login: None };
        let object = Object { url, ..object };
        let signed = object.sign_at(1_369_353_600, &[("range", "bytes=0-9")]);
        let (_, authorization) = &signed[1];
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert!(authorization.ends_with(signature), "{authorization}");
    }

    #[test]
    fn requests_are_anonymous_without_credentials() {
        let object = Object { credentials: None, ..object("b", "k", None).unwrap() };
        assert!(object.sign().is_empty());
    }
}
