//! Sources on servers of the test, which answer correctly or badly.

use std::io::{Cursor, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::sample;
use crate::http_server::{Answer, Request, Server};
use crate::{open_at, read_at};
use pz::access::{
    Archive, ArchiveOptions, Part, SourceError, SourceErrorKind, SourceOptions, SourceReader,
};
use pz::{DecodeOptions, Options, SeekableReader};

/// Waits briefly for servers that do not answer.
fn impatient() -> SourceOptions {
    SourceOptions::new().time_limit(Duration::from_secs(3)).retries(2)
}

/// Opens what `server` serves, and reads bytes 5,000 to 25,000.
fn read(server: &Server, options: &SourceOptions) -> Result<Vec<u8>, SourceError> {
    read_at(&*open_at(&server.url("a.pz"), options)?, 5000, 20_000)
}

/// Reading a range transfers only the blocks that hold it, and the structures that locate them.
#[test]
fn a_range_takes_three_requests_and_few_bytes() {
    let contents = sample(6_000_000, 1);
    for (block, range) in
        [(1 << 18, 1_000_000..2_500_000), (1 << 20, 3_000_000..3_000_100), (1 << 16, 0..900_000)]
    {
        let options = Options::new().block_size(block);
        let packed = pz::compress(&contents, &options).unwrap();
        let frame = pz::list(&mut Cursor::new(&packed), true).unwrap().remove(0);
        let touched: u64 = frame
            .blocks
            .iter()
            .filter(|block| {
                let end = block.content_offset + block.content_size;
                block.content_offset < range.end && end > range.start
            })
            .map(|block| block.compressed_size)
            .sum();
        let last = frame.blocks.last().unwrap();
        let index = packed.len() as u64 - last.offset - last.compressed_size;
        let server = Server::of(packed);
        let source = open_at(&server.url("a.pz"), &SourceOptions::new()).unwrap();
        let reader = SourceReader::new(Arc::clone(&source));
        let mut reader = SeekableReader::new(reader, &DecodeOptions::new()).unwrap();
        let mut part = Vec::new();
        reader.copy_range(range.clone(), &mut part).unwrap();
        assert!(part == contents[range.start as usize..range.end as usize]);
        let (requests, bytes) = (server.requests().len() as u64, server.body_bytes());
        assert_eq!((source.traffic().requests, source.traffic().bytes), (requests, bytes));
        assert!(requests <= 3, "{:?}", server.requests());
        // The first 4 KiB hold the header, and the last 4 KiB all of the end except the index.
        let most = touched * 11 / 10 + index + (8 << 10);
        assert!(bytes <= most, "{bytes} bytes for {touched} of blocks and {index} of index");
    }
}

/// The index of 2,000 blocks does not fit in the first read of the end.
#[test]
fn long_indices_are_fetched_once() {
    let contents = vec![7; 2000 << 16];
    let packed = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let len = packed.len() as u64;
    let server = Server::of(packed);
    let source = open_at(&server.url("a.pz"), &SourceOptions::new()).unwrap();
    let mut reader = SeekableReader::new(SourceReader::new(source), &DecodeOptions::new()).unwrap();
    let mut part = Vec::new();
    reader.copy_range(1000 << 16..1001 << 16, &mut part).unwrap();
    assert_eq!(part, vec![7; 1 << 16]);
    assert!(server.requests().len() <= 4, "{:?}", server.requests());
    assert!(server.body_bytes() < 8000 + (12 << 10), "{} of {len}", server.body_bytes());
}

/// Reading a whole file asks for ever longer parts.
#[test]
fn whole_files_take_few_requests() {
    let contents = sample(20_000_000, 2);
    let packed = pz::compress(&contents, &Options::new()).unwrap();
    let len = packed.len();
    let server = Server::of(packed);
    let source = open_at(&server.url("a.pz"), &SourceOptions::new()).unwrap();
    let mut restored = Vec::new();
    let mut decoder = pz::Decoder::new(SourceReader::new(source), &DecodeOptions::new()).unwrap();
    decoder.read_to_end(&mut restored).unwrap();
    assert!(restored == contents);
    assert!(server.requests().len() <= 4 + (len >> 23), "{:?}", server.requests());
    assert_eq!(server.body_bytes(), len as u64);
    // With little memory, more requests are needed.
    let source = open_at(&server.url("a.pz"), &SourceOptions::new()).unwrap();
    let before = server.requests().len();
    let mut reader = SourceReader::new(source);
    assert_eq!(reader.limit_step(100_000), 100_000);
    assert_eq!(reader.read_to_end(&mut Vec::new()).unwrap(), len);
    let requests = &server.requests()[before..];
    assert!(requests.iter().all(|asked| asked.range.is_some_and(|(from, to)| to - from < 100_000)));
}

#[test]
fn near_parts_share_a_request_and_far_parts_load_in_parallel() {
    let file = sample(3_000_000, 3);
    let server = Server::of(file.clone());
    let source = open_at(&server.url("a"), &SourceOptions::new()).unwrap();
    let places =
        [(900_000, 50_000), (950_000, 50_000), (100, 50), (2_000_000, 1000), (2_001_100, 70_000)];
    let mut buffers = places.map(|(_, len)| vec![0; len]);
    let mut parts: Vec<_> = places
        .iter()
        .zip(&mut buffers)
        .map(|(&(offset, _), buffer)| Part { offset, buffer })
        .collect();
    source.read_ranges(&mut parts).unwrap();
    for ((offset, len), buffer) in places.into_iter().zip(&buffers) {
        assert!(*buffer == file[offset as usize..][..len]);
    }
    // Opening the source fetched the first bytes.
    let mut ranges: Vec<_> = server.requests()[1..].iter().map(|request| request.range).collect();
    ranges.sort();
    assert_eq!(ranges, [Some((900_000, 999_999)), Some((2_000_000, 2_071_099))]);
}

#[test]
fn requests_outside_of_the_source_are_refused() {
    let server = Server::of(vec![1; 10_000]);
    let source = open_at(&server.url("a"), &impatient()).unwrap();
    for (offset, len) in [(9_999, 2), (10_000, 1), (u64::MAX, 1)] {
        let error = read_at(&*source, offset, len).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::OutOfRange, "{error}");
    }
    assert_eq!(read_at(&*source, 9_999, 1).unwrap(), [1]);
    assert_eq!(read_at(&*source, 10_000, 0).unwrap(), []);
}

