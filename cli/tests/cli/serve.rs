//! `pz serve`

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::remote::Serving;
use crate::support::{Folder, noise, sample, wait_until};

/// A folder `served`, and beside it a file that must not be served.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("served/a", b"0123456789");
    folder.write("served/dir/b c", b"inside");
    folder.write("served/empty", b"");
    folder.write("secret", b"the secret");
    folder
}

/// Sends `text`, and returns all that comes back until the server closes the connection.
fn exchange(serving: &Serving, text: &str) -> String {
    let mut stream = TcpStream::connect(&serving.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Requests a target with further header lines. Returns status, head and body.
fn get(serving: &Serving, target: &str, headers: &str) -> (u16, String, String) {
    let host = &serving.address;
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
    let answer = exchange(serving, &request);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head.to_string(), body.to_string())
}

#[test]
fn files_and_ranges() {
    let folder = folder();
    let serving = Serving::start(&folder, &[]);
    let (status, head, body) = get(&serving, "/a", "");
    assert_eq!((status, body.as_str()), (200, "0123456789"));
    let tag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap();
    for (headers, status, body) in [
        ("Range: bytes=2-4\r\n", 206, "234"),
        ("Range: bytes=-2\r\n", 206, "89"),
        ("Range: bytes=7-\r\n", 206, "789"),
        ("Range: bytes=7-100\r\n", 206, "789"),
        ("Range: bytes=0-1,4-5\r\n", 200, "0123456789"),
        ("If-Match: \"other\"\r\n", 412, "Precondition Failed\n"),
        ("If-Match: \"other\", \"more\"\r\n", 412, "Precondition Failed\n"),
        (&format!("If-Match: {tag}\r\nRange: bytes=0-0\r\n"), 206, "0"),
        (&format!("If-Range: {tag}\r\nRange: bytes=0-0\r\n"), 206, "0"),
        ("If-Range: \"other\"\r\nRange: bytes=0-0\r\n", 200, "0123456789"),
        (&format!("If-None-Match: {tag}\r\n"), 304, ""),
    ] {
        let (found, head, text) = get(&serving, "/a", headers);
        assert_eq!((found, text.as_str()), (status, body), "{headers}: {head}");
    }
    let (status, head, _) = get(&serving, "/a", "Range: bytes=10-\r\n");
    assert!(status == 416 && head.contains("Content-Range: bytes */10"), "{head}");
    assert_eq!(get(&serving, "/dir/b%20c?query", "").2, "inside");
    assert_eq!(get(&serving, "/empty", "").0, 200);
    // Several requests on one connection, the last without a body.
    let host = &serving.address;
    let answers = exchange(
        &serving,
        &format!(
            "GET /a HTTP/1.1\r\nHost: {host}\r\nRange: bytes=0-1\r\n\r\n\
             HEAD /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ),
    );
    assert!(answers.contains("\r\n\r\n01HTTP/1.1 200 OK\r\n"), "{answers}");
    assert!(answers.ends_with("Content-Length: 10\r\nConnection: close\r\n\r\n"), "{answers}");
    // A change gives another tag.
    folder.write("served/a", b"9876543210");
    assert_eq!(get(&serving, "/a", &format!("If-Match: {tag}\r\n")).0, 412);
}

#[test]
fn nothing_outside_of_the_folder_is_served() {
    let folder = folder();
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink("../secret", folder.path("served/link")).unwrap();
        symlink("..", folder.path("served/up")).unwrap();
        symlink("/", folder.path("served/root")).unwrap();
        symlink("a", folder.path("served/inner")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.path("served/pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
    }
    let serving = Serving::start(&folder, &[]);
    let absolute = folder.path("secret");
    for target in [
        "/../secret",
        "/%2e%2e/secret",
        "/%2E./secret",
        "/..%2fsecret",
        "/..%5csecret",
        "/%252e%252e/secret",
        "/dir/../../secret",
        "/dir/%2e%2e/%2e%2e/secret",
        "/./../secret",
        "//secret",
        "/link",
        "/up/secret",
        "/root/etc/passwd",
        "/inner",
        "/pipe",
        "/a/b",
        "/a%00",
        "/a/",
        "/dir",
        "/",
        "/missing",
        &format!("/{}", absolute.display()),
        &format!("/{}", "x/".repeat(3000)),
    ] {
        let (status, head, body) = get(&serving, target, "");
        assert_eq!((status, body.as_str()), (404, "Not Found\n"), "{target}: {head}");
    }
    // A web page whose host name resolves to this machine must not read its files.
    let strange = "GET /a HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n";
    assert!(exchange(&serving, strange).starts_with("HTTP/1.1 421 "));
}

/// A server without free descriptors says so. A 404 would mean that the file is not there, which Zarr reads as zeros.
#[cfg(target_os = "linux")]
#[test]
fn a_server_without_descriptors_is_busy() {
    let folder = folder();
    let serving = Serving::start_with(&folder, &[], |command| {
        use std::os::unix::process::CommandExt;
        let limit = || {
            let few = rustix::process::Rlimit { current: Some(20), maximum: Some(20) };
            Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, few)?)
        };
        // SAFETY: the child only calls the system.
        unsafe { command.pre_exec(limit) };
    });
    // They take all descriptors.
    let mut streams: Vec<_> =
        (0..20).map(|_| TcpStream::connect(&serving.address).unwrap()).collect();
    let ask = |stream: &mut TcpStream| {
        let host = &serving.address;
        stream.write_all(format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    wait_until("the server is out of descriptors", || {
        let answer = ask(&mut streams[0]);
        assert_ne!(answer, "HTTP/1.1 404");
        // The rest of the answer.
        streams[0].set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        while matches!(streams[0].read(&mut [0; 1000]), Ok(1..)) {}
        streams[0].set_read_timeout(None).unwrap();
        answer == "HTTP/1.1 503"
    });
    streams.truncate(1);
    wait_until("there are descriptors again", || get_if_open(&serving) == Some(200));
}

/// The server also serves clients that send more than pz does.
#[test]
fn other_clients_are_served() {
    let folder = folder();
    let serving = Serving::start(&folder, &["-v"]);
    let host = &serving.address;
    for request in [
        format!("GET http://{host}/a HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n"),
        format!("GET /a HTTP/1.1\r\nHost: {host}\r\nCookie: \u{e4}\r\nConnection: close\r\n\r\n"),
    ] {
        let answer = exchange(&serving, &request);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("0123456789"), "{answer}");
    }
    let strange = "GET http://elsewhere/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(exchange(&serving, strange).starts_with("HTTP/1.1 421 "));
    let log = serving.log();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    for line in lines {
        let (time, rest) = line.strip_prefix("pz: ").unwrap_or(line).split_at(20);
        assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{line}");
        assert!(rest.contains(" bytes, 0.") && rest.ends_with(" s"), "{line}");
    }
}

#[test]
fn bad_requests_end_the_connection() {
    let folder = folder();
    let serving = Serving::start(&folder, &[]);
    let host = &serving.address;
    for (request, status) in [
        ("nonsense\r\n\r\n".to_string(), 400),
        ("GET /a HTTP/1.1\r\n\r\n".to_string(), 400),
        (format!("POST /a HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\n\r\nhello"), 413),
        (format!("DELETE /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"), 405),
        (format!("GET /a HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "x".repeat(20_000)), 431),
    ] {
        let answer = exchange(&serving, &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.40}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    assert!(folder.has("served/a"));
}

/// While silent clients hold all connections, others get 503; afterwards they are served again.
#[test]
fn connections_are_bounded() {
    let folder = folder();
    let serving = Serving::start(&folder, &["--connections", "2"]);
    let idle = [0, 1].map(|_| TcpStream::connect(&serving.address).unwrap());
    wait_until("the server is full", || get_if_open(&serving) == Some(503));
    drop(idle);
    wait_until("there is room again", || get_if_open(&serving) == Some(200));
}

/// The status for `/a`, if the server has not cut off its answer.
fn get_if_open(serving: &Serving) -> Option<u16> {
    let mut stream = TcpStream::connect(&serving.address).ok()?;
    let request = format!("GET /a HTTP/1.0\r\nHost: {}\r\n\r\n", serving.address);
    let _ = stream.write_all(request.as_bytes());
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).ok()?;
    str::from_utf8(&answer[9..]).ok()?.parse().ok()
}

#[test]
fn the_program_reads_what_it_serves() {
    let folder = folder();
    let contents = [sample(3_000_000), noise(100_000)].concat();
    folder.write("served/x", &contents);
    folder.pz(&["compress", "-b", "256K", "served/x"]).silent();
    let serving = Serving::start(&folder, &[]);
    for scheme in ["http", "remoteio"] {
        let uri = format!("{scheme}://{}/x.pz", serving.address);
        let range = folder.pz(&["cat", "--range", "1500000..1500010", &uri]).silent();
        assert!(range == contents[1_500_000..1_500_010]);
        assert!(folder.pz(&["cat", &uri]).silent() == contents);
    }
    folder
        .pz(&["list", &format!("http://{}/y.pz", serving.address)])
        .complains(1, &format!("pz: http://{}/y.pz: does not exist (404", serving.address));
}

#[test]
fn folders_and_addresses_that_do_not_work() {
    let folder = folder();
    folder.pz(&["serve", "none"]).says(1, &["pz: none: No such file or directory"]);
    folder.pz(&["serve", "secret"]).complains(1, "pz: secret: Not a directory");
    folder
        .pz(&["serve", "served", "--listen", "nowhere"])
        .complains(1, "pz: invalid value 'nowhere'");
    folder.pz(&["serve", "served", "--connections", "0"]).complains(1, "pz: invalid value '0'");
    let serving = Serving::start(&folder, &[]);
    folder
        .pz(&["serve", "served", "--listen", &serving.address])
        .complains(1, &format!("pz: cannot listen at {}: ", serving.address));
    fs::remove_dir_all(folder.path("served")).unwrap();
    assert_eq!(get(&serving, "/a", "").0, 404);
}
