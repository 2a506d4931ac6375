//! Inputs on a server.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::http_server::{Answer, Server};
use crate::support::{Folder, Ran, sample};

/// The program with a short timeout, and without settings that could redirect its requests.
fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = folder.command(arguments);
    command.env("PZ_TIMEOUT", "3");
    for name in ["ENDPOINT_URL_S3", "SESSION_TOKEN", "DEFAULT_REGION"] {
        command.env_remove(format!("AWS_{name}"));
    }
    command
}

fn pz(folder: &Folder, arguments: &[&str]) -> Ran {
    Ran::from(command(folder, arguments).output().unwrap())
}

/// Contents, and their compressed form in blocks of 256 KiB.
fn packed(folder: &Folder) -> (Vec<u8>, Vec<u8>) {
    let contents = sample(3_000_000);
    let packed = folder.pz_with(&["-b", "256K"], &contents).silent();
    (contents, packed)
}

#[test]
fn commands_read_uris() {
    let folder = Folder::new();
    let (contents, packed) = packed(&folder);
    let server = Server::of(packed.clone());
    let uri = server.url("dir/a%20b.pz?version=1");
    let shown = server.url("dir/a%20b.pz?…");
    assert!(pz(&folder, &["cat", &uri]).silent() == contents);
    assert!(
        pz(&folder, &["cat", "--range", "700000..900000", &uri]).silent()
            == contents[700_000..900_000]
    );
    pz(&folder, &["test", &uri]).silent();
    assert!(pz(&folder, &["cat", "-M", "2M", &uri]).silent() == contents);
    let list = pz(&folder, &["list", &uri]);
    assert!(list.text().contains(&shown), "{}", list.text());
    let json = pz(&folder, &["list", "-v", "--json", &uri]).json();
    assert_eq!(json[0]["frames"][0]["blocks"].as_array().unwrap().len(), 12);
    // The copy goes to the current folder, or where the user says.
    pz(&folder, &["decompress", &uri]).silent();
    assert!(folder.read("a b") == contents);
    pz(&folder, &["decompress", "--output-dir", "out", &uri]).silent();
    assert!(folder.read("out/a b") == contents);
    pz(&folder, &["decompress", &uri]).complains(1, &format!("pz: {shown}: a b: already exists"));
    pz(&folder, &["decompress", "--rm", "-f", &uri])
        .complains(1, &format!("pz: {shown}: --rm needs"));
    pz(&folder, &["decompress", &server.url("")])
        .says(1, &[&format!("pz: {}: has no name for an output; -o names it", server.url(""))]);
    pz(&folder, &["recover", "-c", &uri]);
    // If the server cannot serve parts, the program reads a short file as a whole.
    let server = Server::start(move |_| Answer::whole(&packed));
    assert!(pz(&folder, &["cat", "--range", "..99", &server.url("a")]).silent() == contents[..99]);
}

#[test]
fn formats_of_other_programs_are_read_too() {
    let folder = Folder::new();
    let contents = sample(500_000);
    let packed = zstd::encode_all(&contents[..], 3).unwrap();
    let server = Server::of(packed);
    assert!(pz(&folder, &["cat", &server.url("a.zst")]).silent() == contents);
    let broken = zstd::encode_all(&contents[..], 3).unwrap();
    let server = Server::start(move |request| match request.number {
        0 => Answer::part(&broken, request),
        _ => Answer::status(404),
    });
    let uri = server.url("a.zst");
    pz(&folder, &["test", &uri]).says(1, &[&format!("pz: {uri}: does not exist (404 Not Found)")]);
}

#[test]
fn a_range_needs_few_requests() {
    let folder = Folder::new();
    let (contents, packed) = packed(&folder);
    let len = packed.len() as u64;
    let server = Server::of(packed);
    let arguments = ["cat", "-v", "--range", "1000000..1600000", &server.url("a")];
    let ran = pz(&folder, &arguments);
    assert!(ran.stdout == contents[1_000_000..1_600_000]);
    assert!(ran.stderr.contains("3 requests brought"), "{}", ran.stderr);
    assert_eq!(server.requests().len(), 3);
    // The range touches four of twelve blocks; the header and the index take at most 8 KiB.
    assert!(
        server.body_bytes() < len * 4 / 12 * 11 / 10 + 8192,
        "{} of {len}",
        server.body_bytes()
    );
}