/// These servers are difficult, but the right bytes arrive.
#[test]
fn bad_servers_that_can_be_used() {
    type Play = fn(&[u8], &Request) -> Answer;
    let plays: [(&str, Play); 12] = [
        ("fails now and then", |file, request| match request.number % 2 {
            0 => Answer::status(503),
            _ => Answer::part(file, request),
        }),
        ("asks to come back later", |file, request| match request.number {
            1 => Answer::status(429).with("Retry-After", "0"),
            _ => Answer::part(file, request),
        }),
        ("closes each connection after 6,000 bytes", |file, request| Answer {
            cut: Some(6000),
            ..Answer::part(file, request)
        }),
        ("hangs once", |file, request| match request.number {
            1 => Answer { delay: Duration::from_secs(2), ..Answer::part(file, request) },
            _ => Answer::part(file, request),
        }),
        ("stops once in the middle of the answer's head", |file, request| match request.number {
            1 => Answer { raw: Some(b"HTTP/1.1 206 Part".into()), ..Answer::status(206) },
            _ => Answer::part(file, request),
        }),
        ("closes once without an answer", |file, request| match request.number {
            1 => Answer { raw: Some(Vec::new()), ..Answer::status(206) },
            _ => Answer::part(file, request),
        }),
        ("serves no parts", |file, _| Answer::whole(file)),
        ("serves no parts, and breaks off once", |file, request| match request.number {
            1 => Answer { cut: Some(9000), ..Answer::whole(file) },
            _ => Answer::whole(file),
        }),
        ("sends fewer bytes than asked for", |file, request| {
            let (first, last) = request.range.unwrap();
            let range = Some((first, last.min(first + 1999)));
            Answer::part(file, &Request { range, ..request.clone() })
        }),
        ("is one of several with the same file of other dates", |file, request| {
            let date = format!("Mon, 01 Jan 2024 00:00:{:02} GMT", request.number);
            Answer::part(file, request).with("ETag", "\"1\"").with("Last-Modified", date)
        }),
        ("calls its tag weak now and then", |file, request| {
            let tag = if request.number == 1 { "W/\"1\"" } else { "\"1\"" };
            Answer::part(file, request).with("ETag", tag)
        }),
        ("redirects", |file, request| match request.path.as_str() {
            "/a.pz" => Answer::redirect("/b.pz"),
            _ => Answer::part(file, request),
        }),
    ];
    for (name, play) in plays {
        let file = sample(30_000, 4);
        let expected = file[5000..25_000].to_vec();
        let server = Server::start(move |request| play(&file, request));
        match read(&server, &impatient()) {
            Ok(bytes) => assert!(bytes == expected, "a server that {name}"),
            Err(error) => panic!("a server that {name}: {error}"),
        }
    }
}

