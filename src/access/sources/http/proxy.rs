//! Finds proxies in the environment variables that other tools read: `http_proxy`, `https_proxy`, `all_proxy` and
//! `no_proxy`.
//!
//! A request through a proxy names the whole URL for `http://` (RFC 9112, section 3.2.2), and uses `CONNECT` only for
//! `https://`, because many proxies permit `CONNECT` only to port 443. ureq always uses `CONNECT`. So [`ToProxies`]
//! connects to the proxy instead, and puts the whole URL into the first line of each request.

use std::{env, io};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ureq::http::Uri;
use ureq::http::uri::Scheme;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport,
};
use ureq::{Agent, Error, Proxy, ProxyProtocol};

use crate::access::sources::uri::Url;

/// The proxy for a URL, if there is one.
///
/// # Errors
/// A message that explains why the named proxy cannot be used.
pub(super) fn of(url: &Url) -> Result<Option<Proxy>, String> {
    let is_secure = url.text.starts_with("https:");
    let names = match is_secure {
        true => ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        false => ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
    };
    // In programs that a web server starts, HTTP_PROXY holds a client's header.
    let is_safe = |name: &str| name != "HTTP_PROXY" || env::var_os("REQUEST_METHOD").is_none();
    let value = |name| Some((name, env::var(name).ok().filter(|value| !value.is_empty())?));
    let named = names.into_iter().filter(|name| is_safe(name)).find_map(value);
    let Some((name, proxy)) = named.filter(|_| !is_loopback(url.host())) else { return Ok(None) };
    let proxy =
        Proxy::new(&proxy).map_err(|_| format!("the environment's {name} names no proxy"))?;
    let is_http = matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https);
    // Only a proxy that ureq itself reads from the environment respects no_proxy.
    let is_exempt = |own: Proxy| url.text.parse::<Uri>().is_ok_and(|uri| own.is_no_proxy(&uri));
    match Proxy::try_from_env().is_some_and(is_exempt) {
        true => Ok(None),
        false if is_http => Ok(Some(proxy)),
        false => Err(format!("the environment's {name} names a proxy that is not of HTTP")),
    }
}

/// Whether a host is this machine. Proxies cannot reach it.
fn is_loopback(host: &str) -> bool {
    host.starts_with("127.")
        || host.starts_with("[::1]")
        || host.split(':').next().is_some_and(|name| name.eq_ignore_ascii_case("localhost"))
}

/// The value of an authorization header with a user's name and password.
pub(super) fn basic(login: &[u8]) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(login))
}

/// Connects to servers, and for `http://` URLs to their proxies.
#[derive(Debug, Default)]
pub(super) struct ToProxies(DefaultConnector);

impl Connector for ToProxies {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        let plain = details.config.proxy().filter(|_| details.uri.scheme() == Some(&Scheme::HTTP));
        let (Some(proxy), Some(authority)) = (plain, details.uri.authority()) else {
            return self.0.connect(details, chained);
        };
        let tls = details.config.tls_config().clone();
        let config = Agent::config_builder().tls_config(tls).proxy(None).build();
        let uri = proxy.uri();
        let to_proxy = ConnectionDetails {
            uri,
            addrs: details.resolver.resolve(uri, &config, details.timeout)?,
            config: &config,
            request_level: details.request_level,
            resolver: details.resolver,
            now: details.now,
            timeout: details.timeout,
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
        };
        let Some(transport) = self.0.connect(&to_proxy, None)? else { return Ok(None) };
        let login = proxy.username().map(|user| {
            let login = format!("{user}:{}", proxy.password().unwrap_or_default());
            format!("Proxy-Authorization: {}\r\n", basic(login.as_bytes()))
        });
        let origin = format!("http://{authority}");
        Ok(Some(Box::new(Whole { transport, origin, login: login.unwrap_or_default() })))
    }
}

/// A connection to a proxy, for requests to one server. It gets whole URLs.
#[derive(Debug)]
struct Whole {
    transport: Box<dyn Transport>,
    /// What comes before the path.
    origin: String,
    /// A line for the proxy; empty if it wants none.
    login: String,
}

impl Transport for Whole {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let output = self.transport.buffers().output();
        let whole = with_origin(output, amount, &self.origin, &self.login);
        let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "the request is too long");
        self.transport.transmit_output(whole.ok_or_else(too_long)?, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.transport.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.transport.is_open()
    }
}

/// Puts `origin` before the path of the request whose head is the first `amount` bytes of `output`, and `login` after
/// its first line. Returns the new length; `None` if there is no room. ureq writes the head of a request in one piece,
/// and a request for a file has no body.
fn with_origin(output: &mut [u8], amount: usize, origin: &str, login: &str) -> Option<usize> {
    let insert = |output: &mut [u8], amount: usize, at: usize, text: &str| {
        let end = amount + text.len();
        output.get(..end)?;
        output.copy_within(at..amount, at + text.len());
        output[at..at + text.len()].copy_from_slice(text.as_bytes());
        Some(end)
    };
    let path = output[..amount].iter().position(|byte| *byte == b' ')? + 1;
    let line = output[..amount].windows(2).position(|end| end == b"\r\n")? + 2;
    let amount = insert(output, amount, line, login)?;
    insert(output, amount, path, origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_a_proxy_have_the_whole_url() {
        let head = "GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n";
        for (login, room, expected) in [
            ("", 50, Some("GET http://h/a?b HTTP/1.1\r\nHost: h\r\n\r\n")),
            ("P: x\r\n", 50, Some("GET http://h/a?b HTTP/1.1\r\nP: x\r\nHost: h\r\n\r\n")),
            ("", head.len() + 7, None),
        ] {
            let mut output = vec![b'?'; room];
            output[..head.len()].copy_from_slice(head.as_bytes());
            let len = with_origin(&mut output, head.len(), "http://h", login);
            assert_eq!(len.map(|len| str::from_utf8(&output[..len]).unwrap()), expected);
        }
    }
}