/// One request fetches the headers of many blocks.
#[test]
fn a_list_of_blocks_needs_few_requests() {
    let folder = Folder::new();
    let contents = sample(3_000_000);
    let packed = folder.pz_with(&["-b", "64K"], &contents).silent();
    let server = Server::of(packed.clone());
    for json in [&["list", "-v", "--json"][..], &["list", "-v"]] {
        let before = server.requests().len();
        let ran = pz(&folder, &[json, &[&server.url("a.pz")]].concat());
        folder.write("a.pz", &packed);
        let local = folder.pz(&[json, &["a.pz"]].concat());
        assert_eq!(ran.text().replace(&server.url("a.pz"), "a.pz"), local.text());
        let requests = server.requests().len() - before;
        assert!(requests <= 5, "{requests} requests for the headers of 46 blocks");
    }
}

#[test]
fn failures_are_quick_and_one_line() {
    let folder = Folder::new();
    let (_, packed) = packed(&folder);
    let begun = Instant::now();
    let circle = Server::start(|request| Answer::redirect(request.path.clone()));
    let silent =
        Server::start(|_| Answer { delay: Duration::from_secs(60), ..Answer::status(200) });
    let changing = Server::start(move |request| {
        let version = if request.number < 2 { "\"1\"" } else { "\"2\"" };
        Answer::part(&packed, request).with("ETag", version)
    });
    for (server, code, what) in [
        (&circle, 1, "the server redirected more than 5 times"),
        (&silent, 1, "the server "),
        (&changing, 1, "changed while it was being read"),
    ] {
        let uri = server.url("a.pz");
        pz(&folder, &["cat", &uri]).complains(code, &format!("pz: {uri}: {what}"));
    }
    let ran = pz(&folder, &["test", &circle.url("a?signature=secret")]);
    ran.complains(1, &format!("pz: {}: the server redirected", circle.url("a?…")));
    let garbage = Server::of(sample(9000));
    let uri = garbage.url("a.pz");
    pz(&folder, &["test", &uri]).complains(2, &format!("pz: {uri}: not in pz format"));
    pz(&folder, &["test", "memio://a"])
        .says(1, &["pz: memio://a: nothing is published under this name"]);
    pz(&folder, &["test", "http://a b/"]).complains(1, "pz: http://a b/: a URI has no spaces");
    let mut impatient = command(&folder, &["test", &uri]);
    let ran = Ran::from(impatient.env("PZ_TIMEOUT", "0").output().unwrap());
    ran.complains(1, &format!("pz: {uri}: PZ_TIMEOUT: invalid value '0'"));
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}

#[test]
fn local_uris_are_files() {
    let folder = Folder::new();
    let contents = sample(10_000);
    folder.write("a b", &contents);
    folder.pz(&["compress", "a b"]).silent();
    let uri = format!("file://{}/a%20b.pz", folder.as_path().display());
    assert!(pz(&folder, &["cat", &uri]).silent() == contents);
    pz(&folder, &["decompress", "-f", &uri.replace("file", "localio")]).silent();
    let path = folder.path("a b.pz");
    pz(&folder, &["compress", &uri])
        .complains(1, &format!("pz: {}: is compressed already (pz)", path.display()));
}