/// Bytes that arrived before a connection broke are not requested again.
#[test]
fn broken_answers_are_continued() {
    let file = sample(200_000, 5);
    let part = file[5000..195_000].to_vec();
    let server =
        Server::start(move |request| Answer { cut: Some(20_000), ..Answer::part(&file, request) });
    let source = open_at(&server.url("a"), &impatient()).unwrap();
    assert!(read_at(&*source, 5000, 190_000).unwrap() == part);
    assert_eq!(server.requests().len(), 1 + 10);
    assert_eq!(server.body_bytes(), 4096 + 190_000);
}

/// These servers soon lead to an error of one line that names the URI.
#[test]
fn bad_servers_that_cannot_be_used() {
    use SourceErrorKind::{Changed, Denied, NotFound, Protocol, Unavailable, Unsupported};
    type Play = fn(&[u8], &Request) -> Answer;
    let plays: [(&str, SourceErrorKind, Play); 25] = [
        ("has no such file", NotFound, |_, _| Answer::status(404)),
        ("denies access", Denied, |_, _| Answer::status(403)),
        ("always fails", Unavailable, |_, _| Answer::status(500)),
        ("asks to come back in a year", Unavailable, |_, _| {
            Answer::status(503).with("Retry-After", "31536000")
        }),
        ("never answers", Unavailable, |_, _| Answer {
            delay: Duration::from_secs(20),
            ..Answer::status(200)
        }),
        ("closes every connection", Unavailable, |_, _| Answer {
            raw: Some(Vec::new()),
            ..Answer::status(200)
        }),
        ("sends no byte of the part", Unavailable, |file, request| match request.number {
            0 => Answer::part(file, request),
            _ => Answer { cut: Some(0), ..Answer::part(file, request) },
        }),
        ("trickles", Unavailable, |file, request| Answer {
            trickle: Some(Duration::from_millis(100)),
            ..Answer::part(file, request)
        }),
        ("speaks another protocol", Protocol, |_, _| Answer {
            raw: Some(b"220 ready for mail\r\n\r\n".repeat(9)),
            ..Answer::status(200)
        }),
        ("sends endless headers", Protocol, |_, _| {
            Answer::status(206).with("X", "x".repeat(1 << 20))
        }),
        ("redirects in a circle", Protocol, |_, request| match request.path.as_str() {
            "/a.pz" => Answer::redirect("/b.pz"),
            _ => Answer::redirect("/a.pz"),
        }),
        ("redirects to nowhere", Protocol, |_, _| Answer::status(302)),
        ("sends more than asked for", Protocol, |file, request| match request.number {
            0 => Answer::part(file, request),
            _ => {
                let (first, last) = request.range.unwrap();
                Answer::part(file, &Request { range: Some((first, last + 1)), ..request.clone() })
            }
        }),
        ("sends another range", Protocol, |file, request| match request.number {
            0 => Answer::part(file, request),
            _ => Answer::part(file, request).with("Content-Range", "bytes 0-19999/30000"),
        }),
        ("does not say which range", Protocol, |_, _| Answer::status(206)),
        ("sends several ranges", Protocol, |file, request| {
            let mut answer = Answer::part(file, request);
            answer.headers.clear();
            answer.with("Content-Type", "multipart/byteranges; boundary=x")
        }),
        ("announces too many bytes", Protocol, |file, request| {
            Answer::part(file, request).with("Content-Length", "5000000")
        }),
        ("announces too few bytes", Protocol, |file, request| {
            Answer::part(file, request).with("Content-Length", "100")
        }),
        ("sends more bytes than announced", Protocol, |file, request| {
            let answer = Answer::part(file, request).with("Transfer-Encoding", "chunked");
            let body = [b"1100\r\n", &[1; 0x1100][..], b"\r\n0\r\n\r\n"].concat();
            Answer { body, ..answer }
        }),
        ("compresses", Protocol, |file, request| {
            Answer::part(file, request).with("Content-Encoding", "gzip")
        }),
        ("sends the whole file later", Protocol, |file, request| match request.number {
            0 => Answer::part(file, request),
            _ => Answer::whole(file),
        }),
        ("serves no parts of a long file", Unsupported, |_, _| Answer::whole(&[0; 70_000])),
        ("serves a file of another length", Changed, |file, request| match request.number {
            0 => Answer::part(file, request),
            _ => Answer::part(&file[..29_999], request),
        }),
        ("serves another version", Changed, |file, request| {
            Answer::part(file, request).with("ETag", format!("\"{}\"", request.number))
        }),
        ("notices that the version is another", Changed, |file, request| {
            match request.header("if-match") {
                None => Answer::part(file, request).with("ETag", "\"1\""),
                Some("\"1\"") => Answer::status(412),
                Some(other) => panic!("{other}"),
            }
        }),
    ];
    for (name, kind, play) in plays {
        let file = sample(30_000, 6);
        let server = Server::start(move |request| play(&file, request));
        let begun = Instant::now();
        let error = read(&server, &impatient().max_whole(65_536)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), kind, "a server that {name}: {text}");
        assert!(text.starts_with(&format!("{}: ", server.url("a.pz"))), "{text}");
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{name}: {:?}", begun.elapsed());
    }
}

/// Weak tags and dates also tell versions apart, but a server may refuse `If-Match` with a weak tag.
#[test]
fn versions_are_told_apart_by_what_the_server_says() {
    for (header, values, changes) in [
        ("ETag", ["W/\"1\"", "W/\"1\""], false),
        ("ETag", ["W/\"1\"", "W/\"2\""], true),
        (
            "Last-Modified",
            ["Mon, 01 Jan 2024 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:00 GMT"],
            false,
        ),
        ("Last-Modified", ["Mon, 01 Jan 2024 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:01 GMT"], true),
    ] {
        let file = sample(30_000, 7);
        let server = Server::start(move |request| {
            assert_eq!(request.header("if-match"), None);
            Answer::part(&file, request).with(header, values[request.number])
        });
        let read = read(&server, &impatient());
        assert_eq!(
            read.err().map(|error| error.kind()),
            changes.then_some(SourceErrorKind::Changed)
        );
    }
}

/// User and password in a URL are decoded, and sent as the header for them.
#[test]
fn users_and_passwords() {
    for (login, header) in [
        ("u:p%40s%C3%A4@", Some("Basic dTpwQHPDpA==")),
        ("u@", Some("Basic dQ==")),
        ("@", None),
        ("", None),
    ] {
        let server = Server::start(|request| Answer::part(&[1; 10], request));
        let uri = server.url("a").replace("http://", &format!("http://{login}"));
        open_at(&uri, &impatient()).unwrap();
        assert_eq!(server.requests()[0].header("authorization"), header, "{uri}");
    }
}

#[test]
fn no_server_listens() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = open_at(&format!("http://{address}/a"), &impatient()).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    assert!(error.is_retryable() && error.what().contains("tried 3 times"), "{error}");
}

#[test]
fn empty_files() {
    for kind in 0..3 {
        let server = Server::start(move |request| match kind {
            0 => Answer::part(&[], request),
            1 => Answer::whole(&[]),
            _ => Answer::status(416),
        });
        let source = open_at(&server.url("a"), &impatient()).unwrap();
        assert!(source.is_empty());
        assert_eq!(read_at(&*source, 0, 0).unwrap(), []);
    }
}

/// An archive fetches neighbouring blocks with one request, and does not fetch cached blocks again.
#[test]
fn archives_on_servers() {
    let contents = sample(6_000_000, 8);
    let packed = pz::compress(&contents, &Options::new().block_size(1 << 18)).unwrap();
    let len = packed.len() as u64;
    let server = Server::of(packed);
    let archive = Archive::open(&server.url("a.pz"), &ArchiveOptions::new().prefetch(0)).unwrap();
    assert_eq!(server.requests().len(), 2);
    for _ in 0..2 {
        let mut part = vec![0; 1_000_000];
        archive.read_into(2_000_000..3_000_000, &mut part).unwrap();
        assert!(part == contents[2_000_000..3_000_000]);
        assert_eq!(server.requests().len(), 3);
    }
    // Five of 23 blocks, and the first and last 4 KiB.
    assert!(
        server.body_bytes() < len * 5 / 23 * 11 / 10 + 8192,
        "{} of {len}",
        server.body_bytes()
    );
    assert_eq!(archive.statistics().traffic.requests, 3);
    assert_eq!(archive.statistics().contents.hits, 5);
}