/// The program sends a proxy whole URLs for http:// and CONNECT for https://, and names it in errors.
#[test]
fn proxies() {
    let folder = Folder::new();
    let (contents, packed) = packed(&folder);
    let proxy = Server::start(move |request| match request.path.as_str() {
        "http://files.example/a.pz?b" if request.header("host") == Some("files.example") => {
            match request.header("proxy-authorization") {
                Some("Basic bWU6cEBzcw==") => Answer::part(&packed, request),
                _ => Answer::status(407),
            }
        }
        _ => Answer::status(404),
    });
    let run = |uri: &str, name: &str, login: &str| {
        let mut with = command(&folder, &["cat", uri]);
        for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "no_proxy", "NO_PROXY"]
        {
            with.env_remove(name);
        }
        with.env(name, format!("http://{login}{}", proxy.address));
        Ran::from(with.output().unwrap())
    };
    let uri = "http://files.example/a.pz?b";
    for name in ["http_proxy", "all_proxy"] {
        assert!(run(uri, name, "me:p%40ss@").silent() == contents);
    }
    let through = format!("(through the proxy {})", proxy.address);
    let shown = "http://files.example/a.pz?…";
    run(uri, "http_proxy", "").says(
        1,
        &[&format!(
            "pz: {shown}: the server denies access (407 Proxy Authentication Required) {through}"
        )],
    );
    let ran = run("https://files.example/a.pz", "https_proxy", "");
    let said = ran.complains(1, "pz: https://files.example/a.pz: the proxy refused to connect");
    assert!(said.contains(&through), "{said}");
    assert_eq!(proxy.requests().last().unwrap().path, "files.example:443");
    let before = proxy.requests().len();
    // This machine is reached without a proxy.
    let own = Server::of(vec![1; 10]);
    run(&own.url("a"), "http_proxy", "").complains(2, "pz: http://127.0.0.1");
    let mut with = command(&folder, &["cat", uri]);
    with.env("http_proxy", "socks5://127.0.0.1:1").env_remove("no_proxy").env_remove("NO_PROXY");
    Ran::from(with.output().unwrap()).says(
        1,
        &[&format!("pz: {shown}: the environment's http_proxy names a proxy that is not of HTTP")],
    );
    assert_eq!(proxy.requests().len(), before);
}

/// Requests to object stores are signed with the credentials of the environment.
#[test]
fn objects_of_stores() {
    let folder = Folder::new();
    let (contents, packed) = packed(&folder);
    let server = Server::start(move |request| {
        let signature = request.header("authorization").unwrap_or_default();
        let is_signed = signature.starts_with("AWS4-HMAC-SHA256 Credential=me/")
            && signature.contains("/north/s3/aws4_request,SignedHeaders=host;x-amz-")
            && request.header("x-amz-date").is_some();
        match request.path.as_str() {
            "/bucket/moved" => Answer::redirect("/bucket/dir/a%20b.pz"),
            "/bucket/dir/a%20b.pz" if is_signed => Answer::part(&packed, request),
            "/bucket/dir/a%20b.pz" => Answer::status(403),
            _ => Answer::status(404),
        }
    });
    let uri = "s3://bucket/dir/a b.pz";
    let mut with = command(&folder, &["cat", uri]);
    with.env("AWS_ENDPOINT_URL", format!("http://{}", server.address)).env("AWS_REGION", "north");
    with.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    Ran::from(with.output().unwrap())
        .says(1, &[&format!("pz: {uri}: the server denies access (403 Forbidden)")]);
    with.env("AWS_ACCESS_KEY_ID", "me").env("AWS_SECRET_ACCESS_KEY", "secret");
    assert!(Ran::from(with.output().unwrap()).silent() == contents);
    // The program sends no credentials to another server.
    let mut moved = command(&folder, &["cat", "s3://bucket/moved"]);
    moved.env("AWS_ENDPOINT_URL", format!("http://{}", server.address));
    Ran::from(moved.output().unwrap())
        .complains(1, "pz: s3://bucket/moved: the server refused the request (302");
}

/// `pz serve`, until it is dropped.
pub struct Serving {
    child: Child,
    pub address: String,
}

impl Serving {
    /// Serves `folder/served`.
    pub fn start(folder: &Folder, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, |_| {})
    }

    /// The same, after `prepare` has changed the command.
    pub fn start_with(
        folder: &Folder,
        arguments: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        use std::io::{BufRead, BufReader};
        let mut command = folder.command(&["serve", "served", "--listen", "127.0.0.1:0"]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("serving served at http://").unwrap();
        Serving { address: address.trim_end_matches('/').to_string(), child }
    }

    /// Ends the server, and returns what it has printed.
    pub fn log(mut self) -> String {
        use std::io::Read;
        let _ = self.child.kill();
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
